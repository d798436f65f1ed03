// The C interface of identifiers: creating, binding, resolving, listening, options, moving and destroying them.
#include <endian.h>

#include <cstring>
#include <utility>

#include "fabric/rdmacm/objects.h"

namespace splitnic::rdmacm {
namespace {

bool is_space(rdma_port_space space) {
  return space == RDMA_PS_TCP || space == RDMA_PS_UDP || space == RDMA_PS_IB || space == RDMA_PS_IPOIB;
}

ibv_qp_type usual_type(rdma_port_space space) {
  return space == RDMA_PS_UDP || space == RDMA_PS_IPOIB ? IBV_QPT_UD : IBV_QPT_RC;
}

/// Deletes an identifier that no call and no event of the program names, with its channel if this is its own.
void discard(Identifier* identifier) {
  Channel* const own_channel = identifier->synchronous ? &identifier->events() : nullptr;
  identifier->stop();
  static_cast<void>(
      identifier->events().remove_unless([identifier](const Event& event) { return event.owner != identifier; }));
  delete identifier;
  delete own_channel;
}

void await_acknowledgements(Identifier& identifier, std::unique_lock<UncancelledMutex>& lock) {
  identifier.library.acknowledged.wait(lock,
                                       [&] { return identifier.events_acknowledged == identifier.events_reported; });
}

void acknowledge_last(rdma_cm_id* id) {
  if (id->event != nullptr) rdma_ack_cm_event(id->event);
  id->event = nullptr;
}

/// 0 or an errno; on success the identifier is bound.
int bind_source(Identifier& identifier, const Address& source) {
  if (source.is_multicast() || (!source.is_any() && !is_local(source))) return EADDRNOTAVAIL;
  Binding wanted;
  wanted.space = static_cast<Space>(identifier.ps);
  wanted.address = source;
  wanted.only_ip6 = identifier.only_ip6;
  return identifier.bind(wanted);
}

/// The source of an identifier that goes to its destination. 0 or an errno.
int choose_source(Identifier& identifier, const sockaddr* wanted) {
  if (identifier.state == State::idle) {
    auto source = wanted != nullptr ? address_of(wanted) : std::nullopt;
    if (wanted != nullptr && !source) return EAFNOSUPPORT;
    if (!source || source->is_any()) {
      const std::uint16_t number = source ? source->number : std::uint16_t{0};
      source = source_towards(identifier.destination);
      if (!source) return errno;
      source->number = number;
    }
    return bind_source(identifier, *source);
  }
  // It is bound. All addresses: the source is the one that leads there.
  if (identifier.source.is_any()) {
    auto source = source_towards(identifier.destination);
    if (!source) return errno;
    source->number = identifier.source.number;
    identifier.source = *source;
    put_address(*source, identifier.route.addr.src_storage);
  }
  return 0;
}

int resolve_address(Identifier& identifier, const sockaddr* source, const sockaddr* destination) {
  const auto to = address_of(destination);
  if (!permits(identifier.state, Act::resolve_address)) return EINVAL;
  if (!to) return EAFNOSUPPORT;
  identifier.destination = *to;
  // All addresses of this machine: the loop-back one, as connect(2) has it.
  if (to->is_any()) {
    identifier.destination.bytes = {};
    if (to->is_ip4()) identifier.destination.bytes = any_ip4().bytes;
    if (to->is_ip4()) identifier.destination.bytes[12] = 127;
    identifier.destination.bytes[15] = 1;
  }
  const int error = choose_source(identifier, source);
  if (error == ENETUNREACH || error == EHOSTUNREACH) {
    identifier.report(RDMA_CM_EVENT_ADDR_ERROR, -error);  // the program may try again
    return 0;
  }
  if (error != 0) return error;
  put_address(identifier.destination, identifier.route.addr.dst_storage);
  identifier.use_device();
  identifier.state = State::address_resolved;
  identifier.report(RDMA_CM_EVENT_ADDR_RESOLVED);
  return 0;
}

template <class Value>
int read_option(const void* from, size_t bytes, Value& value) {
  if (from == nullptr || bytes != sizeof value) return EINVAL;
  std::memcpy(&value, from, sizeof value);
  return 0;
}

int set_identifier_option(Identifier& identifier, int name, const void* from, size_t bytes) {
  std::uint8_t byte = 0;
  int number = 0;
  switch (name) {
    case RDMA_OPTION_ID_TOS:  // one class of service
      return read_option(from, bytes, byte);
    case RDMA_OPTION_ID_REUSEADDR:  // a binding is free as soon as its holder ends
      return read_option(from, bytes, number);
    case RDMA_OPTION_ID_AFONLY:
      if (identifier.state != State::idle && identifier.state != State::bound) return EINVAL;
      if (const int error = read_option(from, bytes, number)) return error;
      return identifier.use_only_ip6(number != 0);
    case RDMA_OPTION_ID_ACK_TIMEOUT:
      if (identifier.datagrams()) return EINVAL;
      return read_option(from, bytes, identifier.acknowledge_timeout);
    default:
      return ENOSYS;
  }
}

int resolve_route(Identifier& identifier) {
  if (!permits(identifier.state, Act::resolve_route)) return EINVAL;
  identifier.describe_path();
  identifier.state = State::route_resolved;
  identifier.report(RDMA_CM_EVENT_ROUTE_RESOLVED);
  return 0;
}

/// Paths that the program brings along resolve the route, if the one that is to be used is among them. There is one
/// path to each peer, so what they say changes nothing.
int set_path(Identifier& identifier, const void* from, size_t bytes) {
  constexpr std::uint32_t kUsed = IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_PRIMARY | IBV_PATH_FLAG_BIDIRECTIONAL;
  if (from == nullptr || bytes % sizeof(ibv_path_data) != 0) return EINVAL;
  for (size_t offset = 0; offset != bytes; offset += sizeof(ibv_path_data)) {
    ibv_path_data path{};
    std::memcpy(&path, static_cast<const std::byte*>(from) + offset, sizeof path);
    if (path.flags == kUsed) return resolve_route(identifier);
  }
  return EINVAL;
}

}  // namespace

void discard(std::deque<std::unique_ptr<Event>> events) {
  for (auto& event : events) {
    if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) discard(&Identifier::of(event->id));
  }
}

int create_identifier(rdma_event_channel* channel, rdma_cm_id** id, void* context, rdma_port_space space,
                      ibv_qp_type type) {
  if (id == nullptr || !is_space(space)) return refuse(EINVAL);
  Library* library = Library::get();
  if (library == nullptr) return -1;
  const std::lock_guard guard(library->lock);
  auto own_channel = channel == nullptr ? Channel::open(*library) : nullptr;
  if (channel == nullptr && !own_channel) return -1;
  Channel& events = own_channel ? *own_channel : Channel::of(channel);
  auto identifier = std::make_unique<Identifier>(*library, events, space, type);
  identifier->context = context;
  identifier->synchronous = own_channel != nullptr;
  static_cast<void>(own_channel.release());
  *id = identifier.release();
  return 0;
}

extern "C" {

int rdma_create_id(rdma_event_channel* channel, rdma_cm_id** id, void* context, rdma_port_space space) {
  return guarded([&] { return create_identifier(channel, id, context, space, usual_type(space)); });
}

int rdma_destroy_id(rdma_cm_id* id) {
  if (id == nullptr) return refuse(EINVAL);
  return guarded([&] {
    Identifier& identifier = Identifier::of(id);
    acknowledge_last(id);
    std::unique_lock lock(identifier.library.lock);
    identifier.stop();
    discard(identifier.events().remove_unless([&](const Event& event) { return event.owner != &identifier; }));
    await_acknowledgements(identifier, lock);
    discard(&identifier);
    return 0;
  });
}

int rdma_bind_addr(rdma_cm_id* id, sockaddr* address) {
  return guarded([&] {
    Identifier& identifier = Identifier::of(id);
    const auto source = address_of(address);
    const std::lock_guard guard(identifier.library.lock);
    if (!permits(identifier.state, Act::bind)) return refuse(EINVAL);
    if (!source) return refuse(address == nullptr ? EINVAL : EAFNOSUPPORT);
    if (const int error = bind_source(identifier, *source)) return refuse(error);
    identifier.state = State::bound;
    return 0;
  });
}

int rdma_listen(rdma_cm_id* id, int) {
  return guarded([&] {
    Identifier& identifier = Identifier::of(id);
    const std::lock_guard guard(identifier.library.lock);
    if (!permits(identifier.state, Act::listen)) return refuse(EINVAL);
    if (identifier.state == State::idle) {
      if (const int error = bind_source(identifier, any_ip4())) return refuse(error);
      identifier.state = State::bound;
    }
    return answer(identifier.serve());
  });
}

int rdma_resolve_addr(rdma_cm_id* id, sockaddr* source, sockaddr* destination, int) {
  return guarded([&] {
    Identifier& identifier = Identifier::of(id);
    {
      const std::lock_guard guard(identifier.library.lock);
      if (const int error = resolve_address(identifier, source, destination)) return refuse(error);
    }
    return identifier.synchronous ? await_completion(id) : 0;
  });
}

int rdma_resolve_route(rdma_cm_id* id, int) {
  return guarded([&] {
    Identifier& identifier = Identifier::of(id);
    {
      const std::lock_guard guard(identifier.library.lock);
      if (const int error = resolve_route(identifier)) return refuse(error);
    }
    return identifier.synchronous ? await_completion(id) : 0;
  });
}

int rdma_set_option(rdma_cm_id* id, int level, int name, void* value, size_t bytes) {
  return guarded([&] {
    Identifier& identifier = Identifier::of(id);
    const std::lock_guard guard(identifier.library.lock);
    if (level == RDMA_OPTION_IB) {
      return answer(name == RDMA_OPTION_IB_PATH ? set_path(identifier, value, bytes) : ENOSYS);
    }
    return answer(level == RDMA_OPTION_ID ? set_identifier_option(identifier, name, value, bytes) : ENOSYS);
  });
}

int rdma_migrate_id(rdma_cm_id* id, rdma_event_channel* channel) {
  return guarded([&] {
    Identifier& identifier = Identifier::of(id);
    std::unique_lock lock(identifier.library.lock);
    if (identifier.synchronous && channel == nullptr) return refuse(EINVAL);
    auto own_channel = channel == nullptr ? Channel::open(identifier.library) : nullptr;
    if (channel == nullptr && !own_channel) return -1;
    const std::unique_ptr<Channel> before(identifier.synchronous ? &identifier.events() : nullptr);
    identifier.synchronous = own_channel != nullptr;
    identifier.move_to(own_channel ? *own_channel : Channel::of(channel));
    static_cast<void>(own_channel.release());
    lock.unlock();
    if (before) acknowledge_last(id);
    lock.lock();
    await_acknowledgements(identifier, lock);
    return 0;
  });
}

__be16 rdma_get_src_port(rdma_cm_id* id) { return htobe16(Identifier::of(id).source.number); }

__be16 rdma_get_dst_port(rdma_cm_id* id) { return htobe16(Identifier::of(id).destination.number); }

int rdma_set_local_ece(rdma_cm_id* id, ibv_ece* options) {
  if (id == nullptr || id->qp != nullptr || options == nullptr || options->comp_mask != 0) return refuse(EINVAL);
  Identifier::of(id).local_ece = *options;
  return 0;
}

int rdma_get_remote_ece(rdma_cm_id* id, ibv_ece* options) {
  if (id == nullptr || id->qp != nullptr || options == nullptr || options->comp_mask != 0) return refuse(EINVAL);
  *options = {};  // the device has no such options
  return 0;
}

}  // extern "C"

}  // namespace splitnic::rdmacm
