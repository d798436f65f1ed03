#pragma once

#include <sys/types.h>

#include <cstdint>
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

namespace splitnic::fabric {

/// An endnode's address on its fabric, 1 .. kMaxLocalId; 0 is none. What InfiniBand calls a unicast LID.
using LocalId = StrongId<struct LocalIdTag, std::uint16_t>;
inline constexpr std::uint16_t kMaxLocalId = 0xBFFF;

/// The local IDs of one fabric, each held by at most one endnode. The folder has a file `local-ids`; a process holds an
/// ID by a record lock on the byte with this number. So the kernel attests who holds an ID, frees it when the process
/// ends in whatever way, and does not pass it on to a forked child. Any thread.
class LocalIds {
 public:
  struct Holder {
    LocalId id{};
    pid_t pid = 0;  ///< 0: in a PID namespace that this process does not see
  };

  /// The locks of a process end when it closes any descriptor of the file, so all users in a process share one object.
  /// Errors: the file can't be opened.
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

 private:
  LocalIds(os::UniqueFd file, pid_t process) : file_(std::move(file)), process_(process) {}
  [[nodiscard]] bool lock(LocalId id, short kind) const;
  [[nodiscard]] std::optional<Holder> next_holder(LocalId from, std::uint16_t ids, std::uint16_t& held) const;

  os::UniqueFd file_;
  const pid_t process_;  // a forked child holds nothing
  mutable std::mutex mutex_;
  std::set<LocalId> own_;  // the kernel does not tell a process of its own locks
};

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
  [[nodiscard]] const LocalIds& ids() const { return *ids_; }

 private:
  std::shared_ptr<LocalIds> ids_;
  LocalId id_;
};

}  // namespace splitnic::fabric
