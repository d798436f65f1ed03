#include "common/check.h"
#include "fabric/connect/connection_endpoint.h"
#include "fabric/connect/connection_manager.h"
#include "fabric/connect/connection_record.h"

/// The messages of a ConnectionManager, in both directions.
namespace splitnic::fabric {
namespace {

using Kind = ConnectionMessageKind;
using State = ConnectionState;
using Event = ConnectionEventKind;

}  // namespace

// ---- what goes out

ConnectionMessage ConnectionManager::message_of(const Record& record, Kind kind) {
  ConnectionMessage message;
  message.kind = kind;
  message.sender = record.number;
  message.receiver = kind == Kind::request ? ConnectionNumber{} : record.peer;
  if (kind == Kind::request) message.service = record.service;
  if (kind == Kind::request || kind == Kind::reply) message.end = record.own;
  if (kind == Kind::reply) message.end.acknowledged = true;  // said by the request
  return message;
}

Status ConnectionManager::send(PathNumber path, const ConnectionMessage& message) {
  ConnectionMessageBytes bytes = encode_connection(message);
  const Status status = endpoint_->send(path, bytes.span());
  ++(status == Status::ok ? counters_.messages_sent : counters_.dropped_not_sent);
  return status;
}

void ConnectionManager::reject_unconnected(PathNumber path, ConnectionNumber own, ConnectionNumber peer,
                                           RejectReason reason) {
  ConnectionMessage message;
  message.kind = Kind::reject;
  message.sender = own;
  message.receiver = peer;
  message.reason = reason;
  answer(path, message);
}

// ---- what comes in

void ConnectionManager::take(std::span<const std::byte> bytes, PathNumber path, QpNumber source) {
  if (source != kConnectionQueuePair) {
    ++counters_.dropped_foreign;
    return;
  }
  const auto message = decode_connection(bytes);
  if (!message) {
    ++counters_.dropped_malformed.at(static_cast<std::size_t>(message.error()));
    return;
  }
  ++counters_.messages_received;
  if (message->kind == Kind::request) return take_request(*message, path);
  Record* record = find(message->receiver);
  // A peer that has not said its number yet says it now; the reject of a request has none.
  const bool known = record != nullptr && !record->waits && record->path == path &&
                     (record->peer == message->sender || record->peer.value == 0);
  const bool cancelled = record != nullptr && record->waits && record->path == path &&
                         record->peer == message->sender && message->kind == Kind::reject;
  if (!known && !cancelled) return take_for_unknown(*message, path);
  switch (message->kind) {
    case Kind::received:
      return take_received(*record, *message);
    case Kind::reject:
      return take_reject(*record, *message);
    case Kind::reply:
      return take_reply(*record, *message);
    case Kind::ready:
      return take_ready(*record, *message);
    case Kind::disconnect_request:
      return take_disconnect_request(*record, *message);
    case Kind::disconnect_reply:
      if (record->state == State::disconnecting) return end(*record, Event::disconnected, message->data);
      break;
    case Kind::request:
      break;
  }
  ++(record->state == State::ended ? counters_.duplicates : counters_.dropped_unexpected);
}

/// An end that forgot a connection answers what its peer would repeat otherwise.
void ConnectionManager::take_for_unknown(const ConnectionMessage& message, PathNumber path) {
  ++counters_.dropped_unknown_connection;
  if (message.kind == Kind::reply) {
    reject_unconnected(path, message.receiver, message.sender, RejectReason::unknown_connection);
  } else if (message.kind == Kind::disconnect_request) {
    ConnectionMessage reply;
    reply.kind = Kind::disconnect_reply;
    reply.sender = message.receiver;
    reply.receiver = message.sender;
    answer(path, reply);
  }
}

void ConnectionManager::take_request(const ConnectionMessage& message, PathNumber path) {
  const auto before = requests_.find(key_of(path, message.sender));
  if (before != requests_.end()) return take_request_again(*find(before->second));
  const auto listener = listeners_.find(message.service);
  if (listener == listeners_.end()) {
    ++counters_.refused_no_listener;
    return reject_unconnected(path, {}, message.sender, RejectReason::no_listener);
  }
  if (listener->second.waiting.size() >= listener->second.backlog) {
    ++counters_.dropped_backlog;
    return;
  }
  Record* record = make(State::requested, path, message.service);
  if (record == nullptr) {
    ++counters_.refused_no_resources;
    return reject_unconnected(path, {}, message.sender, RejectReason::no_resources);
  }
  ++counters_.requests;
  record->passive = record->waits = true;
  record->peer = message.sender;
  record->theirs = message.end;
  record->data = message.data;
  requests_.emplace(key_of(path, message.sender), record->number);
  listener->second.waiting.push_back(record->number);
  report(*record, Event::request, message.data);
}

void ConnectionManager::take_request_again(Record& record) {
  ++counters_.duplicates;
  if (record.state == State::requested) {
    answer(record.path, message_of(record, Kind::received));
  } else if (record.awaits_answer() || record.last.kind == Kind::reject) {
    answer(record.path, record.last);
  } else if (record.state == State::ended) {  // the peer has missed that, and would wait for a reply
    reject_unconnected(record.path, record.number, record.peer, RejectReason::unknown_connection);
  }
}

void ConnectionManager::take_received(Record& record, const ConnectionMessage& message) {
  if (record.state != State::connecting) {
    ++counters_.duplicates;
    return;
  }
  if (record.peer.value != 0) return;  // said before
  record.peer = message.sender;
  record.limit = options_.decision_limit;
  record.give_up_at = now_ + record.limit;
}

void ConnectionManager::take_reply(Record& record, const ConnectionMessage& message) {
  if (record.state == State::established) {
    ++counters_.duplicates;
    return answer(record.path, message_of(record, Kind::ready));  // the first one was lost
  }
  if (record.state == State::disconnecting) {
    ++counters_.duplicates;
    return;
  }
  if (record.passive || record.state != State::connecting) return take_for_unknown(message, record.path);
  record.peer = message.sender;
  record.theirs = message.end;
  record.theirs.acknowledged = record.own.acknowledged;
  if (connect_queue_pair(record) != Status::ok) {
    record.reason = RejectReason::no_queue_pair;
    reject_unconnected(record.path, record.number, record.peer, record.reason);
    return end(record, Event::rejected);
  }
  record.data = message.data;
  answer(record.path, message_of(record, Kind::ready));
  establish(record, message.data);
}

void ConnectionManager::take_ready(Record& record, const ConnectionMessage& message) {
  if (record.state != State::accepting) {
    ++(record.passive && record.state != State::requested ? counters_.duplicates : counters_.dropped_unexpected);
    return;
  }
  establish(record, message.data);
}

/// data: of the message that established the connection.
void ConnectionManager::establish(Record& record, const PrivateData& data) {
  record.state = State::established;
  record.repeat_at = record.give_up_at = kNever;
  record.clock_starts = false;
  ++counters_.established;
  report(record, Event::established, data);
}

void ConnectionManager::take_reject(Record& record, const ConnectionMessage& message) {
  if (record.state == State::ended) {
    ++counters_.duplicates;
    return;
  }
  if (record.state == State::disconnecting) return end(record, Event::disconnected, message.data);
  if (record.state == State::accepting || record.state == State::established) fail_queue_pair(record);
  record.reason = message.reason;
  end(record, Event::rejected, message.data);
}

void ConnectionManager::take_disconnect_request(Record& record, const ConnectionMessage& message) {
  if (record.state == State::requested) {
    ++counters_.dropped_unexpected;
    return;
  }
  const bool connected = record.state == State::accepting || record.state == State::established;
  record.peer = message.sender;  // it may not have said its number: its reply was lost
  answer(record.path, message_of(record, Kind::disconnect_reply));
  if (record.state == State::ended) {
    ++counters_.duplicates;
    return;
  }
  if (connected) fail_queue_pair(record);
  end(record, Event::disconnected, message.data);
}

}  // namespace splitnic::fabric
