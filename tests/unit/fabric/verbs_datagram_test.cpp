#include "verbs_misuse.h"

// Again last, as in the fixture.
#include <catch2/catch.hpp>

namespace splitnic::verbs::test::verbs_datagram_test {
namespace {

constexpr std::uint32_t kKey = 0x1234567;

QueuePairOptions datagrams() {
  QueuePairOptions options;
  options.acknowledged = false;
  options.datagram = true;
  options.queue_key = kKey;
  return options;
}

Gid group() {
  Gid gid;
  gid.bytes[0] = 0xff;
  gid.bytes[15] = 1;
  return gid;
}

}  // namespace

TEST_CASE("verbs: datagrams to a queue pair and to a group, behind a route header", "[fabric][verbs][datagram]") {
  Pair pair;
  QueuePair from = pair.a.another(datagrams());
  QueuePair to = pair.b.another(datagrams());
  REQUIRE(from.start() == Status::ok);
  REQUIRE(to.start() == Status::ok);
  const AddressHandle peer = made(pair.a.domain.create_address_handle(pair.a.path));
  const AddressHandle members = made(pair.a.domain.create_group_handle(group()));
  REQUIRE(to.attach(group()) == Status::ok);
  REQUIRE(pair.a.context.add_group_member(group(), pair.a.path) == Status::ok);
  const auto bytes = pattern(100, 3);
  pair.a.fill(0, bytes);
  for (const bool to_group : {false, true}) {
    REQUIRE(to.post_receive(receive(7, pair.b.region.segment(1000, 140))) == Status::ok);
    const WorkRequest request =
        to_group ? send_datagram(8, {pair.a.region.segment(0, 100)}, members, {}, kKey)
                 : send_datagram(8, {pair.a.region.segment(0, 100)}, peer, to.address().queue_pair, kKey);
    REQUIRE(from.post_send(request) == Status::ok);
    const Completion arrived = pair.one(pair.b);
    CHECK(arrived.id == 7);
    CHECK(arrived.bytes == 140);
    CHECK(arrived.has_route);
    CHECK(arrived.source == from.address().queue_pair);
    CHECK(pair.b.holds(1040, bytes));
    RouteHeader route;
    std::memcpy(&route, pair.b.memory.data() + 1000, sizeof route);
    CHECK(route.source == fabric::port_gid(from.address().port));
    CHECK(route.destination == (to_group ? group() : fabric::port_gid(to.address().port)));
    CHECK(pair.one(pair.a).id == 8);
  }
  CHECK(pair.b.context.counters().datagrams_received == 2);
  REQUIRE(to.detach(group()) == Status::ok);
  REQUIRE(from.post_send(send_datagram(9, {}, members, {}, kKey)) == Status::ok);
  CHECK(pair.one(pair.a).id == 9);
  for (int i = 0; i < 100; ++i) pair.step();
  CHECK(pair.b.context.counters().dropped_no_group_member == 1);
  REQUIRE(from.post_send(send_datagram(9, {}, peer, to.address().queue_pair, kKey + 1)) == Status::ok);
  for (int i = 0; i < 100; ++i) pair.step();
  CHECK(pair.b.context.counters().dropped_wrong_queue_key == 1);
  CHECK(pair.b.take().empty());
}

TEST_CASE("verbs: datagram verbs refuse what makes no sense", "[fabric][verbs][datagram][misuse]") {
  Pair pair;
  QueuePair from = pair.a.another(datagrams());
  const WorkRequest nowhere = send_datagram(1, {}, AddressHandle{}, QpNumber{20}, kKey);
  QueuePairOptions acknowledged = datagrams();
  acknowledged.acknowledged = true;
  acknowledged.send_completions = acknowledged.receive_completions = &pair.a.completions;
  check({
      {"an acknowledged datagram queue pair", refusal(pair.a.domain.create_queue_pair(acknowledged)), kBad},
      {"a connected queue pair that starts", pair.a.another(plain()).start(), kBad},
      {"a null queue pair", QueuePair{}.start(), kBad},
      {"a send before the start", from.post_send(nowhere), Status::bad_state},
      {"no group", from.attach(Gid{}), kBad},
      {"a group of a connected queue pair", pair.a.queue_pair.attach(group()), Status::not_permitted},
      {"a group that it is not attached to", from.detach(group()), kBad},
      {"a handle of no group", refusal(pair.a.domain.create_group_handle(Gid{})), kBad},
      {"a member of no group", pair.a.context.add_group_member(Gid{}, pair.a.path), kBad},
      {"a member that is none", pair.a.context.remove_group_member(group(), pair.a.path), kBad},
  });
  REQUIRE(from.start() == Status::ok);
  check({
      {"a null handle", from.post_send(nowhere), kBad},
      {"started already", from.start(), Status::bad_state},
  });
}

}  // namespace splitnic::verbs::test::verbs_datagram_test
