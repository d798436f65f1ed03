#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>

#include "common/os/unique_fd.h"
#include "common/result.h"

namespace splitnic::os {

/// What sun_path holds besides its terminator.
inline constexpr std::size_t kMaxSocketPathBytes = 107;

/// Errors: empty, or longer than the kernel takes.
Result<void> check_socket_path(const std::string& path);

enum class SocketState {
  kAbsent,
  kLive,       ///< somebody listens
  kStale,      ///< a socket left behind: connections are refused
  kNotSocket,  ///< something else, a symbolic link included
  kUnknown,    ///< can't be told, most often for lack of permission
};

/// Finds out by connecting (and hanging up at once, if that works). Never blocks.
SocketState probe_socket(const std::string& path);

/// Removes path if it is a stale socket; true if it did. Never touches anything else.
bool remove_stale_socket(const std::string& path);

/// A listening Unix stream socket in the file system. A stale socket in its place is replaced; a live one is an error,
/// and so is anything that is no socket, which stays untouched. The path is removed at the end if it is still ours.
class UnixListener {
 public:
  /// The descriptor does not block. mode: the permission bits that the path gets, never wider in between.
  /// Errors: "address in use: PATH ...", "PATH: exists and is no socket", too long a path, no permission.
  static Result<UnixListener> listen(const std::string& path, mode_t mode = 0600, int backlog = 64);

  UnixListener(UnixListener&& other) noexcept;
  UnixListener& operator=(UnixListener&& other) noexcept;
  ~UnixListener();

  [[nodiscard]] int descriptor() const { return descriptor_.get(); }
  /// Hands the descriptor over; the path remains this object's to remove.
  [[nodiscard]] UniqueFd take_descriptor() { return std::move(descriptor_); }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  UnixListener(UniqueFd descriptor, std::string path) : descriptor_(std::move(descriptor)), path_(std::move(path)) {}
  void remove_path();

  UniqueFd descriptor_;
  std::string path_;
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

}  // namespace splitnic::os
