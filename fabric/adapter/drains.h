#pragma once

#include <cstddef>
#include <cstdint>
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
/// dismissal reached the MPT before the request. Thread: the adapter's owner. Source: design, "Protection".
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
  [[nodiscard]] bool waiting() const { return !asked_.empty(); }
  /// The peer is to be asked or answered.
  [[nodiscard]] bool busy() const { return waiting() || !to_answer_.empty(); }

  void take(const Cell& cell);
  /// Sends what is due; returns how many cells.
  std::size_t push() { return asked_.empty() && to_answer_.empty() ? 0 : push_due(); }
  [[nodiscard]] Time next_deadline() const;

 private:
  struct Asked {
    Stag tag{};  // 0: every tag
    std::uint32_t number = 0;
    MemoryRange range{};
    QpNumber queue_pair{};
    Time ask_again{};
    bool refused = false;  // found no room, the last time
  };
  struct ToAnswer {
    Stag tag{};
    std::uint32_t number = 0;
    std::uint64_t transfers = 0;  // that had begun
  };
  std::size_t push_due();
  [[nodiscard]] bool send(Opcode opcode, Stag tag, std::uint32_t number);

  AdapterContext& context_;
  Path& path_;
  std::vector<Asked> asked_;
  std::vector<ToAnswer> to_answer_;
  std::uint32_t last_number_ = 0;
};

}  // namespace splitnic::fabric
