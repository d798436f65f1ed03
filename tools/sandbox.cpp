#include "tools/sandbox.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <malloc.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <csignal>
#include <string_view>
#include <utility>

#include "common/os/errno_text.h"
#include "common/os/unique_fd.h"
#include "common/os/unix_listener.h"

namespace splitnic::tools {

namespace asio = boost::asio;

/// Waits for the end of the privileged process, by the hang-up of its socket. Its answers are read elsewhere.
struct Sandbox::Watch : std::enable_shared_from_this<Watch> {
  os::EventLoop& loop;
  os::PrivilegedProcess& process;
  os::Log& log;
  asio::posix::stream_descriptor socket;
  std::atomic<bool> ended{false};

  Watch(os::EventLoop& its_loop, os::PrivilegedProcess& its_process, os::Log& its_log)
      : loop(its_loop), process(its_process), log(its_log), socket(its_loop.context(), its_process.descriptor()) {}
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  ~Watch() { static_cast<void>(socket.release()); }  // the process's

  void wait() {
    socket.async_wait(asio::posix::stream_descriptor::wait_error, [weak = weak_from_this()](const auto& error) {
      const auto self = weak.lock();
      if (error || !self) return;
      if (!self->process.ended()) return self->wait();
      self->end("has ended");
    });
  }

  /// Any thread.
  void end(std::string_view why) {
    if (ended.exchange(true)) return;
    log.error("the privileged process {}: ending", why);
    loop.stop();
  }
};

Sandbox::Sandbox(const DaemonOptions& options, std::string subject, os::Log& log)
    : on_(!options.no_sandbox), subject_(std::move(subject)), log_(log) {
  if (!on_ && !options.user.empty()) throw UsageError{"--user needs the sandbox: leave out --no-sandbox"};
  if (!options.user.empty()) account_ = find_account(options.user);
  // Heaps for single threads grow with mprotect, which then need not be permitted. Must come before there are threads.
  if (on_) ::mallopt(M_ARENA_MAX, 1);
}

void Sandbox::give_away(const std::string& path) const {
  if (!account_) return;
  // This user may have put something else in the socket's place meanwhile. So the check and the change are of one file.
  const os::UniqueFd file(::open(path.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  struct stat status {};
  if (file && ::fstat(file.get(), &status) == 0 && !S_ISSOCK(status.st_mode)) {
    throw StartupError{fmt::format("{}: is no socket", path)};
  }
  if (file && ::fchownat(file.get(), "", account_->user, account_->group, AT_EMPTY_PATH) == 0) return;
  throw StartupError{fmt::format("{}: giving it to the user of --user: {}", path, os::errno_text())};
}

std::shared_ptr<os::PrivilegedProcess> Sandbox::start_privileged(os::PrivilegedService service, std::vector<int> keep,
                                                                 FilteredPart filter,
                                                                 const std::vector<std::string>& sockets) {
  if (!on_) return nullptr;
  os::PrivilegedWork work;
  work.begin = [keep = std::move(keep)] { keep_only(keep, std::nullopt); };
  work.confine = [filter, subject = subject_] {
    const auto closed = close_filter(permitted_calls(filter), subject + ", privileged process");
    if (!closed) throw StartupError{closed.error().message};
  };
  work.service = std::move(service);
  // The kernel reaps the process, this daemon's only child: no later call is needed for it, and not every PID 1 reaps
  // what a daemon leaves.
  std::signal(SIGCHLD, SIG_IGN);
  work.end = [files = std::vector<os::SocketFile>(sockets.begin(), sockets.end())] {
    for (const auto& file : files) file.remove();
  };
  auto process = os::PrivilegedProcess::fork(work);
  if (!process) throw StartupError{process.error().message};
  process_ = *std::move(process);
  return process_;
}

void Sandbox::drop(const std::vector<int>& keep) {
  if (on_) keep_only(keep, account_);
}

void Sandbox::close(os::EventLoop& loop, FilteredPart part) {
  if (!on_) {
    log_.warning("no sandbox (--no-sandbox): this daemon keeps its rights and may make any system call");
    return;
  }
  if (process_) {
    if (const auto begun = process_->wait_until_begun(); !begun) throw StartupError{begun.error().message};
    watch_ = std::make_shared<Watch>(loop, *process_, log_);
    watch_->wait();
    // A daemon that can't ask any more would never get its interface back.
    process_->on_lost([watch = std::weak_ptr(watch_)] {
      if (const auto self = watch.lock()) self->end("does not answer");
    });
  }
  const auto& calls = permitted_calls(part);
  const uid_t user = ::geteuid();
  if (const auto closed = close_filter(calls, subject_); !closed) throw StartupError{closed.error().message};
  log_.info("sandbox: {}user {}, {} system calls permitted", process_ ? "a privileged process, " : "", user,
            filter_is_built_in() ? fmt::format("{}", count_names(calls)) : "all (a sanitizer's build)");
}

int Sandbox::finish() {
  const bool cut_off = watch_ && watch_->ended;
  watch_.reset();
  return cut_off ? 1 : 0;
}

Sandbox::~Sandbox() {
  if (process_) process_->end();
}

}  // namespace splitnic::tools
