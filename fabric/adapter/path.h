#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "common/time.h"
#include "fabric/adapter/counted_poll.h"
#include "fabric/adapter/drains.h"
#include "fabric/adapter/fetch_habit.h"
#include "fabric/adapter/look_habit.h"
#include "fabric/adapter/ring.h"
#include "fabric/adapter/tail_habit.h"
#include "fabric/adapter/work.h"
#include "fabric/ids.h"
#include "fabric/link/cell_link.h"
#include "fabric/link/slot_lane.h"
#include "fabric/memory/mpt.h"
#include "fabric/wire/cell.h"
#include "fabric/wire/datagram.h"

namespace splitnic::fabric {

struct QueuePair;

/// A message that was consumed and not taken, of which the peer has not been told yet; several become one of them all.
struct PendingNotTaken {
  bool wanted = false;
  QpNumber queue_pair{};  ///< 0: perhaps of any
  std::uint32_t psn = 0;
};

/// Which queue pairs await that the peer settles a lane, and up to which position, in the order of the lane. So what is
/// settled finds its queue pairs, however many others wait. Thread: the adapter's owner.
class AwaitedPositions {
 public:
  /// An epoch has begun. lines: of the lane's ring, a power of two; 0: the lane has none, and nothing is noted.
  void start(std::size_t lines) {
    runs_ = Ring<Run>(lines);
    kept_ = lines != 0;
    noted_ = taken_ = lost_to_ = 0;
  }
  [[nodiscard]] bool kept() const { return kept_; }
  /// sender awaits that the lane is settled to this position, which is beyond those noted before. While kept().
  void note(std::uint64_t position, QpNumber sender) {
    Run& newest = runs_[noted_ - 1];
    if (newest.sender == sender.value && noted_ != taken_) {
      newest.position = static_cast<std::uint32_t>(position);
    } else if (noted_ - taken_ != runs_.capacity()) [[likely]] {
      runs_[noted_++] = {static_cast<std::uint32_t>(position), sender.value};
    } else {
      lost_to_ = position;
    }
  }
  /// The lane is settled to this position: calls take(QpNumber) for those who may await something up to there. False:
  /// so may others, because a peer that returns room and settles nothing has let more be sent than there are notes.
  template <class Take>
  [[nodiscard]] bool take(std::uint64_t settled, Take&& take) {
    while (taken_ != noted_) {
      const Run& oldest = runs_[taken_];
      take(QpNumber{oldest.sender});
      if (static_cast<std::int32_t>(static_cast<std::uint32_t>(settled) - oldest.position) < 0) break;
      ++taken_;
    }
    if (lost_to_ == 0) return true;
    if (settled >= lost_to_) lost_to_ = 0;
    return false;
  }

 private:
  /// What one queue pair has sent while no other has.
  struct Run {
    std::uint32_t position = 0;  // of the last, its low bits
    std::uint32_t sender = 0;
  };

  Ring<Run> runs_{1};
  bool kept_ = false;
  std::uint64_t noted_ = 0;
  std::uint64_t taken_ = 0;
  std::uint64_t lost_to_ = 0;  // the last position for which there was no room; 0: none
};

/// Of PathTurns: when a poll looks at the path, and whether its link is armed.
struct PathTurn {
  static constexpr std::size_t kNowhere = static_cast<std::size_t>(-1);

  bool busy = false;                ///< every poll looks at it
  bool attended = false;            ///< something has happened since the last turn began
  bool announced = false;           ///< nothing was sent or taken since CellLink::notify()
  Time busy_until{};                ///< from then on it is idle, unless something happens
  std::size_t asked_at = kNowhere;  ///< in the list of links to be armed; kNowhere: armed for good
};

/// An adapter's way to one peer: the link, what each end has granted to the other, the direct writes that are to end.
/// A queue pair has its path from connect() on. When the peer starts anew, the path's queue pairs fail, its grants end,
/// and the regions in that bridge's memory are void; nothing else is. Thread: the adapter's owner. Source: design,
/// "Node, adapters, ports, paths".
struct Path {
  static constexpr std::size_t kNothingRefused = static_cast<std::size_t>(-1);

  Path(AdapterContext& context, PathNumber own, CellLink& on, std::uint32_t cell_payload)
      : number(own),
        link(on),
        direct(on.direct()),
        corrupts(on.properties().corrupts),
        lossless(on.properties().lossless),
        reports_settled(on.properties().reports_settled),
        drains(context, *this),
        cell_payload_bytes(cell_payload),
        live_incarnation(on.live_incarnation()) {}

  /// An epoch is under way, and the link is still in it. Asked before each request is posted.
  [[nodiscard]] bool is_current() const {
    return open && (live_incarnation != nullptr ? *live_incarnation == incarnation
                                                : link.up() && link.incarnation() == incarnation);
  }
  /// Polls have something to do here, or may have, whatever comes in.
  [[nodiscard]] bool owes() const {
    return waiting != 0 || owes_cells() || std::find(more.begin(), more.end(), true) != more.end();
  }
  /// Cells are to be sent that are of no queue pair.
  [[nodiscard]] bool owes_cells() const { return drains.busy() || owes_refusals(); }
  [[nodiscard]] bool owes_refusals() const {
    return std::any_of(not_taken.begin(), not_taken.end(), [](const PendingNotTaken& each) { return each.wanted; });
  }
  /// Nothing has come in on the lane since a poll looked last, as far as that shows in its slots.
  [[nodiscard, gnu::always_inline]] bool brings_nothing(VirtualLane lane, Time now) const {
    const auto index = static_cast<std::size_t>(lane);
    const SlotLane* rings = slots[index];
    return rings != nullptr && (looks[index].looks_away(now) || !rings->receiver.waiting()) && !more[index] &&
           !not_taken[index].wanted;
  }
  /// The same, and nothing has been settled, and nothing that was taken is to be reported.
  [[nodiscard, gnu::always_inline]] bool is_quiet(VirtualLane lane, Time now, const CountedPoll& poll) const {
    const auto index = static_cast<std::size_t>(lane);
    const SlotLane* rings = slots[index];
    return brings_nothing(lane, now) && !settles_more(lane, poll) && !rings->receiver.unreported();
  }
  /// The peer has settled more of what was sent, as far as this poll looks. Where the lane has slots.
  [[nodiscard, gnu::always_inline]] bool settles_more(VirtualLane lane, const CountedPoll& poll) const {
    const auto index = static_cast<std::size_t>(lane);
    const SlotSender& sender = slots[index]->sender;
    return (!tails[index].leaves_alone(poll) && sender.has_news()) || sender.settled() != settled[index];
  }
  /// The first lane that is not quiet, by number; kLanes: nothing is to be done. Between two epochs there are no lanes.
  [[nodiscard]] std::size_t first_news(Time now, const CountedPoll& poll) const {
    if (drains.busy()) return 0;
    if (!open) return kLanes;
    if (!is_quiet(VirtualLane::control, now, poll)) return static_cast<std::size_t>(VirtualLane::control);
    return is_quiet(VirtualLane::data, now, poll) ? kLanes : static_cast<std::size_t>(VirtualLane::data);
  }
  /// Messages for a queue pair that sends on `own` come in here: by the same path, or by the other end of a loop-back
  /// link.
  [[nodiscard]] bool serves(const Path* own) const { return own == this || (own != nullptr && own == twin); }
  /// CellLink::settled(), settle() and return_room(); by the rings themselves, where there are some.
  /// settled_to(): what the slots have said, if this poll leaves the tail line alone.
  [[nodiscard]] std::uint64_t settled_to(VirtualLane lane, const CountedPoll& poll) {
    const auto index = static_cast<std::size_t>(lane);
    SlotLane* rings = slots[index];
    if (rings == nullptr) return link.settled(lane);
    const std::uint64_t known = rings->sender.settled();
    if (tails[index].leaves_alone(poll)) return known;
    const std::uint64_t settled_now = rings->settled();
    if (settled_now != known) tails[index].line_said_more(poll);
    return settled_now;
  }
  void settle(VirtualLane lane) {
    SlotLane* rings = slots[static_cast<std::size_t>(lane)];
    return rings != nullptr ? rings->receiver.settle() : link.settle(lane);
  }
  /// Of both lanes; all, where the last burst left nothing. How many had something to report.
  std::size_t return_room() {
    std::size_t told = 0;
    for (std::size_t lane = 0; lane != kLanes; ++lane) told += return_room(static_cast<VirtualLane>(lane));
    return told;
  }
  /// Of one lane: 1 or 0.
  std::size_t return_room(VirtualLane lane) {
    const auto index = static_cast<std::size_t>(lane);
    const bool all = !more[index];
    SlotLane* rings = slots[index];
    const bool told = rings != nullptr ? rings->return_room(all) : link.return_room(lane, all);
    return told ? 1U : 0U;
  }
  /// SlotSender::fetch_next(), where the lane has slots.
  void fetch_next(VirtualLane lane) const {
    const SlotLane* rings = slots[static_cast<std::size_t>(lane)];
    if (rings != nullptr) rings->sender.fetch_next();
  }
  /// The link's claim(), which remembers what found no room.
  [[nodiscard]] bool claim(VirtualLane lane, const Cell& cell, std::size_t payload_bytes, ClaimedPayload& to) {
    std::size_t& shortest = refused[static_cast<std::size_t>(lane)];
    const bool room = link.claim(lane, cell, payload_bytes, to);
    shortest = room ? kNothingRefused : std::min(shortest, payload_bytes);
    claims[static_cast<std::size_t>(lane)] += room ? 1U : 0U;
    return room;
  }
  /// Changes whenever the peer has given room on the lane, as far as this end has seen that; where the link has no
  /// slots, when the room is used.
  [[nodiscard]] std::uint64_t room_given(VirtualLane lane) const {
    const SlotLane* rings = slots[static_cast<std::size_t>(lane)];
    return rings != nullptr ? rings->sender.tail() : claims[static_cast<std::size_t>(lane)];
  }
  /// The position in the lane of what was sent last.
  [[nodiscard]] std::uint64_t sent_to(VirtualLane lane) const {
    const SlotLane* rings = slots[static_cast<std::size_t>(lane)];
    return rings != nullptr ? rings->sender.head() : released[static_cast<std::size_t>(lane)];
  }
  /// The peer has refused a message without naming it: the consumption of what was sent so far acknowledges nothing.
  void refuse_sent() {
    for (std::size_t lane = 0; lane != kLanes; ++lane) refused_to[lane] = sent_to(static_cast<VirtualLane>(lane));
  }
  /// The shortest payload that has found no room on the lane since forget_refusals(), and since another has found some.
  [[nodiscard]] std::optional<std::size_t> refused_payload(VirtualLane lane) const {
    const std::size_t shortest = refused[static_cast<std::size_t>(lane)];
    return shortest == kNothingRefused ? std::nullopt : std::optional(shortest);
  }
  void forget_refusals() { refused.fill(kNothingRefused); }
  /// What a cell may carry on this lane. While the link is up.
  [[nodiscard]] std::size_t cell_payload(VirtualLane lane) const {
    return std::min<std::size_t>(cell_payload_bytes, link.max_payload(lane));
  }
  /// Where the peer lets the writer store [address, address + bytes) through the peer window; none: send it segmented.
  [[nodiscard]] WindowPlace claim_direct(MptWriter writer, RemoteAddress remote, std::uint64_t bytes) {
    return direct == nullptr ? WindowPlace() : peer_grants.claim(*direct, writer, remote.tag, remote.address, bytes);
  }
  /// From where the peer lets the reader pull [address, address + bytes) out of the peer window; none: ask the owner.
  [[nodiscard]] ReadGrant find_readable(MptWriter reader, RemoteAddress remote, std::uint64_t bytes) {
    return direct == nullptr ? ReadGrant()
                             : peer_grants.find_readable(*direct, reader, remote.tag, remote.address, bytes);
  }
  /// After a pull by what find_readable() has found: whether that held until all its bytes were there, and they are
  /// this epoch's. The epoch comes first: it brings in what the peer has revoked.
  [[nodiscard]] bool confirm_readable(MptWriter reader, RemoteAddress remote, std::uint64_t bytes,
                                      const ReadGrant& found) {
    return direct != nullptr && direct->is_still_peers() && find_readable(reader, remote, bytes) == found;
  }

  PathNumber number;
  CellLink& link;
  DirectAccess* direct;                   ///< the link's; null: there is none
  PeerWindow* window = nullptr;           ///< of direct, if it is memory, in this epoch
  bool corrupts;                          ///< the link may corrupt cells
  bool lossless;                          ///< a cell that has left arrives, or the epoch ends
  bool reports_settled;                   ///< consumption acknowledges
  std::array<SlotLane*, kLanes> slots{};  ///< the link's, in this epoch; null: there are none
  std::array<PendingNotTaken, kLanes> not_taken{};
  std::array<std::uint64_t, kLanes> settled{};     ///< as far as requests have been completed by it
  std::array<std::uint64_t, kLanes> refused_to{};  ///< up to there, it completes none (refuse_sent())
  std::array<std::uint64_t, kLanes> released{};    ///< CellLink::release(), of the last cell
  std::array<std::uint64_t, kLanes> claims{};      ///< of claim(), those that found room
  std::array<AwaitedPositions, kLanes> awaited{};  ///< kept where there are slots
  std::size_t waiting = 0;                         ///< queue pairs that wait for the peer (QueuePairTurns)
  std::array<LookHabit, kLanes> looks{};           ///< when the lane's slots are looked at
  std::array<bool, kLanes> more{};                 ///< the last burst was as long as bursts may be
  std::array<std::size_t, kLanes> refused{kNothingRefused, kNothingRefused};  ///< see refused_payload()
  MptPublisher grants{};
  MptView peer_grants{};
  Drains drains;
  std::uint32_t cell_payload_bytes;
  std::vector<std::uint32_t> regions{};   ///< tag indices of what was registered in the bridge's memory
  const std::uint64_t* live_incarnation;  ///< CellLink::live_incarnation()
  std::uint64_t incarnation = 0;          ///< the link's, of the epoch that is open
  bool open = false;                      ///< an epoch is under way
  RouteAddresses route{};                 ///< from the peer's port to the own one, in this epoch
  bool takes_no_datagrams = false;        ///< one has waited for room in vain, and none has found room since
  PathTurn turn{};                        ///< when polls look at it
  Path* twin = nullptr;                   ///< the other end, if both are this adapter's
  /// AdapterCounters::cells_received until which all connected queue pairs of the path are doubted (Taking::doubted).
  std::uint64_t all_doubted_until = 0;
  /// By QueuePairPeer::number: the queue pairs that have this path. Kept by join_path() and leave_path().
  std::unordered_multimap<std::uint32_t, QueuePair*> by_peer{};
  /// Messages that came the short way were for it, whatever its path. Null: for none, or it is gone.
  QueuePair* receiver = nullptr;
  /// By lane, of the last message that Express::take() has taken, if take_one() takes such: the next one is most likely
  /// of the same kind.
  std::array<MessageKind, kLanes> last_kind{};
  std::array<TailHabit, kLanes> tails{};  ///< when the lane's tail line is looked at
  FetchHabit fetches{};                   ///< when the lines of an answer are asked for
};

}  // namespace splitnic::fabric
