#include "common/os/close_elsewhere.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <latch>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>

#include "common/os/blocked_signals.h"

namespace splitnic::os {
namespace {

struct Handover {
  std::latch copied{1};
  std::latch closed{1};
  bool has_copies = false;
  std::vector<UniqueFd> descriptors;
};

/// Closes all of this thread's descriptors but those: others must not stay open for longer than their owners want.
void keep_only(const std::vector<UniqueFd>& descriptors) {
  std::vector<unsigned> kept;
  for (const UniqueFd& descriptor : descriptors) kept.push_back(static_cast<unsigned>(descriptor.get()));
  std::ranges::sort(kept);
  unsigned first = 0;
  for (const unsigned number : kept) {
    if (number > first) ::close_range(first, number - 1, 0);
    first = number + 1;
  }
  ::close_range(first, ~0U, 0);
}

/// The thread that ends with the last references.
void carry_away(const std::shared_ptr<Handover>& handover) {
  // From here on this thread has descriptors of its own, which refer to the same files. They end with the thread.
  handover->has_copies = ::unshare(CLONE_FILES) == 0;
  if (!handover->has_copies) {
    // Forbidden, or no memory. Then this thread closes in the ordinary way, and nobody waits for it.
    const std::vector<UniqueFd> own = std::move(handover->descriptors);
    handover->copied.count_down();
    return;
  }
  keep_only(handover->descriptors);
  handover->copied.count_down();
  handover->closed.wait();
}

}  // namespace

std::vector<UniqueFd> close_elsewhere(std::vector<UniqueFd> descriptors) {
  if (descriptors.empty()) return {};
  const auto handover = std::make_shared<Handover>();
  handover->descriptors = std::move(descriptors);
  std::thread thread;
  try {
    // Threads inherit the mask of their creator.
    const BlockedSignals blocked;
    thread = std::thread(carry_away, handover);
  } catch (const std::system_error&) {
    return std::move(handover->descriptors);
  }
  handover->copied.wait();
  if (!handover->has_copies) {
    thread.detach();
    return {};
  }
  handover->descriptors.clear();  // not the last references, so nothing happens here
  handover->closed.count_down();
  thread.join();
  return {};
}

}  // namespace splitnic::os
