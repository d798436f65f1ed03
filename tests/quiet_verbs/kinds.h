#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "fabric/verbs/requests.h"

namespace splitnic::quiet_verbs {

/// How two queue pairs talk.
enum class Service : std::uint8_t { connected, shared_receives, datagrams };

/// What requests may name.
struct Places {
  verbs::LocalSegment memory{};     ///< of the end that sends, at least kMemoryBytes
  verbs::RemoteAddress in_cells{};  ///< of the other end: memory of its process
  verbs::RemoteAddress direct{};    ///< memory that this end may store into
  fabric::DatagramTarget other{};

  [[nodiscard]] verbs::LocalSegment part(std::uint32_t bytes, std::uint32_t offset = 0) const {
    return {memory.address + offset, bytes, memory.tag};
  }
};
inline constexpr std::size_t kMemoryBytes = std::size_t{32} << 10U;
/// Room for any message, and for a datagram's route.
inline constexpr std::uint32_t kReceiveBytes = 12'000;
inline constexpr std::size_t kMostInList = 32;

using Requests = std::vector<verbs::WorkRequest>;

/// One use of queue pairs.
struct Kind {
  const char* name;
  Requests (*requests)(const Places&);
  Service service = Service::connected;
  bool in_a_list = false;
};

/// How many receives the requests use up.
[[nodiscard]] std::size_t receives_of(const Requests& requests);

/// The inline data of a request is at most so long.
inline constexpr std::size_t kInlineBytes = 64;

[[nodiscard]] Requests sends(const Places& places);
[[nodiscard]] Requests direct_writes(const Places& places);
[[nodiscard]] Requests writes_in_cells(const Places& places);
[[nodiscard]] Requests inline_requests(const Places& places);
[[nodiscard]] Requests gathered(const Places& places);
[[nodiscard]] Requests reads(const Places& places);
[[nodiscard]] Requests atomics(const Places& places);
[[nodiscard]] Requests datagrams(const Places& places);
[[nodiscard]] Requests many_sends(const Places& places);
[[nodiscard]] Requests many_datagrams(const Places& places);

inline constexpr std::array kKinds{
    Kind{"sends", sends},
    Kind{"inline requests", inline_requests},
    Kind{"sends of two segments", gathered},
    Kind{"direct writes", direct_writes},
    Kind{"writes in cells", writes_in_cells},
    Kind{"reads", reads},
    Kind{"atomics", atomics},
    Kind{"datagrams", datagrams, Service::datagrams},
    Kind{"sends to a shared receive queue", sends, Service::shared_receives},
    Kind{"a list of sends", many_sends, Service::connected, true},
    Kind{"a list of datagrams", many_datagrams, Service::datagrams, true},
    Kind{"a list of direct writes", direct_writes, Service::connected, true},
};

}  // namespace splitnic::quiet_verbs
