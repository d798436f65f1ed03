#include "seed_runs.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <sstream>
#include <system_error>

#include "common/os/errno_text.h"

namespace splitnic::sim {
namespace {

// A failed SPLITNIC_CHECK aborts: what was under way is said from the signal handler, out of a buffer made before.
std::array<char, 512> last_words;

extern "C" void say_last_words(int) {
  static_cast<void>(!write(STDERR_FILENO, last_words.data(), std::strlen(last_words.data())));
  _exit(1);
}

bool parse_range(SeedOptions& options) {
  if (options.range.empty()) return true;
  char rest = 0;
  unsigned long long first = 0;
  unsigned long long last = 0;
  if (std::sscanf(options.range.c_str(), "%llu-%llu%c", &first, &last, &rest) != 2 || last < first) return false;
  options.first = first;
  options.last = last;
  return true;
}

}  // namespace

void add_options(CLI::App& app, SeedOptions& options) {
  auto* seed = app.add_option("--seed", options.seed, "run one seed, and print what it drew and what was counted");
  app.add_option("--seeds", options.range, "run seeds A-B")->excludes(seed);
  app.add_flag("--trace", options.trace, "print every event");
  app.add_flag("--replay", options.replay, "with --seeds: run each seed twice and compare");
}

int parse(CLI::App& app, SeedOptions& options, int argc, const char* const* argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::ostringstream output;
    std::ostringstream complaint;
    const int code = app.exit(error, output, complaint);
    std::fputs(output.str().c_str(), stdout);
    std::fputs(complaint.str().c_str(), stderr);
    return code == 0 ? 0 : 2;
  }
  if (!parse_range(options)) {
    std::fputs("--seeds wants A-B, two numbers with A <= B\n", stderr);
    return 2;
  }
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) std::signal(signal, say_last_words);
  return -1;
}

void note_seed(std::uint64_t seed, const std::string& replay_command) {
  const std::string words =
      fmt::format("violation: seed {}: the process was killed by a signal (a failed SPLITNIC_CHECK?)\n  replay: {}\n",
                  seed, replay_command);
  last_words.fill('\0');
  std::copy_n(words.begin(), std::min(words.size(), last_words.size() - 1), last_words.begin());
}

std::uint64_t run_range(const SeedOptions& options, const std::function<SeedResult(std::uint64_t seed)>& run,
                        const std::function<void(std::uint64_t seed, const std::string& violation)>& report) {
  std::uint64_t failed = 0;
  for (std::uint64_t seed = options.first; seed <= options.last; ++seed) {
    SeedResult result = run(seed);
    if (options.replay && result.violation.empty() && run(seed).trace_hash != result.trace_hash) {
      result.violation = "two runs of this seed differ";
    }
    if (!result.violation.empty()) {
      ++failed;
      report(seed, result.violation);
    }
    const std::uint64_t done = seed - options.first + 1;
    if (done % 100 == 0) {
      fmt::print("{} seeds, {} failed\n", done, failed);
      std::fflush(stdout);
    }
  }
  return failed;
}

int run_and_finish_output(const std::function<int()>& run) {
  constexpr int kOutputLost = 3;
  try {
    const int code = run();
    errno = EIO;  // if only an earlier write has failed
    if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
    std::fprintf(stderr, "writing the output: %s\n", os::errno_text().c_str());
  } catch (const std::system_error& error) {  // of fmt::print
    if (std::ferror(stdout) == 0) throw;      // a simulation's own failure: ends the process as a signal does
    std::fprintf(stderr, "writing the output: %s\n", error.code().message().c_str());
  }
  return kOutputLost;
}

}  // namespace splitnic::sim
