#pragma once

#include "adapter_fixtures.h"
#include "lossy_relay.h"

namespace splitnic::fabric::test {

/// Two adapters with the relay between them. Links 1 of `left` and 0 of `right` are the relay's; they bear the port
/// addresses of the ends that they stand for.
struct RelayedEndpoints {
  explicit RelayedEndpoints(std::uint64_t seed, const QueuePairAttributes& options, unsigned lost = 50)
      : left(LinkedPair::calm(), seed),
        right(LinkedPair::calm(), seed + 1000),
        losses(seed),
        relay(losses, lost, 20),
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
  SeededRandom losses;
  LossyRelay relay;
  Endpoint first;
  Endpoint second;
};

}  // namespace splitnic::fabric::test
