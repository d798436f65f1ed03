#include "bench/fabric/client.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>

namespace splitnic::bench {

namespace {

constexpr std::size_t kMostSamples = 1U << 20U;

double seconds(Duration time) { return std::chrono::duration<double>(time).count(); }

/// Reorders the values; there is at least one.
double percentile(std::vector<double>& values, std::size_t percent) {
  const std::size_t index = std::min(values.size() * percent / 100, values.size() - 1);
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(index);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

}  // namespace

/// One measurement, from the side that asks.
struct Client::Exchange {
  Exchange(End& end, DataQueuePair made, const Measurement& of, std::uint32_t row)
      : what(of), with(std::move(made)), pings(end, with, of, ping_id(row)) {}

  /// With a queue pair that is connected: receives are posted.
  void expect_pongs(End& end, std::uint32_t row) {
    if (is_ping_pong(what)) pongs.emplace(end, with, what, pong_id(row));
  }
  void poll() {
    pings.poll();
    if (pongs) pongs->poll();
  }
  /// Messages that are answered: by the other end's program, or by the completion that says so.
  [[nodiscard]] std::uint64_t answered() const { return pongs ? pongs->arrived() : pings.completed(); }

  Measurement what;
  DataQueuePair with;
  Outgoing pings;
  std::optional<Incoming> pongs;
};

Client::Client(End& end, const Plan& plan) : end_(end), plan_(plan) { samples_.reserve(kMostSamples); }

Result<ControlMessage> Client::ask(const ControlMessage& message) {
  if (auto said = end_.say(message); !said) return tl::unexpected(said.error());
  std::optional<ControlMessage> answer;
  auto waited = end_.run_until([&] {
    answer = end_.heard();
    return answer.has_value();
  });
  if (!waited) return tl::unexpected(waited.error());
  if (answer->text[0] != '\0') return fail("{}", answer->text.data());
  return *answer;
}

Result<Figures> Client::measure(std::uint32_t row, Duration length) {
  auto figures = measure_one(row, length);
  if (figures) return figures;
  const Measurement& what = plan_.measurements[row];
  return fail("{}, {}, {} bytes: {}", to_string(what.verb), to_string(what.path), what.bytes, figures.error().message);
}

Result<Figures> Client::measure_one(std::uint32_t row, Duration length) {
  auto with = DataQueuePair::make(end_);
  if (!with) return tl::unexpected(with.error());
  Exchange exchange(end_, std::move(*with), plan_.measurements[row], row);
  ControlMessage message;
  message.kind = ControlMessage::Kind::begin;
  message.row = row;
  message.address = verbs::encode(exchange.with.address());
  const auto begun = ask(message);
  if (!begun) return tl::unexpected(begun.error());
  const auto peer = verbs::decode_queue_pair_address(begun->address);
  if (!peer) return fail("the other process has no queue pair");
  if (auto connected = exchange.with.connect(*peer); !connected) return tl::unexpected(connected.error());
  exchange.expect_pongs(end_, row);

  const Time from = monotonic_now() + length / kRunUpShare;
  auto figures = exchange.what.quantity == Quantity::latency ? measure_latency(exchange, from, from + length)
                                                             : measure_rate(exchange, from, from + length);
  if (!figures) return figures;
  if (auto drained = drain(exchange); !drained) return tl::unexpected(drained.error());
  message.kind = ControlMessage::Kind::end;
  message.count = exchange.pings.posted();
  if (const auto ended = ask(message); !ended) return tl::unexpected(ended.error());
  auto checked = exchange.pongs ? exchange.pongs->check(message.count) : exchange.pings.check();
  if (!checked) return tl::unexpected(checked.error());
  return figures;
}

Result<Figures> Client::measure_latency(Exchange& exchange, Time from, Time until) {
  samples_.clear();
  const double share = is_ping_pong(exchange.what) ? 0.5 : 1;
  Time begun = monotonic_now();
  while ((begun < until || samples_.empty()) && samples_.size() < kMostSamples) {
    const auto room = end_.run_until([&] {
      exchange.poll();
      return exchange.pings.may_post();
    });
    if (!room) return tl::unexpected(room.error());
    begun = monotonic_now();
    static_cast<void>(exchange.pings.post_next());  // run_until() sees a failure
    const auto answered = end_.run_until([&] {
      exchange.poll();
      return exchange.answered() == exchange.pings.posted();
    });
    if (!answered) return tl::unexpected(answered.error());
    const Time ended = monotonic_now();
    if (begun >= from) samples_.push_back(seconds(ended - begun) * share);
  }
  Figures figures;
  figures.median = percentile(samples_, 50);
  figures.percentile_99 = percentile(samples_, 99);
  return figures;
}

Result<Figures> Client::measure_rate(Exchange& exchange, Time from, Time until) {
  Time first{};
  Time now{};
  std::uint64_t completed_first = 0;
  const auto moved = end_.run_until([&] {
    exchange.poll();
    while (exchange.pings.may_post() && exchange.pings.post_next()) {
    }
    now = monotonic_now();
    if (first == Time{} && now >= from) {
      first = now;
      completed_first = exchange.pings.completed();
    }
    // However long one message takes, one is needed.
    return now >= until && exchange.pings.completed() > completed_first;
  });
  if (!moved) return tl::unexpected(moved.error());
  Figures figures;
  figures.per_second = static_cast<double>(exchange.pings.completed() - completed_first) / seconds(now - first);
  return figures;
}

Result<void> Client::drain(Exchange& exchange) {
  return end_.run_until([&] {
    exchange.poll();
    return exchange.pings.completed() == exchange.pings.posted();
  });
}

}  // namespace splitnic::bench
