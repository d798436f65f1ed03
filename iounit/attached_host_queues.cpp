// AttachedHost, its queues: the first session's, and further ones that carry frames alone.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "iounit/attached_host.h"

namespace splitnic::iounit {

namespace wire = messaging::wire;
using messaging::Refusal;

bool AttachedHost::add_queue(std::shared_ptr<fabric::Bridge> bridge, messaging::SessionOptions options,
                             RandomSource& random) {
  const auto place = std::ranges::find_if(further_, [](const auto& queue) { return queue == nullptr; });
  const bool has_pools = session_->mode() == wire::Mode::rdma && session_->has_data_channel();
  if (!up() || ending_ || !has_pools || place == further_.end()) return false;
  if (!flows_) {
    flow_key_ = random.next();
    flows_ = std::make_unique<FlowQueues>();
    flows_->set_up(0, true);
  }
  options.insist_on_mode = true;
  options.mode = wire::Mode::rdma;
  options.data_channel = true;
  options.offloads = session_->offloads();
  options.udp_segments = session_->udp_segments();
  options.max_mtu = session_->max_mtu();
  const auto number = static_cast<std::size_t>(place - further_.begin()) + 1;
  FurtherQueueOwner& owner = *this;
  *place = std::make_unique<FurtherQueue>(owner, number, std::move(bridge), options, random, now_);
  return true;
}

bool AttachedHost::has_dead_queues(Time now) {
  return std::ranges::any_of(further_, [&](const auto& queue) { return queue && (!up() || queue->is_dead(now)); });
}

void AttachedHost::drop_dead_queues(Time now) {
  for (auto& queue : further_) {
    if (!queue || (up() && !queue->is_dead(now))) continue;
    past_queues_ += queue->session().totals();
    flows_->set_up(queue->number(), false);
    queue.reset();
  }
}

std::size_t AttachedHost::queues_up() const {
  if (!up()) return 0;
  return 1 + static_cast<std::size_t>(
                 std::ranges::count_if(further_, [](const auto& queue) { return queue && queue->up(); }));
}

// ---- events of the further queues' sessions

tl::expected<messaging::HelloGrant, Refusal> AttachedHost::admit_queue(const wire::HelloRequest& hello) {
  if (!up() || ending_) return tl::unexpected(Refusal{wire::CfgStatus::busy, "its session is not up"});
  if (hello.name != name_) {
    return tl::unexpected(Refusal{wire::CfgStatus::not_permitted, "a further queue has the name of its session"});
  }
  if (hello.mode != wire::Mode::rdma || !hello.terms.data_channel) {
    return tl::unexpected(Refusal{wire::CfgStatus::invalid_parameter, "a further queue needs mode R"});
  }
  return messaging::HelloGrant{.mac = mac_, .max_mtu = session_->max_mtu(), .link_up = true};
}

void AttachedHost::queue_changed(const FurtherQueue& queue) {
  owner_.attend(*this);
  flows_->set_up(queue.number(), queue.up());
}

void AttachedHost::queue_frame(const FurtherQueue& queue, const messaging::ReceivedFrame& frame) {
  sending_queue_ = queue.number();
  take_frame(frame);
}

void AttachedHost::queue_says(std::string_view text) { owner_.host_says(*this, std::string(text)); }

// ---- frames to the host

AttachedHost::Outlet AttachedHost::outlet_for(const frame::EthernetHeader& header, std::span<const std::byte> frame) {
  if (!flows_) return {*session_, receiver_share_};
  const auto is_empty = [this](std::size_t number) {
    const auto credits = number == 0 ? session_->credits() : further_[number - 1]->session().credits();
    return credits.free == credits.elements;
  };
  const std::size_t number = flows_->queue_for(frame::flow_number(frame, header, flow_key_), is_empty);
  if (is_empty(number)) flows_->note_empty(number);
  if (number == 0) return {*session_, receiver_share_, true};
  FurtherQueue& queue = *further_[number - 1];
  return {queue.session(), queue.share(), true};
}

// ---- the sessions of all queues as one

std::size_t AttachedHost::poll(Time now, std::size_t completions) {
  if (!flows_) return session_->poll(now, completions);
  const auto sessions =
      1 + static_cast<std::size_t>(std::ranges::count_if(further_, [](const auto& queue) { return queue != nullptr; }));
  completions = std::max<std::size_t>(1, completions / sessions);
  std::size_t work = session_->poll(now, completions);
  // The first session says whose frames these are. When it ends, the unit drops the queues.
  if (!up()) return work;
  for (auto& queue : further_) {
    if (!queue) continue;
    queue->note_time(now);
    work += queue->session().poll(now, completions);
  }
  sending_queue_ = 0;
  return work;
}

void AttachedHost::flush() {
  each_session([](messaging::Session& session) { session.flush(); });
}

bool AttachedHost::prepare_sleep() {
  bool agreed = true;
  each_session([&](messaging::Session& session) { agreed = agreed && session.prepare_sleep(); });
  return agreed;
}

void AttachedHost::disarm() {
  each_session([](messaging::Session& session) { session.disarm(); });
}

bool AttachedHost::awaits_peer() const {
  bool awaits = false;
  each_session([&](const messaging::Session& session) { awaits = awaits || session.awaits_peer(); });
  return awaits;
}

bool AttachedHost::leave_armed() {
  std::size_t armed = 0;
  bool agreed = true;
  each_session([&](messaging::Session& session) {
    agreed = agreed && session.leave_armed();
    if (agreed) ++armed;
  });
  if (agreed) return true;
  each_session([&](messaging::Session& session) {
    if (armed == 0) return;
    --armed;
    session.resume(now_);
  });
  return false;
}

void AttachedHost::resume(Time now) {
  each_session([now](messaging::Session& session) { session.resume(now); });
}

void AttachedHost::set_heartbeat(std::chrono::milliseconds interval, std::chrono::milliseconds phase) {
  each_session([&](messaging::Session& session) { session.set_heartbeat(interval, phase); });
}

bool AttachedHost::peer_waits_for_core() {
  bool waits = false;  // whether any of the host's threads waits
  each_session([&](messaging::Session& session) { waits = session.peer_waits_for_core() || waits; });
  return waits;
}

Time AttachedHost::next_deadline() const {
  Time deadline = kNever;
  each_session([&](const messaging::Session& session) { deadline = std::min(deadline, session.next_deadline()); });
  for (const auto& queue : further_) {
    if (queue) deadline = std::min(deadline, queue->dead_at());
  }
  return deadline;
}

bool AttachedHost::finished() const {
  bool all = true;
  each_session([&](const messaging::Session& session) { all = all && session.finished(); });
  return all;
}

messaging::SessionTotals AttachedHost::totals() const {
  auto sum = past_queues_;
  each_session([&](const messaging::Session& session) { sum += session.totals(); });
  return sum;
}

messaging::SessionCounters AttachedHost::counters() const {
  if (!flows_) return session_->counters();
  auto sum = past_queues_.session;
  each_session([&](const messaging::Session& session) { sum += session.counters(); });
  return sum;
}

}  // namespace splitnic::iounit
