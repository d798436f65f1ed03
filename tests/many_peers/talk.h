#pragma once

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <utility>

#include "common/random.h"
#include "fabric/verbs/connection.h"
#include "fabric/verbs/verbs.h"

/// The messages between the program and its peers.
namespace splitnic::many_peers {

inline constexpr verbs::ServiceNumber kService{1};
inline constexpr std::size_t kShare = 1024;  ///< of the program's private memory, for each peer
inline constexpr std::size_t kWord = kShare - 8;
inline constexpr std::size_t kReceives = 8;

/// Bytes that depend on whose they are and on their number.
struct Message {
  std::uint64_t number = 0;  ///< of this direction, from 0
  std::uint64_t added = 0;   ///< a peer's: how often it has added to its word so far
  std::array<std::byte, 184> filling{};

  static Message made(std::size_t peer, std::uint64_t number, std::uint64_t added) {
    Message message{number, added, {}};
    SeededRandom random(peer << 40U ^ number);
    for (auto& byte : message.filling) byte = static_cast<std::byte>(random.next());
    return message;
  }
  friend bool operator==(const Message&, const Message&) = default;
};

inline std::span<std::byte> bytes_of(Message& message) { return std::as_writable_bytes(std::span(&message, 1)); }

/// Ends the process, and says why.
[[noreturn]] inline void give_up(const std::string& why) {
  fmt::print(stderr, "many_peers: {}\n", why);
  std::exit(1);
}
inline void require(bool holds, const std::string& what) {
  if (!holds) give_up(what);
}
inline void require_ok(verbs::Status status, const std::string& what) {
  require(status == verbs::Status::ok, fmt::format("{}: {}", what, to_string(status)));
}
template <class T>
T made(verbs::Expected<T> object, const std::string& what) {
  if (!object) give_up(fmt::format("{}: {}", what, to_string(object.error())));
  return std::move(*object);
}

/// Options for a loaded machine: no request fails because an answer takes a second.
inline verbs::ContextOptions patient(RandomSource& random) {
  verbs::ContextOptions options;
  options.random = &random;
  options.adapter.ack_timeout = std::chrono::milliseconds(50);
  options.adapter.retry_count = 200;
  return options;
}

}  // namespace splitnic::many_peers
