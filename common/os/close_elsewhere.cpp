#include "common/os/close_elsewhere.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <latch>
#include <memory>
#include <optional>
#include <utility>

#include "common/os/blocked_signals.h"
#include "common/os/uncancelled.h"

namespace splitnic::os {
namespace {

struct Handover {
  std::latch copied{1};
  std::latch closed{1};
  bool has_copies = false;
  std::vector<UniqueFd> descriptors;
};

/// Gives this thread a table of descriptors of its own, with those alone: others must not stay open for longer than
/// their owners want. False: forbidden, or no memory; then nothing has changed.
bool keep_only(const std::vector<UniqueFd>& descriptors) {
  std::vector<unsigned> kept;
  for (const UniqueFd& descriptor : descriptors) kept.push_back(static_cast<unsigned>(descriptor.get()));
  std::ranges::sort(kept);
  if (::close_range(kept.back() + 1, ~0U, CLOSE_RANGE_UNSHARE) != 0) return false;
  unsigned first = 0;
  for (const unsigned number : kept) {
    if (number > first) ::close_range(first, number - 1, 0);
    first = number + 1;
  }
  return true;
}

/// The thread that ends with the last references.
void carry_away(const std::shared_ptr<Handover>& handover) {
  // From here on this thread has descriptors of its own, which refer to the same files. They end with the thread.
  handover->has_copies = keep_only(handover->descriptors);
  if (!handover->has_copies) {
    // This thread closes in the ordinary way, and nobody waits for it.
    const std::vector<UniqueFd> own = std::move(handover->descriptors);
    handover->copied.count_down();
    return;
  }
  handover->copied.count_down();
  handover->closed.wait();
}

/// The stack has no guard page, because that would need one more system call (mprotect), and the thread does little.
std::optional<pthread_t> start_thread(const std::shared_ptr<Handover>& handover) {
  constexpr std::size_t kStackBytes = 256 << 10;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  pthread_attr_setguardsize(&attributes, 0);
  auto given = std::make_unique<std::shared_ptr<Handover>>(handover);
  const auto run = [](void* argument) -> void* {
    const std::unique_ptr<std::shared_ptr<Handover>> taken(static_cast<std::shared_ptr<Handover>*>(argument));
    carry_away(*taken);
    return nullptr;
  };
  // Threads inherit the mask of their creator.
  const BlockedSignals blocked;
  pthread_t thread{};
  const bool started = pthread_create(&thread, &attributes, run, given.get()) == 0;
  pthread_attr_destroy(&attributes);
  if (!started) return std::nullopt;
  static_cast<void>(given.release());
  return thread;
}

}  // namespace

std::vector<UniqueFd> close_elsewhere(std::vector<UniqueFd> descriptors) {
  if (descriptors.empty()) return {};
  const Uncancelled whole;
  const auto handover = std::make_shared<Handover>();
  handover->descriptors = std::move(descriptors);
  const auto thread = start_thread(handover);
  if (!thread) return std::move(handover->descriptors);
  handover->copied.wait();
  if (!handover->has_copies) {
    pthread_detach(*thread);
    return {};
  }
  handover->descriptors.clear();  // not the last references, so nothing happens here
  handover->closed.count_down();
  pthread_join(*thread, nullptr);
  return {};
}

}  // namespace splitnic::os
