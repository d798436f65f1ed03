#include "fabric/endnode/local_ids.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <utility>

#include "common/check.h"
#include "common/os/errno_text.h"

namespace splitnic::fabric {
namespace {

struct flock record(LocalId from, std::uint16_t ids, short kind) {
  struct flock lock {};
  lock.l_type = kind;
  lock.l_whence = SEEK_SET;
  lock.l_start = from.value;
  lock.l_len = ids;
  return lock;
}

/// The objects of this process, by file. Record locks belong to the process, and so does this.
struct OpenFiles {
  std::mutex mutex;
  std::map<std::pair<dev_t, ino_t>, std::weak_ptr<LocalIds>> files;
};

OpenFiles& open_files() {
  static OpenFiles files;
  return files;
}

}  // namespace

Result<std::shared_ptr<LocalIds>> LocalIds::open(const std::string& directory) {
  const std::string path = directory + "/local-ids";
  auto& known = open_files();
  const std::lock_guard lock(known.mutex);
  // Look before opening: closing a second descriptor would end the locks of the first one.
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0) {
    const auto found = known.files.find({status.st_dev, status.st_ino});
    if (found != known.files.end()) {
      if (auto ids = found->second.lock(); ids && ids->process_ == ::getpid()) return ids;
    }
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

bool LocalIds::lock(LocalId id, short kind) const {
  struct flock wanted = record(id, 1, kind);
  return ::fcntl(file_.get(), F_SETLK, &wanted) == 0;
}

bool LocalIds::take(LocalId id) {
  SPLITNIC_CHECK(id.value > 0 && id.value <= kMaxLocalId);
  const std::lock_guard guard(mutex_);
  if (own_.contains(id) || !lock(id, F_WRLCK)) return false;
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
  static_cast<void>(lock(id, F_UNLCK));
}

/// The first lock of another process on [from, from + ids), and how many IDs of this range it covers.
std::optional<LocalIds::Holder> LocalIds::next_holder(LocalId from, std::uint16_t ids, std::uint16_t& held) const {
  struct flock found = record(from, ids, F_WRLCK);
  if (::fcntl(file_.get(), F_GETLK, &found) != 0 || found.l_type == F_UNLCK) return std::nullopt;
  const auto begin = std::max<off_t>(found.l_start, from.value);
  const off_t all = off_t{from.value} + ids;
  const off_t end = found.l_len == 0 ? all : std::min<off_t>(found.l_start + found.l_len, all);
  held = static_cast<std::uint16_t>(end - begin);
  return Holder{LocalId{static_cast<std::uint16_t>(begin)}, std::max(found.l_pid, 0)};
}

std::optional<LocalIds::Holder> LocalIds::holder(LocalId id) const {
  if (id.value == 0 || id.value > kMaxLocalId) return std::nullopt;
  const std::lock_guard guard(mutex_);
  if (own_.contains(id) && process_ == ::getpid()) return Holder{id, process_};
  std::uint16_t held = 0;
  return next_holder(id, 1, held);
}

std::vector<LocalIds::Holder> LocalIds::holders() const {
  const std::lock_guard guard(mutex_);
  std::vector<Holder> all;
  for (std::uint16_t from = 1; from <= kMaxLocalId;) {
    std::uint16_t held = 0;
    const auto next = next_holder(LocalId{from}, static_cast<std::uint16_t>(kMaxLocalId - from + 1), held);
    if (!next) break;
    for (std::uint16_t id = next->id.value; id < next->id.value + held; ++id) all.push_back({LocalId{id}, next->pid});
    from = static_cast<std::uint16_t>(next->id.value + held);
  }
  if (process_ == ::getpid()) {
    for (const LocalId id : own_) all.push_back({id, process_});
  }
  std::ranges::sort(all, {}, [](const Holder& holder) { return holder.id; });
  return all;
}

}  // namespace splitnic::fabric
