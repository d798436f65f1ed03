#include "common/os/daemon_status.h"

#include <algorithm>

namespace splitnic::os {
namespace {

using Counts = std::vector<NamedCount>;

std::uint64_t count_of(const Counts& counts, const std::string& name) {
  const auto found = std::ranges::find(counts, name, &NamedCount::name);
  return found == counts.end() ? 0 : found->count;
}

bool none_less(const Counts& counts, const Counts& before) {
  return std::ranges::all_of(counts, [&](const auto& count) { return count.count >= count_of(before, count.name); });
}

bool none_less(const PeerStatus& peer, const PeerStatus& before) {
  return peer.tx_frames >= before.tx_frames && peer.rx_frames >= before.rx_frames && peer.tx_bytes >= before.tx_bytes &&
         peer.rx_bytes >= before.rx_bytes && none_less(peer.drops, before.drops) &&
         none_less(peer.messages, before.messages);
}

void take_off(Counts& counts, const Counts& before) {
  for (auto& count : counts) count.count -= std::min(count.count, count_of(before, count.name));
}

void take_off(PeerStatus& peer, const PeerStatus& before) {
  peer.tx_frames -= before.tx_frames;
  peer.rx_frames -= before.rx_frames;
  peer.tx_bytes -= before.tx_bytes;
  peer.rx_bytes -= before.rx_bytes;
  take_off(peer.drops, before.drops);
  take_off(peer.messages, before.messages);
}

}  // namespace

DaemonStatus ClearedCounts::answer(DaemonStatus status, ControlRequest request) {
  const DaemonStatus now = request == ControlRequest::clear ? status : DaemonStatus{};
  for (auto& peer : status.peers) {
    const auto same = std::ranges::find(before_.peers, peer.name, &PeerStatus::name);
    if (same != before_.peers.end() && none_less(peer, *same)) take_off(peer, *same);
  }
  take_off(status.drops, before_.drops);
  take_off(status.counts, before_.counts);
  if (request == ControlRequest::clear) before_ = now;
  return status;
}

}  // namespace splitnic::os
