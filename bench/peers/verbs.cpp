// bench-peer-verbs: a program on the C verbs alone, as it would run on any device: sends, and writes whose target polls
// its memory. It is linked with libibverbs, here splitnic's, and includes nothing else of splitnic.
#include <infiniband/verbs.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "bench/peers/harness.h"
#include "bench/peers/verbs_device.h"

namespace splitnic::bench::peers {

namespace {

constexpr std::uint32_t kDepth = 128;
constexpr std::uint64_t kFirstWrites = 200;
constexpr std::size_t kPlaces = 64;
constexpr std::size_t kMemoryBytes = kDepth * Places::kStride;

/// What the operations differ in. reach: of the device, as SPLITNIC_PLACEMENT says.
struct Way {
  const char* operation;
  const char* reach;
  bool writes;
  bool shared;  ///< the target's memory is a file that others may map
  bool helps;   ///< the target polls its device, too: at real-time priority nobody else could make progress
};
constexpr std::array<Way, 4> kWays{{{"send", "shared", false, false, false},
                                    {"write-shared", "shared", true, true, false},
                                    {"write-private", "shared", true, false, true},
                                    {"write-process", "process", true, false, false}}};

/// What one side tells the other.
struct Address {
  std::uint16_t lid;
  std::uint32_t queue_pair;
  std::uint32_t key;
  std::uint64_t memory;
};

/// A device with a connected queue pair. The memory has a part to send from and a part that messages go to.
class End {
 public:
  End(const Way& way, int channel) : way_(way), device_(open(way)) {
    map();
    region_ =
        made(ibv_reg_mr(device_.domain, memory_, 2 * kMemoryBytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE),
             "registering");
    queue_pair_ = device_.queue_pair(sent_, received_, kDepth);
    connect(channel);
    if (way.writes) write_first(channel);
  }

  void begin(const Task& task) {
    task_ = task;
    std::memset(sink(), 0, kMemoryBytes);
    stride_ = (task.bytes + kLineBytes - 1) / kLineBytes * kLineBytes;
    places_ = std::clamp<std::size_t>(kCachedBytes / stride_, 2, kPlaces);
    while (posted_ < receives()) post_receive();
    under_way_ = 0;
  }

  std::size_t send(std::uint64_t first, std::size_t count) {
    if (under_way_ + count > places_) complete();
    count = std::min(count, places_ - std::min(places_, under_way_));
    if (count == 0) return 0;
    for (std::size_t i = 0; i < count; ++i) fill(first + i, requests_[i], parts_[i]);
    for (std::size_t i = 0; i + 1 < count; ++i) requests_[i].next = &requests_[i + 1];
    requests_[count - 1].next = nullptr;
    ibv_send_wr* bad = nullptr;
    check(ibv_post_send(queue_pair_, requests_.data(), &bad), "posting");
    under_way_ += count;
    return count;
  }

  std::size_t receive(std::uint64_t next) { return way_.writes ? look(next) : take(next); }

  void complete() {
    std::array<ibv_wc, 32> ended;
    const int count = ibv_poll_cq(sent_, static_cast<int>(ended.size()), ended.data());
    for (int i = 0; i < count; ++i) expect(ended[static_cast<std::size_t>(i)]);
    under_way_ -= static_cast<std::size_t>(std::max(count, 0));
  }
  [[nodiscard]] bool at_rest() {
    if (under_way_ != 0 || way_.helps) complete();
    return under_way_ == 0;
  }

 private:
  static VerbsDevice open(const Way& way) {
    setenv("SPLITNIC_PLACEMENT", way.reach, 1);
    return {};
  }

  void map() {
    const int file = way_.shared ? memfd_create("bench-peer-verbs", MFD_CLOEXEC) : -1;
    if (way_.shared) check(ftruncate(file, 2 * kMemoryBytes) == 0 ? 0 : errno, "memory");
    void* at = mmap(nullptr, 2 * kMemoryBytes, PROT_READ | PROT_WRITE,
                    (way_.shared ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS) | MAP_POPULATE, file, 0);
    if (at == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "memory");
    memory_ = static_cast<std::byte*>(at);
  }

  void connect(int channel) {
    Address own{device_.lid, queue_pair_->qp_num, region_->rkey, reinterpret_cast<std::uintptr_t>(sink())};
    const auto bytes = exchange(channel, &own, sizeof own);
    if (bytes.size() != sizeof peer_) throw std::runtime_error("the other process sent something else");
    std::memcpy(&peer_, bytes.data(), sizeof peer_);
    constexpr std::uint8_t kTimeout = 14;  // 67 ms
    peers::connect(queue_pair_, peer_.lid, peer_.queue_pair, kTimeout);
  }

  /// A library may prepare the peer's memory in a thread of its own when it is named first. At real-time priority that
  /// thread would have to wait for a processor.
  void write_first(int channel) {
    task_.bytes = kLineBytes;
    for (std::uint64_t message = 0; message != kFirstWrites; ++message) {
      while (send(message, 1) == 0) continue;
      while (!at_rest()) continue;
    }
    const char done = 0;
    static_cast<void>(exchange(channel, &done, sizeof done));  // the peer has written, too
  }

  std::byte* sink() { return memory_ + kMemoryBytes; }
  /// How many are posted: the peer has no more messages under way than it has places, and is told early of the end of
  /// as many others.
  [[nodiscard]] std::size_t receives() const { return 2 * places_; }
  std::byte* source(std::uint64_t message) { return memory_ + place(message); }
  /// Of a message, at both ends; one that was written stays until so many others have come.
  [[nodiscard]] std::uint64_t place(std::uint64_t message) const { return message % places_ * stride_; }

  /// A written message ends with its number, too: the target waits for the last bytes.
  void fill(std::uint64_t message, ibv_send_wr& request, ibv_sge& part) {
    const std::uint64_t stamp = message + 1;
    std::byte* from = source(message);
    std::memcpy(from, &stamp, sizeof stamp);
    std::memcpy(from + task_.bytes - sizeof stamp, &stamp, sizeof stamp);
    part = {reinterpret_cast<std::uintptr_t>(from), task_.bytes, region_->lkey};
    request = {};
    request.wr_id = message;
    request.sg_list = &part;
    request.num_sge = 1;
    request.send_flags = IBV_SEND_SIGNALED;
    request.opcode = way_.writes ? IBV_WR_RDMA_WRITE : IBV_WR_SEND;
    request.wr.rdma = {peer_.memory + place(message), peer_.key};
  }

  static void expect(const ibv_wc& ended) {
    if (ended.status != IBV_WC_SUCCESS) throw std::runtime_error(ibv_wc_status_str(ended.status));
  }

  /// A write's target sees the bytes alone. Of what its initiator has not waited for, it may miss some.
  std::size_t look(std::uint64_t next) {
    const std::byte* at = sink() + place(next);
    const auto* last = reinterpret_cast<const std::uint64_t*>(at + task_.bytes - sizeof(std::uint64_t));
    if (__atomic_load_n(last, __ATOMIC_ACQUIRE) != next + 1) return 0;
    std::uint64_t stamp = 0;
    std::memcpy(&stamp, at, sizeof stamp);
    if (stamp != next + 1) throw std::runtime_error("another message came");
    return 1;
  }

  std::size_t take(std::uint64_t next) {
    std::array<ibv_wc, 32> arrived;
    const int count = ibv_poll_cq(received_, static_cast<int>(arrived.size()), arrived.data());
    for (int i = 0; i < count; ++i) {
      const ibv_wc& one = arrived[static_cast<std::size_t>(i)];
      expect(one);
      std::uint64_t stamp = 0;
      std::memcpy(&stamp, sink() + one.wr_id, sizeof stamp);
      if (stamp != next + static_cast<std::uint64_t>(i) + 1 || one.byte_len != task_.bytes) {
        throw std::runtime_error("another message came");
      }
      receive_places_.give_back(one.wr_id);
      --posted_;
    }
    while (posted_ < receives()) post_receive();
    return static_cast<std::size_t>(std::max(count, 0));
  }

  void post_receive() {
    const std::size_t offset = receive_places_.take();
    ibv_sge into{reinterpret_cast<std::uintptr_t>(sink() + offset), kMaxBytes, region_->lkey};
    ibv_recv_wr receive{offset, nullptr, &into, 1};
    ibv_recv_wr* bad = nullptr;
    check(ibv_post_recv(queue_pair_, &receive, &bad), "posting a receive");
    ++posted_;
  }

  const Way& way_;
  Task task_;
  VerbsDevice device_;
  ibv_cq* sent_ = device_.completion_queue(kDepth);
  ibv_cq* received_ = device_.completion_queue(kDepth);
  ibv_qp* queue_pair_ = nullptr;
  ibv_mr* region_ = nullptr;
  std::byte* memory_ = nullptr;
  Address peer_{};
  std::array<ibv_send_wr, 32> requests_{};
  std::array<ibv_sge, 32> parts_{};
  std::size_t places_ = kPlaces;
  std::size_t stride_ = kLineBytes;
  std::size_t under_way_ = 0;
  std::uint32_t posted_ = 0;  // receives
  Places receive_places_{kDepth};
};

/// All ways, each with a device of its own.
class Verbs final : public Side {
 public:
  explicit Verbs(int channel) {
    for (const Way& way : kWays) ends_.push_back(std::make_unique<End>(way, channel));
  }

  void begin(const Task& task) override {
    end_ = ends_[task.operation].get();
    end_->begin(task);
  }
  std::size_t send(std::uint64_t first, std::size_t count) override { return end_->send(first, count); }
  std::size_t receive(std::uint64_t next) override { return end_->receive(next); }
  bool flush() override { return end_->at_rest(); }
  /// A program on the verbs polls for what it waits for, and nothing else.
  void progress() override { static_cast<void>(end_->at_rest()); }

 private:
  std::vector<std::unique_ptr<End>> ends_;
  End* end_ = nullptr;
};

}  // namespace

}  // namespace splitnic::bench::peers

int main(int argc, char** argv) {
  using namespace splitnic::bench::peers;
  std::vector<std::string> operations;
  for (const Way& way : kWays) operations.emplace_back(way.operation);
  return run(argc, argv, {"bench-peer-verbs", operations, [](Role, int channel) -> std::unique_ptr<Side> {
                            return std::make_unique<Verbs>(channel);
                          }});
}
