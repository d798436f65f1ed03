#include "common/os/write_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>

#include "common/os/errno_text.h"
#include "common/os/path_parts.h"
#include "common/os/unique_fd.h"

namespace splitnic::os {
namespace {

bool write_all(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t wrote = ::write(file, text.data(), text.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(wrote));
  }
  return ::fsync(file) == 0;
}

}  // namespace

Result<void> write_file(const std::string& path, std::string_view text) {
  const std::string fresh = path + ".new";
  const UniqueFd file(::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file || !write_all(file.get(), text) || std::rename(fresh.c_str(), path.c_str()) != 0) {
    return fail("{}: {}", path, errno_text());
  }
  // The new name is on the disk when its folder is.
  const std::string folder = folder_of(path);
  const UniqueFd directory(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory || ::fsync(directory.get()) != 0) return fail("{}: {}", folder, errno_text());
  return {};
}

}  // namespace splitnic::os
