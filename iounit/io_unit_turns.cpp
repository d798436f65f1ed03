// IoUnit, turns: how the hosts' sessions share the unit's time.
#include <fmt/format.h>

#include <chrono>

#include "iounit/io_unit.h"

namespace splitnic::iounit {

namespace {

/// Nobody attests the user of a bridge that is a device, or whose two ends belong to one program.
constexpr uid_t kNoUser = ~uid_t{0};

uid_t user_of(const fabric::Bridge& bridge) {
  const auto peer = bridge.peer();
  return peer ? peer->uid : kNoUser;
}

}  // namespace

std::size_t IoUnit::give_turns(Time now) {
  meter_.start(now);
  waiting_.clear();
  std::size_t work = 0;
  for (std::size_t at = 0; at < turns_.busy().size(); ++at) {  // frames for quiet hosts make it longer
    AttachedHost& host = *turns_.busy()[at];
    host.note_time(now);
    turns_.listen(host, !rests(host));
    if (rests(host)) continue;
    if (share_.has_credit(host.number().value)) {
      work += give_turn(host, now);
    } else {
      waiting_.push_back(&host);
    }
  }
  if (work != 0 || !share_.next_round(now)) return work;
  for (AttachedHost* const host : waiting_) {
    if (share_.has_credit(host->number().value)) work += give_turn(*host, now);
  }
  return work;
}

/// Reads the meter only for a session that had work: the few idle ones before it cost little, and it pays for them.
std::size_t IoUnit::give_turn(AttachedHost& host, Time now) {
  const std::size_t place = host.number().value;
  const std::size_t work = host.poll(now, share_.completions(place));
  host_merger_.flush(towards_lan_);
  if (work == 0) return 0;
  turns_.worked(host, now);
  Turn turn = host.end_turn();
  turn.cost = meter_.lap(work);
  share_.charge(place, turn, now);
  if (share_.is_wasteful(place) && !host.ejected()) eject(host, now);
  return work;
}

/// Sends the turns' frames to the LAN, at the cost of the hosts that sent them.
void IoUnit::flush_lan() {
  sent_to_lan_ = false;
  static_cast<void>(meter_.lap(0));  // what the LAN's own frames cost
  lan_.flush();
  share_.charge_lan(meter_.lap(0));
}

void IoUnit::eject(AttachedHost& host, Time now) {
  ++counters_.hosts_ejected;
  const uid_t user = user_of(host.bridge());
  if (ejections_.reserve(user, 0, true) == fabric::UserLimits::Verdict::reserved) ejections_.release(user, 0, now);
  const auto pause = std::chrono::duration_cast<std::chrono::seconds>(ejections_.next_setup(user, now) - now);
  const auto wasted = std::chrono::duration_cast<std::chrono::milliseconds>(share_.wasted(host.number().value));
  const std::string why =
      fmt::format("its messages and frames cost {} ms of processor time for no use", wasted.count());
  recurring_notice_about(
      host, "share",
      fmt::format("ejected {}: {}; the next host of its user is set up after {} s",
                  host.name().empty() ? "a nameless peer" : "host " + host.name(), why, pause.count()));
  host.eject("ejected: " + why);
}

/// When a new session has its first turn.
Time IoUnit::first_turn(const fabric::Bridge& bridge, Time now) {
  const Time first = ejections_.next_setup(user_of(bridge), now);
  if (first <= now) return now;
  ++counters_.setups_paused;
  return first;
}

}  // namespace splitnic::iounit
