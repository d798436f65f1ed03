#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace splitnic::fabric {

/// The verbs' states. An adapter makes queue pairs in reset.
enum class QueuePairState : std::uint8_t {
  reset,
  init,
  ready_to_receive,
  ready_to_send,
  sq_drained,  ///< requests that have begun finish, no new one begins; an event reports when the last has finished
  sq_error,    ///< the send queue was flushed; receiving goes on
  error,       ///< everything was flushed; a peer that continues to send gets the refusal again
};
inline constexpr std::size_t kQueuePairStates = 7;
const char* to_string(QueuePairState state);

enum class QueuePairEvent : std::uint8_t {
  initialize,
  ready_to_receive,  ///< with the peer's number and both packet sequence numbers
  ready_to_send,     ///< also: go on after sq_drained and sq_error
  connect,           ///< the short way from reset or init
  drain_sends,
  fail_sends,
  fail,
  reset,  ///< forgets what is posted without completions, as in the verbs
};
inline constexpr std::size_t kQueuePairEvents = 8;

struct QueuePairMove {
  bool legal = false;
  QueuePairState to = QueuePairState::error;
  const char* why = "";  ///< a forbidden move's reason
};

namespace queue_pair_table {

using State = QueuePairState;
using Row = std::array<QueuePairMove, kQueuePairEvents>;
constexpr QueuePairMove go(State to) { return {true, to, ""}; }
constexpr QueuePairMove no(State stay, const char* why) { return {false, stay, why}; }

inline constexpr const char* kNoPeer = "has no peer yet";
inline constexpr const char* kConnected = "connected already: numbers in flight would be misread";
inline constexpr const char* kNothingSent = "does not send yet";
inline constexpr const char* kFlushed = "what was flushed can't be resumed: reset first";

// Columns: initialize, ready_to_receive, ready_to_send, connect, drain_sends, fail_sends, fail, reset.
inline constexpr Row kReset{go(State::init),
                            no(State::reset, "not initialised"),
                            no(State::reset, kNoPeer),
                            go(State::ready_to_send),
                            no(State::reset, kNothingSent),
                            no(State::reset, kNothingSent),
                            go(State::error),
                            go(State::reset)};
inline constexpr Row kInit{go(State::init),
                           go(State::ready_to_receive),
                           no(State::init, kNoPeer),
                           go(State::ready_to_send),
                           no(State::init, kNothingSent),
                           no(State::init, kNothingSent),
                           go(State::error),
                           go(State::reset)};
inline constexpr Row kReadyToReceive{no(State::ready_to_receive, kConnected),
                                     no(State::ready_to_receive, kConnected),
                                     go(State::ready_to_send),
                                     no(State::ready_to_receive, kConnected),
                                     no(State::ready_to_receive, kNothingSent),
                                     no(State::ready_to_receive, kNothingSent),
                                     go(State::error),
                                     go(State::reset)};
constexpr Row connected_row(State state, QueuePairMove drain, QueuePairMove fail_sends) {
  return {
      no(state, kConnected), no(state, kConnected), go(State::ready_to_send), no(state, kConnected), drain, fail_sends,
      go(State::error),      go(State::reset)};
}
inline constexpr Row kError{
    no(State::error, kFlushed), no(State::error, kFlushed), no(State::error, kFlushed), no(State::error, kFlushed),
    no(State::error, kFlushed), no(State::error, kFlushed), go(State::error),           go(State::reset)};

}  // namespace queue_pair_table

/// The state machine.
inline constexpr std::array<queue_pair_table::Row, kQueuePairStates> kQueuePairMoves{
    queue_pair_table::kReset,
    queue_pair_table::kInit,
    queue_pair_table::kReadyToReceive,
    queue_pair_table::connected_row(QueuePairState::ready_to_send, queue_pair_table::go(QueuePairState::sq_drained),
                                    queue_pair_table::go(QueuePairState::sq_error)),
    queue_pair_table::connected_row(QueuePairState::sq_drained,
                                    queue_pair_table::no(QueuePairState::sq_drained, "drained or draining already"),
                                    queue_pair_table::go(QueuePairState::sq_error)),
    queue_pair_table::connected_row(QueuePairState::sq_error,
                                    queue_pair_table::no(QueuePairState::sq_error, "nothing is left to drain"),
                                    queue_pair_table::go(QueuePairState::sq_error)),
    queue_pair_table::kError,
};
[[nodiscard]] constexpr const QueuePairMove& queue_pair_move(QueuePairState from, QueuePairEvent event) {
  return kQueuePairMoves[static_cast<std::size_t>(from)][static_cast<std::size_t>(event)];
}

/// What is done in a state. Two differences from the verbs: receives may be posted in reset, as nothing is missing for
/// it; and where a request would only be flushed, its post is refused instead (bad_state), unless the queue pair was
/// made with QueuePairAttributes::flush_posts.
struct QueuePairRules {
  bool post_receive = false;
  bool post_send = false;
  bool begin_sends = false;  ///< posted requests begin
  bool connected = false;    ///< cells are taken, and what was begun is finished
};
inline constexpr std::array<QueuePairRules, kQueuePairStates> kQueuePairRules{{
    /* reset            */ {.post_receive = true},
    /* init             */ {.post_receive = true},
    /* ready_to_receive */ {.post_receive = true, .connected = true},
    /* ready_to_send    */ {.post_receive = true, .post_send = true, .begin_sends = true, .connected = true},
    /* sq_drained       */ {.post_receive = true, .post_send = true, .connected = true},
    /* sq_error         */ {.post_receive = true, .connected = true},
    /* error            */ {},
}};
[[nodiscard]] constexpr const QueuePairRules& queue_pair_rules(QueuePairState state) {
  return kQueuePairRules[static_cast<std::size_t>(state)];
}

}  // namespace splitnic::fabric
