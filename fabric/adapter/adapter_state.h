#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "fabric/adapter/answer_habit.h"
#include "fabric/adapter/channel_adapter.h"
#include "fabric/adapter/context.h"
#include "fabric/adapter/express.h"
#include "fabric/adapter/placer.h"
#include "fabric/adapter/queue_pair_turns.h"
#include "fabric/adapter/requester.h"
#include "fabric/adapter/responder.h"

namespace splitnic::fabric {

inline constexpr std::size_t kWellKnownNumbers = 16;
inline constexpr std::size_t kMaxCompletionDepth = std::size_t{1} << 20U;
inline constexpr std::size_t kMaxReads = 256;

/// What a ChannelAdapter is made of. A queue pair's slot is the low bits of its number: the first sixteen are those of
/// the well-known numbers, and a drawn number is random above its slot's bits.
struct ChannelAdapter::State {
  State(const AdapterOptions& options, RandomSource& randomness);

  [[nodiscard]] QueuePair* find(QpNumber number) const { return context.queue_pair(number); }
  [[nodiscard]] std::optional<QpNumber> draw_number();
  /// The polls look after this queue pair until it has nothing left to do. Called by whatever gives it something.
  void activate(QueuePair& queue_pair) {
    rests_until = Time::min();
    turns.activate(queue_pair);
  }
  /// The same, where all that it was given has left.
  void activate_to_await(QueuePair& queue_pair) {
    if (turns.active().empty()) rests_until = context.now + kRest;
    timers_to_start = true;
    timers_left = false;
    turns.activate(queue_pair);
  }
  /// Leaves active only those for which there is more to do than to wait.
  void release();
  void begin_epoch(Path& path);
  void end_epoch(Path& path);
  /// Notices that the path's link went down or through an epoch; true while it is up.
  bool follow(Path& path) { return path.is_current() || follow_on(path); }
  /// The same, where the path is not current.
  bool follow_on(Path& path);
  /// The same for the paths whose turn it is, and for every path.
  void follow_turn();
  void follow_all();
  /// Chooses the paths of this turn, once: poll_links() or receive() comes first. polls_links: and so also arms them.
  void begin_turn(Time now, bool polls_links);
  /// A poll begins: time, paths, epochs.
  void enter_turn(Time now);
  /// CellLink::notify() for each busy path; new_alone: where something has left since the last time.
  void notify(bool new_alone);
  /// A lane of a busy path: those of the first, those of the second, and so on.
  using LanePlace = std::size_t;
  static constexpr LanePlace kNowhere = static_cast<LanePlace>(-1);
  /// The first lane where a poll has something to do. kNowhere: nothing has come in, and nothing is to be told. So it
  /// is in most polls of an end that waits for a message.
  [[nodiscard]] LanePlace find_news(Time now) const;
  /// From then on a poll looks after timers and what is to be sent, whatever comes in.
  [[nodiscard]] Time rests_by() const {
    return turns.active().empty() ? turns.earliest() : std::min(rests_until, turns.earliest());
  }
  void rest();
  /// find_news(), several times if the peer is likely to answer now.
  [[nodiscard]] LanePlace await_news(Time now) const;
  [[nodiscard]] Time next_deadline();
  [[nodiscard]] bool any_to_send() const;
  /// The next turn may begin with a look at what has come in, and leave the links alone.
  [[nodiscard]] bool may_look_first(Time now) const;
  /// No busy path's link would do anything if it was polled now.
  [[nodiscard]] bool links_rest(Time now) const;
  /// What has come in, from that lane on, and what is to be sent; as ChannelAdapter::poll().
  std::size_t deal_with(LanePlace news);
  /// Before a sleep: begins what the last turn has left. False: there is something to send.
  [[nodiscard]] bool start_timers();
  /// Takes what has come in, from that lane on; returns how much. answers_first: what the peer says to be settled in it
  /// waits, as the caller is likely to answer.
  std::size_t receive_turn(LanePlace from, bool answers_first);
  /// What the active queue pairs and the busy paths have yet to do: send something, or await the peer's answers.
  enum class Left { nothing, answers, work };
  [[nodiscard]] Left what_is_left() const;
  /// Takes what the path has in this lane and those after it; returns how much.
  std::size_t look(Path& path, std::size_t first_lane, bool answers_first);
  /// Takes the lane's oldest message for a caller who answers each, and leaves all else to the next turn. False: it is
  /// not so simple, and nothing was taken.
  bool take_one(LanePlace news);
  /// So many messages have come in that the caller is likely to answer: asks for the lines of the answer's slot, if it
  /// is better to do so now.
  void prepare_answer(Path& path, VirtualLane lane, std::size_t messages);
  /// Before a post of a caller who answers. A datagram's path is not known yet: most likely it is the one that brought
  /// what it answers.
  void fetch_lines_of_answer(const QueuePair& queue_pair);
  /// Posts requests from the first on that can leave now, the short way. Returns how many.
  [[nodiscard]] std::size_t post_at_once(QueuePair& queue_pair, std::span<const WorkRequest> requests);
  /// As ChannelAdapter::post_send(), from the request at `first` on.
  [[nodiscard]] Status post_from(QueuePair& queue_pair, std::span<const WorkRequest> requests, std::size_t first,
                                 std::size_t& posted);
  /// The same, from the request at `posted` on, which goes the general way.
  [[nodiscard]] Status post_general(QueuePair& queue_pair, std::span<const WorkRequest> requests, std::size_t& posted);
  void note_empty(Path& path, VirtualLane lane) const;
  std::size_t receive_cells(Path& path, VirtualLane lane);
  /// Takes all that lies in the path's lanes, as polls would.
  void take_waiting(Path& path);
  /// The queue pair is about to leave its connection, if it has one.
  void note_connection(const QueuePair& queue_pair);
  /// The queue pair is about to be connected.
  void end_former_connection(const QueuePair& queue_pair);
  [[nodiscard]] std::size_t slot_of(QpNumber number) const {
    return number.value & (context.queue_pair_slots.size() - 1);
  }
  /// False: the cell is of a message, and was not taken.
  [[nodiscard]] bool take_cell(Path& path, const ReceivedCell& received);
  [[nodiscard]] bool dispatch(QueuePair& queue_pair, const ReceivedCell& received);
  /// Completes what the peer has settled; returns how many requests.
  std::size_t take_settled(Path& path, VirtualLane lane);
  /// The same, of what is settled to this position of the lane.
  std::size_t complete_settled(Path& path, VirtualLane lane, std::uint64_t settled);
  /// Before the links are polled: completes what the rings know to be settled, because the last turn has left it to
  /// this one, or a look before a sleep has found it. A link that goes down takes it with it.
  void take_known_settled();
  /// The peer is to know that the consumption of this cell acknowledges nothing.
  void refuse_consumed(Path& path, VirtualLane lane, const Cell& cell);
  /// False: there is still something of the kind that the lane has no room for.
  bool push_not_taken(Path& path, VirtualLane lane);
  void doubt_consumption(Path& path, const PendingNotTaken& refused);
  /// The queue pair has just been connected.
  void doubt_early(QueuePair& queue_pair);
  [[nodiscard]] bool all_doubted(const Path& path) const {
    return context.counters.cells_received < path.all_doubted_until;
  }
  void take_not_taken(Path& path, const Cell& cell);
  void take_datagram(Path& path, const ReceivedCell& received);
  void take_ended_transfers();
  std::size_t send_cells();
  /// The lane has found no room in this turn for a cell like the queue pair's next answer or request.
  [[nodiscard]] bool lacks_room(const QueuePair& queue_pair, bool answers) const;
  /// Timeouts, and what can be sent and returned; returns how much. The paths have been followed.
  std::size_t send_turn();
  /// Tells the peers what was consumed; returns how many lanes had something to tell.
  std::size_t return_room();
  /// Answers to the peer's reads and atomics, at most `budget` cells, and what waits for them; returns how many cells.
  std::size_t answer(QueuePair& queue_pair, std::size_t budget);
  /// To error: the queue pairs whose completion queue has failed.
  void fail_overrun();
  /// Reports a queue pair whose drain is complete.
  void check_drained(QueuePair& queue_pair);

  /// How long after they were polled the links may wait for what has come in.
  static constexpr Duration kNewsFirst = std::chrono::microseconds(4);
  /// How long timers may be late while queue pairs only await the peer.
  static constexpr Duration kRest = std::chrono::microseconds(10);

  RandomSource& random;
  AdapterContext context;
  Requester requester;
  Responder responder;
  Placer placer;
  Express express;
  std::vector<QueuePair*> queue_pairs;  // all of them
  QueuePairTurns turns;                 // which of them a poll looks at
  Time rests_until = Time::min();       // until then the active ones do nothing unless something comes in
  AnswerHabit habit;
  PathNumber brought_by{};  ///< the path of the last message for a caller who answers
  /// The next poll has something to do or to tell, whatever comes in.
  [[nodiscard]] bool wants_poll() const { return owes_rest || owes_doorbells || context.done_at_post != 0; }

  bool owes_doorbells = false;             // the last poll has left them to the next one
  bool owes_rest = false;                  // and all else, because it has brought something to a caller who answers
  bool came_short_way = false;             // what this turn has received, so that it left nothing to send
  Time links_polled{};                     // when poll_links() was called last
  bool timers_to_start = false;            // of what has left since the last poll that did more than look
  bool timers_left = false;                // those, if the last turn came after all of it
  std::uint64_t path_epochs = 0;           // begun, and ended
  bool turn_begun = false;                 // the links were polled, and the cells are to be taken
  std::vector<bool> domains{false};        // by number: allocated and not given back; 0 never is
  std::vector<QpNumber> left_connections;  // by slot: the number that was connected last, and is not any more; 0: none
};

}  // namespace splitnic::fabric
