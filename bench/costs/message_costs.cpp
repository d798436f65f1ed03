// The cost of one message, both ends in one thread: what callgrind counts between the beginning and the end of
// measured(). The counts are the same in every run, so that tests/bench/test_message_costs.py can compare them with
// budgets. No clock, no other thread, no sleep.
#include <array>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/costs/named_task.h"
#include "common/check.h"
#include "common/random.h"
#include "fabric/bridge/shm_bridge.h"
#include "fabric/verbs/verbs.h"

namespace splitnic::bench {
namespace {

using verbs::Right;

constexpr std::size_t kDepth = 128;
constexpr std::size_t kBytes = std::size_t{1} << 17U;
constexpr verbs::Rights kRights = Right::local_read | Right::local_write | Right::remote_read | Right::remote_write;

template <class T>
T made(verbs::Expected<T> result) {
  SPLITNIC_CHECK(result.has_value());
  return std::move(*result);
}

/// What callers measure: how many messages, in lists of how many, of which kind.
struct Task {
  std::string_view name;
  verbs::Operation operation;
  std::uint32_t bytes;
  std::size_t list;
  bool direct = false;
  bool idle = false;        ///< no messages: polls of both ends that find nothing
  bool datagram = false;    ///< unreliable datagrams, instead of a reliable connection
  std::size_t waiting = 0;  ///< other queue pairs of the sender, which wait for a time to come
  bool standing = false;    ///< the receive of writes with immediate stays posted
  bool alone = false;       ///< each message of a list is posted by a call of its own
  bool answered = false;    ///< each message answers the one before; nobody waits for the completion of a send
};
using verbs::Operation;
constexpr std::array kTasks{
    Task{"send_64_lists", Operation::send, 64, 32},
    Task{"send_64", Operation::send, 64, 1},
    Task{"send_64_beside_1000", Operation::send, 64, 1, false, false, false, 1000},
    Task{"datagram_64_lists", Operation::send, 64, 32, false, false, true},
    Task{"datagram_64", Operation::send, 64, 1, false, false, true},
    Task{"send_1500", Operation::send, 1500, 8},
    Task{"send_64k", Operation::send, 65536, 1},
    Task{"immediate_64_lists", Operation::rdma_write_with_immediate, 64, 32, true},
    Task{"standing_64_lists", Operation::rdma_write_with_immediate, 64, 32, true, false, false, 0, true},
    Task{.name = "immediate_1500",
         .operation = Operation::rdma_write_with_immediate,
         .bytes = 1500,
         .list = 32,
         .direct = true,
         .alone = true},
    Task{"write_64_direct", Operation::rdma_write, 64, 1, true},
    Task{"read_8", Operation::rdma_read, 8, 1},
    Task{.name = "ping_pong_64", .operation = Operation::send, .bytes = 64, .list = 1, .answered = true},
    Task{.name = "datagram_ping_pong_64",
         .operation = Operation::send,
         .bytes = 64,
         .list = 1,
         .datagram = true,
         .answered = true},
    Task{"idle_poll", Operation::send, 8, 32, false, true},
};

struct End {
  End(std::unique_ptr<fabric::Bridge> bridge, SeededRandom& random, const Task& task) : memory(kBytes) {
    verbs::ContextOptions options;
    options.random = &random;
    options.adapter.max_queue_pairs = 1 + task.waiting;
    context = made(verbs::Context::open(options));
    path = made(context.add_path(std::move(bridge)));
    domain = made(context.allocate_domain());
    sent = made(context.create_completion_queue(kDepth + task.waiting));
    received = made(context.create_completion_queue(kDepth));
    region = made(domain.register_memory(memory, kRights));
    shape.send_completions = &sent;
    shape.receive_completions = &received;
    shape.send_depth = shape.receive_depth = kDepth;
    shape.datagram = task.datagram;
    shape.acknowledged = !task.datagram;
    if (task.standing) shape.standing_receive = 0;
    queue_pair = made(domain.create_queue_pair(shape));
  }
  /// One more queue pair, whose only request is a delay that does not end.
  void add_waiting(const verbs::QueuePairAddress& peer) {
    shape.send_depth = shape.receive_depth = 1;
    waiting.push_back(made(domain.create_queue_pair(shape)));
    SPLITNIC_CHECK(waiting.back().connect(path, peer) == verbs::Status::ok);
    SPLITNIC_CHECK(waiting.back().post_send(verbs::delay(0, std::chrono::seconds(1))) == verbs::Status::ok);
  }

  std::vector<std::byte> memory;
  verbs::Context context;
  verbs::Path path;
  verbs::ProtectionDomain domain;
  verbs::CompletionQueue sent;
  verbs::CompletionQueue received;
  verbs::MemoryRegion region;
  verbs::MemoryRegion placeable;
  verbs::QueuePairOptions shape;
  verbs::QueuePair queue_pair;
  std::vector<verbs::QueuePair> waiting;
};

/// Two connected ends, and the lists that one posts.
class Pair {
 public:
  explicit Pair(const Task& task) : task_(task) {
    auto bridges = fabric::shm_pair();
    SPLITNIC_CHECK(bridges.has_value());
    client_.emplace(std::move(bridges->first), random_, task);
    server_.emplace(std::move(bridges->second), random_, task);
    while (!client_->path.up() || !server_->path.up()) poll();
    bind();
    for (std::size_t i = 0; i < task.waiting; ++i) client_->add_waiting(server_->queue_pair.address());
    server_->placeable =
        made(server_->domain.register_bridge_memory(server_->path, 0, kBytes, kRights, verbs::BridgeAccess::direct));
    const verbs::RemoteKey key = task.direct ? server_->placeable.remote_key() : server_->region.remote_key();
    const std::uint32_t takes = task.bytes + (task.datagram ? fabric::kRouteHeaderBytes : 0);
    for (std::size_t i = 0; i < task.list; ++i) {
      const verbs::LocalSegment from = client_->region.segment(i * task.bytes % (kBytes / 2), task.bytes);
      const verbs::LocalSegment into = server_->region.segment(i * takes % (kBytes / 2), takes);
      requests_.push_back(request(i, from, key.at(0)));
      receives_.push_back(verbs::receive(i, task.operation == Operation::send ? into : verbs::LocalSegment{}));
    }
    if (!task.answered) return;
    answers_.push_back(send(0, server_->region.segment(kBytes / 2, task.bytes), to_client_, *client_));
    answer_receives_.push_back(verbs::receive(0, client_->region.segment(kBytes / 2, takes)));
    post(*client_, answer_receives_);
  }

  /// One list, until both ends have taken its completions, and receives for the next.
  void exchange() {
    if (task_.idle) return poll_in_vain();
    if (task_.answered) return converse();
    const std::size_t at_once = task_.alone ? 1 : task_.list;
    for (std::size_t first = 0; first != task_.list; first += at_once) {
      std::size_t posted = 0;
      const auto next = std::span(requests_).subspan(first, at_once);
      SPLITNIC_CHECK(client_->queue_pair.post_send(next, posted) == verbs::Status::ok);
    }
    std::size_t done = 0;
    std::size_t arrived = reports_arrival() ? 0 : task_.list;
    while (done < task_.list || arrived < task_.list) {
      poll();
      arrived += take(server_->received);
      done += take(client_->sent);
    }
    if (takes_receives()) post_receives();
  }
  /// As a busy end does that waits for a message: several times in a microsecond.
  void poll_in_vain() {
    for (std::size_t i = 0; i < task_.list; ++i) {
      now_ += std::chrono::nanoseconds(200);
      static_cast<void>(client_->context.poll(now_));
      SPLITNIC_CHECK(take(client_->received) == 0);
    }
  }
  void post_receives() { post(*server_, receives_); }

 private:
  /// A message and its answer, each by an end that polls for it.
  void converse() {
    send(*client_, requests_, *server_, receives_);
    send(*server_, answers_, *client_, answer_receives_);
  }
  void send(End& from, std::span<const verbs::WorkRequest> what, End& to, std::span<const verbs::ReceiveRequest> next) {
    std::size_t posted = 0;
    SPLITNIC_CHECK(from.queue_pair.post_send(what, posted) == verbs::Status::ok);
    do {
      poll(to, std::chrono::nanoseconds(100));
      static_cast<void>(take(to.sent));
    } while (take(to.received) == 0);
    post(to, next);
  }
  static void post(End& end, std::span<const verbs::ReceiveRequest> receives) {
    std::size_t posted = 0;
    SPLITNIC_CHECK(end.queue_pair.post_receive(receives, posted) == verbs::Status::ok);
  }
  void bind() {
    if (task_.datagram) {
      to_server_ = made(client_->domain.create_address_handle(client_->path));
      to_client_ = made(server_->domain.create_address_handle(server_->path));
      SPLITNIC_CHECK(client_->queue_pair.start() == verbs::Status::ok);
      SPLITNIC_CHECK(server_->queue_pair.start() == verbs::Status::ok);
      return;
    }
    SPLITNIC_CHECK(client_->queue_pair.connect(client_->path, server_->queue_pair.address()) == verbs::Status::ok);
    SPLITNIC_CHECK(server_->queue_pair.connect(server_->path, client_->queue_pair.address()) == verbs::Status::ok);
  }
  [[nodiscard]] bool reports_arrival() const {
    return task_.operation != Operation::rdma_read && task_.operation != Operation::rdma_write;
  }
  [[nodiscard]] bool takes_receives() const { return reports_arrival() && !task_.standing; }
  [[nodiscard]] verbs::WorkRequest request(std::size_t id, verbs::LocalSegment from, verbs::RemoteAddress to) const {
    switch (task_.operation) {
      case Operation::rdma_read:
        return verbs::rdma_read(id, {from}, to);
      case Operation::rdma_write_with_immediate:
        return verbs::rdma_write_with_immediate(id, {from}, to, 1);
      case Operation::rdma_write:
        return verbs::rdma_write(id, {from}, to);
      default:
        return send(id, from, to_server_, *server_);
    }
  }
  [[nodiscard]] verbs::WorkRequest send(std::size_t id, verbs::LocalSegment from, const verbs::AddressHandle& path,
                                        const End& to) const {
    if (task_.datagram) return verbs::send_datagram(id, {from}, path, to.queue_pair.address().queue_pair, 0);
    return verbs::send(id, {from});
  }
  /// Each poll of both ends is a microsecond after the one before.
  void poll() {
    poll(*client_, std::chrono::microseconds(1));
    poll(*server_, {});
  }
  void poll(End& end, Duration after) {
    now_ += after;
    static_cast<void>(end.context.poll(now_));
  }
  std::size_t take(verbs::CompletionQueue& from) {
    const std::size_t count = from.poll(completions_);
    for (std::size_t i = 0; i < count; ++i) {
      SPLITNIC_CHECK(completions_[i].status == verbs::CompletionStatus::success);
    }
    return count;
  }

  Task task_;
  SeededRandom random_{1};
  Time now_{};
  std::optional<End> client_;
  std::optional<End> server_;
  verbs::AddressHandle to_server_;  // of datagrams
  verbs::AddressHandle to_client_;
  std::vector<verbs::WorkRequest> requests_;
  std::vector<verbs::ReceiveRequest> receives_;
  std::vector<verbs::WorkRequest> answers_;  // of the server, where messages are answered
  std::vector<verbs::ReceiveRequest> answer_receives_;
  std::array<verbs::Completion, 32> completions_;
};

}  // namespace

/// Callgrind counts what happens in here (--toggle-collect=measured).
extern "C" [[gnu::noinline]] void measured(Pair& pair, std::size_t lists) {
  for (std::size_t i = 0; i < lists; ++i) pair.exchange();
}

}  // namespace splitnic::bench

int main(int count, char** arguments) {
  using namespace splitnic::bench;
  return run_named_tasks(kTasks, count, arguments, [](const Task& task) -> std::size_t {
    static std::list<Pair> pairs;
    Pair& pair = pairs.emplace_back(task);
    pair.post_receives();
    pair.exchange();
    const std::size_t per_exchange = task.answered ? 2 : task.list;
    const std::size_t exchanges = messages_to_measure() / per_exchange;
    measured(pair, exchanges);
    return exchanges * per_exchange;
  });
}
