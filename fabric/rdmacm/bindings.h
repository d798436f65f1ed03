#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "common/os/unique_fd.h"
#include "common/random.h"
#include "common/result.h"
#include "fabric/rdmacm/address.h"
#include "fabric/rdmacm/record.h"

namespace splitnic::rdmacm {

/// What an identifier is bound to.
struct Binding {
  Space space{};
  Address address{};      ///< `::` is every address of both families
  bool only_ip6 = false;  ///< then `::` is every IPv6 address

  friend bool operator==(const Binding&, const Binding&) = default;
};

/// Bytes of the lock file: one for each combination of port space, number and address. An address that stands for all
/// is the range of all of them, so the kernel refuses what overlaps.
///
///      62  61 60          44  43                                0
///     +---+-----+------------+---+-------------------------------+
///     | 0 |space|   number   | 6 | IPv4 address, or hash of IPv6 |      6: the IPv6 half
///     +---+-----+------------+---+-------------------------------+
struct LockRange {
  off_t from = 0;
  off_t bytes = 0;
};
[[nodiscard]] LockRange lock_range(const Binding& binding);
/// Of a listener's socket, in the fabric's folder.
[[nodiscard]] std::string socket_name(const Binding& binding);

/// Who is bound to which address on one fabric. The folder has a file `bindings`, and a process holds a binding by a
/// record lock: the kernel attests who holds it, frees it when the process ends in whatever way, and does not pass it
/// on to a forked child. A listener also has a socket in the folder, whose name is made of the binding. Any thread.
class Bindings {
 public:
  /// Removes the sockets that killed listeners have left. A process opens one object for each folder: closing a second
  /// descriptor of the file would end the locks. Errors: the file can't be opened.
  [[nodiscard]] static Result<std::unique_ptr<Bindings>> open(const std::string& directory);
  Bindings(const Bindings&) = delete;
  Bindings& operator=(const Bindings&) = delete;

  /// Takes it. A number 0 becomes one that is free, from a random place of the ephemeral ones. 0 or an errno:
  /// EADDRINUSE (for a number 0: none is free).
  [[nodiscard]] int take(Binding& binding, RandomSource& random);
  /// binding: taken from this object.
  void give_back(const Binding& binding);

  /// The process that holds exactly this or an overlapping binding, as the kernel names it here (0: in a PID namespace
  /// that this process does not see); nullopt: nobody.
  [[nodiscard]] std::optional<pid_t> holder(const Binding& binding) const;
  /// Of a listener with this binding, for this process: a folder whose path leaves no room for the name goes by a
  /// descriptor of this object, below /proc/self/fd.
  [[nodiscard]] std::string socket_path(const Binding& binding) const;

 private:
  Bindings(std::string directory, os::UniqueFd file, os::UniqueFd folder);
  [[nodiscard]] bool lock(const LockRange& range, short kind) const;
  [[nodiscard]] bool overlaps_own(const LockRange& range) const;
  [[nodiscard]] int take_exactly(const Binding& binding);
  void remove_left_over();

  std::string directory_;
  os::UniqueFd file_;
  os::UniqueFd folder_;  // none: the path has room for every name
  mutable std::mutex mutex_;
  std::map<off_t, off_t> own_;  // from, bytes: the kernel does not tell a process of its own locks
};

}  // namespace splitnic::rdmacm
