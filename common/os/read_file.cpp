#include "common/os/read_file.h"

#include <fcntl.h>

#include "common/os/errno_text.h"
#include "common/os/unique_fd.h"

namespace splitnic::os {

Result<std::string> read_file(const std::string& path, std::size_t max_bytes) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return fail("{}: {}", path, errno_text());
  std::string text;
  for (;;) {
    char chunk[16384];
    const ssize_t got = ::read(file.get(), chunk, sizeof chunk);
    if (got == 0) return text;
    if (got < 0) {
      if (errno == EINTR) continue;
      return fail("{}: {}", path, errno_text());
    }
    text.append(chunk, static_cast<std::size_t>(got));
    if (text.size() > max_bytes) return fail("{}: larger than {} bytes", path, max_bytes);
  }
}

}  // namespace splitnic::os
