#include "bench/nic/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <fstream>
#include <iterator>
#include <thread>
#include <utility>

#include "common/os/errno_text.h"
#include "common/time.h"

namespace splitnic::bench::nic {

namespace {

constexpr Duration kPatience = std::chrono::seconds(3);
constexpr Duration kCheckInterval = std::chrono::milliseconds(5);

}  // namespace

Result<Process> Process::start(const std::vector<std::string>& arguments, const std::string& log_path) {
  std::vector<char*> argv;
  for (const auto& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, log_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  ::posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  pid_t pid = -1;
  const int error = ::posix_spawnp(&pid, argv.front(), &actions, nullptr, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return fail("starting {}: {}", arguments.front(), os::errno_text(error));
  return Process(pid, fmt::format("{}", fmt::join(arguments, " ")), log_path);
}

Process::Process(pid_t pid, std::string name, std::string log_path)
    : pid_(pid), name_(std::move(name)), log_path_(std::move(log_path)) {}

Process::Process(Process&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), name_(std::move(other.name_)), log_path_(std::move(other.log_path_)) {
  status_ = other.status_;
}

Process::~Process() { stop(); }

bool Process::running() {
  if (pid_ > 0 && ::waitpid(pid_, &status_, WNOHANG) != 0) pid_ = -1;
  return pid_ > 0;
}

void Process::ask_to_stop() {
  if (running()) ::kill(pid_, SIGTERM);
}

void Process::stop() {
  if (!running()) return;
  ::kill(pid_, SIGTERM);
  for (const Time give_up = monotonic_now() + kPatience; running() && monotonic_now() < give_up;) {
    std::this_thread::sleep_for(kCheckInterval);
  }
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

Result<void> Process::wait() {
  while (pid_ > 0 && ::waitpid(pid_, &status_, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  if (WIFEXITED(status_) && WEXITSTATUS(status_) == 0) return {};
  return fail("{}", last_words());
}

bool Process::has_said(const std::string& words) const {
  std::ifstream log(log_path_);
  const std::string text{std::istreambuf_iterator<char>(log), std::istreambuf_iterator<char>()};
  return text.find(words) != std::string::npos;
}

std::string Process::last_words() const {
  std::ifstream log(log_path_);
  std::string last = "(nothing)";
  for (std::string line; std::getline(log, line);) {
    if (!line.empty()) last = line;
  }
  const auto how = WIFSIGNALED(status_) ? fmt::format("by signal {}", WTERMSIG(status_))
                                        : fmt::format("with exit code {}", WEXITSTATUS(status_));
  return fmt::format("{} ended {}; its last words: {}", name_, how, last);
}

Result<void> run_ip(std::vector<std::string> arguments, const std::string& log_path) {
  arguments.insert(arguments.begin(), "ip");
  auto process = Process::start(arguments, log_path);
  if (!process) return tl::unexpected(process.error());
  return process->wait();
}

}  // namespace splitnic::bench::nic
