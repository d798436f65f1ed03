#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "common/range.h"
#include "fabric/ids.h"
#include "fabric/link/cell_link.h"
#include "fabric/memory/mpt_layout.h"

namespace splitnic::fabric {

/// A queue pair of the owner's, as the peer's writes come in by it.
struct MptAdmission {
  QpNumber queue_pair{};
  QpNumber peer{};  ///< the initiator's, to which it is connected
  ProtectionDomain domain{};
  bool reads = true;  ///< the peer may read through it, too
  friend bool operator==(const MptAdmission&, const MptAdmission&) = default;
};

/// The owner's side: grants placeable entries to the peer, and admits the queue pairs through which it may store into
/// them. What finds no free slot or place is not published, and the peer's writes to it arrive segmented. A place says
/// nothing about reading, so a slot has the right of remote read only while each admitted queue pair that may use it
/// lets its peer read. Thread: the adapter's owner.
class MptPublisher {
 public:
  /// Forgets everything: an epoch has begun, and the peer's table is empty. direct: of a link that is up.
  void start(DirectAccess& direct);
  /// False: the tag's set is full. grant.generation is ignored.
  bool grant(DirectAccess& direct, const MptGrant& grant);
  /// The peer stops storing at its next claim(); stores that it claimed before may still arrive.
  void revoke(DirectAccess& direct, Stag tag);
  /// The queue pair is connected, or lets its peer read from now on, or no more. False: its set is full. Again with the
  /// same: nothing changes.
  bool admit(DirectAccess& direct, const MptAdmission& admission);
  /// It is connected no more, or its peer may not write. The peer stops as with revoke(). True: stores through it may
  /// still arrive, because something is granted to its domain.
  bool dismiss(DirectAccess& direct, QpNumber queue_pair);

 private:
  struct Slot {
    MptGrant grant{};  // as granted, with the slot's last generation
    bool used = false;
    bool readable = false;  // as published
  };
  struct Place {
    std::uint32_t generation = 0;
    MptAdmission admission{};  // of queue pair 0: free
  };
  [[nodiscard]] std::span<Slot> set_of(Stag tag);
  [[nodiscard]] std::span<Place> set_of(QpNumber queue_pair);
  [[nodiscard]] Place* place_of(QpNumber queue_pair);
  [[nodiscard]] std::size_t offset_of(const DirectAccess& direct, const Slot& slot) const;
  [[nodiscard]] std::size_t offset_of(const DirectAccess& direct, const Place& place) const;
  void count_change(DirectAccess& direct);
  [[nodiscard]] bool is_readable(const MptGrant& grant);
  void put(DirectAccess& direct, Slot& slot);
  void clear(DirectAccess& direct, const Slot& slot);
  void refuse_reads(DirectAccess& direct, ProtectionDomain domain);
  void permit_reads(DirectAccess& direct, ProtectionDomain domain);
  void follow_readers(DirectAccess& direct, ProtectionDomain domain);

  std::vector<Slot> slots_;
  std::vector<Place> places_;
  std::unordered_map<ProtectionDomain, std::size_t> refusing_;  // admitted queue pairs that let their peer not read
  std::size_t for_one_ = 0;                                     // slots that are for one queue pair
  std::uint64_t changes_ = 0;
};

/// A queue pair of the initiator's that writes, or reads.
struct MptWriter {
  QpNumber queue_pair{};
  QpNumber peer{};  ///< the owner's, to which it is connected
  friend bool operator==(const MptWriter&, const MptWriter&) = default;
};

/// A place in the peer window, or none; like a std::optional, but one word. (Of an optional, GCC writes the parts and
/// then copies the whole, and that load waits until all stores before it have left, which may be those of messages.)
class WindowPlace {
 public:
  constexpr WindowPlace() = default;
  constexpr explicit WindowPlace(std::size_t offset) : offset_(offset) {}
  [[nodiscard]] constexpr bool has_value() const { return offset_ != kNone; }
  constexpr explicit operator bool() const { return has_value(); }
  /// While has_value(): bytes from the window's start.
  constexpr std::size_t operator*() const { return offset_; }
  friend constexpr bool operator==(const WindowPlace&, const WindowPlace&) = default;

 private:
  static constexpr std::size_t kNone = ~std::size_t{0};
  std::size_t offset_ = kNone;
};

/// What of the table opens an entry to a connection: where the slot and the admission are in local memory, and which
/// generation of each. The same again says that neither has ended meanwhile.
struct MptSource {
  std::size_t slot_at = 0;
  std::size_t place_at = 0;
  std::uint32_t slot_generation = 0;
  std::uint32_t place_generation = 0;
  friend bool operator==(const MptSource&, const MptSource&) = default;
};

/// A place to pull from, or none.
struct ReadGrant {
  WindowPlace place{};
  MptSource source{};
  constexpr explicit operator bool() const { return place.has_value(); }
  friend bool operator==(const ReadGrant&, const ReadGrant&) = default;
};

/// The initiator's side: where in the peer window a queue pair may store into a remote range, or pull it from. It
/// trusts nothing unchecked: it copies the slot out, verifies it, and checks it against its own mapping. What it has
/// found or not found for a tag and a connection it remembers while the owner's table does not change; such a use reads
/// one word of the table. Thread: the adapter's owner.
class MptView {
 public:
  /// An epoch has begun: all that is remembered is void.
  void start();
  /// Where [address, address + bytes) of the tag's entry lies. None: it is not granted to this writer, so send the data
  /// segmented.
  [[nodiscard]] WindowPlace claim(DirectAccess& direct, MptWriter writer, Stag tag, std::uint64_t address,
                                  std::uint64_t bytes);
  /// Where it may be pulled from. None: it is not granted for reading to this queue pair, so ask the owner. If the same
  /// is found after a pull and DirectAccess::is_still_peers(), it held for all the bytes.
  [[nodiscard]] ReadGrant find_readable(DirectAccess& direct, MptWriter reader, Stag tag, std::uint64_t address,
                                        std::uint64_t bytes);

 private:
  struct Remembered {
    MptWriter writer{};  // of queue pair 0: nothing
    Stag tag{};
    bool granted = false;
    bool readable = false;
    std::uint64_t changes = 0;
    std::uint64_t address = 0;
    std::uint64_t length = 0;
    std::uint64_t window_offset = 0;
    MptSource source{};
  };
  [[nodiscard]] static std::optional<ProtectionDomain> find_domain(DirectAccess& direct, const MptWriter& writer,
                                                                   MptSource& source);
  [[nodiscard]] static std::optional<MptGrant> find_grant(DirectAccess& direct, Stag tag, MptSource& source);
  /// What is known of the tag and the connection, as the table is now.
  [[nodiscard]] Remembered& recall(DirectAccess& direct, const MptWriter& writer, Stag tag);
  /// What the table says of known.tag to known.writer.
  static void look_up(DirectAccess& direct, Remembered& known);

  static constexpr std::size_t kRemembered = 32;
  std::array<Remembered, kRemembered> remembered_{};
};

inline MptView::Remembered& MptView::recall(DirectAccess& direct, const MptWriter& writer, Stag tag) {
  Remembered& known = remembered_[(tag.index() + writer.queue_pair.value) % kRemembered];
  // Every change of the table changes this number, so that it alone says whether what is remembered still holds. Read
  // before the table (A1): see M1.
  const auto changes = direct.admission_changes.watch<std::uint64_t>(0);
  if (known.writer != writer || known.tag != tag || known.changes != changes) [[unlikely]] {
    known.writer = writer;
    known.tag = tag;
    known.changes = changes;
    look_up(direct, known);
  }
  return known;
}

inline WindowPlace MptView::claim(DirectAccess& direct, MptWriter writer, Stag tag, std::uint64_t address,
                                  std::uint64_t bytes) {
  const Remembered& known = recall(direct, writer, tag);
  const std::uint64_t offset = address - known.address;
  const bool inside = known.granted && address >= known.address && within(known.length, {offset, bytes});
  return inside ? WindowPlace(static_cast<std::size_t>(known.window_offset + offset)) : WindowPlace();
}

}  // namespace splitnic::fabric
