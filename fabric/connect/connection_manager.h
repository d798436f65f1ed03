#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <tl/expected.hpp>
#include <unordered_map>
#include <vector>

#include "common/random.h"
#include "common/time.h"
#include "fabric/adapter/channel_adapter.h"
#include "fabric/connect/connection_message.h"

namespace splitnic::fabric {

class ConnectionEndpoint;

struct ConnectionOptions {
  static constexpr std::size_t kMaxConnections = std::size_t{1} << 20U;

  /// Connections of the adapter, in any state, and requests that are remembered after their connection has ended.
  std::size_t max_connections = 256;
  /// When a message that was not answered is sent again for the first time. The time doubles from then on, up to the
  /// maximum, and a quarter of it, more or less, is drawn.
  Duration repeat_min = std::chrono::milliseconds(50);
  Duration repeat_max = std::chrono::seconds(1);
  /// How long a request or reply is repeated without any answer.
  Duration answer_limit = std::chrono::seconds(5);
  /// How long a request may wait for the other program's decision, after the other end has said that it came.
  Duration decision_limit = std::chrono::seconds(60);
  /// How long the end of a connection is repeated without an answer.
  Duration disconnect_limit = std::chrono::seconds(2);
  /// How long the request of a connection that has ended is remembered, so that a late copy makes no new one.
  Duration rest = std::chrono::seconds(10);
};

enum class ConnectionState : std::uint8_t {
  connecting,     ///< the request is out
  requested,      ///< the peer's request waits for this program's decision
  accepting,      ///< the reply is out; the queue pair can receive
  established,    ///< both queue pairs are connected
  disconnecting,  ///< the end is out; the queue pair is in error
  ended,
};
const char* to_string(ConnectionState state);

/// What a program learns about a connection. Each of the last four ends the connection. A queue pair that was
/// connected is then in error.
enum class ConnectionEventKind : std::uint8_t {
  request,       ///< a listener has one more request to take
  established,   ///< sends may be posted; of an accepted connection: the peer knows
  rejected,      ///< `reason` says why; also after it was established at this end alone
  unreachable,   ///< no answer in time, or the path went down before the connection was established
  disconnected,  ///< the orderly end: the peer asked for it, perhaps as soon as it had accepted; or it has answered
                 ///< this end's
  lost,          ///< the peer is gone: its path went down, or it did not answer the orderly end
};
const char* to_string(ConnectionEventKind kind);

struct ConnectionEvent {
  ConnectionEventKind kind = ConnectionEventKind::request;
  ConnectionNumber connection{};
  ServiceNumber service{};
  PathNumber path{};
  RejectReason reason = RejectReason::none;  ///< rejected
  PrivateData data{};                        ///< the peer's, of the message that caused the event
};

/// What is known of one connection.
struct ConnectionInfo {
  ConnectionState state = ConnectionState::ended;
  std::optional<ConnectionEventKind> ending{};  ///< how it ended
  RejectReason reason = RejectReason::none;     ///< of a reject
  ServiceNumber service{};
  PathNumber path{};
  ConnectionEnd peer{};  ///< zero before the peer has said it
  PrivateData data{};    ///< of the peer's last message that carried any
};

/// Counts since the manager was made; every drop has one.
struct ConnectionCounters {
  std::uint64_t messages_sent = 0;
  std::uint64_t messages_received = 0;  ///< that were well-formed
  std::uint64_t repeated = 0;           ///< of those sent: again, because no answer came
  std::uint64_t requests = 0;           ///< of peers, each once
  std::uint64_t established = 0;
  std::uint64_t duplicates = 0;  ///< known already; answered again where the peer may wait for it
  std::uint64_t refused_no_listener = 0;
  std::uint64_t refused_no_resources = 0;
  std::uint64_t dropped_backlog = 0;             ///< requests: the listener has as many as it wants; the peer repeats
  std::uint64_t dropped_foreign = 0;             ///< came from another queue pair than 1
  std::uint64_t dropped_unknown_connection = 0;  ///< for no connection of this end with this peer
  std::uint64_t dropped_unexpected = 0;          ///< what no honest peer sends in this state
  std::uint64_t dropped_not_sent = 0;            ///< own ones: the send queue was full, or the path gone
  std::array<std::uint64_t, kConnectionFaults> dropped_malformed{};  ///< by ConnectionFault
};

/// The connections of one adapter. Messages are datagrams between the queue pairs 1 of two adapters. Thread: the
/// adapter's owner; driven by poll(). Source: InfiniBand, 12.9 (the states and their names there in brackets):
///
///     connect()  --request-->                            connecting (REQ sent)
///                             requested (REQ received)   take_request(), then accept() or reject()
///                <--reply----                            accepting (REP sent): its queue pair is connected
///     established: its queue pair is connected
///                --ready---->                            established
///     disconnect() --disconnect request-->               disconnecting; the peer's connection ends at once
///                <--disconnect reply--                   ended
///
/// An end that waits for an answer repeats its last message. An end that gets a message for the second time answers it
/// again.
/// A request that waits for the program's decision is answered by `received`, so that its sender waits longer.
class ConnectionManager {
 public:
  /// adapter, random: lent.
  ConnectionManager(ChannelAdapter& adapter, RandomSource& random, const ConnectionOptions& options);
  /// Takes its objects out of the adapter; peers learn nothing.
  ~ConnectionManager();
  ConnectionManager(const ConnectionManager&) = delete;
  ConnectionManager& operator=(const ConnectionManager&) = delete;

  /// Makes queue pair 1; until then, peers' messages are dropped by the adapter. It takes a queue pair, a completion
  /// queue and a tag of the adapter's limits, and an address handle for each path that is used. Does nothing if it was
  /// started. Errors: no_resources.
  Status start();
  [[nodiscard]] bool started() const { return endpoint_ != nullptr; }

  /// Requests for the service wait here, at most `backlog`; further ones are dropped, and their senders repeat them.
  /// Errors: bad_argument (service 0), bad_length (no backlog), in_use (there is a listener), no_resources.
  Status listen(ServiceNumber service, std::size_t backlog);
  /// Rejects what waits. Errors: bad_argument (no listener).
  Status stop_listening(ServiceNumber service);
  /// The oldest request that waits: the caller decides about it, and releases it.
  [[nodiscard]] std::optional<ConnectionNumber> take_request(ServiceNumber service);

  /// Requests a connection. own: a queue pair in reset or init, the connection's until it ends. data: at most
  /// kMaxRequestPrivateBytes. The caller releases the connection. Errors: bad_argument (no path, service 0, no such
  /// queue pair), bad_state (of the queue pair), bad_length (data), no_resources.
  [[nodiscard]] tl::expected<ConnectionNumber, Status> connect(PathNumber path, ServiceNumber service,
                                                               const ConnectionEnd& own,
                                                               std::span<const std::byte> data);
  /// Connects the queue pair, and sends the reply. Errors: bad_argument (no such connection, or a queue pair of the
  /// other kind), bad_state (the request does not wait any more; the queue pair cannot be connected), bad_length,
  /// link_down.
  Status accept(ConnectionNumber connection, const ConnectionEnd& own, std::span<const std::byte> data);
  /// Errors: bad_argument, bad_state, bad_length.
  Status reject(ConnectionNumber connection, std::span<const std::byte> data);
  /// Ends a connection that is accepted or established: the queue pair goes to error at once, the peer's when it hears
  /// of it. The event `disconnected` says that it has. Errors: bad_argument, bad_state, bad_length.
  Status disconnect(ConnectionNumber connection, std::span<const std::byte> data);
  /// The program needs the connection no more. Rejects or disconnects it if it has not ended; no events come any more.
  /// The queue pair is not touched after the call.
  void release(ConnectionNumber connection);
  /// nullopt: released, or never there.
  [[nodiscard]] std::optional<ConnectionInfo> info(ConnectionNumber connection) const;

  /// Takes messages, and repeats what is due; bounded by the receives that are posted. Returns how many.
  std::size_t poll(Time now);
  [[nodiscard]] Time next_deadline() const;
  /// In the order in which they happened; at most three of a connection.
  [[nodiscard]] std::size_t poll_events(std::span<ConnectionEvent> out);
  /// The path's epoch is over, or the path is to be detached.
  void path_down(PathNumber path);
  [[nodiscard]] const ConnectionCounters& counters() const { return counters_; }

 private:
  struct Record;
  struct Listener {
    std::size_t backlog = 0;
    std::deque<ConnectionNumber> waiting{};
  };
  /// A peer's request: the path that it came by, and the peer's name for it.
  using RequestKey = std::uint64_t;
  static RequestKey key_of(PathNumber path, ConnectionNumber peer) {
    return std::uint64_t{path.value} << 32U | peer.value;
  }

  [[nodiscard]] Record* find(ConnectionNumber number) const;
  /// The same, unless the program has released it.
  [[nodiscard]] Record* held(ConnectionNumber number) const;
  [[nodiscard]] Record* make(ConnectionState state, PathNumber path, ServiceNumber service);
  void forget(Record& record);
  bool forget_oldest_rest();

  void take(std::span<const std::byte> bytes, PathNumber path, QpNumber source);
  void take_request(const ConnectionMessage& message, PathNumber path);
  void take_request_again(Record& record);
  void take_for_unknown(const ConnectionMessage& message, PathNumber path);
  void take_reply(Record& record, const ConnectionMessage& message);
  void take_ready(Record& record, const ConnectionMessage& message);
  void take_received(Record& record, const ConnectionMessage& message);
  void establish(Record& record, const PrivateData& data);
  void take_reject(Record& record, const ConnectionMessage& message);
  void take_disconnect_request(Record& record, const ConnectionMessage& message);

  /// Of a connection to its peer.
  [[nodiscard]] static ConnectionMessage message_of(const Record& record, ConnectionMessageKind kind);
  Status send(PathNumber path, const ConnectionMessage& message);
  void answer(PathNumber path, const ConnectionMessage& message) { static_cast<void>(send(path, message)); }
  void reject_unconnected(PathNumber path, ConnectionNumber own, ConnectionNumber peer, RejectReason reason);
  void start_clock(Record& record, Duration limit);
  void check_time(Record& record);
  void give_up(Record& record);
  void report(const Record& record, ConnectionEventKind kind, const PrivateData& data);
  void end(Record& record, ConnectionEventKind how, const PrivateData& data = {});
  void fail_queue_pair(const Record& record);
  [[nodiscard]] Status connect_queue_pair(const Record& record);

  ChannelAdapter& adapter_;
  RandomSource& random_;
  ConnectionOptions options_;
  std::unique_ptr<ConnectionEndpoint> endpoint_;
  std::vector<std::unique_ptr<Record>> records_;  // by the low bits of the number
  std::vector<std::uint32_t> free_;               // of records_
  std::unordered_map<RequestKey, ConnectionNumber> requests_;
  std::map<ServiceNumber, Listener> listeners_;
  std::deque<ConnectionEvent> events_;
  ConnectionCounters counters_{};
  Time now_{};
  Time due_ = kNever;          // the earliest deadline of a record, or earlier
  bool clocks_start_ = false;  // a record's clock starts with the next poll
};

}  // namespace splitnic::fabric
