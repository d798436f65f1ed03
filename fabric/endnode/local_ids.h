#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/os/unique_fd.h"
#include "common/random.h"
#include "common/result.h"
#include "common/strong_id.h"
#include "fabric/ids.h"
#include "fabric/wire/datagram.h"

namespace splitnic::fabric {

/// An endnode's address on its fabric, 1 .. kMaxLocalId; 0 is none. What InfiniBand calls a unicast LID.
using LocalId = StrongId<struct LocalIdTag, std::uint16_t>;
inline constexpr std::uint16_t kMaxLocalId = 0xBFFF;

/// The local IDs of one fabric, each held by at most one endnode, the members of its multicast groups, and the places
/// of queue pairs. The folder has a file `local-ids`; a process holds an ID by a record lock on the byte with this
/// number. So the kernel attests who holds an ID, frees it when the process ends in whatever way, and does not pass it
/// on to a forked child. Memberships and places are held in the same way, by locks on bytes further behind
/// (membership_byte(), place_byte()). Any thread.
class LocalIds {
 public:
  static constexpr std::size_t kMaxMembers = 256;  ///< of a group

  struct Holder {
    LocalId id{};
    pid_t pid = 0;  ///< 0: in a PID namespace that this process does not see
  };

  /// The locks of a process end when it closes any descriptor of the file, so all users in a process share one object,
  /// which lives as long as the process. Errors: the file can't be opened.
  [[nodiscard]] static Result<std::shared_ptr<LocalIds>> open(const std::string& directory);
  ~LocalIds();
  LocalIds(const LocalIds&) = delete;
  LocalIds& operator=(const LocalIds&) = delete;

  /// Takes an ID that nobody holds, the first one from a random place: an ID that has just become free is not used
  /// again at once. nullopt: none is free.
  [[nodiscard]] std::optional<LocalId> take(RandomSource& random);
  /// Takes exactly this one. False: somebody holds it.
  [[nodiscard]] bool take(LocalId id);
  /// id: taken from this object.
  void give_back(LocalId id);

  /// nullopt: nobody holds it.
  [[nodiscard]] std::optional<Holder> holder(LocalId id) const;
  /// All of the fabric, by ID.
  [[nodiscard]] std::vector<Holder> holders() const;

  enum class Joined : std::uint8_t {
    yes,
    full,      ///< the group has kMaxMembers
    in_other,  ///< another process, which does not hold the ID, holds this membership
  };
  /// The endnode becomes a member of the group, until it has left as often as it has joined. Announces it. id: taken
  /// from this object.
  [[nodiscard]] Joined join(const Gid& group, LocalId id);
  void leave(const Gid& group, LocalId id);
  struct Members {
    std::vector<LocalId> ids{};  ///< in order, at most kMaxMembers
    std::size_t refused = 0;     ///< memberships of an ID that their process does not hold
    bool too_many = false;       ///< there are more
  };
  [[nodiscard]] Members members(const Gid& group) const;
  /// Who follows memberships (GroupWatch) looks again.
  void announce() const;

  // A process with several endnodes may be addressed as if they shared an ID.
  /// Tells other processes that this endnode has the queue pair, until displace(). id: taken from this object.
  void place(QpNumber queue_pair, LocalId id);
  void displace(QpNumber queue_pair, LocalId id);
  /// The endnode that has the queue pair which a program calls `queue_pair` at `id`: `id` itself, unless the other
  /// process that holds it has said that only another one of its endnodes has this queue pair. `id`, too, if that
  /// process is in another PID namespace.
  [[nodiscard]] LocalId place_of(QpNumber queue_pair, LocalId id) const;

 private:
  /// Bytes [from, to) that another process holds.
  struct Range {
    std::int64_t from = 0;
    std::int64_t to = 0;
    pid_t pid = 0;
  };

  LocalIds(os::UniqueFd file, pid_t process) : file_(std::move(file)), process_(process) {}
  [[nodiscard]] bool lock(std::int64_t byte, short kind) const;
  [[nodiscard]] std::optional<Range> any_of_others(std::int64_t from, std::int64_t to) const;
  [[nodiscard]] std::vector<Range> all_of_others(std::int64_t from, std::int64_t to, std::size_t most) const;
  [[nodiscard]] std::optional<Holder> holder_locked(LocalId id) const;
  [[nodiscard]] Members members_locked(const Gid& group) const;

  os::UniqueFd file_;
  const pid_t process_;  // a forked child holds nothing
  mutable std::mutex mutex_;
  // The kernel does not tell a process of its own locks.
  std::set<LocalId> own_;
  std::map<std::int64_t, std::size_t> memberships_;  // by byte: how often the endnode has joined
};

/// The byte of the file `local-ids` that stands for a membership:
///
///      62  61 60                      16 15          0
///     +---+---+-------------------------+-------------+
///     | 0 | 1 |    hash of the group    |  local ID   |      hash: FNV-1a over the GID, bits 45 and up folded
///     +---+---+-------------------------+-------------+
///
/// Two groups with one hash have their members in common: these drop what is for the other group.
[[nodiscard]] std::int64_t membership_byte(const Gid& group, LocalId id);

/// The byte of the file `local-ids` that stands for the place of a queue pair:
///
///      62  61  60  59   40 39                   16 15          0
///     +---+---+---+-------+-----------------------+-------------+
///     | 0 | 0 | 1 |   0   | number of the q. pair |  local ID   |
///     +---+---+---+-------+-----------------------+-------------+
[[nodiscard]] std::int64_t place_byte(QpNumber queue_pair, LocalId id);

/// An ID that is given back at the end.
class HeldId {
 public:
  /// id: taken from `ids`.
  HeldId(std::shared_ptr<LocalIds> ids, LocalId id) : ids_(std::move(ids)), id_(id) {}
  ~HeldId() {
    if (ids_) ids_->give_back(id_);
  }
  HeldId(HeldId&&) = default;
  HeldId& operator=(HeldId&&) = delete;

  [[nodiscard]] LocalId id() const { return id_; }
  [[nodiscard]] const std::shared_ptr<LocalIds>& ids() const { return ids_; }

 private:
  std::shared_ptr<LocalIds> ids_;
  LocalId id_;
};

}  // namespace splitnic::fabric
