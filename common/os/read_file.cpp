#include "common/os/read_file.h"

#include <fcntl.h>

#include <array>
#include <cerrno>
#include <span>

#include "common/os/errno_text.h"
#include "common/os/message_io.h"
#include "common/os/unique_fd.h"

namespace splitnic::os {

Result<std::string> read_file(const std::string& path, std::size_t max_bytes) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return fail("{}: {}", path, errno_text());
  return read_file(file.get(), path, max_bytes);
}

Result<std::string> read_file(int descriptor, const std::string& name, std::size_t max_bytes) {
  std::string text;
  for (;;) {
    std::array<char, 16384> chunk;
    // Pipes have no offsets.
    ssize_t got = read_some_at(descriptor, std::as_writable_bytes(std::span(chunk)), static_cast<off_t>(text.size()));
    if (got < 0 && errno == ESPIPE) got = read_some(descriptor, std::as_writable_bytes(std::span(chunk)));
    if (got == 0) return text;
    if (got < 0) {
      if (errno == EINTR) continue;
      return fail("{}: {}", name, errno_text());
    }
    text.append(chunk.data(), static_cast<std::size_t>(got));
    if (text.size() > max_bytes) return fail("{}: larger than {} bytes", name, max_bytes);
  }
}

}  // namespace splitnic::os
