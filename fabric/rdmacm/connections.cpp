// The C interface of connections: requesting, answering and ending them.
#include <algorithm>
#include <cstring>

#include "fabric/rdmacm/objects.h"

namespace splitnic::rdmacm {
namespace {

constexpr std::uint8_t kUsualRetries = 7;

/// Bytes of the program behind those that the record has already. 0 or an errno.
int append(Record& record, const void* from, std::size_t bytes) {
  if (bytes == 0 || from == nullptr) return 0;
  if (record.private_bytes + bytes > private_room(record.kind, record.datagrams)) return EINVAL;
  std::memcpy(record.private_data.data() + record.private_bytes, from, bytes);
  record.private_bytes = static_cast<std::uint8_t>(record.private_bytes + bytes);
  return 0;
}

/// What the program asks for, or as much as `most` and the device allow.
std::uint8_t clipped(std::uint8_t wanted, std::uint8_t most, int device) {
  return wanted != 0xff ? wanted : static_cast<std::uint8_t>(std::min<int>(most, device));
}

/// Parameters that the device can't have, or none at all where the program keeps its queue pair to itself. 0 or an
/// errno.
int check_parameters(const Identifier& identifier, const rdma_conn_param* from) {
  if (identifier.datagrams()) return 0;
  if (from == nullptr) return identifier.qp == nullptr ? EINVAL : 0;
  const ibv_device_attr& limits = identifier.library.limits;
  const bool fits =
      (from->responder_resources == RDMA_MAX_RESP_RES || from->responder_resources <= limits.max_qp_rd_atom) &&
      (from->initiator_depth == RDMA_MAX_INIT_DEPTH || from->initiator_depth <= limits.max_qp_init_rd_atom);
  return fits ? 0 : EINVAL;
}

/// A request or a reply of this identifier. 0 or an errno.
int compose(Identifier& identifier, RecordKind kind, const rdma_conn_param* from) {
  if (const int error = check_parameters(identifier, from)) return error;
  Record& own = identifier.own;
  own = {};
  own.kind = kind;
  own.datagrams = identifier.datagrams();
  own.local_id = identifier.library.local_id;
  own.starting_psn = identifier.starting_psn;
  own.queue_key = own.datagrams ? RDMA_UDP_QKEY : 0;
  if (identifier.qp != nullptr) {
    own.queue_pair = identifier.qp->qp_num;
    own.shared_receives = identifier.qp->srq != nullptr ? 1 : 0;
  } else if (from != nullptr) {
    own.queue_pair = from->qp_num & kMax24Bits;
    own.shared_receives = from->srq != 0 ? 1 : 0;
  }
  own.flow_control = from != nullptr && from->flow_control != 0 ? 1 : 0;
  own.retry_count = std::min(from != nullptr ? from->retry_count : kUsualRetries, kUsualRetries);
  own.rnr_retry_count = std::min(from != nullptr ? from->rnr_retry_count : kUsualRetries, kUsualRetries);
  if (const int error = append(own, identifier.connect_data.data(), identifier.connect_data.size())) return error;
  return from != nullptr ? append(own, from->private_data, from->private_data_len) : 0;
}

/// responder_most, initiator_most: what the other end can use, or the most.
void choose_depths(Identifier& identifier, const rdma_conn_param* from, std::uint8_t responder_most,
                   std::uint8_t initiator_most) {
  const ibv_device_attr& limits = identifier.library.limits;
  identifier.responder_resources =
      clipped(from != nullptr ? from->responder_resources : 0xff, responder_most, limits.max_qp_rd_atom);
  identifier.initiator_depth =
      clipped(from != nullptr ? from->initiator_depth : 0xff, initiator_most, limits.max_qp_init_rd_atom);
  identifier.own.responder_resources = identifier.responder_resources;
  identifier.own.initiator_depth = identifier.initiator_depth;
}

int connect(Identifier& identifier, const rdma_conn_param* from) {
  if (!permits(identifier.state, Act::connect)) return EINVAL;
  if (const int error = compose(identifier, RecordKind::request, from)) return error;
  choose_depths(identifier, from, 0xff, 0xff);
  Record& request = identifier.own;
  request.space = static_cast<std::uint16_t>(identifier.ps);
  request.source = identifier.source;
  request.destination = identifier.destination;
  request.source.scope = identifier.destination.scope;
  const int error = identifier.begin_call();
  if (error == 0) identifier.connect_data.clear();
  return error;
}

int accept_datagrams(Identifier& identifier, const rdma_conn_param* from) {
  if (const int error = compose(identifier, RecordKind::reply, from)) return error;
  if (!identifier.line.send(identifier.own)) return ECONNRESET;
  identifier.end(State::established);
  return 0;
}

int establish_answered(Identifier& identifier) {
  identifier.send_ready();
  identifier.state = State::established;
  return 0;
}

int accept(Identifier& identifier, const rdma_conn_param* from) {
  if (!permits(identifier.state, Act::accept)) return EINVAL;
  if (identifier.state == State::answered) return establish_answered(identifier);
  if (identifier.datagrams()) return accept_datagrams(identifier, from);
  if (const int error = compose(identifier, RecordKind::reply, from)) return error;
  choose_depths(identifier, from, identifier.responder_resources, identifier.initiator_depth);
  if (identifier.qp != nullptr) {
    if (const int error = identifier.connect_queue_pair()) return error;
  }
  if (!identifier.line.send(identifier.own)) {
    identifier.fail_queue_pair();
    return ECONNRESET;
  }
  identifier.await_ready();
  return 0;
}

int reject(Identifier& identifier, std::uint16_t reason, const void* data, std::uint8_t bytes) {
  if (!permits(identifier.state, Act::reject)) return EINVAL;
  Record record;
  record.kind = RecordKind::reject;
  record.datagrams = identifier.datagrams();
  record.reason = record.datagrams ? kDatagramsRejected : reason;
  if (const int error = append(record, data, bytes)) return error;
  static_cast<void>(identifier.line.send(record));
  identifier.end(State::failed);
  return 0;
}

/// Flushes the queue pair, also where there is no connection: of a request that goes on, or that was refused or not
/// answered. 0 or an errno. reported: an event follows.
int disconnect(Identifier& identifier, bool& reported) {
  if (identifier.datagrams() || !permits(identifier.state, Act::disconnect)) return EINVAL;
  identifier.fail_queue_pair();
  reported = identifier.state == State::answered || identifier.state == State::accepted ||
             identifier.state == State::established;
  if (reported) identifier.disconnect();
  return 0;
}

}  // namespace

extern "C" {

int rdma_connect(rdma_cm_id* id, rdma_conn_param* parameters) {
  return guarded([&] {
    Identifier& identifier = Identifier::of(id);
    {
      const std::lock_guard guard(identifier.library.lock);
      if (const int error = connect(identifier, parameters)) return refuse(error);
    }
    return identifier.synchronous ? await_completion(id) : 0;
  });
}

int rdma_accept(rdma_cm_id* id, rdma_conn_param* parameters) {
  return guarded([&] {
    Identifier& identifier = Identifier::of(id);
    bool awaits = false;
    {
      const std::lock_guard guard(identifier.library.lock);
      if (const int error = accept(identifier, parameters)) return refuse(error);
      awaits = identifier.synchronous && identifier.state == State::accepted;
    }
    return awaits ? await_completion(id) : 0;
  });
}

int rdma_establish(rdma_cm_id* id) {
  Identifier& identifier = Identifier::of(id);
  const std::lock_guard guard(identifier.library.lock);
  if (identifier.qp != nullptr || !permits(identifier.state, Act::establish)) return refuse(EINVAL);
  return establish_answered(identifier);
}

int rdma_reject(rdma_cm_id* id, const void* data, uint8_t bytes) {
  Identifier& identifier = Identifier::of(id);
  const std::lock_guard guard(identifier.library.lock);
  return answer(reject(identifier, kConsumerDefined, data, bytes));
}

int rdma_reject_ece(rdma_cm_id* id, const void* data, uint8_t bytes) {
  Identifier& identifier = Identifier::of(id);
  const std::lock_guard guard(identifier.library.lock);
  return answer(reject(identifier, kVendorOption, data, bytes));
}

int rdma_notify(rdma_cm_id* id, ibv_event_type event) {
  return guarded([&] {
    Identifier& identifier = Identifier::of(id);
    const std::lock_guard guard(identifier.library.lock);
    if (event != IBV_EVENT_COMM_EST || !permits(identifier.state, Act::notify)) return refuse(EINVAL);
    if (identifier.state == State::accepted) identifier.establish();
    return 0;
  });
}

int rdma_disconnect(rdma_cm_id* id) {
  return guarded([&] {
    Identifier& identifier = Identifier::of(id);
    bool reported = false;
    {
      const std::lock_guard guard(identifier.library.lock);
      if (const int error = disconnect(identifier, reported)) return refuse(error);
    }
    return identifier.synchronous && reported ? await_completion(id) : 0;
  });
}

int rdma_get_request(rdma_cm_id* listener, rdma_cm_id** id) {
  return guarded([&] {
    Identifier& identifier = Identifier::of(listener);
    if (!identifier.synchronous) return refuse(EINVAL);
    if (listener->event != nullptr) rdma_ack_cm_event(listener->event);
    listener->event = nullptr;
    rdma_cm_event* event = nullptr;
    if (get_event(listener->channel, &event) != 0) return -1;
    if (event->event != RDMA_CM_EVENT_CONNECT_REQUEST) {
      listener->event = event;
      return refuse(EINVAL);
    }
    if (identifier.queue_pair_wanted) {
      ibv_qp_init_attr wanted = *identifier.queue_pair_wanted;
      if (rdma_create_qp(event->id, identifier.wanted_pd, &wanted) != 0) {
        const int error = errno;
        rdma_cm_id* const child = event->id;
        rdma_ack_cm_event(event);
        rdma_destroy_id(child);
        return refuse(error);
      }
    }
    *id = event->id;
    (*id)->event = event;
    return 0;
  });
}

}  // extern "C"

}  // namespace splitnic::rdmacm
