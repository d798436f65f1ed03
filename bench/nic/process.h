#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "common/result.h"

namespace splitnic::bench::nic {

/// A program started by the benchmark, stopped at the latest when this is destroyed. Its output goes to a log file.
class Process {
 public:
  /// arguments: the program (a path, or a name that PATH finds), then the program's arguments.
  static Result<Process> start(const std::vector<std::string>& arguments, const std::string& log_path);

  Process(Process&& other) noexcept;
  Process& operator=(Process&&) = delete;
  ~Process();

  /// Sends SIGTERM and does not wait.
  void ask_to_stop();
  /// Ends the program with SIGTERM, or with SIGKILL after a few seconds.
  void stop();
  /// Waits until it has ended by itself; anything but exit code 0 is an error with the last line it wrote.
  Result<void> wait();
  /// Of the program, until it has ended.
  [[nodiscard]] pid_t pid() const { return pid_; }
  /// False after it ended by itself.
  bool running();
  /// Whether its output contains this.
  [[nodiscard]] bool has_said(const std::string& words) const;
  /// How it ended, and the last line that it wrote.
  [[nodiscard]] std::string last_words() const;

 private:
  Process(pid_t pid, std::string name, std::string log_path);

  pid_t pid_ = -1;
  int status_ = 0;  ///< as waitpid reports it, once the program has ended
  std::string name_;
  std::string log_path_;
};

/// One command of iproute2: run_ip({"link", "set", "lan0", "up"}). log_path: a file for its output.
Result<void> run_ip(std::vector<std::string> arguments, const std::string& log_path);

}  // namespace splitnic::bench::nic
