#pragma once

#include <algorithm>

#include "world.h"

namespace splitnic::sim {

inline constexpr std::size_t kMessageBytes = 900;
inline constexpr std::size_t kPlaceBytes = 1024;  ///< of a receive
inline constexpr std::size_t kSharedReceives = 12;
inline constexpr std::size_t kDatagramReceives = 6;  ///< of each datagram queue pair
inline constexpr std::size_t kPlaces = kSharedReceives + kPeers * kDatagramReceives;
inline constexpr std::uint32_t kKey = 0x2222;
inline constexpr std::byte kUntouched{0xee};

/// The head of a message; it determines the other bytes.
struct MessageHead {
  std::uint64_t life = 0;    ///< of the connection, unique in the run
  std::uint64_t number = 0;  ///< of the life, from 0
  std::uint32_t bytes = 0;   ///< of all
  std::uint32_t secret = 0;  ///< a datagram with a wrong queue key has a 1 here
};
void write_message(const MessageHead& head, std::span<std::byte> to);
[[nodiscard]] bool is_message(const MessageHead& head, std::span<const std::byte> bytes);

/// A piece of the owner's memory that has a tag now, or had.
struct PeersWorld::Region {
  std::span<std::byte> memory;
  std::vector<std::byte> expected;
  fabric::Stag tag{};
  std::uint64_t address = 0;
  bool open = false;
  fabric::TouchControl touch = fabric::TouchControl::unlimited;
  std::uint64_t opened = 0;  ///< how often: a request is of one opening
  bool busy = false;         ///< a request is under way, or has failed since the last rest; there is one at a time
  bool must_land = false;    ///< the request is unacknowledged, on a path that loses nothing
  // What the request writes, until it is known whether it has: each byte may be either.
  std::size_t offset = 0;
  std::vector<std::byte> maybe{};
  std::size_t first_of_two = 0;  ///< two requests write to the one-touch region: bytes of the first; 0: there is one
  bool whole_at_end = false;     ///< the request had been carried out when its tag ended

  /// What the first request writes, or the only one.
  [[nodiscard]] std::span<const std::byte> first_maybe() const {
    return std::span(maybe).first(first_of_two != 0 && first_of_two < maybe.size() ? first_of_two : maybe.size());
  }
  [[nodiscard]] bool holds(std::size_t at, std::span<const std::byte> bytes) const {
    return std::ranges::equal(memory.subspan(at, bytes.size()), bytes);
  }
};

struct PeersWorld::Request {
  std::uint64_t id = 0;
  fabric::Operation operation = fabric::Operation::send;
  std::optional<std::size_t> region{};
  std::uint64_t opened = 0;
  bool was_open = true;  ///< the tag was good when it was posted
  bool of_two = false;   ///< Region::first_of_two
  std::size_t offset = 0;
  std::vector<std::byte> bytes{};  ///< written
  std::uint64_t before = 0;        ///< of an addition
  std::vector<std::byte> there{};  ///< what a read must bring
  std::size_t slot = 0;            ///< where its bytes are, in the peer's memory
};

/// A connection, or two datagram queue pairs.
struct PeersWorld::Link {
  Service service = Service::reliable;
  std::uint64_t life = 0;
  fabric::QpNumber at_peer{};
  fabric::QpNumber at_owner{};
  std::uint64_t sent = 0;
  std::uint64_t next = 0;          ///< of what arrives: the least number that may come
  std::set<std::uint64_t> seen{};  ///< datagrams
  std::deque<Request> in_flight{};
  bool failed = false;                               ///< or may have
  std::map<std::uint64_t, std::uint32_t> lengths{};  ///< of messages that may still come
  fabric::AddressHandleNumber handle{};              ///< datagrams: to the owner
  std::uint64_t answers = 0;                         ///< reliable: from the owner, sent and arrived
  std::uint64_t answered = 0;
  bool answering = false;  ///< one is under way
  std::uint64_t posted = 0;
};

struct PeersWorld::Peer {
  static constexpr std::size_t kSlots = 32;
  std::size_t number = 0;
  std::unique_ptr<fabric::ChannelAdapter> adapter;
  fabric::PathNumber path{};  ///< the owner's
  fabric::CqNumber completions{};
  fabric::ProtectionDomain domain{};
  std::vector<std::byte> memory;  ///< of kSlots requests, then of one receive
  fabric::Stag tag{};
  std::array<Link, kServices> links;
  bool path_down = false;  ///< both ends have said so
  bool owner_path_down = false;

  [[nodiscard]] std::span<std::byte> slot(std::size_t index) {
    return std::span(memory).subspan(index * kPlaceBytes, kPlaceBytes);
  }
  [[nodiscard]] fabric::LocalSegment segment(std::size_t index, std::size_t bytes) {
    return {slot(index).data(), static_cast<std::uint32_t>(bytes), tag};
  }
};

}  // namespace splitnic::sim
