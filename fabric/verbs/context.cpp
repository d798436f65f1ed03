#include "fabric/verbs/context.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <utility>

#include "fabric/bridge/anchor.h"
#include "fabric/verbs/objects.h"

namespace splitnic::verbs {
namespace {

bool possible(const fabric::LinkOptions& link) {
  using Link = fabric::LinkOptions;
  const auto ring = [](std::size_t most) {
    return [most](std::size_t bytes) {
      return std::has_single_bit(bytes) && bytes >= Link::kMinRingBytes && bytes <= most;
    };
  };
  const bool rings = std::ranges::all_of(link.slot_bytes, ring(Link::kMaxSlotBytes)) &&
                     std::ranges::all_of(link.payload_bytes, ring(Link::kMaxPayloadBytes));
  const bool table = link.mpt_entries != 0 && link.mpt_entries <= ContextOptions::kMaxMptEntries;
  return rings && table && link.port_address.value >> 48U == 0;
}

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

Expected<Context> Context::open(std::shared_ptr<fabric::Bridge> bridge, const ContextOptions& options) {
  if (bridge == nullptr || !possible(options.link) || !possible(options.adapter)) {
    return tl::unexpected(Status::bad_argument);
  }
  fabric::LinkOptions link = options.link;
  SystemRandom system_random;
  RandomSource& random = options.random != nullptr ? *options.random : system_random;
  while (link.port_address.value == 0) link.port_address.value = random.next() >> 16U;
  auto object = std::make_shared<detail::ContextObject>(std::move(bridge), link, options.adapter, options.random);
  object->link.restart();
  return Context(std::move(object));
}

std::size_t Context::poll(Time now) {
  if (!object_) return 0;
  const std::size_t moved = object_->link.poll(now);
  return moved + object_->adapter.poll(now);
}

Time Context::next_deadline(Time now) const {
  if (!object_) return kNever;
  return std::min(object_->adapter.next_deadline(), object_->link.next_deadline(now, object_->adapter.outstanding()));
}

bool Context::prepare_sleep() {
  return object_ && object_->link.bridge().doorbell_descriptor() >= 0 && object_->link.prepare_sleep();
}

int Context::descriptor() const {
  // The descriptor of a peer that has hung up stays readable for ever.
  const bool down = !object_ || object_->link.phase() == fabric::LinkPhase::down;
  return down ? -1 : object_->link.bridge().doorbell_descriptor();
}

void Context::disarm() {
  if (object_) object_->link.disarm();
}

bool Context::up() const { return object_ && object_->link.up(); }

std::size_t Context::poll_events(std::span<AsyncEvent> out) { return object_ ? object_->adapter.poll_events(out) : 0; }

AdapterLimits Context::limits() const { return object_ ? object_->adapter.limits() : AdapterLimits{}; }

AdapterCounters Context::counters() const { return object_ ? object_->adapter.counters() : AdapterCounters{}; }

std::size_t Context::bridge_bytes() const { return up() ? object_->link.buffers().bytes : 0; }

Status Context::add_group_member(const Gid& group) {
  return object_ ? object_->adapter.add_group_member(group, {}) : Status::bad_argument;
}

Status Context::remove_group_member(const Gid& group) {
  return object_ ? object_->adapter.remove_group_member(group, {}) : Status::bad_argument;
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

Expected<CompletionQueue> Context::create_completion_queue(std::size_t capacity, const CompletionChannel* channel) {
  if (!object_) return tl::unexpected(Status::bad_argument);
  std::shared_ptr<detail::ChannelObject> reports_to;
  if (channel != nullptr) {
    reports_to = channel->object();
    if (!reports_to || reports_to->context != object_) return tl::unexpected(Status::bad_argument);
  }
  if (capacity == 0 || capacity > limits().completion_depth) return tl::unexpected(Status::bad_length);
  const auto number =
      object_->adapter.make_completion_queue(capacity, reports_to ? reports_to->number : fabric::ChannelNumber{});
  if (!number) return tl::unexpected(Status::no_resources);
  return CompletionQueue(std::make_shared<detail::CompletionQueueObject>(object_, *number, std::move(reports_to)));
}

}  // namespace splitnic::verbs
