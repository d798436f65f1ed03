#pragma once

#include <poll.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "common/random.h"
#include "common/time.h"
#include "fabric/bridge/link.h"
#include "fabric/bridge/shm_bridge.h"
#include "fabric/threads/shared_adapter.h"

#include <catch2/catch.hpp>

namespace splitnic::fabric::test {

using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

inline constexpr Rights kThreadRights =
    Right::local_read | Right::local_write | Right::remote_read | Right::remote_write | Right::remote_atomic;

inline bool is_readable(int descriptor) {
  pollfd one{descriptor, POLLIN, 0};
  return ::poll(&one, 1, 0) == 1;
}

/// Waits for a condition that others bring about; false after ten seconds.
template <class Condition>
bool eventually(Condition&& condition) {
  const Time limit = monotonic_now() + seconds(10);
  while (!condition()) {
    if (monotonic_now() > limit) return false;
    std::this_thread::yield();
  }
  return true;
}

/// One end of a bridge with everything that its link uses.
struct OwnedLink {
  OwnedLink(std::unique_ptr<Bridge> on, std::uint64_t seed)
      : bridge(std::move(on)), random(seed), link(*bridge, {}, random) {
    link.restart();
  }
  std::unique_ptr<Bridge> bridge;
  SeededRandom random;
  FabricLink link;
};

/// The two ends of a bridge; each belongs to the adapter that takes it.
inline std::array<std::shared_ptr<CellLink>, 2> linked_ends(std::uint64_t seed = 1) {
  auto pair = shm_pair();
  REQUIRE(pair.has_value());
  const auto first = std::make_shared<OwnedLink>(std::move(pair->first), seed);
  const auto second = std::make_shared<OwnedLink>(std::move(pair->second), seed + 1);
  return {std::shared_ptr<CellLink>(first, &first->link), std::shared_ptr<CellLink>(second, &second->link)};
}

/// A machine that is busy elsewhere stops a thread for long; that is no failure of a request.
inline AdapterOptions patient_requests() {
  AdapterOptions options;
  options.ack_timeout = seconds(2);
  options.receiver_not_ready_retries = 1'000'000;
  options.receiver_not_ready_delay = microseconds(100);
  return options;
}

inline SharedAdapterOptions alone() {
  SharedAdapterOptions options;
  options.single_threaded = true;
  return options;
}

/// Callers that have polled once are left alone for hours: who moved something is then exact.
inline SharedAdapterOptions patient_thread() {
  SharedAdapterOptions options;
  options.takeover_min = options.takeover_max = hours(1);
  return options;
}

/// A shared adapter with a buffer, a completion queue on a channel, and a queue pair.
class SharedEnd {
 public:
  static constexpr std::size_t kBytes = 64U << 10U;

  explicit SharedEnd(std::uint64_t seed, const SharedAdapterOptions& how = {},
                     const AdapterOptions& options = patient_requests())
      : random(seed), buffer(kBytes) {
    auto made = SharedAdapter::create(options, random, how);
    REQUIRE(made.has_value());
    adapter = std::move(*made);
    auto made_channel = adapter->create_completion_channel();
    REQUIRE(made_channel.has_value());
    channel = *made_channel;
    adapter->use([this](ChannelAdapter& verbs) {
      domain = verbs.allocate_domain();
      completions = verbs.make_completion_queue(2048, channel).value();
      tag = verbs.register_memory(domain, buffer, kThreadRights).value();
      QueuePairAttributes with;
      with.domain = domain;
      with.send_completions = with.receive_completions = completions;
      number = verbs.create_queue_pair(with).value();
    });
  }

  [[nodiscard]] LocalSegment segment(std::size_t offset, std::size_t bytes) {
    return {buffer.data() + offset, static_cast<std::uint32_t>(bytes), tag};
  }
  Status send(std::uint64_t id, std::size_t bytes = 8, std::size_t offset = 0) {
    WorkRequest request;
    request.id = id;
    request.segments[0] = segment(offset, bytes);
    request.segment_count = 1;
    return adapter->post_send(number, request);
  }
  Status write(std::uint64_t id, RemoteAddress to, std::size_t bytes, std::size_t offset = 0) {
    WorkRequest request;
    request.id = id;
    request.operation = Operation::rdma_write;
    request.segments[0] = segment(offset, bytes);
    request.segment_count = 1;
    request.remote = to;
    return adapter->post_send(number, request);
  }
  Status receive(std::uint64_t id, std::size_t offset = kBytes / 2, std::size_t bytes = 1024) {
    return adapter->post_receive(number, {id, segment(offset, bytes), {}});
  }
  [[nodiscard]] RemoteAddress remote(std::size_t offset) {
    return adapter->use([&](ChannelAdapter& verbs) { return RemoteAddress{verbs.region_address(tag) + offset, tag}; });
  }
  [[nodiscard]] std::optional<Completion> poll() {
    std::array<Completion, 1> one;
    return adapter->poll_completions(completions, one) == 1 ? std::optional(one[0]) : std::nullopt;
  }
  /// Sleeps on the channel for the next completion, as programs do; nullopt after ten seconds.
  [[nodiscard]] std::optional<Completion> await_completion() {
    const Time limit = monotonic_now() + seconds(10);
    for (;;) {
      if (auto done = poll()) return done;
      if (adapter->arm(completions, Arm::next) != Status::ok) return std::nullopt;
      if (auto done = poll()) return done;
      while (!adapter->take_notification(channel)) {
        if (adapter->wait_notification(channel, limit) == Waited::timeout) return std::nullopt;
      }
    }
  }
  [[nodiscard]] bool link_up() const {
    return adapter->with_link(path, [this](CellLink& link) { up_ = link.up(); }) && up_;
  }

  SeededRandom random;
  std::vector<std::byte> buffer;
  std::unique_ptr<SharedAdapter> adapter;
  ChannelNumber channel{};
  ProtectionDomain domain{};
  CqNumber completions{};
  Stag tag{};
  QpNumber number{};
  PathNumber path{};

 private:
  mutable bool up_ = false;
};

/// Two shared adapters with a connected queue pair each.
struct SharedPair {
  explicit SharedPair(const SharedAdapterOptions& how = {}, const AdapterOptions& options = patient_requests())
      : ends{SharedEnd(11, how, options), SharedEnd(12, how, options)} {
    const auto links = linked_ends();
    for (std::size_t i = 0; i < 2; ++i) {
      const auto path = ends[i].adapter->add_link(links[i]);
      REQUIRE(path.has_value());
      ends[i].path = *path;
    }
    REQUIRE(eventually([&] {
      if (how.single_threaded) {
        for (SharedEnd& end : ends) end.adapter->progress();
      }
      return ends[0].link_up() && ends[1].link_up();
    }));
    for (std::size_t i = 0; i < 2; ++i) connect(ends[i], ends[1 - i].number);
  }
  static void connect(SharedEnd& end, QpNumber to) {
    const Status connected = end.adapter->use([&](ChannelAdapter& verbs) {
      return verbs.connect(end.number, {to, 5, 5, 4, end.path});
    });
    REQUIRE(connected == Status::ok);
  }
  /// The first end sends a message to the second, and both poll until it is done.
  void exchange(std::uint64_t round) {
    REQUIRE(second().receive(round) == Status::ok);
    REQUIRE(first().send(round) == Status::ok);
    bool sent = false;
    bool received = false;
    REQUIRE(eventually([&] {
      sent = first().poll().has_value() || sent;
      received = second().poll().has_value() || received;
      return sent && received;
    }));
  }
  SharedEnd& first() { return ends[0]; }
  SharedEnd& second() { return ends[1]; }

  std::array<SharedEnd, 2> ends;
};

}  // namespace splitnic::fabric::test
