#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

/// What every peer of `splitnic-bench fabric` shares: two processes, one on each core, and measurements between them by
/// the commands of its standard input. It includes nothing of splitnic.
///
/// A peer prints "ready OPERATION..." once both processes are connected, or ends with exit code 1 and one line on
/// standard error. Then it answers each line "OPERATION latency|rate|one-sided BYTES LIST SECONDS" by "ok MEDIAN
/// PERCENTILE_99" or "error TEXT". MEDIAN: of latency, seconds one way; of rates, messages per second. It ends with its
/// standard input.
namespace splitnic::bench::peers {

/// The largest message of a measurement.
inline constexpr std::size_t kMaxBytes = 64U << 10U;
inline constexpr std::size_t kLineBytes = 64;
/// Of a task's messages: what the caches hold.
inline constexpr std::size_t kCachedBytes = 1U << 20U;

/// Places for messages that come, each long enough for any. The one that was given back last is taken first, so that a
/// task which needs few uses few. They begin in different sets of the caches.
class Places {
 public:
  static constexpr std::size_t kStride = kMaxBytes + kLineBytes;

  explicit Places(std::size_t count) {
    for (std::size_t place = count; place != 0; --place) free_.push_back((place - 1) * kStride);
  }
  /// The offset of one, in bytes; there must be one.
  std::size_t take() {
    const std::size_t offset = free_.back();
    free_.pop_back();
    return offset;
  }
  void give_back(std::size_t offset) { free_.push_back(offset); }

 private:
  std::vector<std::size_t> free_;
};

enum class Role : std::uint8_t { client, server };

/// A measurement. operation: an index of Peer::operations().
struct Task {
  std::uint32_t operation = 0;
  std::uint32_t bytes = 0;
  std::uint32_t list = 1;  ///< messages that the sender posts together, 1 .. 32
};

/// One of the two processes of a peer. Message n of a task begins with the 64-bit number n + 1, little-endian; its
/// other bytes mean nothing. Thread: one.
class Side {
 public:
  virtual ~Side() = default;

  /// Both sides call it before a task. It removes everything of an earlier task; nothing is under way.
  virtual void begin(const Task& task) = 0;
  /// Sends up to `count` messages, numbered from `first`; returns how many were taken, fewer if there is no room.
  virtual std::size_t send(std::uint64_t first, std::size_t count) = 0;
  /// Consumes messages that are there. `next` is the number of the next message; throws if another one arrives. Returns
  /// how many were consumed.
  virtual std::size_t receive(std::uint64_t next) = 0;
  /// Both sides call it after a task, until all that was sent is complete at the sender. Returns whether it is.
  virtual bool flush() { return true; }
  /// Lets the library make progress while this side waits for the other. May do nothing.
  virtual void progress() {}
};

struct Peer {
  const char* name;
  std::vector<std::string> operations;
  /// Connects; called in both processes at the same time. channel: a SOCK_SEQPACKET socket to the other process. Throws
  /// std::exception where it can't.
  std::function<std::unique_ptr<Side>(Role role, int channel)> connect;
};

/// Sends all of `bytes` as one datagram, and receives the other process's. Throws when it is gone.
std::vector<std::byte> exchange(int channel, const void* bytes, std::size_t size);

/// Memory of both processes, zeroed. Call before the fork, in a constructor or in main; lives as long as the processes.
void* shared_memory(std::size_t bytes);

/// The whole program. Usage: PROGRAM CLIENT_CORE SERVER_CORE normal|realtime (core -1: not moved). realtime: at
/// real-time priority once connected, if the user may, so that no other program takes a core during a sample.
int run(int argc, char** argv, const Peer& peer);

}  // namespace splitnic::bench::peers
