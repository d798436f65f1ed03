#include "fabric/ibverbs/faults.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <utility>

#include "common/os/errno_text.h"
#include "common/os/uncancelled.h"
#include "common/os/unique_fd.h"

namespace splitnic::ibverbs {
namespace {

/// One system call for a line, so that the lines of several processes do not mix.
void write_line(int descriptor, const std::string& line) {
  const os::Uncancelled uncancelled;
  const std::string whole = line + '\n';
  // A log that takes no more must not end what is under test.
  static_cast<void>(!write(descriptor, whole.data(), whole.size()));
}

/// Standard error, where the environment names no file.
Result<std::shared_ptr<os::UniqueFd>> open_log() {
  const char* path = secure_getenv(fabric::kFaultsLogVariable);
  const bool named = path != nullptr && *path != 0;
  constexpr mode_t kReadable = 0644;
  const int descriptor = named ? open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, kReadable)
                               : fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  if (named && descriptor < 0) return fail("{}: {}: {}", fabric::kFaultsLogVariable, path, os::errno_text());
  return std::make_shared<os::UniqueFd>(descriptor);
}

}  // namespace

Result<std::unique_ptr<fabric::FaultPlan>> faults_of_environment(unsigned device,
                                                                 std::function<bool(fabric::PathNumber)> kill_peer) {
  const char* text = secure_getenv(fabric::kFaultsVariable);
  if (text == nullptr || *text == 0) return std::unique_ptr<fabric::FaultPlan>();
  auto faults = fabric::parse_faults(text);
  if (!faults) return fail("{}: {}", fabric::kFaultsVariable, faults.error().message);
  auto log = open_log();
  if (!log) return tl::unexpected(log.error());
  fabric::FaultPlanOptions options;
  options.faults = *faults;
  options.device = device;
  options.clock = monotonic_now;
  options.kill_peer = std::move(kill_peer);
  options.log = [to = std::move(*log)](const std::string& line) { write_line(to->get(), line); };
  return std::make_unique<fabric::FaultPlan>(std::move(options));
}

}  // namespace splitnic::ibverbs
