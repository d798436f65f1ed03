// The conversation of the two ends of a connection: what is sent, and what becomes of what arrives.
#include <algorithm>
#include <utility>

#include "fabric/rdmacm/objects.h"

namespace splitnic::rdmacm {
namespace {

/// A program has this long to answer a request, and to take an answer. Source: the kernel's connection manager, which
/// repeats a request 15 times, every 4.3 s.
constexpr Duration kAnswerMax = std::chrono::seconds(64);
/// A listener is awaited for so long: programs listen again between two connections, and their peers are quick here.
constexpr Duration kListenerMax = std::chrono::milliseconds(500);
/// A listener that is not there yet, or takes no more callers, is called again after this.
constexpr Duration kCallPause = std::chrono::milliseconds(5);

}  // namespace

int Identifier::begin_call() {
  state = State::calling;
  const Time now = monotonic_now();
  deadline = now + kAnswerMax;
  listener_deadline = now + kListenerMax;
  const int error = try_call(now);
  if (error != 0) state = State::route_resolved;
  return error;
}

int Identifier::try_call(Time now) {
  const Call outcome = call(*library.bindings, static_cast<Space>(ps), destination, line);
  if (outcome == Call::failed) return errno;
  if (outcome == Call::nobody && now >= listener_deadline) {
    state = State::failed;
    report_rejection(datagrams() ? kNoDatagramListener : kNoListener);
    return 0;
  }
  if (outcome != Call::made) {
    static_cast<void>(events().set_deadline(*this, std::min(deadline, now + kCallPause)));
    return 0;
  }
  if (!follow_line()) {
    hang_up();
    return ENOMEM;
  }
  // A listener that has gone is noticed when its socket is heard.
  static_cast<void>(line.send(own));
  static_cast<void>(events().set_deadline(*this, deadline));
  return 0;
}

void Identifier::on_time(Time now) {
  if (state == State::calling && !line.socket && now < deadline) {
    const int error = try_call(now);
    if (error == 0) return;
    state = State::failed;
    report(RDMA_CM_EVENT_UNREACHABLE, -error);
    return;
  }
  if (state != State::calling && state != State::accepted) return;
  hang_up();
  state = State::failed;
  report(RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT);
}

/// The reply is sent: the other end has a while to say that it is ready.
void Identifier::await_ready() {
  state = State::accepted;
  ready_is_due = true;
  deadline = monotonic_now() + kAnswerMax;
  static_cast<void>(events().set_deadline(*this, deadline));
}

void Identifier::end(State to) {
  static_cast<void>(events().set_deadline(*this, kNever));
  hang_up();
  state = to;
}

/// The line is of no more use: the other end has closed it, has died, or sends what no end sends.
void Identifier::on_ended() {
  const State before = state;
  end(before == State::established ? State::disconnected : State::failed);
  switch (before) {
    case State::established:
      report(RDMA_CM_EVENT_DISCONNECTED);
      return;
    case State::requested:
      if (!datagrams()) report_rejection(kTimedOut);
      return;
    case State::calling:
    case State::accepted:
    case State::answered:
      report_rejection(datagrams() ? kDatagramsRejected : kConsumerDefined);
      return;
    default:
      return;
  }
}

void Identifier::take_record(const Record& record) {
  const bool fits = record.datagrams == datagrams() || record.kind == RecordKind::disconnect;
  if (fits && record.kind == RecordKind::reject && state != State::established) {
    end(State::failed);
    report_rejection(record.reason, &record);
  } else if (fits && record.kind == RecordKind::reply && state == State::calling) {
    take_reply(record);
  } else if (fits && record.kind == RecordKind::ready && ready_is_due) {
    ready_is_due = false;
    if (state == State::accepted) establish();  // or the program has said so before: rdma_notify()
  } else {
    on_ended();  // a disconnection, or a record that has no place here
  }
}

/// Both ends are ready.
void Identifier::establish(const Record* reply) {
  static_cast<void>(events().set_deadline(*this, kNever));
  state = State::established;
  report(RDMA_CM_EVENT_ESTABLISHED, 0, reply);
}

void Identifier::take_reply(const Record& reply) {
  peer = reply;
  describe_path();
  if (datagrams()) {
    hang_up();
    establish(&reply);
    return;
  }
  initiator_depth = reply.responder_resources;
  responder_resources = reply.initiator_depth;
  if (qp == nullptr) {
    static_cast<void>(events().set_deadline(*this, kNever));
    state = State::answered;
    report(RDMA_CM_EVENT_CONNECT_RESPONSE, 0, &reply);
    return;
  }
  if (const int error = connect_queue_pair()) {
    fail_queue_pair();
    Record reject;
    reject.kind = RecordKind::reject;
    reject.reason = kConsumerDefined;
    static_cast<void>(line.send(reject));
    end(State::failed);
    report(RDMA_CM_EVENT_CONNECT_ERROR, -error);
    return;
  }
  send_ready();
  establish(&reply);
}

void Identifier::send_ready() {
  Record ready;
  ready.kind = RecordKind::ready;
  static_cast<void>(line.send(ready));
}

void Identifier::disconnect() {
  Record record;
  record.kind = RecordKind::disconnect;
  static_cast<void>(line.send(record));
  end(State::disconnected);
  report(RDMA_CM_EVENT_DISCONNECTED);
}

}  // namespace splitnic::rdmacm
