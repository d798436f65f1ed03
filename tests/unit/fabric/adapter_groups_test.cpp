#include "datagram_fixtures.h"

/// Datagrams to groups: a copy to each member's path, and to each queue pair that is attached there.
namespace splitnic::fabric::test::adapter_groups_test {
namespace {

/// A sender with a path to each of three members of a group; the path to `late` is on its way up until it is shown.
struct Members {
  explicit Members(std::size_t which) : late(links[which].end(0)) {
    for (auto& link : links) {
      for (int i = 0; i < 100'000 && !(link.end(0).up() && link.end(1).up()); ++i) link.step();
    }
    const auto link_to = [&](std::size_t i) -> CellLink& {
      if (i == which) return late;
      return links[i].end(0);
    };
    sender = std::make_unique<Endpoint>(link_to(0), small_cells(), random, datagrams());
    REQUIRE(sender->adapter.connect(sender->number, {}) == Status::ok);
    for (std::size_t i = 0; i < links.size(); ++i) {
      paths[i] = i == 0 ? PathNumber{1} : sender->adapter.attach(link_to(i)).value();
      peers[i] = std::make_unique<Endpoint>(links[i].end(1), small_cells(), random, datagrams());
      REQUIRE(peers[i]->adapter.connect(peers[i]->number, {}) == Status::ok);
      REQUIRE(peers[i]->adapter.attach_to_group(peers[i]->number, group_of(1)) == Status::ok);
      for (std::uint64_t id = 0; id < 10; ++id) REQUIRE(peers[i]->receive(id, kTo, 200) == Status::ok);
      REQUIRE(sender->adapter.add_group_member(group_of(1), paths[i]) == Status::ok);
    }
    AddressHandleOptions to;
    to.group = group_of(1);
    handle = sender->adapter.create_address_handle(to).value();
  }
  void send(std::uint64_t id) {
    WorkRequest request = send_request(id, sender->segment(0, 10));
    request.datagram = {handle, {}, kKey};
    REQUIRE(post(*sender, request) == Status::ok);
  }
  void run() {
    for (int i = 0; i < 200; ++i) {
      now += microseconds(10);
      for (auto& link : links) link.step();
      sender->adapter.poll(now);
      for (auto& peer : peers) peer->adapter.poll(now);
    }
  }
  [[nodiscard]] std::array<std::size_t, 3> got() {
    return {peers[0]->take().size(), peers[1]->take().size(), peers[2]->take().size()};
  }

  std::array<LoopbackLinks, 3> links;
  AwaitedLink late;
  SeededRandom random{41};
  Time now{};
  std::unique_ptr<Endpoint> sender;
  std::array<std::unique_ptr<Endpoint>, 3> peers;
  std::array<PathNumber, 3> paths{};
  AddressHandleNumber handle{};
};

}  // namespace

TEST_CASE("a group's datagram goes to each member's path, and there to each queue pair that is attached",
          "[fabric][adapter][datagram]") {
  // The sender has three paths, two of them to members; at one of these two queue pairs are attached.
  std::array<std::unique_ptr<LoopbackLinks>, 3> links;
  std::array<std::unique_ptr<Endpoint>, 3> peers;
  std::array<PathNumber, 3> paths{};
  SeededRandom random(3);
  Time now{};
  for (auto& link : links) link = std::make_unique<LoopbackLinks>();
  Endpoint sender(links[0]->end(0), {}, random, datagrams());
  for (std::size_t i = 0; i < 3; ++i) {
    paths[i] = i == 0 ? PathNumber{1} : sender.adapter.attach(links[i]->end(0)).value();
    peers[i] = std::make_unique<Endpoint>(links[i]->end(1), test::small_cells(), random, datagrams());
    REQUIRE(peers[i]->adapter.connect(peers[i]->number, {}) == Status::ok);
    REQUIRE(peers[i]->adapter.attach_to_group(peers[i]->number, group_of(5)) == Status::ok);
    REQUIRE(peers[i]->receive(i, kTo, 200) == Status::ok);
  }
  REQUIRE(sender.adapter.connect(sender.number, {}) == Status::ok);
  const QpNumber second = peers[2]->make_queue_pair(datagrams());
  REQUIRE(peers[2]->adapter.connect(second, {}) == Status::ok);
  REQUIRE(peers[2]->adapter.attach_to_group(second, group_of(5)) == Status::ok);
  REQUIRE(peers[2]->adapter.post_receive(second, {20, peers[2]->segment(kTo + 1000, 200)}) == Status::ok);
  const auto run = [&] {
    for (int i = 0; i < 100; ++i) {
      now += microseconds(10);
      for (auto& link : links) link->step();
      sender.adapter.poll(now);
      for (auto& peer : peers) peer->adapter.poll(now);
    }
  };
  run();
  REQUIRE(sender.adapter.add_group_member(group_of(5), paths[0]) == Status::ok);
  REQUIRE(sender.adapter.add_group_member(group_of(5), paths[2]) == Status::ok);
  AddressHandleOptions to;
  to.group = group_of(5);
  const auto handle = sender.adapter.create_address_handle(to).value();
  const auto message = pattern(120, 5);
  sender.fill(0, message);
  const auto send = [&] {
    WorkRequest request = send_request(1, sender.segment(0, 120));
    request.datagram = {handle, {}, kKey};
    REQUIRE(post(sender, request) == Status::ok);
    run();
  };
  send();
  CHECK(sender.take().size() == 1);
  CHECK(sender.adapter.counters().datagrams_sent == 2);
  CHECK(peers[0]->take().size() == 1);
  CHECK(peers[1]->take().empty());
  CHECK(peers[2]->take().size() == 2);
  for (const std::size_t at : {kTo, kTo + 1000}) {
    CHECK(peers[2]->holds(at + 40, message));
    CHECK(route_in(*peers[2], at).destination == group_of(5));
  }
  // Who leaves gets no more.
  REQUIRE(sender.adapter.remove_group_member(group_of(5), paths[0]) == Status::ok);
  REQUIRE(peers[2]->adapter.detach_from_group(second, group_of(5)) == Status::ok);
  REQUIRE(peers[0]->receive(0, kTo, 200) == Status::ok);
  REQUIRE(peers[2]->receive(2, kTo, 200) == Status::ok);
  send();
  CHECK(sender.adapter.counters().datagrams_sent == 3);
  CHECK(peers[0]->take().empty());
  CHECK(peers[2]->take().size() == 1);
  // A path that is detached is no member any more.
  REQUIRE(sender.adapter.detach(paths[2]) == Status::ok);
  send();
  CHECK(sender.adapter.counters().datagrams_sent == 3);
  CHECK(sender.adapter.counters().dropped_datagram_no_path == 0);
}

TEST_CASE("a member that leaves while a datagram waits for another one costs the others nothing",
          "[fabric][adapter][datagram]") {
  Members group(1);
  group.send(1);
  group.run();
  CHECK(group.got() == std::array<std::size_t, 3>{1, 0, 0});
  SECTION("one that has its copy") {
    REQUIRE(group.sender->adapter.remove_group_member(group_of(1), group.paths[0]) == Status::ok);
    group.late.shown = true;
    group.run();
    CHECK(group.got() == std::array<std::size_t, 3>{0, 1, 1});
    // Its place is the next member's.
    REQUIRE(group.sender->adapter.add_group_member(group_of(1), group.paths[0]) == Status::ok);
    group.send(2);
    group.run();
    CHECK(group.got() == std::array<std::size_t, 3>{1, 1, 1});
  }
  SECTION("the one that it waits for") {
    REQUIRE(group.sender->adapter.remove_group_member(group_of(1), group.paths[1]) == Status::ok);
    group.run();
    CHECK(group.got() == std::array<std::size_t, 3>{0, 0, 1});
    CHECK(group.sender->take().size() == 1);
  }
  SECTION("all of them") {
    for (const PathNumber path : group.paths) {
      REQUIRE(group.sender->adapter.remove_group_member(group_of(1), path) == Status::ok);
    }
    group.run();
    CHECK(group.got() == std::array<std::size_t, 3>{});
    CHECK(group.sender->take().size() == 1);
  }
}

TEST_CASE("a send queue that drains does not wait for a member for longer than one that sends on",
          "[fabric][adapter][datagram]") {
  Members group(1);
  group.send(1);
  group.run();
  ChannelAdapter& adapter = group.sender->adapter;
  const QpNumber number = group.sender->number;
  const Time sends_on_at = adapter.next_deadline();
  REQUIRE(adapter.modify(number, QueuePairEvent::drain_sends) == Status::ok);
  group.run();
  REQUIRE(adapter.is_draining(number));
  CHECK(adapter.next_deadline() == sends_on_at);
  group.now = sends_on_at;
  group.run();
  CHECK_FALSE(adapter.is_draining(number));
  CHECK(adapter.counters().dropped_datagram_no_room == 1);
  CHECK(group.got() == std::array<std::size_t, 3>{1, 0, 1});
}

TEST_CASE("a group's datagram that waits for a member gets there, although its address handle is destroyed",
          "[fabric][adapter][datagram]") {
  Members group(1);
  ChannelAdapter& adapter = group.sender->adapter;
  group.send(1);
  group.run();
  REQUIRE(adapter.destroy_address_handle(group.handle) == Status::ok);
  CHECK(adapter.datagrams_outlive_handle(group_of(1)));
  CHECK_FALSE(adapter.datagrams_outlive_handle(group_of(2)));
  CHECK_FALSE(adapter.datagrams_outlive_handle(group.paths[1]));  // the group's members have it, no handle
  group.late.shown = true;
  group.run();
  CHECK(group.got() == std::array<std::size_t, 3>{1, 1, 1});
  CHECK_FALSE(adapter.datagrams_outlive_handle(group_of(1)));
}

TEST_CASE("a member that takes nothing delays the datagrams of a group for one timeout, and not for one each",
          "[fabric][adapter][datagram]") {
  Members group(0);
  for (std::uint64_t id = 0; id < 5; ++id) group.send(id);
  group.run();
  CHECK(group.got() == std::array<std::size_t, 3>{});
  group.now += milliseconds(2000);
  group.run();
  CHECK(group.got() == std::array<std::size_t, 3>{0, 5, 5});
  CHECK(group.sender->adapter.counters().dropped_datagram_no_room == 5);
  // When it is there, it gets its copies again.
  group.late.shown = true;
  group.run();
  group.send(6);
  group.run();
  CHECK(group.got() == std::array<std::size_t, 3>{1, 1, 1});
}

}  // namespace splitnic::fabric::test::adapter_groups_test
