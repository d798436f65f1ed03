#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/mac_address.h"
#include "common/random.h"
#include "common/time.h"
#include "fabric/bridge/link.h"
#include "messaging/channel.h"
#include "messaging/wire/cfgutil.h"
#include "messaging/wire/encode.h"

namespace splitnic::test {

namespace wire = messaging::wire;

struct ValidEndOptions {
  wire::Role role = wire::Role::host;
  std::string name = "peer";
  MacAddress mac{};  ///< host: what it requests; I/O unit: what it assigns
  std::uint64_t features = 0;
  wire::Mode mode = wire::Mode::rdma;
  std::uint32_t elements = 8;  ///< of the pool that it advertises
  fabric::LinkOptions link{};
};

/// An end of a bridge that a test speaks through, without a Session. Link, epochs, cells, adapter and channels are
/// always valid. take_next_step() also brings up a session as an honest peer does; what else is said is up to the
/// caller, who may say anything. Thread: the owner.
class ValidEnd final : private messaging::ChannelSink {
 public:
  /// What the peer has said in this epoch, for answers that fit, or nearly fit.
  struct Heard {
    std::optional<wire::HelloRequest> hello{};  ///< in the role of the unit
    std::optional<wire::HelloReply> granted{};  ///< in the role of the host
    std::uint64_t asked = 0;                    ///< transaction of the last request
    std::uint32_t asked_code = 0;
    std::uint64_t flush = 0;   ///< transaction of the last flush request
    std::uint64_t answer = 0;  ///< transaction of the last reply
    std::vector<wire::PoolAdvertisement> pools{};
    std::optional<wire::Indication> indication{};  ///< the last one
  };

  /// bridge and random must outlive this object. Announces an epoch at once.
  ValidEnd(const ValidEndOptions& options, fabric::Bridge& bridge, RandomSource& random);
  ~ValidEnd() override;
  ValidEnd(const ValidEnd&) = delete;
  ValidEnd& operator=(const ValidEnd&) = delete;

  /// Lets link, adapter and channels work. Each new epoch has an adapter and a connected control channel of its own.
  void poll(Time now);
  /// Announces a new epoch, as a program that was started again.
  void restart();
  /// The control channel is connected.
  [[nodiscard]] bool connected() const { return control_ != nullptr && link_.up(); }
  /// A channel has failed: the peer has ended it.
  [[nodiscard]] bool failed() const { return failed_; }
  [[nodiscard]] std::uint64_t incarnation() const { return incarnation_; }
  [[nodiscard]] fabric::FabricLink& link() { return link_; }
  [[nodiscard]] const Heard& heard() const { return heard_; }
  /// Replies of the peer, in all epochs.
  [[nodiscard]] std::uint64_t answers() const { return answers_; }

  /// Says hello, with a data channel of its own. False: no buffer is free.
  bool greet();
  /// Does what an honest peer does next: hello, the data channel, a pool, "ready", answers. Call it after each poll().
  void take_next_step();
  /// The peer has said that it is ready.
  [[nodiscard]] bool ready() const { return ready_; }
  /// Takes back whatever the caller has said before: the next epoch is honest again.
  void start_over();

  /// Sends what encode(span) writes on the control channel; false: no buffer is free.
  template <class Encode>
  bool say(Encode&& encode) {
    if (!connected()) return false;
    const auto buffer = channel().claim();
    return !buffer.empty() && channel().commit(encode(buffer));
  }
  /// The same with bytes as they are.
  bool say_bytes(std::span<const std::byte> bytes);
  bool request(const wire::RequestBody& body);
  /// Answers the peer's last request.
  bool reply(const wire::ReplyBody& body);
  /// Null until the hello has been sent or answered.
  [[nodiscard]] messaging::Channel* data() { return data_.get(); }
  [[nodiscard]] bool data_connected() const { return data_ != nullptr && data_connected_; }
  /// The queue pair of the peer's data channel; 0: none is known.
  [[nodiscard]] std::uint32_t peer_data_number() const;
  /// Memory that the peer may write, registered in this epoch. Null: the adapter has no room. The pool's number counts
  /// from 0 on.
  [[nodiscard]] std::optional<wire::PoolAdvertisement> make_pool(std::uint32_t elements, std::uint32_t element_bytes);
  /// Everything that the peer could write to, in this epoch and the ones before.
  [[nodiscard]] const std::deque<std::vector<std::byte>>& pools() const { return pools_; }
  /// Copies the frame into the next element of the peer's first pool, and indicates it. False: there is none, or no
  /// room.
  bool send_frame(std::span<const std::byte> frame);
  /// The element after the last one that send_frame() used.
  [[nodiscard]] std::uint32_t next_element() const { return next_element_; }
  [[nodiscard]] fabric::Bridge& bridge() { return link_.bridge(); }

 private:
  void on_message(std::span<const std::byte> message) override;
  void on_immediate(std::uint32_t immediate) override;
  void on_channel_failure(fabric::CompletionStatus) override { failed_ = true; }

  void open_epoch();
  void close_epoch();
  [[nodiscard]] messaging::Channel& channel() { return unacknowledged_ ? *unacknowledged_ : *control_; }
  bool open_data();
  [[nodiscard]] wire::ChannelTerms terms() const;
  [[nodiscard]] bool connect_data(const wire::ChannelTerms& theirs);
  void open_unacknowledged();
  void answer();
  void hear(const wire::CfgUtilRequest& request);
  void hear(const wire::CfgUtilReply& reply);
  void hear(const wire::Indication& indication);

  ValidEndOptions options_;
  RandomSource& random_;
  fabric::FabricLink link_;
  std::uint64_t incarnation_ = 0;
  std::unique_ptr<fabric::ChannelAdapter> adapter_;
  fabric::ProtectionDomain domain_{};
  std::unique_ptr<messaging::Channel> control_;
  std::unique_ptr<messaging::Channel> unacknowledged_;  // mode S, once the hello was answered
  std::unique_ptr<messaging::Channel> data_;
  std::deque<std::vector<std::byte>> pools_;
  Heard heard_;
  std::deque<wire::ElementRun> consumed_;  // elements of this end's pools, to return
  std::uint64_t answers_ = 0;
  std::uint64_t transaction_ = 0;
  std::uint64_t hello_transaction_ = 0;
  std::uint64_t ready_transaction_ = 0;
  std::uint32_t next_pool_ = 0;
  std::uint32_t next_element_ = 0;
  std::uint32_t free_elements_ = 0;  // of the peer's first pool
  bool data_connected_ = false;
  bool advertised_ = false;
  bool ready_ = false;
  bool failed_ = false;
  bool unanswered_ = false;  // heard_.asked
  bool unflushed_ = false;   // heard_.flush
};

}  // namespace splitnic::test
