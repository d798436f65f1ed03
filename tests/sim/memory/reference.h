#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "fabric/adapter/work.h"
#include "fabric/wire/cell.h"
#include "image.h"
#include "protection_model.h"

namespace splitnic::sim {

/// How a refused request must end: its status, and what the peer is told or tells.
struct Refusal {
  fabric::CompletionStatus status = fabric::CompletionStatus::success;
  fabric::TerminateReason reason{};
};
enum class Asked { write, read, atomic, invalidate };
/// why: a refusal's name. From RFC 5040 (4.8) and RFC 5041 (7), not from the code under test.
Refusal refusal_of(Asked asked, const std::string& why);

/// A read or atomic that was answered: kept, as S3 says, until its place is needed.
struct Answered {
  fabric::Access access{};
  bool read = false;
};

/// One end of a connected queue pair, as the model sees it.
struct Queue {
  fabric::QpNumber number{};
  fabric::ProtectionDomain domain{};
  bool memory_requests = false;
  bool fails_whole = false;  ///< a memory request that is refused ends the queue pair, not its sends alone
  bool standing = false;     ///< a receive stays posted for writes with immediate
  std::size_t reads_in = 1;
  std::size_t inline_bytes = 0;
  std::deque<Answered> answered;

  [[nodiscard]] fabric::Consumer consumer() const { return {domain, number}; }
};

/// Which bytes who may name with which tag at one adapter: the plain model of its table, and where the bytes are.
class Reference {
 public:
  using Model = fabric::ProtectionModel;
  using Side = Model::Side;
  using Entry = Model::Entry;

  Model table;
  std::map<std::uint32_t, Pieces> memory;  ///< of regions, by the tag's index
  std::size_t bridge_image = 0;            ///< the memory that the peer has a window onto

  /// A placeable region that was deregistered, and may still be stored to.
  struct Revoked {
    fabric::Stag tag{};
    Entry entry;
    Piece range;
  };
  std::vector<Revoked> quarantine;

  [[nodiscard]] std::string check(const fabric::Access& access, Side side, std::uint64_t address) const;
  [[nodiscard]] const Entry* find(fabric::Stag tag) const;
  /// Where the bytes are, of a range inside the entry's.
  [[nodiscard]] Pieces pieces(fabric::Stag tag, std::uint64_t address, std::size_t bytes) const;
  /// Where the peer may store the write directly: what it may write and is placeable, and what it might have written
  /// before it was revoked. Empty: nowhere.
  [[nodiscard]] Pieces storable(const fabric::Access& access, std::uint64_t address) const;
  /// Whether what was revoked and may still be in use gave this access.
  [[nodiscard]] const Revoked* revoked(const fabric::Access& access, std::uint64_t address) const;

  /// What a checked remote access, or the answer to an own read, does to its entry. True: it ended.
  bool touch(const fabric::Access& access, bool read_request);
  /// A read or atomic of the peer was taken; the entry of one that is forgotten for it may end.
  void take(Queue& queue, const Answered& request);
  /// The queue pair ends, and what its reads have taken ends with it.
  void end_taken(Queue& queue);
  /// where: the region's bytes.
  void describe(std::uint32_t index, const fabric::EntryOptions& options, std::uint64_t base, const Pieces& where);
  void forget(std::uint32_t index);
  /// The epoch is over.
  void clear();
};

}  // namespace splitnic::sim
