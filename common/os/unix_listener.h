#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstddef>
#include <string>

#include "common/os/unique_fd.h"
#include "common/result.h"

namespace splitnic::os {

/// The bytes that sun_path holds without its terminator.
inline constexpr std::size_t kMaxSocketPathBytes = 107;

/// Errors: the path is empty, or longer than the kernel allows.
Result<void> check_socket_path(const std::string& path);
/// Binds the socket to the path, which has exactly this mode then, whatever the umask, and no further rights at any
/// moment. A link in its place is not followed. False: errno says why. path: check_socket_path() has accepted it.
[[nodiscard]] bool bind_socket(int socket, const std::string& path, mode_t mode);

enum class SocketState {
  kAbsent,
  kLive,       ///< a process listens
  kStale,      ///< a socket left behind: connections are refused
  kNotSocket,  ///< something else, a symbolic link included
  kUnknown,    ///< unknown, most often for lack of permission
};

/// Tests the socket by connecting to it, and closes the connection at once. Never blocks.
SocketState probe_socket(const std::string& path);

/// Removes path if it is a stale socket, and returns true if so. Never touches anything else.
bool remove_stale_socket(const std::string& path);

/// A socket's file as it is now, to be removed when its listener has ended, also by a process that may not connect to
/// it.
class SocketFile {
 public:
  explicit SocketFile(std::string path);
  /// Removes the file if it is still the same, or a stale socket. Never touches anything else.
  void remove() const;

 private:
  std::string path_;
  struct stat status_ {};
};

/// A listening Unix stream socket in the file system. It replaces a stale socket at its path. A live socket is an
/// error, and so is anything that is not a socket, which stays untouched. The destructor removes the path if it still
/// belongs to this object.
class UnixListener {
 public:
  /// The descriptor does not block. mode: the permission bits of the path; they are never wider in between.
  /// Errors: "address in use: PATH ...", "PATH: exists and is no socket", too long a path, no permission.
  static Result<UnixListener> listen(const std::string& path, mode_t mode = 0600, int backlog = 64);

  UnixListener(UnixListener&& other) noexcept;
  UnixListener& operator=(UnixListener&& other) noexcept;
  ~UnixListener();

  [[nodiscard]] int descriptor() const { return descriptor_.get(); }
  /// Transfers ownership of the descriptor; this object still removes the path.
  [[nodiscard]] UniqueFd take_descriptor() { return std::move(descriptor_); }
  [[nodiscard]] const std::string& path() const { return path_; }
  /// From now on somebody else removes the path.
  void leave_path() { inode_ = 0; }

 private:
  UnixListener(UniqueFd descriptor, std::string path) : descriptor_(std::move(descriptor)), path_(std::move(path)) {}
  void remove_path();

  UniqueFd descriptor_;
  std::string path_;
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

}  // namespace splitnic::os
