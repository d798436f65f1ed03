#pragma once

#include "adapter_fixtures.h"
#include "lossy_relay.h"

namespace splitnic::fabric::test {

/// Two adapters with the relay between them.
struct RelayedEndpoints {
  explicit RelayedEndpoints(std::uint64_t seed, const QueuePairAttributes& options, unsigned lost = 50)
      : pair(LinkedPair::calm(), seed),
        losses(seed),
        relay(losses, lost, 20),
        first(links[0], quick(), pair.random(), options),
        second(links[1], quick(), pair.random(), options) {
    REQUIRE(first.adapter.connect(first.number, {second.number, 0xffff'fff0, 0x7fff'fff8}) == Status::ok);
    REQUIRE(second.adapter.connect(second.number, {first.number, 0x7fff'fff8, 0xffff'fff0}) == Status::ok);
  }
  static AdapterOptions quick() {
    AdapterOptions options = small_cells();
    options.ack_timeout = milliseconds(2);
    options.retry_count = 100;
    options.receiver_not_ready_retries = 1000;
    options.receiver_not_ready_delay = microseconds(100);
    return options;
  }
  void step() {
    now += microseconds(20);
    pair.advance(microseconds(20));
    relay.carry(links[0], links[1]);
    relay.carry(links[1], links[0]);
    first.adapter.poll(now);
    second.adapter.poll(now);
  }
  Time now{};
  LinkedPair pair;
  std::array<SealedLink, 2> links{SealedLink(pair.link(0)), SealedLink(pair.link(1))};
  SeededRandom losses;
  LossyRelay relay;
  Endpoint first;
  Endpoint second;
};

}  // namespace splitnic::fabric::test
