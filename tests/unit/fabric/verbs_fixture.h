#pragma once

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "common/random.h"
#include "common/time.h"
#include "fabric/verbs/verbs.h"
#include "tests/sim_bridge/sim_bridge.h"

namespace splitnic::verbs::test {

using std::chrono::microseconds;
using std::chrono::milliseconds;

inline constexpr Rights kEverything = Right::local_read | Right::local_write | Right::remote_read |
                                      Right::remote_write | Right::remote_atomic | Right::window_binding;
inline constexpr Rights kLocal = Right::local_read | Right::local_write;

template <class T>
T made(Expected<T> result) {
  REQUIRE(result.has_value());
  return std::move(*result);
}
template <class T>
Status refusal(const Expected<T>& result) {
  return result ? Status::ok : result.error();
}

inline std::vector<std::byte> pattern(std::size_t bytes, std::uint64_t seed) {
  SeededRandom random(seed);
  std::vector<std::byte> result(bytes);
  for (auto& byte : result) byte = static_cast<std::byte>(random.next());
  return result;
}

/// A simulated bridge without misfortunes, as two ends that contexts can take over.
class Bridges {
 public:
  Bridges() : pair_(calm(), random_) {}

  std::shared_ptr<fabric::Bridge> end(std::size_t index) { return {std::shared_ptr<void>{}, &pair_.end(index)}; }
  fabric::SimBridgePair& sim() { return pair_; }
  SeededRandom& random() { return random_; }

 private:
  static fabric::SimBridgeOptions calm() {
    fabric::SimBridgeOptions options;
    options.write_delay_max = options.scratchpad_delay_max = options.doorbell_delay_max = Duration::zero();
    options.torn_permille = options.doorbell_lost_permille = options.doorbell_spurious_permille = 0;
    return options;
  }
  SeededRandom random_{1};
  fabric::SimBridgePair pair_;
};

/// What a program has: a context with a path, a domain, a completion queue, a region, a queue pair.
struct End {
  static constexpr std::size_t kBytes = 64U << 10U;

  End(Bridges& bridges, std::size_t index, QueuePairOptions shape, DomainRules rules, std::size_t tags = 32)
      : memory(kBytes) {
    ContextOptions options;
    options.random = &bridges.random();
    options.adapter.max_regions = tags;
    options.adapter.max_completion_queues = 8;
    options.adapter.max_queue_pairs = 8;
    context = made(Context::open(options));
    path = made(context.add_path(bridges.end(index)));
    domain = made(context.allocate_domain(rules));
    completions = made(context.create_completion_queue(256));
    region = made(domain.register_memory(memory, kEverything));
    queue_pair = another(shape);
  }

  QueuePair another(QueuePairOptions shape) {
    shape.send_completions = shape.receive_completions = &completions;
    return made(domain.create_queue_pair(shape));
  }
  std::vector<Completion> take() {
    std::vector<Completion> all(256);
    all.resize(completions.poll(all));
    return all;
  }
  std::vector<AsyncEvent> events() {
    std::vector<AsyncEvent> all(64);
    all.resize(context.poll_events(all));
    return all;
  }
  void fill(std::size_t offset, std::span<const std::byte> bytes) {
    std::ranges::copy(bytes, memory.begin() + static_cast<std::ptrdiff_t>(offset));
  }
  [[nodiscard]] bool holds(std::size_t offset, std::span<const std::byte> bytes) const {
    return std::ranges::equal(std::span(memory).subspan(offset, bytes.size()), bytes);
  }
  std::uint64_t& word(std::size_t offset) { return *reinterpret_cast<std::uint64_t*>(memory.data() + offset); }

  Context context;
  Path path;
  ProtectionDomain domain;
  CompletionQueue completions;
  std::vector<std::byte> memory;
  MemoryRegion region;
  QueuePair queue_pair;
};

inline QueuePairOptions plain() {
  QueuePairOptions options;
  options.memory_requests = true;
  options.max_inline_bytes = 64;
  return options;
}

/// Two ends, connected.
class Pair {
 public:
  explicit Pair(const QueuePairOptions& shape = plain(), DomainRules rules = DomainRules::verbs, std::size_t tags = 32)
      : a(bridges, 0, shape, rules, tags), b(bridges, 1, shape, rules, tags) {
    come_up();
    connect(a.queue_pair, b.queue_pair);
  }

  static void connect(QueuePair& one, QueuePair& other) {
    const QueuePairAddress its = other.address();
    REQUIRE(one.connect(its) == Status::ok);
    REQUIRE(other.connect(one.address()) == Status::ok);
  }
  void step(Duration by = microseconds(10)) {
    now += by;
    bridges.sim().advance(now);
    a.context.poll(now);
    b.context.poll(now);
  }
  void run(int steps = 200) {
    for (int i = 0; i < steps; ++i) step();
  }
  void come_up() {
    for (int i = 0; i < 10'000 && !(a.path.up() && b.path.up()); ++i) step(milliseconds(1));
    REQUIRE((a.path.up() && b.path.up()));
  }
  /// Runs, then expects that end's only completion.
  Completion one(End& end) {
    run();
    const auto all = end.take();
    REQUIRE(all.size() == 1);
    return all[0];
  }

  /// How a's request ends. If it failed, the connection is new afterwards.
  CompletionStatus outcome(const WorkRequest& request) {
    REQUIRE(a.queue_pair.post_send(request) == Status::ok);
    return first_outcome();
  }
  CompletionStatus first_outcome() {
    run();
    const auto all = a.take();
    REQUIRE_FALSE(all.empty());
    mend();
    return all[0].status;
  }
  CompletionStatus write(const RemoteAddress& to, std::size_t bytes = 8) {
    return outcome(rdma_write(1, {a.region.segment(0, bytes)}, to));
  }
  CompletionStatus read(const RemoteAddress& from, std::size_t bytes = 8) {
    return outcome(rdma_read(1, {a.region.segment(0, bytes)}, from));
  }
  void mend() {
    using enum QueuePairState;
    if (a.queue_pair.state() == ready_to_send && b.queue_pair.state() == ready_to_send) return;
    REQUIRE(a.queue_pair.modify(reset) == Status::ok);
    REQUIRE(b.queue_pair.modify(reset) == Status::ok);
    connect(a.queue_pair, b.queue_pair);
    for (End* end : {&a, &b}) {
      end->take();
      end->events();
    }
  }
  /// A restart of the bridge: a new epoch on both ends.
  void next_epoch() {
    bridges.sim().cut();
    run(20);
    bridges.sim().restore();
    for (int i = 0; i < 10 || !(a.path.up() && b.path.up()); ++i) {
      REQUIRE(i < 10'000);
      step(milliseconds(1));
    }
  }

  Bridges bridges;
  Time now{};
  End a;
  End b;
};

/// Binds and waits for it.
inline Stag bound(Pair& pair, End& end, MemoryWindow& window, const Binding& binding) {
  REQUIRE(end.queue_pair.post_bind(window, end.region, binding) == Status::ok);
  const Completion done = pair.one(end);
  REQUIRE(done.status == CompletionStatus::success);
  REQUIRE(done.operation == Operation::bind_window);
  REQUIRE(done.tag == window.tag());
  return done.tag;
}

}  // namespace splitnic::verbs::test
