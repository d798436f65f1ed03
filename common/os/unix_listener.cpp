#include "common/os/unix_listener.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <chrono>
#include <utility>

#include "common/os/errno_text.h"
#include "common/os/passed_descriptors.h"
#include "common/os/path_parts.h"
#include "common/os/timespec.h"
#include "common/os/unix_address.h"

namespace splitnic::os {
namespace {

// Prevents two processes from replacing the same stale socket, where the second would remove the socket that the first
// has just bound. The lock is on the directory itself, so nothing is left behind. Anybody may hold the lock for long
// (in /tmp), but this only removes the protection against the race.
class DirectoryLock {
 public:
  explicit DirectoryLock(const std::string& path) {
    descriptor_.reset(::open(folder_of(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    for (int attempt = 0; descriptor_ && attempt < 100; ++attempt) {
      if (::flock(descriptor_.get(), LOCK_EX | LOCK_NB) == 0) return;
      const timespec pause = timespec_of(std::chrono::milliseconds(10));
      ::ppoll(nullptr, 0, &pause, nullptr);  // the sandbox forbids poll
    }
  }
  /// The lock would outlast the descriptor: a child that was forked meanwhile has a copy.
  ~DirectoryLock() {
    if (descriptor_) ::flock(descriptor_.get(), LOCK_UN);
  }
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;

 private:
  UniqueFd descriptor_;
};

bool remove_if_stale_locked(const std::string& path) {
  return probe_socket(path) == SocketState::kStale && ::unlink(path.c_str()) == 0;
}

}  // namespace

Result<void> check_socket_path(const std::string& path) {
  if (path.empty()) return fail("a socket's path can't be empty");
  if (path.size() > kMaxSocketPathBytes) {
    return fail("{}: a socket's path has at most {} bytes, this one has {}", path, kMaxSocketPathBytes, path.size());
  }
  return {};
}

SocketState probe_socket(const std::string& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) return errno == ENOENT ? SocketState::kAbsent : SocketState::kUnknown;
  if (!S_ISSOCK(status.st_mode)) return SocketState::kNotSocket;
  if (path.size() > kMaxSocketPathBytes) return SocketState::kUnknown;
  const UniqueFd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!probe) return SocketState::kUnknown;
  // The listener may send something at once, and closing it could take long (close_elsewhere.h).
  static_cast<void>(refuse_descriptors(probe.get()));
  const UnixAddress address(path);
  if (::connect(probe.get(), address.get(), UnixAddress::size()) == 0) return SocketState::kLive;
  switch (errno) {
    case ECONNREFUSED:
      return SocketState::kStale;
    case EAGAIN:      // its queue is full
    case EPROTOTYPE:  // a socket of another type
      return SocketState::kLive;
    case ENOENT:
      return SocketState::kAbsent;
    default:
      return SocketState::kUnknown;
  }
}

bool remove_stale_socket(const std::string& path) {
  const DirectoryLock lock(path);
  return remove_if_stale_locked(path);
}

SocketFile::SocketFile(std::string path) : path_(std::move(path)) {
  if (::lstat(path_.c_str(), &status_) != 0) status_ = {};
}

void SocketFile::remove() const {
  const DirectoryLock lock(path_);
  struct stat now {};
  if (::lstat(path_.c_str(), &now) != 0) return;
  // A new socket in its place may get the same number, but not the same time.
  const bool same = now.st_dev == status_.st_dev && now.st_ino == status_.st_ino && S_ISSOCK(now.st_mode) &&
                    now.st_ctim.tv_sec == status_.st_ctim.tv_sec && now.st_ctim.tv_nsec == status_.st_ctim.tv_nsec;
  if (same) {
    ::unlink(path_.c_str());
  } else {
    remove_if_stale_locked(path_);
  }
}

bool bind_socket(int socket, const std::string& path, mode_t mode) {
  // bind creates the path with the mode that the socket has at that moment (less the umask). So there is no moment in
  // which other users could connect without permission.
  const UnixAddress address(path);
  if (::fchmod(socket, mode) != 0 || ::bind(socket, address.get(), UnixAddress::size()) != 0) return false;
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) return false;
  return (status.st_mode & 07777U) == mode || ::fchmodat(AT_FDCWD, path.c_str(), mode, AT_SYMLINK_NOFOLLOW) == 0;
}

Result<UnixListener> UnixListener::listen(const std::string& path, mode_t mode, int backlog) {
  if (auto fits = check_socket_path(path); !fits) return tl::unexpected(fits.error());
  UniqueFd descriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!descriptor) return fail("{}: {}", path, errno_text());

  const DirectoryLock lock(path);
  switch (probe_socket(path)) {
    case SocketState::kAbsent:
      break;
    case SocketState::kStale:
      remove_if_stale_locked(path);
      break;
    case SocketState::kLive:
      return fail("address in use: {} (somebody listens there)", path);
    case SocketState::kNotSocket:
      return fail("{}: exists and is no socket", path);
    case SocketState::kUnknown:
      return fail("{}: {}", path, errno_text());
  }
  if (!bind_socket(descriptor.get(), path, mode)) {
    if (errno == EADDRINUSE) return fail("address in use: {}", path);
    return fail("{}: {}", path, errno_text());
  }
  UnixListener listener(std::move(descriptor), path);
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) return fail("{}: {}", path, errno_text());
  listener.device_ = status.st_dev;
  listener.inode_ = status.st_ino;
  if (::listen(listener.descriptor(), backlog) != 0) return fail("{}: {}", path, errno_text());
  return listener;
}

UnixListener::UnixListener(UnixListener&& other) noexcept
    : descriptor_(std::move(other.descriptor_)),
      path_(std::exchange(other.path_, {})),
      device_(other.device_),
      inode_(other.inode_) {}

UnixListener& UnixListener::operator=(UnixListener&& other) noexcept {
  if (this != &other) {
    remove_path();
    descriptor_ = std::move(other.descriptor_);
    path_ = std::exchange(other.path_, {});
    device_ = other.device_;
    inode_ = other.inode_;
  }
  return *this;
}

UnixListener::~UnixListener() { remove_path(); }

void UnixListener::remove_path() {
  struct stat status {};
  if (path_.empty() || inode_ == 0 || ::lstat(path_.c_str(), &status) != 0) return;
  if (status.st_dev == device_ && status.st_ino == inode_) ::unlink(path_.c_str());
}

}  // namespace splitnic::os
