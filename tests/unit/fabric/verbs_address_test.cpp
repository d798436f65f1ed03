#include "verbs_misuse.h"

// Again last, as in the fixture.
#include <catch2/catch.hpp>

namespace splitnic::verbs::test::verbs_address_test {

using enum QueuePairState;

TEST_CASE("verbs: one address handle connects any number of queue pairs, in one step or in all", "[fabric][verbs]") {
  Pair pair;
  const AddressHandle to_b = made(pair.a.domain.create_address_handle(pair.a.path));
  const AddressHandle to_a = made(pair.b.domain.create_address_handle(pair.b.path));
  CHECK((to_b.valid() && to_a.valid()));
  CHECK(to_b.port() == pair.b.queue_pair.address().port);
  for (const bool in_one_step : {true, false}) {
    QueuePair one = pair.a.another(plain());
    QueuePair other = pair.b.another(plain());
    const QueuePairAddress its = other.address();
    if (in_one_step) {
      REQUIRE(one.connect(to_b, its) == Status::ok);
    } else {
      REQUIRE(one.modify(init) == Status::ok);
      REQUIRE(one.modify(ready_to_receive, to_b, its) == Status::ok);
      REQUIRE(one.modify(ready_to_send) == Status::ok);
    }
    REQUIRE(other.connect(to_a, one.address()) == Status::ok);
    const auto bytes = pattern(100, in_one_step ? 1 : 2);
    pair.a.fill(0, bytes);
    REQUIRE(other.post_receive(receive(7, pair.b.region.segment(1000, 100))) == Status::ok);
    REQUIRE(one.post_send(send(8, {pair.a.region.segment(0, 100)})) == Status::ok);
    CHECK(pair.one(pair.b).id == 7);
    CHECK(pair.one(pair.a).id == 8);
    CHECK(pair.b.holds(1000, bytes));
  }
}

TEST_CASE("verbs: an address handle leads to the peer, within its domain, and in one life of the bridge",
          "[fabric][verbs][misuse]") {
  Pair pair;
  const QueuePairAddress its = pair.b.queue_pair.address();
  const AddressHandle way = made(pair.a.domain.create_address_handle(pair.a.path));
  ProtectionDomain second = made(pair.a.context.allocate_domain());
  const AddressHandle of_second = made(second.create_address_handle(pair.a.path));
  const AddressHandle of_b = made(pair.b.domain.create_address_handle(pair.b.path));
  QueuePair one = pair.a.another(plain());
  QueuePairAddress elsewhere = its;
  elsewhere.port = PortAddress{its.port.value ^ 1U};
  check({
      {"another context's path", refusal(pair.a.domain.create_address_handle(pair.b.path)), kBad},
      {"a queue pair elsewhere", one.connect(way, elsewhere), kBad},
      {"another domain's handle", one.connect(of_second, its), kBad},
      {"another context's handle", one.connect(of_b, its), kBad},
      {"a null handle", one.connect(AddressHandle(), its), kBad},
      {"not a step that takes a peer", one.modify(ready_to_send, way, its), Status::bad_state},
  });
  CHECK(one.state() == reset);

  pair.next_epoch();
  CHECK_FALSE(way.valid());
  const QueuePairAddress now = pair.b.queue_pair.address();
  check({
      {"a life that is over", one.connect(way, now), Status::link_down},
      {"one step, by a life that is over", one.modify(ready_to_receive, way, now), Status::link_down},
  });
  const AddressHandle renewed = made(pair.a.domain.create_address_handle(pair.a.path));
  CHECK(renewed.valid());

  pair.a.domain = ProtectionDomain();  // the handle holds what it was made in
  CHECK(renewed.valid());
  CHECK(renewed.port() == now.port);
  pair.a.path = Path();  // but not the way
  CHECK_FALSE(renewed.valid());
}

TEST_CASE("verbs: without a peer there is no way to it", "[fabric][verbs][misuse]") {
  Bridges bridges;
  End alone(bridges, 0, plain(), DomainRules::verbs);
  CHECK(refusal(alone.domain.create_address_handle(alone.path)) == Status::link_down);
}

}  // namespace splitnic::verbs::test::verbs_address_test
