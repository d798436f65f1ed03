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

/// Ends direct writes through revoked grants of one path. The owner of the memory asks the peer, repeats the request
/// until the peer answers, and keeps the range in quarantine until then, or until the epoch ends. The initiator answers
/// when no copy into the tag is under way; the answer travels behind the last copy. No new copy begins, because the
/// revocation reached the MPT before the request. Thread: the adapter's owner. Source: design, "Protection".
class Drains {
 public:
  Drains(AdapterContext& context, Path& path) : context_(context), path_(path) {}

  /// An epoch has begun: nothing of the one before can be written any more.
  void start();
  /// The grant of tag has been revoked; range: its memory.
  void begin(Stag tag, MemoryRange range);
  /// Whether the peer may still write somewhere in the range through a revoked grant.
  [[nodiscard]] bool covers(MemoryRange range) const;
  [[nodiscard]] bool waiting() const { return !asked_.empty(); }
  /// The peer is to be asked or answered.
  [[nodiscard]] bool busy() const { return waiting() || !to_answer_.empty(); }

  void take(const Cell& cell);
  /// Sends what is due; returns how many cells.
  std::size_t push() { return asked_.empty() && to_answer_.empty() ? 0 : push_due(); }
  [[nodiscard]] Time next_deadline() const;

 private:
  struct Asked {
    Stag tag{};
    std::uint32_t number = 0;
    MemoryRange range{};
    Time ask_again{};
  };
  struct ToAnswer {
    Stag tag{};
    std::uint32_t number = 0;
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
