#include "fabric/verbs/queue_pair.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "common/range.h"
#include "fabric/verbs/objects.h"

namespace splitnic::verbs {
namespace {

constexpr std::uint32_t kFirstDrawnNumber = 16;
constexpr std::uint32_t kOwnNumber = 1;  // of the queue pair for connection management
constexpr Rights kWindowRights = Right::remote_read | Right::remote_write | Right::remote_atomic;

/// In the order of QueuePairState.
constexpr std::array<fabric::QueuePairEvent, fabric::kQueuePairStates> kEventsByState{
    fabric::QueuePairEvent::reset,
    fabric::QueuePairEvent::initialize,
    fabric::QueuePairEvent::ready_to_receive,
    fabric::QueuePairEvent::ready_to_send,
    fabric::QueuePairEvent::drain_sends,
    fabric::QueuePairEvent::fail_sends,
    fabric::QueuePairEvent::fail};

bool belongs(const std::shared_ptr<detail::ContextObject>& context, const CompletionQueue* queue) {
  return queue != nullptr && *queue && queue->object()->context == context;
}

bool belongs(const std::shared_ptr<detail::DomainObject>& domain, const SharedReceiveQueue* queue) {
  return queue == nullptr || (*queue && queue->object()->domain == domain);
}

bool keeps_to(const AdapterLimits& limits, const QueuePairOptions& options) {
  return options.send_depth != 0 && options.send_depth <= limits.queue_depth &&
         options.receive_depth <= limits.queue_depth && options.max_inline_bytes <= limits.inline_bytes &&
         options.reads_in <= limits.reads_in && options.reads_out <= limits.reads_out;
}

bool goes_through_post_send(const WorkRequest& request) {
  const bool known = request.operation <= Operation::delay;
  const bool memory = request.operation == Operation::bind_window || request.operation == Operation::register_memory;
  return known && !memory && request.memory == nullptr && request.placed_bytes == 0;
}

/// A work request without its memory request, which post() adds.
WorkRequest memory_work(Operation operation, const RequestOptions& options) {
  WorkRequest request;
  request.id = options.id;
  request.operation = operation;
  request.signalled = options.signalled;
  request.fence = options.fence;
  return request;
}

Status move(detail::QueuePairObject& queue_pair, fabric::QueuePairEvent event, const fabric::QueuePairPeer& peer = {}) {
  detail::ContextObject& context = queue_pair.context();
  const Status status = context.adapter.modify(queue_pair.number, event, peer);
  if (status != Status::ok) return status == Status::bad_queue_pair ? Status::bad_argument : status;
  ++queue_pair.moves;
  if (event == fabric::QueuePairEvent::reset) queue_pair.first_psn = context.random.next32();
  return Status::ok;
}

/// A move that takes the peer, over this path.
Status move(detail::QueuePairObject& queue_pair, fabric::QueuePairEvent event, const detail::PathObject& path,
            const QueuePairAddress& peer) {
  if (!path.link->up()) return Status::link_down;
  if (peer.port != path.link->peer_port_address()) return Status::bad_argument;
  fabric::QueuePairPeer with;
  with.number = peer.queue_pair;
  with.first_psn_to_send = queue_pair.first_psn;
  with.first_psn_expected = peer.first_psn;
  with.reads_in = peer.reads_in;
  with.path = path.number;
  return move(queue_pair, event, with);
}

/// The only path to this port.
Expected<const detail::PathObject*> route(const detail::ContextObject& context, PortAddress port) {
  const auto leads_there = [port](const detail::PathObject* path) {
    return path->link->up() && path->link->peer_port_address() == port;
  };
  const auto& paths = context.paths;
  const auto found = std::ranges::find_if(paths, leads_there);
  if (found != paths.end()) {
    const bool only = std::none_of(found + 1, paths.end(), leads_there);
    return only ? Expected<const detail::PathObject*>(*found) : tl::unexpected(Status::bad_argument);
  }
  const bool all_up = std::ranges::all_of(paths, [](const detail::PathObject* path) { return path->link->up(); });
  return tl::unexpected(all_up ? Status::bad_argument : Status::link_down);
}

/// The path that the handle leads to, where the queue pair may connect by it to the peer.
Expected<std::shared_ptr<detail::PathObject>> route(const AddressHandle& way, const QueuePairAddress& peer,
                                                    const detail::QueuePairObject& queue_pair) {
  const auto& object = way.object();
  const bool fits = object && object->domain == queue_pair.domain && object->port == peer.port;
  if (!fits) return tl::unexpected(Status::bad_argument);
  auto path = object->way();
  if (path == nullptr) return tl::unexpected(Status::link_down);
  return path;
}

fabric::QueuePairEvent event_of(QueuePairState to) { return kEventsByState[static_cast<std::size_t>(to)]; }

/// The instance that a type 1 window takes next.
Stag next_instance(Stag tag) { return Stag::from(tag.index(), static_cast<std::uint8_t>(tag.instance() + 1)); }

Stag tag_after(const detail::WindowObject& window, const fabric::Bind& bind) {
  if (window.type == WindowType::type_1) return next_instance(bind.window);
  return bind.length == 0 ? bind.window : Stag::from(bind.window.index(), bind.key);
}

Status post(const std::shared_ptr<detail::QueuePairObject>& queue_pair, detail::WindowObject& window,
            const fabric::Bind& bind, const RequestOptions& options) {
  if (bind.window == Stag{}) return Status::bad_tag;
  const fabric::MemoryRequest memory = bind;
  WorkRequest request = memory_work(Operation::bind_window, options);
  request.memory = &memory;
  const Status status = queue_pair->context().adapter.post_send(queue_pair->number, request);
  if (status != Status::ok) return status;
  window.expect({tag_after(window, bind), bind.zero_based ? 0 : bind.address, bind.length}, queue_pair);
  return Status::ok;
}

/// Checks a registration before the table does.
Status check(const detail::QueuePairObject& queue_pair, const MemoryRegion& region, const Registration& registration) {
  const auto& object = region.object();
  if (!object || object->domain != queue_pair.domain) return Status::bad_argument;
  if (object->origin != detail::RegionOrigin::through_send_queue) return Status::bad_argument;
  const bool consistent = detail::consistent(registration.rights) && detail::known(registration.touch);
  if (!consistent || !fabric::well_formed(registration.pages)) return Status::bad_argument;
  const bool accessible = detail::accessible(queue_pair.context(), registration.pages, registration.rights, false);
  return accessible ? Status::ok : Status::bad_argument;
}

fabric::FastRegister fast_register(Stag tag, const Registration& registration) {
  fabric::FastRegister request;
  request.tag = tag;
  request.key = registration.key;
  request.pages = registration.pages;
  request.options.rights = registration.rights;
  request.options.touch = registration.touch;
  request.options.invalidatable = registration.invalidatable;
  request.options.base = registration.base;
  return request;
}

Status post(const std::shared_ptr<detail::QueuePairObject>& queue_pair, detail::RegionObject& region,
            const Registration& registration, WorkRequest request) {
  const Stag before = region.expected().tag;
  if (before == Stag{}) return Status::bad_tag;
  const fabric::MemoryRequest memory = fast_register(before, registration);
  request.memory = &memory;
  const Status status = queue_pair->context().adapter.post_send(queue_pair->number, request);
  if (status != Status::ok) return status;
  const Stag after = Stag::from(before.index(), registration.key);
  region.expect({after, registration.base, fabric::bytes_of(registration.pages)}, queue_pair);
  return Status::ok;
}

}  // namespace

Expected<QueuePair> ProtectionDomain::create_queue_pair(const QueuePairOptions& options) {
  if (!object_) return tl::unexpected(Status::bad_argument);
  detail::ContextObject& context = *object_->context;
  const bool fits = belongs(object_->context, options.send_completions) &&
                    belongs(object_->context, options.receive_completions) &&
                    belongs(object_, options.shared_receives) && options.number.value < kFirstDrawnNumber &&
                    options.number.value != kOwnNumber && options.lane <= VirtualLane::data &&
                    (!options.datagram || (!options.acknowledged && !options.memory_requests)) &&
                    !(options.datagram && options.standing_receive) &&
                    options.on_memory_request_failure <= MemoryRequestFailure::fail;
  if (!fits) return tl::unexpected(Status::bad_argument);
  if (!keeps_to(context.adapter.limits(), options)) return tl::unexpected(Status::bad_length);
  fabric::QueuePairAttributes with;
  with.domain = object_->number;
  with.send_completions = options.send_completions->number();
  with.receive_completions = options.receive_completions->number();
  if (options.shared_receives != nullptr) with.shared_receives = options.shared_receives->number();
  with.send_depth = options.send_depth;
  with.receive_depth = options.receive_depth;
  with.acknowledged = options.acknowledged;
  with.lane = options.lane;
  with.number = options.number;
  with.reads_out = options.reads_out;
  with.reads_in = options.reads_in;
  with.max_inline_bytes = options.max_inline_bytes;
  with.memory_requests = options.memory_requests;
  with.flush_posts = options.flush_posts;
  with.on_memory_request_failure = options.on_memory_request_failure;
  with.datagram = options.datagram;
  with.queue_key = options.queue_key;
  with.standing_receive = options.standing_receive;
  const auto number = context.adapter.create_queue_pair(with);
  if (!number) return tl::unexpected(Status::no_resources);
  context.mappings.refresh();  // S4 Fig. 17: recorded when a queue pair is opened
  return QueuePair(std::make_shared<detail::QueuePairObject>(object_, options, *number));
}

QueuePairAddress QueuePair::address() const {
  if (!object_) return {};
  return {object_->context().port, object_->number, object_->first_psn, object_->reads_in};
}

QueuePairState QueuePair::state() const { return object_ ? object_->state() : QueuePairState::error; }

Status QueuePair::modify(QueuePairState to, const QueuePairAddress* peer) {
  if (!object_ || to > QueuePairState::error) return Status::bad_argument;
  const bool takes_peer = to == QueuePairState::ready_to_receive && peer != nullptr;
  if (!takes_peer) return verbs::move(*object_, event_of(to));
  const auto path = route(object_->context(), peer->port);
  return path ? verbs::move(*object_, event_of(to), **path, *peer) : path.error();
}

Status QueuePair::connect(const QueuePairAddress& peer) {
  if (!object_) return Status::bad_argument;
  const auto path = route(object_->context(), peer.port);
  return path ? verbs::move(*object_, fabric::QueuePairEvent::connect, **path, peer) : path.error();
}

Status QueuePair::modify(QueuePairState to, const Path& path, const QueuePairAddress& peer) {
  const bool own = object_ && path && path.object()->context == object_->domain->context;
  if (!own || to > QueuePairState::error) return Status::bad_argument;
  if (to != QueuePairState::ready_to_receive) return verbs::move(*object_, event_of(to));
  return verbs::move(*object_, event_of(to), *path.object(), peer);
}

Status QueuePair::connect(const Path& path, const QueuePairAddress& peer) {
  const bool own = object_ && path && path.object()->context == object_->domain->context;
  return own ? verbs::move(*object_, fabric::QueuePairEvent::connect, *path.object(), peer) : Status::bad_argument;
}

Status QueuePair::start() {
  if (!object_ || !object_->datagram) return Status::bad_argument;
  return verbs::move(*object_, fabric::QueuePairEvent::connect);
}

Status QueuePair::attach(const Gid& group) {
  if (!object_) return Status::bad_argument;
  return object_->context().adapter.attach_to_group(object_->number, group);
}

Status QueuePair::detach(const Gid& group) {
  if (!object_) return Status::bad_argument;
  return object_->context().adapter.detach_from_group(object_->number, group);
}

Status QueuePair::modify(QueuePairState to, const AddressHandle& way, const QueuePairAddress& peer) {
  if (!object_ || to > QueuePairState::error) return Status::bad_argument;
  const auto path = route(way, peer, *object_);
  if (!path) return path.error();
  if (to != QueuePairState::ready_to_receive) return verbs::move(*object_, event_of(to));
  return verbs::move(*object_, event_of(to), **path, peer);
}

Status QueuePair::connect(const AddressHandle& way, const QueuePairAddress& peer) {
  if (!object_) return Status::bad_argument;
  const auto path = route(way, peer, *object_);
  return path ? verbs::move(*object_, fabric::QueuePairEvent::connect, **path, peer) : path.error();
}

Status QueuePair::post_send(const WorkRequest& request) {
  if (!object_ || !goes_through_post_send(request)) return Status::bad_argument;
  return object_->context().adapter.post_send(object_->number, request);
}

Status QueuePair::post_receive(const ReceiveRequest& request) {
  return object_ ? object_->context().adapter.post_receive(object_->number, request) : Status::bad_argument;
}

Status QueuePair::post_send(std::span<const WorkRequest> requests, std::size_t& posted) {
  posted = 0;
  if (!object_) return Status::bad_argument;
  std::size_t good = 0;
  while (good != requests.size() && goes_through_post_send(requests[good])) ++good;
  const Status status = object_->adapter.post_send(object_->own, requests.first(good), posted);
  return status == Status::ok && good != requests.size() ? Status::bad_argument : status;
}

Status QueuePair::post_receive(std::span<const ReceiveRequest> requests, std::size_t& posted) {
  posted = 0;
  return object_ ? object_->adapter.post_receive(object_->own, requests, posted) : Status::bad_argument;
}

std::size_t QueuePair::send_room() const { return object_ ? object_->context().adapter.send_room(object_->number) : 0; }

Status QueuePair::post_bind(MemoryWindow& window, const MemoryRegion& region, const Binding& binding,
                            const RequestOptions& options) {
  if (!object_ || !window || !region) return Status::bad_argument;
  detail::WindowObject& to = *window.object();
  detail::RegionObject& from = *region.object();
  const bool type_2 = to.type == WindowType::type_2;
  const bool fits = to.domain == object_->domain && from.domain == object_->domain && detail::known(binding.touch) &&
                    (binding.rights.bits & ~kWindowRights.bits) == 0 && (type_2 || !binding.zero_based);
  if (!fits) return Status::bad_argument;
  if (object_->datagram) return Status::not_permitted;
  if (binding.bytes == 0) return Status::bad_length;
  const detail::Opening opening = from.expected();
  if (opening.tag == Stag{}) return Status::bad_tag;
  const bool in_process =
      from.origin == detail::RegionOrigin::process && within(from.memory.size(), {binding.offset, binding.bytes});
  if (in_process && !detail::accessible(object_->context(), from.memory.subspan(binding.offset, binding.bytes),
                                        binding.rights, false)) {
    return Status::bad_argument;
  }
  fabric::Bind bind;
  bind.window = to.expected().tag;
  bind.region = opening.tag;
  bind.address = opening.base + binding.offset;
  bind.length = binding.bytes;
  bind.rights = binding.rights;
  bind.touch = binding.touch;
  bind.key = binding.key;
  bind.zero_based = binding.zero_based;
  bind.invalidatable = binding.invalidatable;
  return verbs::post(object_, to, bind, options);
}

Status QueuePair::post_unbind(MemoryWindow& window, const RequestOptions& options) {
  if (!object_ || !window || window.object()->domain != object_->domain) return Status::bad_argument;
  fabric::Bind nothing;
  nothing.window = window.object()->expected().tag;
  return verbs::post(object_, *window.object(), nothing, options);
}

Status QueuePair::post_register(MemoryRegion& region, const Registration& registration, const RequestOptions& options) {
  if (!object_) return Status::bad_argument;
  if (const Status status = check(*object_, region, registration); status != Status::ok) return status;
  return verbs::post(object_, *region.object(), registration, memory_work(Operation::register_memory, options));
}

Status QueuePair::post_register_and_send(MemoryRegion& region, const Registration& registration,
                                         const WorkRequest& send) {
  const bool sends = send.operation == Operation::send || send.operation == Operation::send_with_invalidate;
  if (!object_ || !sends || !goes_through_post_send(send)) return Status::bad_argument;
  if (const Status status = check(*object_, region, registration); status != Status::ok) return status;
  return verbs::post(object_, *region.object(), registration, send);
}

}  // namespace splitnic::verbs
