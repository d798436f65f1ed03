#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "bench/fabric/client.h"
#include "bench/fabric/run.h"
#include "common/os/unique_fd.h"
#include "common/result.h"
#include "common/time.h"

namespace splitnic::bench {

/// A measurement that the benchmark requests from a peer (bench/peers/harness.h).
struct PeerTask {
  std::string operation;
  const char* kind = "latency";  ///< latency, rate, one-sided
  std::uint32_t bytes = 0;
  std::uint32_t list = 1;
};

/// A peer program of the comparison, connected and asleep until its next measurement. Ends with this object. Thread:
/// one.
class PeerProcess {
 public:
  /// path: the program. realtime: its samples run at real-time priority. Errors: why it can't run here, in its own
  /// words.
  static Result<PeerProcess> start(const std::string& path, const Cores& cores, bool realtime);
  PeerProcess(PeerProcess&& other) noexcept;
  PeerProcess& operator=(PeerProcess&&) = delete;
  ~PeerProcess();

  [[nodiscard]] bool offers(const std::string& operation) const;
  /// median of latency in seconds one way, or per_second. Errors: the peer's own; the peer can't be used any more then.
  Result<Figures> measure(const PeerTask& task, Duration length);

 private:
  PeerProcess(pid_t pid, os::UniqueFd channel);
  /// The next line of the protocol; keeps other lines for the error text. Errors: the peer ended, or is silent.
  Result<std::string> read_line(Duration patience);
  void end();

  pid_t pid_ = -1;
  os::UniqueFd channel_;
  std::string buffer_;
  std::string last_words_;
  std::vector<std::string> operations_;
};

}  // namespace splitnic::bench
