#include "bench/fabric/client.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>

#include "bench/percentile.h"

namespace splitnic::bench {

namespace {

constexpr std::size_t kMostSamples = 1U << 20U;
constexpr Duration kSlice = std::chrono::microseconds(500);

double seconds(Duration time) { return std::chrono::duration<double>(time).count(); }

/// Rates of slices of time. Their median tells the rate, however often another program takes a core.
struct Slices {
  explicit Slices(Time from) : begin(from) {}

  void note(Time now, std::uint64_t count) {
    if (now < begin) {
      base = count;
      since = now;
    } else if (now - since >= kSlice && count > base) {
      rates.push_back(static_cast<double>(count - base) / seconds(now - since));
      base = count;
      since = now;
    }
  }

  Time begin;
  Time since{};
  std::uint64_t base = 0;
  std::vector<double> rates;
};

}  // namespace

/// One measurement, from the side that asks.
struct Client::Exchange {
  Exchange(End& end, DataQueuePairs made, const Measurement& of, std::uint32_t row)
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
  DataQueuePairs with;
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
  auto with = DataQueuePairs::make(end_, plan_.measurements[row]);
  if (!with) return tl::unexpected(with.error());
  Exchange exchange(end_, std::move(*with), plan_.measurements[row], row);
  ControlMessage message;
  message.row = row;
  if (auto connected = connect(exchange.with, message); !connected) return tl::unexpected(connected.error());
  exchange.expect_pongs(end_, row);
  message.kind = ControlMessage::Kind::start;
  if (const auto started = ask(message); !started) return tl::unexpected(started.error());

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

Result<void> Client::connect(DataQueuePairs& with, ControlMessage& message) {
  message.kind = ControlMessage::Kind::begin;
  if (const auto begun = ask(message); !begun) return tl::unexpected(begun.error());
  message.kind = ControlMessage::Kind::connect;
  for (message.count = 0; message.count < with.count(); message.count += kAddressesAtOnce) {
    with.put_addresses(message);
    const auto answer = ask(message);
    if (!answer) return tl::unexpected(answer.error());
    if (auto connected = with.connect(*answer); !connected) return connected;
  }
  return {};
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
  Slices slices(from);
  Time now{};
  const auto moved = end_.run_until([&] {
    exchange.poll();
    while (exchange.pings.may_post() && exchange.pings.post_next()) {
    }
    now = monotonic_now();
    slices.note(now, exchange.pings.completed());
    // However long one message takes, one is needed.
    return now >= until && !slices.rates.empty();
  });
  if (!moved) return tl::unexpected(moved.error());
  Figures figures;
  figures.per_second = percentile(slices.rates, 50);
  return figures;
}

Result<void> Client::drain(Exchange& exchange) {
  return end_.run_until([&] {
    exchange.poll();
    return exchange.pings.completed() == exchange.pings.posted();
  });
}

}  // namespace splitnic::bench
