#include "common/os/line_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <limits.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "common/os/message_io.h"

namespace splitnic::os {

LineWriter::LineWriter(int descriptor) : descriptor_(descriptor) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) return;
  if (S_ISREG(status.st_mode)) kind_ = Kind::file;
  if (S_ISSOCK(status.st_mode)) kind_ = Kind::socket;
  if (kind_ != Kind::stream) return;
  const auto path = fmt::format("/proc/self/fd/{}", descriptor);
  reopened_.reset(::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
}

std::size_t LineWriter::take(std::string_view bytes) {
  ssize_t written = -1;
  if (kind_ == Kind::socket) {
    written = send_bytes(descriptor_, std::as_bytes(std::span(bytes)), MSG_DONTWAIT);
  } else if (kind_ == Kind::file || reopened_) {
    written = ::write(reopened_ ? reopened_.get() : descriptor_, bytes.data(), bytes.size());
  } else {
    // A writable pipe takes PIPE_BUF bytes without blocking.
    if (events_now(descriptor_, POLLOUT) == 0) return 0;
    written = ::write(descriptor_, bytes.data(), std::min<std::size_t>(bytes.size(), PIPE_BUF));
  }
  if (written >= 0) return static_cast<std::size_t>(written);
  return may_take_later(errno) ? 0 : bytes.size();
}

/// error: of a write. A file that fails may have room again, whatever the error; other descriptors fail for good.
bool LineWriter::may_take_later(int error) const {
  return kind_ == Kind::file || error == EAGAIN || error == EINTR || error == ENOSPC;
}

bool LineWriter::flush() {
  while (!waiting_.empty()) {
    auto& line = waiting_.front();
    const std::size_t taken = take(line);
    waiting_bytes_ -= taken;
    line.erase(0, taken);
    if (!line.empty()) return false;
    waiting_.pop_front();
  }
  if (lost_unreported_ == 0) return true;
  push(fmt::format("{} lines of the log are lost: {}\n", std::exchange(lost_unreported_, 0),
                   kind_ == Kind::file ? "the file had no room" : "nobody read them"));
  return flush();
}

void LineWriter::push(std::string_view line) {
  waiting_bytes_ += line.size();
  waiting_.emplace_back(line);
}

void LineWriter::write(std::string_view line) {
  flush();
  const std::size_t bytes = std::min(line.size() + 1, kMaxWaitingBytes);
  // After a lost line the writer loses the next lines, too, until it can report the loss in the right place.
  if (lost_unreported_ != 0 || waiting_bytes_ + bytes > kMaxWaitingBytes) {
    ++lost_;
    ++lost_unreported_;
    return;
  }
  push(line.substr(0, bytes - 1));
  waiting_.back() += '\n';
  ++waiting_bytes_;
  flush();
}

}  // namespace splitnic::os
