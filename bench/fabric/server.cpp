#include "bench/fabric/server.h"

#include <fmt/format.h>

#include <memory>
#include <optional>

#include "bench/fabric/flow.h"

namespace splitnic::bench {

namespace {

/// One measurement, from the side that is asked.
class Served {
 public:
  Served(End& end, DataQueuePairs with, const Measurement& what, std::uint32_t row)
      : end_(end), with_(std::move(with)), what_(what), row_(row) {}

  [[nodiscard]] DataQueuePairs& with() { return with_; }
  /// Once the queue pairs are connected.
  void start() {
    pings_.emplace(end_, with_, what_, ping_id(row_));
    if (is_ping_pong(what_)) pongs_.emplace(end_, with_, what_, pong_id(row_));
  }
  void poll() {
    if (pings_) pings_->poll();
    if (!pongs_) return;
    while (pongs_->posted() < pings_->arrived() && pongs_->may_post() && pongs_->post_next()) {
    }
    pongs_->poll();
  }
  Result<void> check(std::uint64_t sent) {
    if (!pings_) return fail("the measurement ends before it starts");
    // The word of the end may have come in together with the last messages.
    for (std::uint64_t before = ~pings_->arrived(); before != pings_->arrived();) {
      before = pings_->arrived();
      poll();
    }
    return pings_->check(sent);
  }

 private:
  End& end_;
  DataQueuePairs with_;
  Measurement what_;
  std::uint32_t row_;
  std::optional<Incoming> pings_;
  std::optional<Outgoing> pongs_;
};

// A request may wait, but what is measured may not. An end that sleeps takes it at once: nothing wakes it for it again.
constexpr unsigned kTurnsBetweenRequests = 16;

void put_text(const std::string& text, ControlMessage& into) { text.copy(into.text.data(), into.text.size() - 1); }

Result<void> obey(End& end, const Plan& plan, std::unique_ptr<Served>& present, const ControlMessage& asked,
                  ControlMessage& answer) {
  if (asked.kind == ControlMessage::Kind::begin) {
    present.reset();
    if (asked.row >= plan.measurements.size()) return fail("asked for what is not in the plan");
    const Measurement& what = plan.measurements[asked.row];
    auto with = DataQueuePairs::make(end, what);
    if (!with) return tl::unexpected(with.error());
    present = std::make_unique<Served>(end, std::move(*with), what, asked.row);
    return {};
  }
  if (!present) return fail("asked for a measurement that has not begun");
  if (asked.kind == ControlMessage::Kind::connect) {
    answer.count = asked.count;
    present->with().put_addresses(answer);
    return present->with().connect(asked);
  }
  if (asked.kind == ControlMessage::Kind::start) {
    // Receives are taken from the state init on, but nothing is sent before this answer.
    present->start();
    return {};
  }
  auto checked = present->check(asked.count);
  present.reset();
  return checked;
}

}  // namespace

Result<void> serve(End& end, const Plan& plan) {
  std::unique_ptr<Served> present;
  for (;;) {
    std::optional<ControlMessage> asked;
    unsigned turns = 0;
    auto waited = end.run_until([&] {
      if (present) present->poll();
      if (end.sleeps() || turns++ % kTurnsBetweenRequests == 0) asked = end.heard();
      return asked.has_value();
    });
    if (!waited) return waited;
    ControlMessage answer;
    answer.kind = asked->kind;
    if (const auto done = obey(end, plan, present, *asked, answer); !done) put_text(done.error().message, answer);
    if (auto said = end.say(answer); !said) return said;
  }
}

}  // namespace splitnic::bench
