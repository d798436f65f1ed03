#include "common/os/daemon_status.h"

#include <algorithm>
#include <boost/describe/members.hpp>
#include <boost/mp11/algorithm.hpp>
#include <type_traits>

namespace splitnic::os {
namespace {

using Counts = std::vector<NamedCount>;

/// likely: where it was in another report, which most often has the same counts in the same order.
std::uint64_t count_of(const Counts& counts, const std::string& name, std::size_t likely) {
  if (likely < counts.size() && counts[likely].name == name) return counts[likely].count;
  const auto found = std::ranges::find(counts, name, &NamedCount::name);
  return found == counts.end() ? 0 : found->count;
}

bool none_less(const Counts& counts, const Counts& before) {
  std::size_t at = 0;
  return std::ranges::all_of(counts,
                             [&](const auto& count) { return count.count >= count_of(before, count.name, at++); });
}

/// Calls visit(count of peer, count of before) for all of a peer's counts, the numbers and the lists.
template <class Peer, class Visit>
void visit_counts(Peer& peer, const PeerStatus& before, Visit visit) {
  boost::mp11::mp_for_each<boost::describe::describe_members<PeerStatus, boost::describe::mod_public>>(
      [&](auto member) {
        using Value = std::remove_cvref_t<decltype(peer.*member.pointer)>;
        if constexpr (!std::is_same_v<Value, std::string>) visit(peer.*member.pointer, before.*member.pointer);
      });
}

bool none_less(std::uint64_t count, std::uint64_t before) { return count >= before; }

bool none_less(const PeerStatus& peer, const PeerStatus& before) {
  bool none = true;
  visit_counts(peer, before, [&](const auto& count, const auto& then) { none = none && none_less(count, then); });
  return none;
}

void take_off(std::uint64_t& count, std::uint64_t before) { count -= before; }

void take_off(Counts& counts, const Counts& before) {
  std::size_t at = 0;
  for (auto& count : counts) count.count -= std::min(count.count, count_of(before, count.name, at++));
}

void take_off(PeerStatus& peer, const PeerStatus& before) {
  visit_counts(peer, before, [](auto& count, const auto& then) { take_off(count, then); });
}

/// False: there is no count of this name.
bool add_to(Counts& counts, const std::string& name, std::uint64_t count) {
  const auto found = std::ranges::find(counts, name, &NamedCount::name);
  if (found == counts.end()) return false;
  found->count += count;
  return true;
}

/// Adds the counts of a peer that is gone to those of an I/O unit, as the unit does (IoUnit::keep_counts_of). Drops
/// without a name of their own there are drops of frames. False: the daemon keeps no such counts.
bool depart(const PeerStatus& peer, DaemonStatus& status) {
  if (!add_to(status.counts, "departed_rx_frames", peer.rx_frames)) return false;
  add_to(status.counts, "departed_tx_frames", peer.tx_frames);
  for (const auto& message : peer.messages) add_to(status.counts, "departed_" + message.name, message.count);
  for (const auto& drop : peer.drops) {
    if (!add_to(status.drops, "departed_" + drop.name, drop.count)) add_to(status.drops, "departed_drops", drop.count);
  }
  return true;
}

}  // namespace

DaemonStatus ClearedCounts::answer(DaemonStatus status, ControlRequest request) {
  const DaemonStatus now = request == ControlRequest::clear ? status : DaemonStatus{};
  std::erase_if(before_.peers, [&](const PeerStatus& before) {
    const auto still_there = [&](const PeerStatus& peer) {
      return peer.name == before.name && none_less(peer, before);
    };
    return std::ranges::none_of(status.peers, still_there) && depart(before, before_);
  });
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
