#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_set>
#include <vector>

#include "common/time.h"
#include "fabric/bridge/anchor.h"
#include "fabric/ids.h"
#include "fabric/wire/cell.h"

namespace splitnic::fabric {

struct AdapterContext;
struct Path;

/// Ends direct writes of one path through revoked grants, and through dismissed queue pairs. The owner of the memory
/// asks the peer, and repeats the request until the peer answers. It keeps the range or the queue pair in quarantine
/// until then, or until the epoch ends. The initiator answers when no copy into the tag is under way, or none that had
/// begun before the request; the answer travels behind the last copy. No new copy begins, because the revocation or
/// dismissal reached the MPT before the request. One question at a time is about queue pairs: those that are dismissed
/// after it was asked have the next one together, so that a peer that never answers costs a poll no more with each of
/// them. Thread: the adapter's owner. Source: design, "Protection".
class Drains {
 public:
  Drains(AdapterContext& context, Path& path) : context_(context), path_(path) {}

  /// An epoch has begun: nothing of the one before can be written any more.
  void start();
  /// The grant of tag has been revoked; range: its memory.
  void begin(Stag tag, MemoryRange range);
  /// The queue pair has been dismissed.
  void begin(QpNumber queue_pair);
  /// Whether the peer may still write somewhere in the range through a revoked grant.
  [[nodiscard]] bool covers(MemoryRange range) const;
  /// Whether it may through the connection that the queue pair had.
  [[nodiscard]] bool covers(QpNumber queue_pair) const;
  [[nodiscard]] bool waiting() const { return !asked_.empty() || about_queue_pairs_.has_value(); }
  /// The peer is to be asked or answered.
  [[nodiscard]] bool busy() const { return waiting() || !to_answer_.empty(); }

  void take(const Cell& cell);
  /// Sends what is due; returns how many cells.
  std::size_t push() { return busy() ? push_due() : 0; }
  [[nodiscard]] Time next_deadline() const;

 private:
  struct Asked {
    Stag tag{};  // 0: every tag
    std::uint32_t number = 0;
    MemoryRange range{};
    Time ask_again = Time::min();
    bool refused = false;  // found no room, the last time
    bool asked = false;
  };
  using Numbers = std::unordered_set<std::uint32_t>;  // of queue pairs
  struct ToAnswer {
    Stag tag{};
    std::uint32_t number = 0;
    std::uint64_t transfers = 0;  // that had begun
  };
  std::size_t push_due();
  [[nodiscard]] bool ask(Asked& asked);
  void take_answer_about_queue_pairs();
  [[nodiscard]] bool send(Opcode opcode, Stag tag, std::uint32_t number);

  AdapterContext& context_;
  Path& path_;
  std::vector<Asked> asked_;                // about memory
  std::optional<Asked> about_queue_pairs_;  // tag 0
  Numbers dismissed_;                       // which that question is about
  Numbers dismissed_since_;                 // and the next one
  std::vector<ToAnswer> to_answer_;
  std::uint32_t last_number_ = 0;
};

}  // namespace splitnic::fabric
