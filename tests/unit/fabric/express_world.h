#pragma once

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "adapter_fixtures.h"
#include "bridge_fixtures.h"
#include "datagram_fixtures.h"
#include "fabric/adapter/express.h"

namespace splitnic::fabric::test {

/// Two ends over shared memory, one connected queue pair each.
class ExpressWorld {
 public:
  enum class Way { express, general };
  enum class Receives { own, shared };
  static constexpr std::size_t kGranted = 16384;

  explicit ExpressWorld(Way way, std::uint64_t seed, const QueuePairAttributes& options = {},
                        Receives from = Receives::own, std::uint32_t max_message_bytes = 1U << 20U,
                        const LinkOptions& link = {})
      : random(seed) {
    AdapterOptions adapter;
    adapter.max_message_bytes = max_message_bytes;
    for (std::size_t i = 0; i < 2; ++i) {
      links[i] = std::make_unique<FabricLink>(bridges.end(i), link, random);
      links[i]->restart();
      shown[i] = std::make_unique<AwaitedLink>(*links[i]);
      shown[i]->shown = true;
    }
    for (int i = 0; i < 1000 && !(links[0]->up() && links[1]->up()); ++i) poll_links();
    for (std::size_t i = 0; i < 2; ++i) {
      CellLink& over = way == Way::express ? static_cast<CellLink&>(*links[i]) : *shown[i];
      ends[i] = std::make_unique<Endpoint>(over, adapter, random, options);
      if (from == Receives::shared) share_receives(i, options);
    }
    for (std::size_t i = 0; i < 2; ++i) {
      const QueuePairPeer peer = i == 0 ? QueuePairPeer{ends[1]->number, 7, 9} : QueuePairPeer{ends[0]->number, 9, 7};
      REQUIRE(ends[i]->adapter.connect(ends[i]->number, options.datagram ? QueuePairPeer{} : peer) == Status::ok);
    }
    for (std::size_t i = 0; i < 2; ++i) {
      Endpoint& end = *ends[i];
      ranges[i] = {links[i]->buffers().offset, kGranted};
      granted[i] =
          end.adapter.register_bridge_memory(end.domain, ranges[i], kAllRights | Right::remote_read, true).value();
      own[i] = pattern(kGranted, seed + 2 + i);
      owned[i] = end.adapter.register_memory(end.domain, own[i], kAllRights | Right::remote_read).value();
      end.fill(0, pattern(end.buffer.size(), seed + i));
    }
    step();
    step();
  }

  void share_receives(std::size_t of, QueuePairAttributes options) {
    Endpoint& end = *ends[of];
    constexpr std::size_t kDepth = 64;
    shared[of] = end.adapter.create_shared_receive_queue(end.domain, kDepth, options.verbs_rules).value();
    options.shared_receives = shared[of];
    end.number = end.make_queue_pair(options);
  }
  void receive(std::size_t at, const ReceiveRequest& request) {
    Endpoint& end = *ends[at];
    static_cast<void>(shared[at].value != 0 ? end.adapter.post_shared_receive(shared[at], request)
                                            : end.adapter.post_receive(end.number, request));
  }
  void poll_links() {
    now += microseconds(10);
    for (auto& link : links) link->poll(now);
  }
  void step() {
    poll_links();
    for (auto& end : ends) end->adapter.poll(now);
    for (std::size_t i = 0; i < 2; ++i) {
      for (const Completion& done : ends[i]->take()) note(i, done);
    }
  }
  void note(std::size_t end, const Completion& done) {
    std::string& to = done.receive ? received[end] : log[end];
    to += fmt::format("{} {} {} {} {} {} {} {}\n", done.id, to_string(done.status), to_string(done.operation),
                      done.receive, done.bytes, done.has_immediate, done.immediate, done.solicited);
  }
  [[nodiscard]] RemoteAddress at_peer(std::size_t of, std::size_t offset) {
    return {ends[1 - of]->adapter.region_address(granted[1 - of]) + offset, granted[1 - of]};
  }
  /// Of the peer's own memory, which is never written directly.
  [[nodiscard]] RemoteAddress at_peers_own(std::size_t of, std::size_t offset) {
    return {ends[1 - of]->adapter.region_address(owned[1 - of]) + offset, owned[1 - of]};
  }
  [[nodiscard]] std::vector<std::byte> direct_bytes(std::size_t end) {
    std::vector<std::byte> bytes(kGranted);
    bridges.end(end).local_memory().copy_out(ranges[end].offset, bytes);
    return bytes;
  }
  /// Events that do not depend on how often somebody polled. A message of several cells that is asked for again may not
  /// have left whole, so cells are counted only where none was.
  [[nodiscard]] std::vector<std::uint64_t> counts(std::size_t end) {
    const AdapterCounters& all = ends[end]->adapter.counters();
    const bool repeated = all.retransmissions + ends[1 - end]->adapter.counters().retransmissions != 0;
    return {all.direct_writes,
            all.segmented_writes,
            all.direct_reads,
            all.segmented_reads,
            all.access_refused,
            all.retransmissions,
            all.terminates_sent,
            all.dropped_duplicate,
            all.dropped_bad_cell,
            repeated ? 0 : all.cells_sent,
            repeated ? 0 : all.cells_received,
            all.not_taken_sent,
            all.dropped_out_of_sequence,
            all.dropped_completions,
            all.bytes_sent,
            all.bytes_received,
            all.datagrams_sent,
            all.datagrams_received,
            all.dropped_wrong_queue_key,
            all.dropped_no_receive,
            all.dropped_datagram_too_long,
            all.dropped_unknown_queue_pair};
  }

  SeededRandom random;
  Time now{};
  ShmPairBridges bridges;
  std::array<std::unique_ptr<FabricLink>, 2> links;
  std::array<std::unique_ptr<AwaitedLink>, 2> shown;
  std::array<std::unique_ptr<Endpoint>, 2> ends;
  std::array<MemoryRange, 2> ranges{};
  std::array<Stag, 2> granted{};
  std::array<SrqNumber, 2> shared{};  ///< 0: the queue pairs have receives of their own
  std::array<std::vector<std::byte>, 2> own{};
  std::array<Stag, 2> owned{};
  std::array<std::string, 2> log{};       ///< what was posted, and how it ended
  std::array<std::string, 2> received{};  ///< an answer may come before a request that was posted before, or after it
};

/// The first message is checked in the table, so only those after it go the short way.
inline void pass_a_message(ExpressWorld& world) {
  REQUIRE(world.ends[1]->receive(1, 0, 64) == Status::ok);
  REQUIRE(world.ends[0]->send(2, 0, 64) == Status::ok);
  for (int i = 0; i < 4; ++i) world.step();
  REQUIRE_FALSE(world.ends[0]->adapter.outstanding());
}

}  // namespace splitnic::fabric::test
