#include "host/queue_driver.h"

#include <fmt/format.h>

#include <utility>

namespace splitnic::host {

namespace wire = messaging::wire;
using messaging::Answer;
using messaging::Refusal;

namespace {

// A busy queue reports its counts at this interval; a queue that goes to sleep reports them at once.
constexpr Duration kReportInterval = std::chrono::milliseconds(20);
/// Source of notices. The unit chooses a part of their text.
constexpr std::string_view kQueueDowns = "queue down";

}  // namespace

QueueDriver::QueueDriver(messaging::SessionOptions options, std::size_t number, FurtherNicQueue& nic,
                         fabric::BridgeSource& bridges, QueueGroup& group, RandomSource& random, Notices& notices)
    : options_(std::move(options)),
      number_(number),
      nic_(nic),
      bridges_(bridges),
      group_(group),
      notices_(notices),
      pump_(nic),
      session_(bridges, random, *this) {
  messaging::require_valid(options_);
  options_.role = wire::Role::host;
  options_.mac = {};
}

QueueDriver::~QueueDriver() = default;

std::size_t QueueDriver::poll(Time now) {
  now_ = now;
  group_.heard(number_);
  if (group_.generation() != terms_.generation) follow_session();
  std::size_t work = poll_bridge(now);
  if (session_) {
    work += session_->poll(now);
    if (session_->up()) {
      work += pump_.push(*session_);
      session_->flush();
    }
  }
  if (now >= report_due_ && work != 0) report();
  return work;
}

/// The first session has come up or gone down, so this queue's session ends.
void QueueDriver::follow_session() {
  terms_ = group_.terms();
  drop_session();
  bridges_.belong_to(stopping_ ? 0 : terms_.cookie);
}

void QueueDriver::drop_session() {
  if (!session_) return;
  nic_.set_active(false, {});
  session_.end();
}

std::size_t QueueDriver::poll_bridge(Time now) {
  if (session_.is_over()) drop_session();
  if (session_ || stopping_ || terms_.cookie == 0 || !session_.take_bridge(now)) return 0;
  auto options = options_;
  options.mode = wire::Mode::rdma;  // that of the session, whatever the host asked for
  options.offloads = terms_.offloads.frames;
  options.udp_segments = terms_.offloads.udp_segments;
  session_.start(options);
  return 1;
}

tl::expected<messaging::HelloGrant, Refusal> QueueDriver::on_hello(const wire::HelloRequest&) {
  return tl::unexpected(Refusal{wire::CfgStatus::not_permitted, "this end is a host"});
}

void QueueDriver::on_up(const wire::HelloReply*) {
  const NicOffloads agreed{.frames = session_->offloads(), .udp_segments = session_->udp_segments()};
  if (agreed != terms_.offloads) return session_->reset("a further queue needs the features of its session");
  reported_.clear();
  nic_.set_active(true, agreed);
  report();
}

void QueueDriver::on_down(std::string_view reason) {
  nic_.set_active(false, {});
  // The bridge goes down when the unit ends, and the first queue reports that.
  if (stopping_ || session_.bridge().link() == fabric::LinkState::down) return;
  std::string line = fmt::format("queue {} is down: {}; trying again", number_ + 1, reason);
  if (reported_.first_time(line)) notices_.notice_from(kQueueDowns, line);
}

Answer QueueDriver::on_request(const wire::RequestBody& request) {
  if (const auto* report = std::get_if<wire::StatusReport>(&request)) {
    notices_.notice_from(kUnitsWords, fmt::format("the I/O unit says: {}", report->text));
    return wire::Acknowledged{};
  }
  return tl::unexpected(Refusal{wire::CfgStatus::not_permitted, "a further queue carries frames alone"});
}

void QueueDriver::report() {
  report_due_ = now_ + kReportInterval;
  const QueueGroup::Report report{.up = up(),
                                  .totals = session_.totals(),
                                  .counters = pump_.counters(),
                                  .oversized = nic_.oversized(),
                                  .unfinished = nic_.unfinished()};
  group_.report(number_, report);
}

Time QueueDriver::next_deadline() const {
  return !session_ && (stopping_ || terms_.cookie == 0) ? kNever : session_.next_deadline();
}

bool QueueDriver::prepare_sleep() {
  report();
  if (group_.generation() != terms_.generation) return false;
  return session_.prepare_sleep();
}

void QueueDriver::collect_descriptors(std::vector<int>& out) const {
  out.push_back(group_.descriptor(number_));
  if (up() && !pump_.waits_for_elements()) nic_.collect_descriptors(out);
  if (session_ || terms_.cookie != 0) session_.collect_descriptors(out);
}

void QueueDriver::begin_shutdown() {
  stopping_ = true;
  session_.begin_shutdown();
}

}  // namespace splitnic::host
