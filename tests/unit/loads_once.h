#pragma once

#include <cstdint>
#include <initializer_list>

#include "common/check.h"
#include "fabric/bridge/peer_memory.h"

namespace splitnic::test {

/// Checks at its end that no byte of some peer-written memory was loaded twice for one message. Lives no longer than
/// the memory, on the thread that loads. Only audited builds check (SPLITNIC_AUDIT_LOADS).
class LoadsOnce {
 public:
  LoadsOnce(std::initializer_list<fabric::PeerMemory> memories) {
#ifdef SPLITNIC_AUDIT_LOADS
    for (const auto& memory : memories) audit_.watch(memory);
#else
    static_cast<void>(memories);
#endif
  }
  ~LoadsOnce() { SPLITNIC_CHECK_OP(take_double_loads(), ==, 0U); }
  LoadsOnce(const LoadsOnce&) = delete;
  LoadsOnce& operator=(const LoadsOnce&) = delete;

  /// How many loads were double since the last call, which the end then no longer sees. For tests of planted bugs.
  std::uint64_t take_double_loads() {
#ifdef SPLITNIC_AUDIT_LOADS
    const std::uint64_t taken = audit_.double_loads() - taken_;
    taken_ += taken;
    return taken;
#else
    return 0;
#endif
  }

 private:
#ifdef SPLITNIC_AUDIT_LOADS
  fabric::LoadAudit audit_;
  std::uint64_t taken_ = 0;
#endif
};

}  // namespace splitnic::test
