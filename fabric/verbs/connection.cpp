#include "fabric/verbs/connection.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "fabric/verbs/objects.h"
#include "fabric/wire/datagram.h"

namespace splitnic::verbs {

namespace detail {

struct ConnectionsObject {
  ConnectionsObject(std::shared_ptr<ContextObject> of, const ConnectionOptions& options)
      : context(std::move(of)), manager(context->adapter, context->random, options) {
    context->connections = &manager;
  }
  ~ConnectionsObject() { context->connections = nullptr; }
  ConnectionsObject(const ConnectionsObject&) = delete;
  ConnectionsObject& operator=(const ConnectionsObject&) = delete;

  std::shared_ptr<ContextObject> context;
  fabric::ConnectionManager manager;
};

struct ListenerObject {
  ListenerObject(std::shared_ptr<ConnectionsObject> of, ServiceNumber at) : connections(std::move(of)), service(at) {}
  ~ListenerObject() { static_cast<void>(connections->manager.stop_listening(service)); }
  ListenerObject(const ListenerObject&) = delete;
  ListenerObject& operator=(const ListenerObject&) = delete;

  std::shared_ptr<ConnectionsObject> connections;
  ServiceNumber service;
};

struct ConnectionObject {
  ConnectionObject(std::shared_ptr<ConnectionsObject> of, ConnectionNumber with)
      : connections(std::move(of)), number(with) {}
  ~ConnectionObject() { connections->manager.release(number); }
  ConnectionObject(const ConnectionObject&) = delete;
  ConnectionObject& operator=(const ConnectionObject&) = delete;

  std::shared_ptr<ConnectionsObject> connections;
  ConnectionNumber number;
  std::shared_ptr<QueuePairObject> queue_pair{};
};

}  // namespace detail

namespace {

bool possible(const ConnectionOptions& options) {
  const auto time = [](Duration duration) {
    return duration > Duration::zero() && duration <= ContextOptions::kLongestTimeout;
  };
  return options.max_connections <= ConnectionOptions::kMaxConnections && time(options.repeat_min) &&
         time(options.repeat_max) && time(options.answer_limit) && time(options.decision_limit) &&
         time(options.disconnect_limit) && time(options.rest);
}

/// Whether the queue pair is one of the context's that connects.
bool connects(const QueuePair& queue_pair, const detail::ConnectionsObject& connections) {
  const auto& object = queue_pair.object();
  return object != nullptr && object->domain->context == connections.context && !object->datagram;
}

fabric::ConnectionEnd end_of(const detail::QueuePairObject& queue_pair) {
  return {queue_pair.number, queue_pair.first_psn, queue_pair.reads_in, queue_pair.reads_out, queue_pair.acknowledged};
}

/// Whether a message of the kind with these bytes fits a cell of the path.
bool fits(const detail::PathObject& path, fabric::ConnectionMessageKind kind, std::span<const std::byte> data) {
  const std::size_t bytes = sizeof(fabric::DatagramBytes) + fabric::connection_message_bytes(kind, data.size());
  return bytes <= path.link->max_payload(VirtualLane::control);
}

}  // namespace

// ---- connections

Expected<Connections> Connections::open(const Context& context, const ConnectionOptions& options) {
  if (!context || !possible(options)) return tl::unexpected(Status::bad_argument);
  if (context.object()->connections != nullptr) return tl::unexpected(Status::in_use);
  auto made = std::make_shared<detail::ConnectionsObject>(context.object(), options);
  if (const Status status = made->manager.start(); status != Status::ok) return tl::unexpected(status);
  return Connections(std::move(made));
}

Expected<Listener> Connections::listen(ServiceNumber service, std::size_t backlog) {
  const Status status = object_ ? object_->manager.listen(service, backlog) : Status::bad_argument;
  if (status != Status::ok) return tl::unexpected(status);
  return Listener(std::make_shared<detail::ListenerObject>(object_, service));
}

Expected<Connection> Connections::connect(const Path& path, ServiceNumber service, const QueuePair& queue_pair,
                                          std::span<const std::byte> data) {
  const bool own = object_ && path && path.object()->context == object_->context && connects(queue_pair, *object_);
  if (!own) return tl::unexpected(Status::bad_argument);
  if (!path.up()) return tl::unexpected(Status::link_down);
  if (!fits(*path.object(), fabric::ConnectionMessageKind::request, data)) return tl::unexpected(Status::bad_length);
  const auto number = object_->manager.connect(path.number(), service, end_of(*queue_pair.object()), data);
  if (!number) return tl::unexpected(number.error());
  auto made = std::make_shared<detail::ConnectionObject>(object_, *number);
  made->queue_pair = queue_pair.object();
  return Connection(std::move(made));
}

std::size_t Connections::poll_events(std::span<ConnectionEvent> out) {
  return object_ ? object_->manager.poll_events(out) : 0;
}

ConnectionCounters Connections::counters() const {
  return object_ ? object_->manager.counters() : ConnectionCounters{};
}

// ---- listeners

ServiceNumber Listener::service() const { return object_ ? object_->service : ServiceNumber{}; }

std::optional<Connection> Listener::take() {
  if (!object_) return std::nullopt;
  const auto number = object_->connections->manager.take_request(object_->service);
  if (!number) return std::nullopt;
  return Connection(std::make_shared<detail::ConnectionObject>(object_->connections, *number));
}

// ---- a connection

ConnectionNumber Connection::number() const { return object_ ? object_->number : ConnectionNumber{}; }

ConnectionInfo Connection::info() const {
  return object_ ? object_->connections->manager.info(object_->number).value_or(ConnectionInfo{}) : ConnectionInfo{};
}

Status Connection::accept(const QueuePair& queue_pair, std::span<const std::byte> data) {
  if (!object_ || !connects(queue_pair, *object_->connections)) return Status::bad_argument;
  const PathNumber number = info().path;
  const auto& paths = object_->connections->context->paths;
  const auto path = std::ranges::find(paths, number, &detail::PathObject::number);
  if (path == paths.end()) return Status::bad_state;  // the request went with it
  if (!(*path)->link->up()) return Status::link_down;
  if (!fits(**path, fabric::ConnectionMessageKind::reply, data)) return Status::bad_length;
  const Status status = object_->connections->manager.accept(object_->number, end_of(*queue_pair.object()), data);
  if (status == Status::ok) object_->queue_pair = queue_pair.object();
  return status;
}

Status Connection::reject(std::span<const std::byte> data) {
  return object_ ? object_->connections->manager.reject(object_->number, data) : Status::bad_argument;
}

Status Connection::disconnect(std::span<const std::byte> data) {
  return object_ ? object_->connections->manager.disconnect(object_->number, data) : Status::bad_argument;
}

}  // namespace splitnic::verbs
