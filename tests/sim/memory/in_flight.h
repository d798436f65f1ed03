#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fabric/adapter/work.h"
#include "fabric/memory/protection_table.h"
#include "image.h"
#include "reference.h"

namespace splitnic::sim {

/// Bytes that a request reads or writes.
struct Use {
  Piece piece;
  bool writes = false;
  bool remote = false;
};

/// A tag whose meaning a request depends on, or changes.
struct TagUse {
  std::size_t site = 0;
  std::uint32_t index = 0;
  bool changes = false;
  bool remote = false;
};

/// What the request writes into a piece if it is carried out.
struct Change {
  Piece piece;
  std::vector<std::byte> before;
  std::vector<std::byte> after;
};

/// The receive that a request consumes, or uses, at its target.
struct Receive {
  static constexpr std::uint64_t kStanding = ~std::uint64_t{0};  ///< the id of those that stay posted

  std::array<fabric::LocalSegment, 2> segments{};
  std::size_t segment_count = 1;
  Pieces pieces;
  std::vector<fabric::Stag> tags;
  fabric::Completion expected{};
  bool done = false;

  [[nodiscard]] bool stands() const { return expected.id == kStanding; }
};

/// A posted request, with what the model says will come of it.
struct Request {
  std::uint64_t number = 0;
  std::size_t from = 0;  ///< site
  std::size_t queue = 0;
  fabric::WorkRequest work{};
  std::optional<fabric::MemoryRequest> memory;
  std::vector<std::byte*> pages;  ///< of a registration
  Pieces page_pieces;
  Pieces segments;  ///< where the bytes of a gather or scatter list are, if it is good
  std::string segments_verdict = "ok";
  std::vector<fabric::Stag> segment_tags;
  std::uint32_t bytes = 0;
  std::optional<Receive> receive;

  fabric::Status post_expected = fabric::Status::ok;
  bool bad_segment = false;  ///< which is why the post is expected to be refused
  std::string verdict = "ok";
  Refusal refusal{};          ///< where the verdict is one
  bool follower = false;      ///< of a request that will fail: flushed
  bool refused_here = false;  ///< by the table of who asks
  /// Its bytes may be written, although it fails: a send that fills its receive before it is refused, a write into
  /// memory in quarantine, or one behind a request that is refused.
  bool either = false;
  /// A read whose sink may hold anything, although it is refused: it was pulled out of memory in quarantine, whose
  /// grant had not ended for the reader yet.
  bool spoils_sink = false;
  Pieces storable;  ///< of a request that is refused or flushed: where its bytes may be stored before that
  std::vector<Use> uses;
  std::vector<TagUse> tags;
  std::vector<Change> changes;
  fabric::Stag tag_expected{};

  bool done = false;
  fabric::CompletionStatus status = fabric::CompletionStatus::success;

  [[nodiscard]] bool fails() const { return verdict != "ok"; }
  [[nodiscard]] bool answered() const {
    return work.operation == fabric::Operation::rdma_read || work.operation == fabric::Operation::compare_swap ||
           work.operation == fabric::Operation::fetch_add;
  }
  [[nodiscard]] bool reads() const { return work.operation == fabric::Operation::rdma_read; }
  /// Nothing goes over the wire.
  [[nodiscard]] bool local() const { return work.operation >= fabric::Operation::bind_window; }
  [[nodiscard]] bool changes_own_table() const {
    return memory.has_value() || work.operation == fabric::Operation::local_invalidate;
  }
  /// What is wrong with a segment would be noticed before anything is sent, whenever it is looked at.
  [[nodiscard]] bool fails_whole() const {
    return answered() || (work.segment_count == 1 && bytes != 0 && !segment_beyond());
  }
  /// The first bad segment reaches beyond what its tag opens.
  [[nodiscard]] bool segment_beyond() const {
    return segments_verdict == "base_or_bounds_violation" || segments_verdict == "to_wrap";
  }
  [[nodiscard]] fabric::CompletionStatus expected() const {
    if (follower) return fabric::CompletionStatus::flushed;
    return fails() ? refusal.status : fabric::CompletionStatus::success;
  }
};

/// Whether the outcome would depend on which of the two is carried out first, and nothing says which. overtakes: the
/// later one's bytes may be written before the earlier one is carried out.
bool conflict(const Request& earlier, const Request& later, bool overtakes);
/// Whether the request uses the tag.
bool uses_tag(const Request& request, std::size_t site, std::uint32_t index);

}  // namespace splitnic::sim
