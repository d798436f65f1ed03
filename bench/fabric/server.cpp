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
  Served(End& end, DataQueuePair with, const Measurement& what, std::uint32_t row)
      : with_(std::move(with)), pings_(end, with_, what, ping_id(row)) {
    if (is_ping_pong(what)) pongs_.emplace(end, with_, what, pong_id(row));
  }

  [[nodiscard]] DataQueuePair& with() { return with_; }
  void poll() {
    pings_.poll();
    if (!pongs_) return;
    pongs_->poll();
    while (pongs_->posted() < pings_.arrived() && pongs_->may_post() && pongs_->post_next()) {
    }
  }
  Result<void> check(std::uint64_t sent) {
    // The word of the end may have come in together with the last messages.
    for (std::uint64_t before = ~pings_.arrived(); before != pings_.arrived();) {
      before = pings_.arrived();
      poll();
    }
    return pings_.check(sent);
  }

 private:
  DataQueuePair with_;
  Incoming pings_;
  std::optional<Outgoing> pongs_;
};

void put_text(const std::string& text, ControlMessage& into) { text.copy(into.text.data(), into.text.size() - 1); }

Result<std::unique_ptr<Served>> begin(End& end, const Plan& plan, const ControlMessage& asked, ControlMessage& answer) {
  const auto peer = verbs::decode_queue_pair_address(asked.address);
  if (!peer || asked.row >= plan.measurements.size()) return fail("asked for what is not in the plan");
  auto with = DataQueuePair::make(end);
  if (!with) return tl::unexpected(with.error());
  // Receives are taken from the state init on, and nothing is sent before the answer: connect first, then post them.
  if (auto connected = with->connect(*peer); !connected) return tl::unexpected(connected.error());
  answer.address = verbs::encode(with->address());
  return std::make_unique<Served>(end, std::move(*with), plan.measurements[asked.row], asked.row);
}

}  // namespace

Result<void> serve(End& end, const Plan& plan) {
  std::unique_ptr<Served> present;
  for (;;) {
    std::optional<ControlMessage> asked;
    auto waited = end.run_until([&] {
      if (present) present->poll();
      asked = end.heard();
      return asked.has_value();
    });
    if (!waited) return waited;
    ControlMessage answer;
    answer.kind = asked->kind;
    if (asked->kind == ControlMessage::Kind::begin) {
      present.reset();
      auto begun = begin(end, plan, *asked, answer);
      if (begun) {
        present = std::move(*begun);
      } else {
        put_text(begun.error().message, answer);
      }
    } else if (present) {
      if (const auto checked = present->check(asked->count); !checked) put_text(checked.error().message, answer);
      present.reset();
    }
    if (auto said = end.say(answer); !said) return said;
  }
}

}  // namespace splitnic::bench
