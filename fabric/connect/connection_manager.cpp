#include "fabric/connect/connection_manager.h"

#include <algorithm>
#include <bit>
#include <boost/describe.hpp>

#include "common/check.h"
#include "fabric/connect/connection_endpoint.h"
#include "fabric/connect/connection_record.h"

namespace splitnic::fabric {
namespace {

using Kind = ConnectionMessageKind;
using State = ConnectionState;
using Event = ConnectionEventKind;

/// Those of the connection.
void drop_events(std::deque<ConnectionEvent>& events, ConnectionNumber connection) {
  std::erase_if(events, [connection](const ConnectionEvent& event) { return event.connection == connection; });
}

}  // namespace

BOOST_DESCRIBE_ENUM(ConnectionState, connecting, requested, accepting, established, disconnecting, ended)
const char* to_string(ConnectionState state) { return boost::describe::enum_to_string(state, "?"); }

BOOST_DESCRIBE_ENUM(ConnectionEventKind, request, established, rejected, unreachable, disconnected, lost)
const char* to_string(ConnectionEventKind kind) { return boost::describe::enum_to_string(kind, "?"); }

ConnectionManager::ConnectionManager(ChannelAdapter& adapter, RandomSource& random, const ConnectionOptions& options)
    : adapter_(adapter), random_(random), options_(options) {
  SPLITNIC_CHECK_OP(options.max_connections, <=, ConnectionOptions::kMaxConnections);
}

ConnectionManager::~ConnectionManager() = default;

Status ConnectionManager::start() {
  if (started()) return Status::ok;
  endpoint_ = ConnectionEndpoint::make(adapter_);
  return started() ? Status::ok : Status::no_resources;
}

// ---- records

ConnectionManager::Record* ConnectionManager::find(ConnectionNumber number) const {
  if (records_.empty()) return nullptr;
  Record* candidate = records_[number.value & (records_.size() - 1)].get();
  return candidate != nullptr && candidate->number == number ? candidate : nullptr;
}

ConnectionManager::Record* ConnectionManager::held(ConnectionNumber number) const {
  Record* record = find(number);
  return record != nullptr && record->held && !record->waits ? record : nullptr;
}

/// Null: there are as many as there may be.
ConnectionManager::Record* ConnectionManager::make(State state, PathNumber path, ServiceNumber service) {
  if (records_.empty()) {
    records_.resize(std::bit_ceil(std::max<std::size_t>(options_.max_connections, 2)));
    for (auto index = static_cast<std::uint32_t>(options_.max_connections); index > 0; --index) {
      free_.push_back(index - 1);
    }
  }
  if (free_.empty() && !forget_oldest_rest()) return nullptr;
  const std::uint32_t index = free_.back();
  free_.pop_back();
  const auto mask = static_cast<std::uint32_t>(records_.size() - 1);
  records_[index] = std::make_unique<Record>();
  Record& record = *records_[index];
  while (record.number.value == 0) record.number.value = (random_.next32() & ~mask) | index;
  record.state = state;
  record.path = path;
  record.service = service;
  return &record;
}

void ConnectionManager::forget(Record& record) {
  if (record.passive) {
    const auto request = requests_.find(key_of(record.path, record.peer));
    if (request != requests_.end() && request->second == record.number) requests_.erase(request);
  }
  drop_events(events_, record.number);
  const auto index = static_cast<std::uint32_t>(record.number.value & (records_.size() - 1));
  free_.push_back(index);
  records_[index].reset();
}

/// New connections are worth more than the memory of old requests. False: there is none.
bool ConnectionManager::forget_oldest_rest() {
  Record* oldest = nullptr;
  for (const auto& record : records_) {
    const bool rests = record != nullptr && record->state == State::ended && !record->held;
    if (rests && (oldest == nullptr || record->give_up_at < oldest->give_up_at)) oldest = record.get();
  }
  if (oldest != nullptr) forget(*oldest);
  return oldest != nullptr;
}

std::optional<ConnectionInfo> ConnectionManager::info(ConnectionNumber number) const {
  const Record* record = held(number);
  if (record == nullptr) return std::nullopt;
  return ConnectionInfo{record->state, record->ending, record->reason, record->service,
                        record->path,  record->theirs, record->data};
}

// ---- listeners

Status ConnectionManager::listen(ServiceNumber service, std::size_t backlog) {
  if (service.value == 0) return Status::bad_argument;
  if (backlog == 0) return Status::bad_length;
  if (listeners_.contains(service)) return Status::in_use;
  if (const Status status = start(); status != Status::ok) return status;
  listeners_[service].backlog = backlog;
  return Status::ok;
}

Status ConnectionManager::stop_listening(ServiceNumber service) {
  const auto listener = listeners_.find(service);
  if (listener == listeners_.end()) return Status::bad_argument;
  const auto waiting = std::move(listener->second.waiting);
  listeners_.erase(listener);
  for (const ConnectionNumber number : waiting) {
    Record& record = *find(number);
    record.waits = false;
    record.last = message_of(record, Kind::reject);
    record.last.reason = RejectReason::no_listener;
    answer(record.path, record.last);
    drop_events(events_, record.number);
    record.held = false;
    end(record, Event::rejected);
  }
  return Status::ok;
}

std::optional<ConnectionNumber> ConnectionManager::take_request(ServiceNumber service) {
  const auto listener = listeners_.find(service);
  if (listener == listeners_.end() || listener->second.waiting.empty()) return std::nullopt;
  const ConnectionNumber number = listener->second.waiting.front();
  listener->second.waiting.pop_front();
  find(number)->waits = false;
  return number;
}

// ---- what the program asks for

tl::expected<ConnectionNumber, Status> ConnectionManager::connect(PathNumber path, ServiceNumber service,
                                                                  const ConnectionEnd& own,
                                                                  std::span<const std::byte> data) {
  if (path.value == 0 || service.value == 0) return tl::unexpected(Status::bad_argument);
  const auto state = adapter_.state(own.queue_pair);
  if (!state) return tl::unexpected(Status::bad_argument);
  if (!queue_pair_move(*state, QueuePairEvent::connect).legal) return tl::unexpected(Status::bad_state);
  const auto with = PrivateData::of(data);
  if (!with || with->size() > kMaxRequestPrivateBytes) return tl::unexpected(Status::bad_length);
  if (const Status status = start(); status != Status::ok) return tl::unexpected(status);
  Record* record = make(State::connecting, path, service);
  if (record == nullptr) return tl::unexpected(Status::no_resources);
  record->own = own;
  record->last = message_of(*record, Kind::request);
  record->last.data = *with;
  const Status status = send(path, record->last);
  if (status == Status::bad_length || status == Status::no_resources) {
    forget(*record);
    return tl::unexpected(status);
  }
  start_clock(*record, options_.answer_limit);
  return record->number;
}

Status ConnectionManager::accept(ConnectionNumber connection, const ConnectionEnd& own,
                                 std::span<const std::byte> data) {
  Record* record = held(connection);
  if (record == nullptr || own.acknowledged != record->theirs.acknowledged) return Status::bad_argument;
  if (record->state != State::requested) return Status::bad_state;
  const auto with = PrivateData::of(data);
  if (!with) return Status::bad_length;
  record->own = own;
  // Before the peer knows: its first message finds everything ready.
  if (const Status status = connect_queue_pair(*record); status != Status::ok) {
    return status == Status::bad_queue_pair ? Status::bad_argument : status;
  }
  record->last = message_of(*record, Kind::reply);
  record->last.data = *with;
  record->state = State::accepting;
  answer(record->path, record->last);
  start_clock(*record, options_.answer_limit);
  return Status::ok;
}

Status ConnectionManager::reject(ConnectionNumber connection, std::span<const std::byte> data) {
  Record* record = held(connection);
  if (record == nullptr) return Status::bad_argument;
  if (record->state != State::requested) return Status::bad_state;
  const auto with = PrivateData::of(data);
  if (!with) return Status::bad_length;
  record->last = message_of(*record, Kind::reject);
  record->last.reason = RejectReason::by_program;
  record->last.data = *with;
  answer(record->path, record->last);
  record->state = State::ended;  // the program knows how: no event
  record->ending = Event::rejected;
  record->reason = RejectReason::by_program;
  start_clock(*record, options_.rest);
  return Status::ok;
}

Status ConnectionManager::disconnect(ConnectionNumber connection, std::span<const std::byte> data) {
  Record* record = held(connection);
  if (record == nullptr) return Status::bad_argument;
  if (record->state != State::established && record->state != State::accepting) return Status::bad_state;
  const auto with = PrivateData::of(data);
  if (!with) return Status::bad_length;
  fail_queue_pair(*record);
  record->state = State::disconnecting;
  record->last = message_of(*record, Kind::disconnect_request);
  record->last.data = *with;
  answer(record->path, record->last);
  start_clock(*record, options_.disconnect_limit);
  return Status::ok;
}

void ConnectionManager::release(ConnectionNumber connection) {
  Record* record = held(connection);
  if (record == nullptr) return;
  if (record->state == State::requested) static_cast<void>(reject(connection, {}));
  if (record->state == State::accepting || record->state == State::established) {
    static_cast<void>(disconnect(connection, {}));
  }
  record->held = false;
  drop_events(events_, connection);
  if (record->state == State::connecting) {
    if (record->peer.value != 0) reject_unconnected(record->path, record->number, record->peer, RejectReason::timeout);
    forget(*record);  // a reply that is on its way is rejected like any other for an unknown connection
  } else if (record->state == State::ended && !record->passive) {
    forget(*record);
  }
}

// ---- time

/// The durations count from the next poll on, which knows the time.
void ConnectionManager::start_clock(Record& record, Duration limit) {
  record.clock_starts = clocks_start_ = true;
  record.limit = limit;
  record.wait = options_.repeat_min;
}

void ConnectionManager::check_time(Record& record) {
  const auto draw = [this](Duration wait) {
    const auto quarter = static_cast<std::uint64_t>(wait.count() / 4);
    return wait - Duration(quarter) + Duration(random_.below(2 * quarter + 1));
  };
  if (record.clock_starts) {
    record.clock_starts = false;
    record.give_up_at = now_ + record.limit;
    record.repeat_at = record.awaits_answer() ? now_ + draw(record.wait) : kNever;
  }
  if (now_ >= record.give_up_at) return give_up(record);
  if (now_ < record.repeat_at) return;
  record.wait = std::min(2 * record.wait, options_.repeat_max);
  record.repeat_at = now_ + draw(record.wait);
  ++counters_.repeated;
  answer(record.path, record.last);
}

void ConnectionManager::give_up(Record& record) {
  if (record.state == State::ended) {
    record.give_up_at = kNever;
    if (record.passive) requests_.erase(key_of(record.path, record.peer));
    record.passive = false;
    if (!record.held) forget(record);
    return;
  }
  if (record.state == State::disconnecting) return end(record, Event::lost);
  if (record.state == State::accepting) fail_queue_pair(record);
  if (record.peer.value != 0) reject_unconnected(record.path, record.number, record.peer, RejectReason::timeout);
  end(record, Event::unreachable);
}

std::size_t ConnectionManager::poll(Time now) {
  if (!started()) return 0;
  now_ = now;
  const std::size_t taken = endpoint_->receive(
      [this](std::span<const std::byte> bytes, PathNumber path, QpNumber source) { take(bytes, path, source); });
  if (now < due_ && !clocks_start_) return taken;
  clocks_start_ = false;
  due_ = kNever;
  for (const auto& slot : records_) {
    if (slot == nullptr) continue;
    const ConnectionNumber number = slot->number;
    check_time(*slot);
    if (const Record* still = find(number)) due_ = std::min({due_, still->repeat_at, still->give_up_at});
  }
  return taken;
}

Time ConnectionManager::next_deadline() const { return clocks_start_ ? now_ : due_; }

std::size_t ConnectionManager::poll_events(std::span<ConnectionEvent> out) {
  const std::size_t count = std::min(out.size(), events_.size());
  const auto to = events_.begin() + static_cast<std::ptrdiff_t>(count);
  std::copy(events_.begin(), to, out.begin());
  events_.erase(events_.begin(), to);
  return count;
}

void ConnectionManager::path_down(PathNumber path) {
  if (!started()) return;
  endpoint_->forget(path);
  for (const auto& slot : records_) {
    if (slot == nullptr || slot->path != path) continue;
    Record& record = *slot;
    // What the peer sent before does not arrive any more, so nothing of it must be remembered.
    if (record.passive) requests_.erase(key_of(path, record.peer));
    record.passive = false;
    if (record.state == State::ended) {
      if (!record.held) forget(record);
      continue;
    }
    const bool was_up = record.state == State::established || record.state == State::disconnecting;
    if (record.state == State::established || record.state == State::accepting) fail_queue_pair(record);
    end(record, was_up ? Event::lost : Event::unreachable);
  }
}

// ---- ends

void ConnectionManager::report(const Record& record, Event kind, const PrivateData& data) {
  if (!record.held) return;
  ConnectionEvent event;
  event.kind = kind;
  event.connection = record.number;
  event.service = record.service;
  event.path = record.path;
  event.reason = kind == Event::rejected ? record.reason : RejectReason::none;
  event.data = data;
  events_.push_back(event);
}

void ConnectionManager::end(Record& record, Event how, const PrivateData& data) {
  record.state = State::ended;
  record.ending = how;
  if (data.size() != 0) record.data = data;
  if (record.waits) {  // the program has not taken it: it never will
    std::erase(listeners_.at(record.service).waiting, record.number);
    drop_events(events_, record.number);
    record.waits = record.held = false;
  }
  report(record, how, data);
  if (!record.held && !record.passive) return forget(record);
  record.repeat_at = kNever;
  start_clock(record, options_.rest);
}

void ConnectionManager::fail_queue_pair(const Record& record) {
  if (record.held) static_cast<void>(adapter_.modify(record.own.queue_pair, QueuePairEvent::fail));
}

Status ConnectionManager::connect_queue_pair(const Record& record) {
  QueuePairPeer peer;
  peer.number = record.theirs.queue_pair;
  peer.first_psn_to_send = record.own.first_psn;
  peer.first_psn_expected = record.theirs.first_psn;
  peer.reads_in = record.theirs.reads_in;
  peer.path = record.path;
  return adapter_.connect(record.own.queue_pair, peer);
}

}  // namespace splitnic::fabric
