#include "fabric/bridge/peer_memory.h"

namespace splitnic::fabric {

#ifdef SPLITNIC_AUDIT_LOADS

void LoadAudit::begin() { used_ = 0; }

void LoadAudit::record(const std::byte* at, std::size_t bytes) {
  if (bytes == 0) return;
  const std::byte* end = at + bytes;
  for (std::size_t i = 0; i < used_; ++i) {
    if (at < ranges_[i].end && ranges_[i].begin < end) {
      ++double_loads_;
      return;
    }
  }
  if (used_ > 0 && ranges_[used_ - 1].end == at) {
    ranges_[used_ - 1].end = end;
    return;
  }
  SPLITNIC_CHECK(used_ < kMaxRanges);
  ranges_[used_++] = Range{at, end};
}

LoadAudit*& LoadAudit::current() {
  thread_local LoadAudit* listening = nullptr;
  return listening;
}

#endif

}  // namespace splitnic::fabric
