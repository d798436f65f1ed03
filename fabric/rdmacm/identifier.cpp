// Identifiers: what they are bound to, their sockets, and the events that they report.
#include <endian.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "fabric/rdmacm/objects.h"

namespace splitnic::rdmacm {
namespace {

void describe(rdma_conn_param& about, const Record& record) {
  // In the view of who gets the event: what the other end begins, this one responds to.
  about.responder_resources = record.initiator_depth;
  about.initiator_depth = record.responder_resources;
  about.flow_control = record.flow_control;
  about.retry_count = record.retry_count;
  about.rnr_retry_count = record.rnr_retry_count;
  about.srq = record.shared_receives;
  about.qp_num = record.queue_pair;
}

void describe(rdma_ud_param& about, const Record& record) {
  if (record.kind != RecordKind::reply) return;
  about.ah_attr.dlid = record.local_id;
  about.ah_attr.port_num = kPort;
  about.qp_num = record.queue_pair;
  about.qkey = record.queue_key;
}

/// Private data has the length that this kind of message always has, as on InfiniBand: zeros follow the sender's bytes.
void describe(Event& event, const Record& record) {
  std::ranges::copy(record.private_data, event.bytes.begin());
  const auto room = static_cast<std::uint8_t>(private_room(record.kind, record.datagrams));
  if (record.datagrams) {
    describe(event.param.ud, record);
    event.param.ud.private_data = event.bytes.data();
    event.param.ud.private_data_len = room;
  } else {
    describe(event.param.conn, record);
    event.param.conn.private_data = event.bytes.data();
    event.param.conn.private_data_len = room;
  }
}

/// Of an endnode: the GIDs of a fabric differ in their last two bytes. 0: not known yet.
ibv_gid gid_of(const Library& library, std::uint16_t local_id) {
  if (local_id == 0) return {};
  ibv_gid gid = library.gid;
  gid.raw[14] = static_cast<std::uint8_t>(local_id >> 8U);
  gid.raw[15] = static_cast<std::uint8_t>(local_id);
  return gid;
}

bool has_ended(int process) {
  pollfd readable{process, POLLIN, 0};
  return process >= 0 && ::poll(&readable, 1, 0) > 0;
}

}  // namespace

Identifier::Identifier(Library& of, Channel& on, rdma_port_space space, ibv_qp_type type)
    : rdma_cm_id{}, library(of), starting_psn(of.random.next32() & kMax24Bits) {
  channel = &on;
  on.add_identifier();
  ps = space;
  qp_type = type;
}

Identifier::~Identifier() {
  stop();
  events().remove_identifier();
}

void Identifier::stop() {
  static_cast<void>(events().set_deadline(*this, kNever));
  while (!callers.empty()) drop_caller(callers.begin());
  if (listener) {
    events().unwatch(listener_watch, listener.get());
    end_service();
  }
  hang_up();
  if (binding) library.bindings->give_back(*binding);
  binding.reset();
}

void Identifier::use_device() {
  verbs = library.device;
  pd = library.pd;
  port_num = kPort;
  route.addr.addr.ibaddr.sgid = library.gid;
  route.addr.addr.ibaddr.pkey = htobe16(kPartitionKey);
}

int Identifier::bind(Binding wanted) {
  if (const int error = library.bindings->take(wanted, library.random)) return error;
  binding = wanted;
  source = wanted.address;
  put_address(source, route.addr.src_storage);
  if (!source.is_any()) use_device();
  return 0;
}

int Identifier::use_only_ip6(bool only) {
  if (binding && binding->address.is_any() && !binding->address.is_ip4() && binding->only_ip6 != only) {
    Binding wanted = *binding;
    wanted.only_ip6 = only;
    // The two overlap, so one goes before the other comes.
    library.bindings->give_back(*binding);
    if (const int error = library.bindings->take(wanted, library.random)) {
      if (library.bindings->take(*binding, library.random) == 0) return error;
      binding.reset();  // another process was quicker
      state = State::idle;
      return error;
    }
    binding = wanted;
  }
  only_ip6 = only;
  return 0;
}

void Identifier::describe_path() {
  path = {};
  path.sgid = library.gid;
  path.dgid = gid_of(library, peer.local_id);
  route.addr.addr.ibaddr.dgid = path.dgid;
  path.slid = htobe16(library.local_id);
  path.dlid = htobe16(peer.local_id);  // 0: only the connection tells
  path.reversible = 1;
  path.numb_path = 1;
  path.pkey = htobe16(kPartitionKey);
  path.mtu_selector = path.rate_selector = path.packet_life_time_selector = 2;  // exactly
  path.mtu = IBV_MTU_4096;
  path.rate = IBV_RATE_100_GBPS;
  route.path_rec = &path;
  route.num_paths = 1;
}

int Identifier::serve() {
  listener_path = library.bindings->socket_path(*binding);
  listener = listen_at(listener_path);
  if (!listener) return errno;
  listener_watch = events().watch(listener.get(), *this);
  if (listener_watch == 0) {
    end_service();
    return ENOMEM;
  }
  state = State::listening;
  return 0;
}

/// In a forked child, the socket and what is at its path are the parent's.
void Identifier::end_service() {
  os::PeerSocket ended = std::move(listener);
  if (library.process != ::getpid()) return;
  ::unlink(listener_path.c_str());
  end_listener(std::move(ended));
}

bool Identifier::follow_line() {
  line_watches[0] = events().watch(line.socket.get(), *this);
  line_watches[1] = line.process ? events().watch(line.process.get(), *this) : 0;
  return line_watches[0] != 0 && (!line.process || line_watches[1] != 0);
}

void Identifier::unfollow_line() {
  events().unwatch(line_watches[0], line.socket.get());
  events().unwatch(line_watches[1], line.process.get());
  line_watches = {};
}

void Identifier::hang_up() {
  unfollow_line();
  line = {};
}

void Identifier::move_to(Channel& to) {
  const Time wakes = events().set_deadline(*this, kNever);  // it may be earlier than `deadline`
  const bool listens = listener_watch != 0;
  if (listens) events().unwatch(listener_watch, listener.get());
  for (Caller& caller : callers) events().unwatch(caller.watch, caller.line.socket.get());
  unfollow_line();
  auto moved = events().remove_unless([this](const Event& other) { return other.owner != this; });
  to.add_identifier();
  events().remove_identifier();
  channel = &to;
  std::vector<Identifier*> children;
  for (auto& one : moved) {
    if (one->event == RDMA_CM_EVENT_CONNECT_REQUEST) children.push_back(&Identifier::of(one->id));
    to.push(std::move(one));
  }
  if (listens) listener_watch = to.watch(listener.get(), *this);
  for (Caller& caller : callers) caller.watch = to.watch(caller.line.socket.get(), *this, &caller);
  if (line.socket) static_cast<void>(follow_line());
  if (wakes != kNever) static_cast<void>(to.set_deadline(*this, wakes));
  for (Identifier* child : children) move_child(*child);
}

/// A request that the program has not got: its identifier goes where those of later requests will be.
void Identifier::move_child(Identifier& child) {
  if (synchronous && child.synchronous) return;  // it has a channel of its own
  const std::unique_ptr<Channel> before(child.synchronous ? &child.events() : nullptr);
  std::unique_ptr<Channel> own_channel = synchronous ? Channel::open(library) : nullptr;
  if (synchronous && !own_channel) return;  // no descriptors: it stays
  child.synchronous = synchronous;
  child.move_to(own_channel ? *own_channel : events());
  static_cast<void>(own_channel.release());
}

void Identifier::report(rdma_cm_event_type type, int status, const Record* record) {
  auto news = std::make_unique<Event>();
  news->id = this;
  news->owner = this;
  news->event = type;
  news->status = status;
  if (record != nullptr) describe(*news, *record);
  events().push(std::move(news));
}

void Identifier::report_rejection(std::uint16_t reason, const Record* record) {
  if (!datagrams()) fail_queue_pair();  // what the program has posted is flushed
  Record empty;
  empty.kind = RecordKind::reject;
  empty.datagrams = datagrams();
  report(datagrams() ? RDMA_CM_EVENT_UNREACHABLE : RDMA_CM_EVENT_REJECTED, reason, record != nullptr ? record : &empty);
}

void Identifier::on_ready(Caller* caller) {
  if (caller != nullptr) {
    const auto found = std::ranges::find_if(callers, [caller](const Caller& known) { return &known == caller; });
    take_request(found);
    return;
  }
  if (state == State::listening) {
    take_callers();
    return;
  }
  Record record;
  // No end can send without pause: each record is either due once, or ends the line.
  while (line.socket) {
    switch (hear(line, record)) {
      case Heard::record:
        take_record(record);
        break;
      case Heard::nothing:
        if (has_ended(line.process.get())) on_ended();
        return;
      case Heard::garbage:
      case Heard::ended:
        on_ended();
        return;
    }
  }
}

// --- Listeners.

void Identifier::take_callers() {
  constexpr std::size_t kAtOnce = 16;
  constexpr std::size_t kSilentMax = 64;  // the oldest caller that has sent no request makes room
  for (std::size_t taken = 0; taken < kAtOnce; ++taken) {
    auto accepted = accept_from(listener.get());
    if (!accepted) {
      if (errno == EPROTO) continue;
      if (errno != EAGAIN) events().trouble = errno;
      return;
    }
    if (callers.size() == kSilentMax) drop_caller(callers.begin());
    callers.push_back({std::move(*accepted), 0});
    const auto caller = std::prev(callers.end());
    caller->watch = events().watch(caller->line.socket.get(), *this, &*caller);
    if (caller->watch == 0) {
      drop_caller(caller);
      continue;
    }
    const std::uint64_t watch = caller->watch;
    take_request(caller);
    events().await_request(watch);
  }
}

void Identifier::drop_caller(std::list<Caller>::iterator caller) {
  events().unwatch(caller->watch, caller->line.socket.get());
  callers.erase(caller);
}

void Identifier::take_request(std::list<Caller>::iterator caller) {
  Record record;
  const Heard heard = hear(caller->line, record);
  if (heard == Heard::nothing) return;
  if (heard != Heard::record || record.kind != RecordKind::request) {
    drop_caller(caller);
    return;
  }
  if (const std::uint16_t reason = refusal_of(record); reason != 0) {
    Record reject;
    reject.kind = RecordKind::reject;
    reject.datagrams = record.datagrams;
    reject.reason = reason;
    static_cast<void>(caller->line.send(reject));
    drop_caller(caller);
    return;
  }
  Line taken = std::move(caller->line);
  events().unwatch(caller->watch, taken.socket.get());
  callers.erase(caller);
  make_child(std::move(taken), record);
}

/// 0: the request is for this listener.
std::uint16_t Identifier::refusal_of(const Record& request) const {
  const Address& wanted = request.destination;
  const Address& bound = binding->address;
  const bool family = wanted.is_ip4() == bound.is_ip4() || (wanted.is_ip4() && !only_ip6);
  const bool host = bound.is_any() ? family && is_local(wanted) : bound.same_host(wanted);
  if (host && wanted.number == bound.number && request.datagrams == datagrams()) return 0;
  return request.datagrams ? kNoDatagramListener : kNoListener;
}

void Identifier::make_child(Line with, const Record& request) {
  std::unique_ptr<Channel> own_channel = synchronous ? Channel::open(library) : nullptr;
  if (synchronous && !own_channel) return;  // who called sees the socket closed
  auto child = std::make_unique<Identifier>(library, own_channel ? *own_channel : events(), ps, qp_type);
  child->context = context;
  child->synchronous = synchronous;
  child->state = State::requested;
  child->line = std::move(with);
  child->peer = request;
  child->source = request.destination;
  child->destination = request.source;
  put_address(child->source, child->route.addr.src_storage);
  put_address(child->destination, child->route.addr.dst_storage);
  child->use_device();
  child->describe_path();
  child->initiator_depth = request.responder_resources;
  child->responder_resources = request.initiator_depth;
  if (!child->follow_line()) return;
  auto news = std::make_unique<Event>();
  news->id = child.get();
  news->listen_id = this;
  news->owner = this;
  news->event = RDMA_CM_EVENT_CONNECT_REQUEST;
  describe(*news, request);
  events().push(std::move(news));
  static_cast<void>(child.release());  // the program's, or its event's
  static_cast<void>(own_channel.release());
}

}  // namespace splitnic::rdmacm
