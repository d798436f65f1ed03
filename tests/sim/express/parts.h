#pragma once

#include <cstring>

#include "world.h"

namespace splitnic::sim {

inline constexpr std::size_t kTargetBytes = 8192;
inline constexpr std::size_t kWords = kTargetBytes / 4;
inline constexpr std::size_t kPlaceBytes = 4096;   // the longest message
inline constexpr std::size_t kPlaces = 40;         // of messages and answers of one queue pair
inline constexpr std::size_t kReceivePlaces = 64;  // of its receives
inline constexpr std::size_t kSharedPlaces = 256;  // of the receives that queue pairs share
inline constexpr std::size_t kReceiveDepth = 16;
inline constexpr std::uint32_t kMostInline = 256;

/// Memory of one end, its own or the bridge's.
struct ExpressWorld::Area {
  std::vector<std::byte> own;
  fabric::PeerMemory bridge;  ///< where own is empty
  std::size_t offset = 0;     ///< there
  fabric::Stag tag{};
  std::uint64_t address = 0;  ///< as peers name it

  [[nodiscard]] bool in_bridge() const { return own.empty(); }
  void load(std::size_t at, std::span<std::byte> to) const {
    if (in_bridge()) return bridge.copy_out(offset + at, to);
    std::memcpy(to.data(), own.data() + at, to.size());
  }
  void store(std::size_t at, std::span<const std::byte> from) {
    if (in_bridge()) return bridge.store_bytes(offset + at, from);
    std::memcpy(own.data() + at, from.data(), from.size());
  }
  [[nodiscard]] std::uint32_t word(std::size_t index) const {
    std::uint32_t value = 0;
    load(4 * index, std::as_writable_bytes(std::span(&value, 1)));
    return value;
  }
  [[nodiscard]] fabric::LocalSegment segment(std::size_t at, std::uint32_t bytes) {
    if (in_bridge()) return fabric::LocalSegment::at(address + at, bytes, tag);
    return {own.data() + at, bytes, tag};
  }
};

/// A request that has not ended. Writes fill their words with their number, so that memory says which came last.
struct ExpressWorld::Posted {
  std::uint64_t id = 0;
  fabric::Operation operation = fabric::Operation::send;
  bool signalled = true;
  std::uint32_t first_word = 0;  ///< of the peer's target
  std::uint32_t words = 0;
  std::uint32_t number = 0;             ///< of a send, or of a write
  std::uint64_t added_before = 0;       ///< of an addition
  std::vector<std::uint32_t> at_least;  ///< of a read, by word: the last write that was posted before it
  std::size_t place = 0;
  bool in_sinks = false;  ///< of a read: the answer goes there

  [[nodiscard]] bool sends() const {
    return operation == fabric::Operation::send || operation == fabric::Operation::send_with_immediate;
  }
  [[nodiscard]] bool writes() const {
    return operation == fabric::Operation::rdma_write || operation == fabric::Operation::rdma_write_with_immediate;
  }
  /// It takes a receive.
  [[nodiscard]] bool arrives() const { return sends() || operation == fabric::Operation::rdma_write_with_immediate; }
};

/// What a receive of the peer must report.
struct ExpressWorld::Sent {
  fabric::Operation operation = fabric::Operation::send;
  std::uint32_t number = 0;
  std::uint32_t bytes = 0;
};

/// A request before it is posted.
struct ExpressWorld::Draft {
  fabric::WorkRequest work;
  Posted request;
};

/// One end of a connection.
struct ExpressWorld::Queue {
  const ExpressConnection* shape = nullptr;
  std::size_t connection = 0;
  fabric::QpNumber number{};
  std::uint32_t first_psn = 0;  ///< to send
  Queue* peer = nullptr;
  Area places;   ///< of messages that leave, and of answers
  Area sinks;    ///< of answers, in the bridge; empty: there are none
  Area target;   ///< the peer writes and reads it
  Area counter;  ///< the peer adds to it: 8 bytes
  Area inbox;
  bool has_sinks = false;

  std::deque<Posted> under_way;
  std::uint64_t next_id = 1;
  std::uint64_t first_id = 1;  ///< since the last reset
  std::size_t next_place = 0;
  std::uint32_t sends = 0;
  std::uint32_t writes = 0;
  std::uint64_t additions = 0;
  std::vector<std::uint32_t> newest = std::vector<std::uint32_t>(kWords);  ///< write of each word of the peer's target
  std::deque<Sent> sent;                                                   ///< and not arrived

  std::deque<std::pair<std::uint64_t, std::size_t>> receives;  ///< id and place
  std::uint64_t next_receive = 1;
  std::uint64_t first_receive = 1;
};

struct ExpressWorld::End {
  std::size_t number = 0;
  fabric::FabricLink* link = nullptr;
  fabric::ProtectionDomain domain{};
  fabric::CqNumber sends{};
  fabric::CqNumber receives{};
  fabric::SrqNumber shared{};
  std::size_t shared_depth = kReceiveDepth;
  Area shared_inbox;
  std::map<std::uint64_t, std::size_t> shared_places;  ///< by id, of receives that are posted
  std::uint64_t next_shared = 1;
  std::vector<std::unique_ptr<Queue>> queues;
  std::unique_ptr<fabric::ChannelAdapter> adapter;  ///< last: the memory above is lent to it
};

}  // namespace splitnic::sim
