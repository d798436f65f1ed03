#pragma once

#include "adapter_fixtures.h"

namespace splitnic::fabric::test {

/// Sits between two adapters, each on a bridge of its own, hands their cells on and loses some.
class LossyRelay {
 public:
  LossyRelay(std::uint64_t seed, unsigned lost_permille, unsigned doubled_permille)
      : random_(seed), lost_(lost_permille), doubled_(doubled_permille) {}

  void carry(FabricLink& from, FabricLink& to) {
    for (const VirtualLane lane : {VirtualLane::control, VirtualLane::data}) {
      FifoReceiver& receiver = from.receiver(lane);
      while (const auto front = receiver.front()) {
        std::vector<std::byte> bytes(front->size());
        front->copy_out(0, bytes);
        receiver.pop();
        if (random_.below(1000) < lost_) continue;
        const bool twice = random_.below(1000) < doubled_;
        for (int i = 0; i < (twice ? 2 : 1); ++i) static_cast<void>(to.sender(lane).send({bytes}));  // full: lost too
      }
      receiver.push_tail(true);
    }
  }

 private:
  SeededRandom random_;
  unsigned lost_;
  unsigned doubled_;
};

/// Two adapters with the relay between them. Links 1 of `left` and 0 of `right` are the relay's; they bear the port
/// addresses of the ends that they stand for.
struct RelayedEndpoints {
  explicit RelayedEndpoints(std::uint64_t seed, const QueuePairOptions& options, unsigned lost = 50)
      : left(LinkedPair::calm(), seed),
        right(LinkedPair::calm(), seed + 1000),
        relay(seed, lost, 20),
        first(left.link(0), quick(), left.random(), options),
        second(right.link(1), quick(), right.random(), options) {
    REQUIRE(first.adapter.connect(first.number, {second.number, 0xffff'fff0, 0x7fff'fff8}) == Status::ok);
    REQUIRE(second.adapter.connect(second.number, {first.number, 0x7fff'fff8, 0xffff'fff0}) == Status::ok);
  }
  static AdapterOptions quick() {
    AdapterOptions options;
    options.ack_timeout = milliseconds(2);
    options.retry_count = 100;
    options.receiver_not_ready_retries = 1000;
    options.receiver_not_ready_delay = microseconds(100);
    return options;
  }
  void step() {
    now += microseconds(20);
    left.advance(microseconds(20));
    right.advance(microseconds(20));
    relay.carry(left.link(1), right.link(0));
    relay.carry(right.link(0), left.link(1));
    first.adapter.poll(now);
    second.adapter.poll(now);
  }
  Time now{};
  LinkedPair left;
  LinkedPair right;
  LossyRelay relay;
  Endpoint first;
  Endpoint second;
};

}  // namespace splitnic::fabric::test
