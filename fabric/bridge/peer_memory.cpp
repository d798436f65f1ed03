#include "fabric/bridge/peer_memory.h"

namespace splitnic::fabric {

#ifdef SPLITNIC_AUDIT_LOADS

LoadAudit::LoadAudit() { listening().push_back(this); }

LoadAudit::~LoadAudit() { std::erase(listening(), this); }

void LoadAudit::watch(const PeerMemory& memory) {
  watched_.push_back({memory.base_, std::vector<std::uint8_t>(memory.size())});
}

void LoadAudit::record(const std::byte* at, std::size_t bytes) {
  Watched* const watched = find(at, bytes);
  if (watched == nullptr) return;
  bytes_loaded_ += bytes;
  std::uint8_t* const loaded = watched->loaded.data() + (at - watched->begin);
  if (std::memchr(loaded, 1, bytes) != nullptr) ++double_loads_;
  std::memset(loaded, 1, bytes);
}

void LoadAudit::forget(const std::byte* at, std::size_t bytes) {
  Watched* const watched = find(at, bytes);
  if (watched == nullptr) return;
  std::memset(watched->loaded.data() + (at - watched->begin), 0, bytes);
}

LoadAudit::Watched* LoadAudit::find(const std::byte* at, std::size_t bytes) {
  for (Watched& watched : watched_) {
    const std::byte* const end = watched.begin + watched.loaded.size();
    if (bytes != 0 && watched.begin <= at && at < end) return &watched;
  }
  return nullptr;
}

std::vector<LoadAudit*>& LoadAudit::listening() {
  thread_local std::vector<LoadAudit*> audits;
  return audits;
}

#endif

}  // namespace splitnic::fabric
