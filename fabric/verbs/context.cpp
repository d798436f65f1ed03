#include "fabric/verbs/context.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "fabric/verbs/objects.h"

namespace splitnic::verbs {
namespace {

bool possible(const fabric::AdapterOptions& adapter) {
  using Options = ContextOptions;
  const bool sizes = adapter.max_queue_pairs <= Options::kMaxQueuePairs && adapter.max_regions <= Options::kMaxTags &&
                     adapter.max_events != 0 && adapter.max_events <= Options::kMaxEvents;
  const bool times = adapter.ack_timeout > Duration::zero() && adapter.ack_timeout <= Options::kLongestTimeout &&
                     adapter.receiver_not_ready_delay >= Duration::zero() &&
                     adapter.receiver_not_ready_delay <= Options::kLongestTimeout;
  return sizes && times;
}

}  // namespace

Expected<Context> Context::open(const ContextOptions& options) {
  if (!possible(options.adapter) || options.port_address.value >> 48U != 0) return tl::unexpected(Status::bad_argument);
  if (options.node == nullptr) return Context(std::make_shared<detail::ContextObject>(options));
  ContextOptions with = options;
  with.adapter.numbers = fabric::take_numbers(*options.node, options.adapter);
  if (!with.adapter.numbers) return tl::unexpected(Status::no_resources);
  return Context(std::make_shared<detail::ContextObject>(with));
}

PortAddress Context::port_address() const { return object_ ? object_->port : PortAddress{}; }

std::size_t Context::poll(Time now) {
  if (!object_) return 0;
  detail::ContextObject& object = *object_;
  object.hear_doorbells(now);
  const fabric::AdapterTurn turn = object.adapter.take_turn(now);
  const std::uint64_t epochs = object.adapter.path_epochs();
  if (turn.links_changed || epochs != object.epochs_seen) [[unlikely]] {
    object.epochs_seen = epochs;
    for (detail::PathObject* path : object.paths) path->follow();
    object.doorbells.forget();
  }
  return turn.moved + (object.connections != nullptr ? object.connections->poll(now) : 0);
}

Time Context::next_deadline(Time now) const {
  if (!object_) return kNever;
  Time deadline = object_->adapter.next_deadline();
  if (object_->connections != nullptr) deadline = std::min(deadline, object_->connections->next_deadline());
  return std::min(deadline, object_->adapter.next_link_deadline(now));
}

bool Context::prepare_sleep() {
  if (!object_) return false;
  if (!object_->doorbells.update(object_->paths) || object_->doorbells.unwakeable()) return false;
  return object_->adapter.prepare_sleep();
}

int Context::descriptor() const {
  return object_ && object_->doorbells.update(object_->paths) ? object_->doorbells.descriptor() : -1;
}

void Context::disarm() {
  if (!object_) return;
  object_->doorbells.attend_rung(object_->adapter);
  object_->adapter.disarm();
}

std::size_t Context::poll_events(std::span<AsyncEvent> out) { return object_ ? object_->adapter.poll_events(out) : 0; }

AdapterLimits Context::limits() const { return object_ ? object_->adapter.limits() : AdapterLimits{}; }

AdapterCounters Context::counters() const { return object_ ? object_->adapter.counters() : AdapterCounters{}; }

Status Context::add_group_member(const Gid& group, const Path& path) {
  const bool own = object_ && path && path.object()->context == object_;
  return own ? object_->adapter.add_group_member(group, path.number()) : Status::bad_argument;
}

Status Context::remove_group_member(const Gid& group, const Path& path) {
  const bool own = object_ && path && path.object()->context == object_;
  return own ? object_->adapter.remove_group_member(group, path.number()) : Status::bad_argument;
}

Expected<ProtectionDomain> Context::allocate_domain(DomainRules rules) {
  if (!object_ || rules > DomainRules::strict) return tl::unexpected(Status::bad_argument);
  const fabric::ProtectionDomain number = object_->adapter.allocate_domain();
  object_->adapter.table().set_rules(number, rules);
  return ProtectionDomain(std::make_shared<detail::DomainObject>(object_, number));
}

Expected<CompletionChannel> Context::create_completion_channel(std::function<void()> wake) {
  if (!object_) return tl::unexpected(Status::bad_argument);
  const auto number = object_->adapter.create_completion_channel(std::move(wake));
  if (!number) return tl::unexpected(Status::no_resources);
  return CompletionChannel(std::make_shared<detail::ChannelObject>(object_, *number));
}

Expected<CompletionQueue> Context::create_completion_queue(std::size_t capacity, const CompletionChannel* channel,
                                                           CompletionRoom room) {
  if (!object_ || room > CompletionRoom::unreserved) return tl::unexpected(Status::bad_argument);
  std::shared_ptr<detail::ChannelObject> reports_to;
  if (channel != nullptr) {
    reports_to = channel->object();
    if (!reports_to || reports_to->context != object_) return tl::unexpected(Status::bad_argument);
  }
  if (capacity == 0 || capacity > limits().completion_depth) return tl::unexpected(Status::bad_length);
  const auto number =
      object_->adapter.make_completion_queue(capacity, reports_to ? reports_to->number : fabric::ChannelNumber{}, room);
  if (!number) return tl::unexpected(Status::no_resources);
  return CompletionQueue(std::make_shared<detail::CompletionQueueObject>(object_, *number, std::move(reports_to)));
}

}  // namespace splitnic::verbs
