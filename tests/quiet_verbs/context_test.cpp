// Posts, polls and receives of the C++ verbs: two contexts, which one thread owns.
#include <array>
#include <catch2/catch.hpp>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "common/random.h"
#include "exchange.h"
#include "fabric/bridge/shm_bridge.h"
#include "fabric/verbs/verbs.h"
#include "kinds.h"
#include "mapped_memory.h"

namespace splitnic::quiet_verbs {
namespace {

using namespace verbs;

template <class T>
T made(Expected<T> result) {
  REQUIRE(result.has_value());
  return std::move(*result);
}

constexpr Rights kRights =
    Right::local_read | Right::local_write | Right::remote_read | Right::remote_write | Right::remote_atomic;
constexpr std::size_t kBoundBytes = std::size_t{1} << 20U;

struct End {
  End(std::unique_ptr<fabric::Bridge> bridge, RandomSource& random, Service service) : memory(2 * kMemoryBytes) {
    ContextOptions options;
    options.random = &random;
    context = made(Context::open(options));
    path = made(context.add_path(std::move(bridge)));
    domain = made(context.allocate_domain());
    completions = made(context.create_completion_queue(1024));
    region = made(domain.register_memory(memory, kRights));
    QueuePairOptions shape;
    shape.send_completions = shape.receive_completions = &completions;
    shape.max_inline_bytes = kInlineBytes;
    shape.datagram = service == Service::datagrams;
    shape.acknowledged = !shape.datagram;
    if (service == Service::shared_receives) {
      shared_receives = made(domain.create_shared_receive_queue(kMostInList));
      shape.shared_receives = &shared_receives;
    }
    queue_pair = made(domain.create_queue_pair(shape));
  }

  std::vector<std::byte> memory;
  Context context;
  Path path;
  ProtectionDomain domain;
  CompletionQueue completions;
  MemoryRegion region;
  SharedReceiveQueue shared_receives;
  QueuePair queue_pair;
};

class Ends {
 public:
  explicit Ends(Service service) : service_(service) {
    auto bridges = fabric::shm_pair();
    REQUIRE(bridges.has_value());
    sender = std::make_unique<End>(std::move(bridges->first), random_, service);
    receiver = std::make_unique<End>(std::move(bridges->second), random_, service);
    while (!sender->path.up() || !receiver->path.up()) {
      sender->context.poll(monotonic_now());
      receiver->context.poll(monotonic_now());
    }
    direct_ = made(receiver->domain.register_bridge_memory(receiver->path, 0, kMemoryBytes, kRights));
    if (service == Service::datagrams) {
      handle_ = made(sender->domain.create_address_handle(sender->path));
      for (End* end : {sender.get(), receiver.get()}) REQUIRE(end->queue_pair.start() == Status::ok);
    } else {
      REQUIRE(sender->queue_pair.connect(sender->path, receiver->queue_pair.address()) == Status::ok);
      REQUIRE(receiver->queue_pair.connect(receiver->path, sender->queue_pair.address()) == Status::ok);
    }
  }

  [[nodiscard]] Places places() const {
    Places all{
        sender->region.segment(0, kMemoryBytes), receiver->region.remote_key().at(0), direct_.remote_key().at(0), {}};
    if (service_ == Service::datagrams) {
      all.other = send_datagram(0, {}, handle_, receiver->queue_pair.address().queue_pair, 0).datagram;
    }
    return all;
  }

 private:
  Service service_;
  SeededRandom random_{1};

 public:
  std::unique_ptr<End> sender;
  std::unique_ptr<End> receiver;

 private:
  MemoryRegion direct_;
  AddressHandle handle_;
};

class ContextExchange final : public Exchange {
 public:
  ContextExchange(Ends& ends, const Requests& requests, Service service, bool in_a_list)
      : Exchange(requests.size(), receives_of(requests)),
        ends_(ends),
        requests_(requests),
        receives_(receives_of(requests), receive(0, ends.receiver->region.segment(kMemoryBytes, kReceiveBytes))),
        service_(service),
        in_a_list_(in_a_list) {}

 private:
  bool post() override {
    End& receiver = *ends_.receiver;
    std::size_t posted = 0;
    const Status status = service_ == Service::shared_receives
                              ? receiver.shared_receives.post_receive(receives_, posted)
                              : receiver.queue_pair.post_receive(receives_, posted);
    if (status != Status::ok) return false;
    QueuePair& from = ends_.sender->queue_pair;
    if (in_a_list_) return from.post_send(requests_, posted) == Status::ok;
    return std::ranges::all_of(requests_, [&](const WorkRequest& one) { return from.post_send(one) == Status::ok; });
  }
  bool poll() override { return take(*ends_.sender) && take(*ends_.receiver); }
  bool take(End& end) {
    end.context.poll(monotonic_now());
    std::array<Completion, 16> ended;
    const std::size_t count = end.completions.poll(ended);
    for (const Completion& one : std::span(ended).first(count)) {
      if (one.status != CompletionStatus::success) return false;
      count_completion(one.receive);
    }
    return true;
  }

  Ends& ends_;
  Requests requests_;
  std::vector<ReceiveRequest> receives_;
  Service service_;
  bool in_a_list_;
};

/// A window that is bound to another part of its region in each round.
class BindExchange final : public Exchange {
 public:
  BindExchange(Ends& ends, std::span<std::byte> memory)
      : Exchange(1, 0),
        ends_(ends),
        region_(made(ends.sender->domain.register_memory(memory, kRights | Right::window_binding))),
        window_(made(ends.sender->domain.allocate_window(WindowType::type_1))) {}

 private:
  bool post() override {
    Binding to;
    to.offset = ++offset_ % kBoundBytes;
    to.bytes = kBoundBytes - to.offset;
    to.rights = Right::remote_read | Right::remote_write;
    return ends_.sender->queue_pair.post_bind(window_, region_, to) == Status::ok;
  }
  bool poll() override {
    ends_.sender->context.poll(monotonic_now());
    std::array<Completion, 1> ended;
    if (ends_.sender->completions.poll(ended) == 0) return true;
    if (ended[0].status != CompletionStatus::success) return false;
    count_completion(false);
    return true;
  }

  Ends& ends_;
  MemoryRegion region_;
  MemoryWindow window_;
  std::size_t offset_ = 0;
};

}  // namespace

TEST_CASE("the C++ verbs allocate nothing, take no lock and enter no kernel", "[quiet]") {
  for (const Kind& kind : kKinds) {
    Ends ends(kind.service);
    ContextExchange exchange(ends, kind.requests(ends.places()), kind.service, kind.in_a_list);
    check_quiet(kind.name, exchange);
    CHECK((ends.sender->context.counters().direct_writes > 1000) == (kind.requests == direct_writes));
  }
}

TEST_CASE("binding a window does neither, whether its memory or the queue pair is older", "[quiet]") {
  const fabric::MappedMemory before(kBoundBytes);
  Ends ends(Service::connected);
  const fabric::MappedMemory after(kBoundBytes);
  for (const auto& [what, memory] : {std::pair("binds of older memory", &before), {"binds of newer memory", &after}}) {
    BindExchange exchange(ends, {memory->data(), memory->size()});
    check_quiet(what, exchange);
  }
}

}  // namespace splitnic::quiet_verbs
