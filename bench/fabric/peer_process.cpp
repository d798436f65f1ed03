#include "bench/fabric/peer_process.h"

#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <sstream>
#include <thread>
#include <utility>

#include "common/os/errno_text.h"
#include "common/os/printable.h"

namespace splitnic::bench {

namespace {

constexpr Duration kStartPatience = std::chrono::seconds(20);
constexpr Duration kEndPatience = std::chrono::seconds(2);
constexpr Duration kTaskPatience = std::chrono::seconds(15);

bool is_of_protocol(const std::string& line) {
  return std::ranges::any_of(std::array{"ready", "ok ", "error "},
                             [&](const char* begin) { return line.starts_with(begin); });
}

}  // namespace

Result<PeerProcess> PeerProcess::start(const std::string& path, const Cores& cores, bool realtime) {
  std::array<int, 2> sockets{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets.data()) != 0) {
    return fail("no socket: {}", os::errno_text());
  }
  os::UniqueFd own(sockets[0]);
  os::UniqueFd others(sockets[1]);
  const std::string client = std::to_string(cores.client);
  const std::string server = std::to_string(cores.server);
  const pid_t pid = ::fork();
  if (pid < 0) return fail("no process: {}", os::errno_text());
  if (pid == 0) {
    // The peer asks for the priority itself, once it is connected: its library's threads need none.
    const sched_param normal{0};
    static_cast<void>(::sched_setscheduler(0, SCHED_OTHER, &normal));
    for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(others.get(), descriptor);
    ::execl(path.c_str(), path.c_str(), client.c_str(), server.c_str(), realtime ? "realtime" : "normal", nullptr);
    ::_exit(127);
  }
  PeerProcess peer(pid, std::move(own));
  others.reset();
  const auto ready = peer.read_line(kStartPatience);
  if (!ready) return tl::unexpected(ready.error());
  std::istringstream words(*ready);
  std::string word;
  words >> word;
  while (words >> word) peer.operations_.push_back(word);
  return peer;
}

PeerProcess::PeerProcess(pid_t pid, os::UniqueFd channel) : pid_(pid), channel_(std::move(channel)) {}

PeerProcess::PeerProcess(PeerProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      channel_(std::move(other.channel_)),
      buffer_(std::move(other.buffer_)),
      last_words_(std::move(other.last_words_)),
      operations_(std::move(other.operations_)) {}

PeerProcess::~PeerProcess() { end(); }

void PeerProcess::end() {
  if (pid_ < 0) return;
  // It ends with its input, and removes what its library has in /dev/shm. A peer that does not is killed.
  ::shutdown(channel_.get(), SHUT_WR);
  for (const Time give_up = monotonic_now() + kEndPatience; monotonic_now() < give_up;) {
    if (::waitpid(pid_, nullptr, WNOHANG) == pid_) {
      pid_ = -1;
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ::kill(pid_, SIGKILL);  // its other process ends with it
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
}

bool PeerProcess::offers(const std::string& operation) const {
  return std::ranges::find(operations_, operation) != operations_.end();
}

Result<Figures> PeerProcess::measure(const PeerTask& task, Duration length) {
  const std::string line = fmt::format("{} {} {} {} {}\n", task.operation, task.kind, task.bytes, task.list,
                                       std::chrono::duration<double>(length).count());
  if (::send(channel_.get(), line.data(), line.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(line.size()))
    return fail("it has ended");
  const auto answer = read_line(kTaskPatience + 2 * length);
  if (!answer) return tl::unexpected(answer.error());
  std::istringstream words(*answer);
  std::string verdict;
  double median = 0;
  double percentile_99 = 0;
  words >> verdict >> median >> percentile_99;
  if (verdict != "ok" || !words || !(median > 0)) return fail("{}", os::printable(*answer));
  Figures figures;
  if (task.kind == std::string_view("latency")) {
    figures.median = median;
    figures.percentile_99 = percentile_99;
  } else {
    figures.per_second = median;
  }
  return figures;
}

Result<std::string> PeerProcess::read_line(Duration patience) {
  const Time give_up = monotonic_now() + patience;
  for (;;) {
    for (std::size_t end = buffer_.find('\n'); end != std::string::npos; end = buffer_.find('\n')) {
      std::string line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      if (is_of_protocol(line)) return line;
      if (!line.empty()) last_words_ = std::move(line);
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(give_up - monotonic_now()).count();
    pollfd ready{channel_.get(), POLLIN, 0};
    if (left <= 0 || ::poll(&ready, 1, static_cast<int>(left)) == 0) return fail("it does not answer");
    std::array<char, 4096> bytes;
    const ssize_t got = ::read(channel_.get(), bytes.data(), bytes.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return fail("{}", last_words_.empty() ? "it has ended" : os::printable(last_words_));
    buffer_.append(bytes.data(), static_cast<std::size_t>(got));
  }
}

}  // namespace splitnic::bench
