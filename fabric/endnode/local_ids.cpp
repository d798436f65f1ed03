#include "fabric/endnode/local_ids.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <utility>

#include "common/check.h"
#include "common/os/errno_text.h"
#include "fabric/endnode/fabric_directory.h"
#include "fabric/threads/per_process.h"

namespace splitnic::fabric {
namespace {

constexpr unsigned kHashBits = 45;
constexpr unsigned kIdBits = 16;
constexpr std::int64_t kIdsEnd = std::int64_t{kMaxLocalId} + 1;

struct flock record(std::int64_t from, std::int64_t bytes, short kind) {
  struct flock lock {};
  lock.l_type = kind;
  lock.l_whence = SEEK_SET;
  lock.l_start = from;
  lock.l_len = bytes;
  return lock;
}

/// The objects of this process, by file. Record locks belong to the process, and so does this. A file that was opened
/// stays open: closing it would end the locks of those who open it at the same moment. A forked child opens it anew.
struct OpenFiles {
  std::mutex mutex;
  std::map<std::pair<dev_t, ino_t>, std::shared_ptr<LocalIds>> files;
};

OpenFiles& open_files() {
  static constinit PerProcess<OpenFiles> files;
  return files.get();
}

}  // namespace

Result<std::shared_ptr<LocalIds>> LocalIds::open(const std::string& directory) {
  const std::string path = fmt::format("{}/{}", directory, kLocalIdsFile);
  auto& known = open_files();
  const std::lock_guard lock(known.mutex);
  // Look before opening: closing a second descriptor would end the locks of the first one.
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0) {
    const auto found = known.files.find({status.st_dev, status.st_ino});
    if (found != known.files.end()) return found->second;
  }
  os::UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file || ::fstat(file.get(), &status) != 0) return fail("{}: {}", path, os::errno_text());
  const std::shared_ptr<LocalIds> ids(new LocalIds(std::move(file), ::getpid()));
  known.files[{status.st_dev, status.st_ino}] = ids;
  return ids;
}

LocalIds::~LocalIds() {
  // A forked child that opened the file anew would lose its own locks.
  if (process_ != ::getpid()) static_cast<void>(file_.release());
}

bool LocalIds::lock(std::int64_t byte, short kind) const {
  struct flock wanted = record(byte, 1, kind);
  return ::fcntl(file_.get(), F_SETLK, &wanted) == 0;
}

bool LocalIds::take(LocalId id) {
  SPLITNIC_CHECK(id.value > 0 && id.value <= kMaxLocalId);
  const std::lock_guard guard(mutex_);
  if (own_.contains(id) || !lock(id.value, F_WRLCK)) return false;
  own_.insert(id);
  return true;
}

std::optional<LocalId> LocalIds::take(RandomSource& random) {
  const auto start = static_cast<std::uint16_t>(random.below(kMaxLocalId));
  for (std::uint16_t tried = 0; tried < kMaxLocalId; ++tried) {
    const LocalId id{static_cast<std::uint16_t>((start + tried) % kMaxLocalId + 1)};
    if (take(id)) return id;
  }
  return std::nullopt;
}

void LocalIds::give_back(LocalId id) {
  const std::lock_guard guard(mutex_);
  SPLITNIC_CHECK(own_.erase(id) == 1);
  static_cast<void>(lock(id.value, F_UNLCK));
}

/// One of the locks of other processes on [from, to), as far as it lies there.
std::optional<LocalIds::Range> LocalIds::any_of_others(std::int64_t from, std::int64_t to) const {
  struct flock found = record(from, to - from, F_WRLCK);
  if (::fcntl(file_.get(), F_GETLK, &found) != 0 || found.l_type == F_UNLCK) return std::nullopt;
  const std::int64_t end = found.l_len == 0 ? to : std::min(found.l_start + found.l_len, to);
  return Range{std::max<std::int64_t>(found.l_start, from), end, std::max(found.l_pid, 0)};
}

/// All of them, or `most`, in no order. The kernel names any one, and not the first: so what lies before it is asked
/// for next, and what lies behind.
std::vector<LocalIds::Range> LocalIds::all_of_others(std::int64_t from, std::int64_t to, std::size_t most) const {
  std::vector<Range> found;
  std::vector<Range> open{{from, to}};
  while (!open.empty() && found.size() < most) {
    const Range asked = open.back();
    open.pop_back();
    const auto held = any_of_others(asked.from, asked.to);
    if (!held) continue;
    found.push_back(*held);
    if (held->to < asked.to) open.push_back({held->to, asked.to});
    if (asked.from < held->from) open.push_back({asked.from, held->from});
  }
  return found;
}

std::optional<LocalIds::Holder> LocalIds::holder(LocalId id) const {
  const std::lock_guard guard(mutex_);
  return holder_locked(id);
}

std::optional<LocalIds::Holder> LocalIds::holder_locked(LocalId id) const {
  if (id.value == 0 || id.value > kMaxLocalId) return std::nullopt;
  if (own_.contains(id) && process_ == ::getpid()) return Holder{id, process_};
  const auto held = any_of_others(id.value, id.value + 1);
  return held ? std::optional(Holder{id, held->pid}) : std::nullopt;
}

std::vector<LocalIds::Holder> LocalIds::holders() const {
  const std::lock_guard guard(mutex_);
  std::vector<Holder> all;
  for (const Range& range : all_of_others(1, kIdsEnd, kMaxLocalId)) {
    for (std::int64_t id = range.from; id < range.to; ++id) {
      all.push_back({LocalId{static_cast<std::uint16_t>(id)}, range.pid});
    }
  }
  if (process_ == ::getpid()) {
    for (const LocalId id : own_) all.push_back({id, process_});
  }
  std::ranges::sort(all, {}, [](const Holder& holder) { return holder.id; });
  return all;
}

// ---- groups

std::int64_t membership_byte(const Gid& group, LocalId id) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const std::uint8_t byte : group.bytes) hash = (hash ^ byte) * 0x100000001b3U;
  hash = (hash ^ hash >> kHashBits) & ((std::uint64_t{1} << kHashBits) - 1);
  return static_cast<std::int64_t>((std::uint64_t{1} << kHashBits | hash) << kIdBits | id.value);
}

LocalIds::Joined LocalIds::join(const Gid& group, LocalId id) {
  const std::lock_guard guard(mutex_);
  SPLITNIC_CHECK(own_.contains(id));
  const std::int64_t byte = membership_byte(group, id);
  if (const auto known = memberships_.find(byte); known != memberships_.end()) {
    ++known->second;
    return Joined::yes;
  }
  // First the lock, then the look: of two endnodes that join at the same moment each sees the other one.
  if (!lock(byte, F_WRLCK)) return Joined::in_other;
  memberships_[byte] = 1;
  if (members_locked(group).too_many) {
    memberships_.erase(byte);
    static_cast<void>(lock(byte, F_UNLCK));
    return Joined::full;
  }
  announce();
  return Joined::yes;
}

void LocalIds::leave(const Gid& group, LocalId id) {
  const std::lock_guard guard(mutex_);
  const auto known = memberships_.find(membership_byte(group, id));
  SPLITNIC_CHECK(known != memberships_.end());
  if (--known->second != 0) return;
  static_cast<void>(lock(known->first, F_UNLCK));
  memberships_.erase(known);
  announce();
}

LocalIds::Members LocalIds::members(const Gid& group) const {
  const std::lock_guard guard(mutex_);
  return members_locked(group);
}

LocalIds::Members LocalIds::members_locked(const Gid& group) const {
  constexpr std::size_t kMostLooks = 2 * kMaxMembers;  // also of one lock over many bytes
  const std::int64_t first = membership_byte(group, LocalId{0});
  const std::int64_t end = first + kIdsEnd;
  Members members;
  if (process_ == ::getpid()) {
    for (auto own = memberships_.lower_bound(first); own != memberships_.end() && own->first < end; ++own) {
      members.ids.push_back(LocalId{static_cast<std::uint16_t>(own->first - first)});
    }
  }
  std::size_t looks = 0;
  for (const Range& range : all_of_others(first, end, kMostLooks)) {
    for (std::int64_t byte = range.from; byte < range.to; ++byte) {
      const LocalId id{static_cast<std::uint16_t>(byte - first)};
      const auto holder = ++looks > kMostLooks ? std::nullopt : holder_locked(id);
      if (holder && holder->pid == range.pid) {
        members.ids.push_back(id);
      } else {
        ++members.refused;
      }
    }
  }
  std::ranges::sort(members.ids);
  members.too_many = members.ids.size() > kMaxMembers;
  if (members.too_many) members.ids.resize(kMaxMembers);
  return members;
}

// ---- places of queue pairs

std::int64_t place_byte(QpNumber queue_pair, LocalId id) {
  constexpr unsigned kMark = 44;
  return (std::int64_t{1} << kMark | queue_pair.value) << kIdBits | id.value;
}

void LocalIds::place(QpNumber queue_pair, LocalId id) {
  const std::lock_guard guard(mutex_);
  SPLITNIC_CHECK(own_.contains(id));
  static_cast<void>(lock(place_byte(queue_pair, id), F_WRLCK));  // else it is found by its own ID alone
}

void LocalIds::displace(QpNumber queue_pair, LocalId id) {
  const std::lock_guard guard(mutex_);
  static_cast<void>(lock(place_byte(queue_pair, id), F_UNLCK));
}

LocalId LocalIds::place_of(QpNumber queue_pair, LocalId id) const {
  constexpr std::size_t kMostLooks = 64;  // queue pairs of other processes may have the same number
  const std::lock_guard guard(mutex_);
  const auto named = holder_locked(id);
  // From other PID namespaces all processes are 0, and any two would pass for one.
  if (!named || named->pid == 0 || own_.contains(id)) return id;
  const std::int64_t first = place_byte(queue_pair, LocalId{0});
  LocalId place = id;
  std::size_t looks = 0;
  for (const Range& range : all_of_others(first, first + kIdsEnd, kMostLooks)) {
    for (std::int64_t byte = range.from; byte < range.to && range.pid == named->pid; ++byte) {
      const LocalId at{static_cast<std::uint16_t>(byte - first)};
      const auto holder = ++looks > kMostLooks ? std::nullopt : holder_locked(at);
      if (!holder || holder->pid != range.pid) break;
      if (at == id) return id;
      place = at;
    }
  }
  return place;
}

/// The change of its times is what inotify tells (IN_ATTRIB).
void LocalIds::announce() const { static_cast<void>(::futimens(file_.get(), nullptr)); }

}  // namespace splitnic::fabric
