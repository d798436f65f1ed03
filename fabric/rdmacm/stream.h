#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <array>
#include <bit>
#include <deque>
#include <map>
#include <memory>
#include <optional>

#include "fabric/rdmacm/rsocket.h"
#include "fabric/rdmacm/stream_flow.h"
#include "fabric/rdmacm/stream_record.h"

namespace splitnic::rdmacm {

/// A write has at most so many bytes, so that the other end places one while this end copies the next.
inline constexpr std::size_t kMaxWriteBytes = 128 << 10;

/// The rights of memory that the other end writes.
inline constexpr int kWrittenByPeer =
    static_cast<int>(IBV_ACCESS_LOCAL_WRITE) | static_cast<int>(IBV_ACCESS_REMOTE_WRITE);

/// An address of this process, as the verbs name it.
[[nodiscard]] inline std::uint64_t number_of(const void* address) { return std::bit_cast<std::uintptr_t>(address); }

/// As ibv_reg_mr(), which is a macro that mixes types of enumerations.
[[nodiscard]] inline ibv_mr* register_memory(ibv_pd* pd, void* from, std::size_t bytes, int access) {
  return ibv_reg_mr_iova2(pd, from, bytes, number_of(from), static_cast<unsigned>(access));
}

/// A stream socket: a queue pair of its own for each connection (RC). The sender writes the stream into a ring of the
/// receiver (RDMA write with immediate data), as far as the receiver has given credits; control messages are Sends.
/// Bytes that a program has sent are always posted, so they arrive while the program is busy with something else.
class Stream final : public Rsocket {
 public:
  Stream(int of_family, os::UniqueFd set) : Rsocket(of_family, SOCK_STREAM, std::move(set)) {}
  ~Stream() override;

  [[nodiscard]] int bind(const Address& address) override;
  [[nodiscard]] int listen(int backlog) override;
  [[nodiscard]] int connect(const Address& to) override;
  [[nodiscard]] int connected() override;
  [[nodiscard]] Outcome<std::shared_ptr<Rsocket>> accept() override;
  [[nodiscard]] Outcome<std::size_t> send(Transfer& what) override;
  [[nodiscard]] Outcome<std::size_t> receive(Transfer& what) override;
  [[nodiscard]] int shut_down(int how) override;
  void progress() override;
  void wake() override;
  void arm() override;
  [[nodiscard]] short ready(short wanted) const override;
  void close() override;
  [[nodiscard]] std::optional<Address> own_address() const override;
  [[nodiscard]] std::optional<Address> peer_address() const override;
  [[nodiscard]] bool listens() const override { return phase_ == Phase::listening; }
  [[nodiscard]] int segment_bytes() const override;

  /// Of a listener: takes those who call, as far as its backlog permits. ListenerService's thread calls this when there
  /// are any. false: some stay, because there are no descriptors, or no memory, for them; try again after a while.
  [[nodiscard]] bool serve_callers();

  // Buffers that the other end writes directly, see rsocket(7). The other end learns of them before it
  // gets anything else.
  /// remote: the other end may write it; otherwise it is for this end's riowrite() only.
  [[nodiscard]] Outcome<std::uint64_t> map_buffer(void* buffer, std::size_t bytes, bool remote,
                                                  std::optional<std::uint64_t> offset);
  [[nodiscard]] int unmap_buffer(const void* buffer, std::size_t bytes);
  /// Writes into a buffer of the other end. EAGAIN: not now. Less than all, if there is no room for more.
  /// continues: as in Transfer.
  [[nodiscard]] Outcome<std::size_t> write_at(std::span<const std::byte> from, std::uint64_t offset, bool continues);

 private:
  enum class Phase : std::uint8_t {
    idle,
    bound,
    listening,
    connecting,
    accepting,  ///< the reply is sent, and the other end has not said that it is ready
    open,
    ended,  ///< the connection is over, or was never made
  };
  /// A request of connection management that is not answered yet.
  struct Caller {
    rdma_cm_id* id = nullptr;
    StreamSetUp set_up{};
  };
  /// A request in the send queue.
  struct Posted {
    std::size_t ring_bytes = 0;  ///< of the send ring: its room is free when the request is complete
    bool data = false;
  };
  struct OwnMap {
    ibv_mr* region = nullptr;
    std::size_t bytes = 0;
    std::uint64_t offset = 0;
    bool remote = false;
  };
  struct PeerMap {
    std::uint64_t address = 0;
    std::uint64_t bytes = 0;
    std::uint32_t key = 0;
  };
  struct Regions {
    std::unique_ptr<std::byte[]> ring;   ///< of what arrives
    std::unique_ptr<std::byte[]> sends;  ///< what is posted and not complete
    std::unique_ptr<StreamControlBytes[]> controls;
    ibv_mr* ring_region = nullptr;
    ibv_mr* sends_region = nullptr;
    ibv_mr* controls_region = nullptr;
    std::size_t send_bytes = 0;
    std::uint32_t receives = 0;
    std::uint32_t io_maps = 0;  ///< that the other end may have here
  };

  // Connection management.
  [[nodiscard]] int create_identifier();
  [[nodiscard]] int create_channel();
  /// Whether there were any.
  bool take_manager_events();
  /// The next one; false: there is none.
  bool take_next_event();
  void take_manager_event(const rdma_cm_event& event);
  void take_caller(const rdma_cm_event& event);
  void forget_caller(const rdma_cm_id* id);
  void take_reply(const rdma_cm_event& event);
  [[nodiscard]] int request();
  /// Of a listener: whether anything has become of a caller.
  bool take_callers();
  /// Whether it is done with; no: there is none, or a shortage.
  [[nodiscard]] bool answer_oldest_caller(int numbers);
  [[nodiscard]] bool has_room_for_callers() const { return callers_.size() + waiting_.size() < backlog_; }
  void watch_for_callers();
  /// Makes this the caller's connection. 0 or an errno; then the caller is still the one that calls `listener`.
  [[nodiscard]] int answer(const Caller& caller, const Stream& listener);
  [[nodiscard]] rdma_conn_param parameters(const StreamSetUpBytes& set_up) const;
  void fail(int error_number);
  [[nodiscard]] bool drained() const;
  /// The connection is over. error_number: what the program gets beside the end; 0: nothing.
  void end(int error_number);

  // Of the queue pair. int: 0 or an errno.
  [[nodiscard]] int create_queue_pair();
  [[nodiscard]] int create_regions();
  [[nodiscard]] StreamSetUp own_set_up() const;
  void use_peer(const StreamSetUp& set_up);
  [[nodiscard]] int post_receive(std::uint32_t index);
  void destroy_queue_pair();

  // Transfers.
  [[nodiscard]] bool poll_completions();
  /// What came in before the peer left.
  void take_the_rest();
  [[nodiscard]] bool poll(ibv_cq* queue);
  void take_completion(const ibv_wc& completion);
  void take_failure(const ibv_wc& completion);
  void take_control(std::uint32_t index, std::uint32_t bytes);
  [[nodiscard]] bool keep_map(const StreamControl& control);
  void send_due();
  void send_credits_if_due();
  /// The send queue and the send ring take another request.
  [[nodiscard]] bool may_post() const { return posted_.size() < send_depth_ && !free_sends().empty(); }
  [[nodiscard]] bool send_control(StreamControl control);
  [[nodiscard]] bool post(ibv_send_wr& request, Posted what);
  [[nodiscard]] std::size_t send_room() const;
  /// Where the next bytes of the send ring are, which are free.
  [[nodiscard]] std::span<std::byte> free_sends() const;
  /// Posts the first bytes of free_sends() as one write.
  [[nodiscard]] bool post_bytes(std::size_t bytes, ibv_send_wr& request);
  [[nodiscard]] int refusal_of_send(bool continues);
  /// The pending error, for the call that ends with it.
  [[nodiscard]] int answered_error(bool continues) { return continues ? pending_error_ : take_error(); }

  Phase phase_ = Phase::idle;
  rdma_event_channel* channel_ = nullptr;
  rdma_cm_id* id_ = nullptr;
  std::size_t backlog_ = 0;
  std::deque<Caller> callers_;
  std::deque<std::shared_ptr<Rsocket>> waiting_;  // connections that accept() has not returned
  bool served_ = false;                           // ListenerService knows the channel
  bool watched_ = false;                          // and its thread will call, or is about to
  int shortage_ = 0;                              // why callers stay where they are; 0: they do not
  bool retried_ = false;                          // ListenerService's thread tries again until there is none

  ibv_comp_channel* completions_ = nullptr;
  ibv_cq* receives_ = nullptr;
  ibv_cq* sends_ = nullptr;
  Regions regions_;
  std::size_t send_depth_ = 0;
  std::size_t inline_bytes_ = 0;
  unsigned idle_looks_ = 0;

  StreamSetUp peer_{};
  SendCredits credits_;
  ReceiveRing ring_;
  std::deque<Posted> posted_;
  std::uint64_t sends_from_ = 0;  // of the send ring: the oldest byte that is in use
  std::uint64_t sends_to_ = 0;    // and the place behind the newest one

  bool sends_shut_ = false;
  bool end_sent_ = false;
  bool receives_shut_ = false;
  bool peer_ended_ = false;  // nothing more comes
  bool data_lost_ = false;

  std::deque<StreamControl> untold_maps_;
  std::map<const void*, OwnMap> own_maps_;
  std::map<std::uint64_t, PeerMap> peer_maps_;  // by offset
};

}  // namespace splitnic::rdmacm
