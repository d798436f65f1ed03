#include "datagram_fixtures.h"

/// Unreliable datagrams: any queue pair to any other, by address handles and groups.
namespace splitnic::fabric::test::adapter_datagrams_test {
namespace {

using std::chrono::seconds;

/// A datagram that was posted while the path to its receiver is on its way up for the first time, and has been tried.
struct Waiting {
  explicit Waiting(const AdapterOptions& options = small_cells())
      : link(risen(links)),
        sender(link, options, random, datagrams()),
        receiver(links.end(1), small_cells(), random, datagrams()),
        handle(sender.adapter.create_address_handle({}).value()),
        begin(links.now()) {
    REQUIRE(sender.adapter.connect(sender.number, {}) == Status::ok);
    REQUIRE(receiver.adapter.connect(receiver.number, {}) == Status::ok);
    REQUIRE(receiver.receive(7, kTo, 200) == Status::ok);
    REQUIRE(send() == Status::ok);
    sender.adapter.poll(begin);
  }
  static CellLink& risen(LoopbackLinks& links) {
    for (int i = 0; i < 100'000 && !(links.end(0).up() && links.end(1).up()); ++i) links.step();
    return links.end(0);
  }
  Status send() {
    WorkRequest request = send_request(1, sender.segment(0, 10));
    request.datagram = {handle, receiver.number, kKey};
    return post(sender, request);
  }
  void show_path() {
    link.shown = true;
    for (int i = 0; i < 200; ++i) {
      links.step();
      sender.adapter.poll(links.now());
      receiver.adapter.poll(links.now());
    }
  }

  LoopbackLinks links;
  SeededRandom random{41};
  AwaitedLink link;
  Endpoint sender;
  Endpoint receiver;
  AddressHandleNumber handle;
  Time begin;
};

/// A sender whose timeout is a second, and two receivers. Nobody polls the first one, its lane is full, and one more
/// datagram to it has begun to wait for room.
struct Stopped {
  Stopped()
      : sender(risen(links[0]), options(), random, datagrams()),
        stopped(links[0].end(1), options(), random, datagrams()),
        other(risen_end(links[1]), options(), random, datagrams()) {
    const PathNumber second = sender.adapter.attach(links[1].end(0)).value();
    to_stopped = sender.adapter.create_address_handle({.path = PathNumber{1}}).value();
    to_other = sender.adapter.create_address_handle({.path = second}).value();
    for (Endpoint* each : {&sender, &stopped, &other}) {
      REQUIRE(each->adapter.connect(each->number, {}) == Status::ok);
    }
    for (std::uint64_t id = 0; id < 10; ++id) REQUIRE(other.receive(id, kTo, 200) == Status::ok);
    for (int i = 0; counters().datagrams_sent == posted; ++i) {
      REQUIRE(i < 10'000);
      send(to_stopped, stopped);
      poll(Duration{});
    }
    static_cast<void>(sender.take());
    REQUIRE(sender.adapter.outstanding());
  }
  static AdapterOptions options() {
    AdapterOptions with = small_cells();
    with.ack_timeout = seconds(1);
    return with;
  }
  static CellLink& risen(LoopbackLinks& links) { return Waiting::risen(links); }
  static CellLink& risen_end(LoopbackLinks& links) {
    static_cast<void>(risen(links));
    return links.end(1);
  }
  void send(AddressHandleNumber handle, const Endpoint& to) {
    ++posted;
    WorkRequest request = send_request(posted, sender.segment(0, 10));
    request.datagram = {handle, to.number, kKey};
    REQUIRE(post(sender, request) == Status::ok);
  }
  /// The stopped receiver's link lives on; its adapter takes nothing.
  void poll(Duration later) {
    now += later;
    for (int i = 0; i < 10; ++i) {
      for (auto& link : links) link.step();
      sender.adapter.poll(now);
      other.adapter.poll(now);
    }
  }
  [[nodiscard]] const AdapterCounters& counters() const { return sender.adapter.counters(); }

  std::array<LoopbackLinks, 2> links;
  SeededRandom random{41};
  Endpoint sender;
  Endpoint stopped;
  Endpoint other;
  AddressHandleNumber to_stopped{};
  AddressHandleNumber to_other{};
  std::uint64_t posted = 0;
  Time now = links[0].now() + seconds(1);
};

}  // namespace

TEST_CASE("a datagram arrives behind its route header, and says who sent it", "[fabric][adapter][datagram]") {
  Calm two;
  const auto message = pattern(150, 1);
  two.first().fill(0, message);
  REQUIRE(two.second().receive(7, kTo, 40 + 150) == Status::ok);
  REQUIRE(two.send(1, 150, two.to_second()) == Status::ok);
  two.run();
  const auto sent = two.first().take();
  REQUIRE(sent.size() == 1);
  CHECK(sent[0].status == CompletionStatus::success);
  const auto arrived = two.second().take();
  REQUIRE(arrived.size() == 1);
  CHECK(arrived[0].id == 7);
  CHECK(arrived[0].status == CompletionStatus::success);
  CHECK(arrived[0].bytes == 190);
  CHECK(arrived[0].has_route);
  CHECK(arrived[0].source == two.first().number);
  CHECK(arrived[0].path == PathNumber{1});
  CHECK(two.second().holds(kTo + 40, message));
  const RouteHeader route = route_in(two.second(), kTo);
  CHECK(route.source == port_gid(kLinkPorts[0]));
  CHECK(route.destination == port_gid(kLinkPorts[1]));
  CHECK(route.payload_bytes.value() == 150);
  CHECK(route.hop_limit.value() == 64);
  CHECK(two.first().adapter.counters().datagrams_sent == 1);
  CHECK(two.taken().datagrams_received == 1);

  // The answer, by what the completion says.
  REQUIRE(two.first().receive(8, kTo, 100) == Status::ok);
  AddressHandleOptions back;
  back.path = arrived[0].path;
  back.hop_limit = 9;
  back.traffic_class = 0x12;
  back.flow_label = 0x34567;
  WorkRequest answer = send_request(2, two.second().segment(0, 0));
  answer.datagram = {two.second().adapter.create_address_handle(back).value(), arrived[0].source, kKey};
  REQUIRE(post(two.second(), answer) == Status::ok);
  two.run();
  const auto answered = two.first().take();
  REQUIRE(answered.size() == 1);
  CHECK(answered[0].bytes == 40);
  CHECK(route_in(two.first(), kTo).version_class_flow.value() == 0x61234567);
  CHECK(route_in(two.first(), kTo).hop_limit.value() == 9);
}

TEMPLATE_TEST_CASE("datagrams cross every link, whole or not at all", "[fabric][adapter][datagram]",
                   SPLITNIC_EVERY_LINK) {
  Ends<TestType> two;
  std::uint32_t received = 0;
  std::uint32_t highest = 0;
  for (std::uint32_t i = 0; i < 64; ++i) REQUIRE(two.second().receive(i, kTo + 256 * i, 256) == Status::ok);
  for (std::uint32_t n = 1; n <= 100; ++n) {
    auto message = pattern(100, n);
    std::memcpy(message.data(), &n, sizeof n);
    two.first().fill(0, message);
    REQUIRE(two.send(n, 100, two.to_second()) == Status::ok);
    for (int i = 0; i < 10 || two.first().adapter.outstanding(); ++i) two.step();
    REQUIRE(two.first().take().size() == 1);
    for (const Completion& done : two.second().take()) {
      REQUIRE(done.status == CompletionStatus::success);
      REQUIRE(done.bytes == 140);
      const std::size_t at = kTo + 256 * done.id;
      std::uint32_t number = 0;
      std::memcpy(&number, two.second().buffer.data() + at + 40, sizeof number);
      REQUIRE(number <= n);
      auto expected = pattern(100, number);
      std::memcpy(expected.data(), &number, sizeof number);
      REQUIRE(two.second().holds(at + 40, expected));
      REQUIRE(two.second().receive(done.id, at, 256) == Status::ok);
      ++received;
      highest = std::max(highest, number);
    }
  }
  if (two.links.end(0).properties().lossless) {
    CHECK(received == 100);
  } else {
    CHECK(received >= 50);
  }
  CHECK(highest >= 99);
}

TEST_CASE("a delay holds the datagrams behind it, and nobody spins until then", "[fabric][adapter][datagram][delay]") {
  Calm two;
  ChannelAdapter& sender = two.first().adapter;
  REQUIRE(two.second().receive(7, kTo, 200) == Status::ok);
  REQUIRE(post(two.first(), {.id = 1, .operation = Operation::delay, .delay = milliseconds(1)}) == Status::ok);
  REQUIRE(two.send(2, 10, two.to_second()) == Status::ok);
  two.step();
  const Time over = two.links.now() + milliseconds(1);
  CHECK(sender.next_deadline() == over);
  while (two.links.now() + microseconds(20) < over) two.step();
  CHECK(sender.next_deadline() == over);
  CHECK(two.first().take().empty());
  two.run(10);
  const auto done = two.first().take();
  REQUIRE(done.size() == 2);
  CHECK(done[0].operation == Operation::delay);
  CHECK(how(done) == std::vector<std::string>{"success", "success"});
  CHECK(two.second().take().size() == 1);
  CHECK(sender.next_deadline() == kNever);
}

TEST_CASE("a datagram that its receiver does not want is counted, dropped, and costs nothing else",
          "[fabric][adapter][datagram]") {
  struct Row {
    const char* what;
    std::uint64_t AdapterCounters::*counter;
    std::function<DatagramTarget(Calm&)> target;
    std::size_t bytes = 100;
  };
  const std::vector<Row> rows{
      {"a wrong queue key", &AdapterCounters::dropped_wrong_queue_key,
       [](Calm& two) { return two.to_second(kKey ^ 1U); }},
      {"a queue pair that does not exist", &AdapterCounters::dropped_unknown_queue_pair,
       [](Calm& two) {
         return DatagramTarget{two.handles[0], QpNumber{two.second().number.value ^ 0x10'0000U}, kKey};
       }},
      {"a connected queue pair", &AdapterCounters::dropped_unknown_queue_pair,
       [](Calm& two) {
         return DatagramTarget{two.handles[0], two.second().make_queue_pair({}), kKey};
       }},
      {"a queue pair that is not ready", &AdapterCounters::dropped_unknown_queue_pair,
       [](Calm& two) {
         return DatagramTarget{two.handles[0], two.second().make_queue_pair(datagrams()), kKey};
       }},
      {"a queue pair without a receive", &AdapterCounters::dropped_no_receive,
       [](Calm& two) {
         const QpNumber number = two.second().make_queue_pair(datagrams());
         REQUIRE(two.second().adapter.connect(number, {}) == Status::ok);
         return DatagramTarget{two.handles[0], number, kKey};
       }},
      {"one byte more than the receive takes", &AdapterCounters::dropped_datagram_too_long,
       [](Calm& two) { return two.to_second(); }, 101},
      {"a group that nobody is attached to", &AdapterCounters::dropped_no_group_member,
       [](Calm& two) {
         REQUIRE(two.first().adapter.add_group_member(group_of(1), {}) == Status::ok);
         AddressHandleOptions to;
         to.group = group_of(1);
         return DatagramTarget{two.first().adapter.create_address_handle(to).value(), {}, kKey};
       }},
  };
  const bool in_pieces = GENERATE(false, true);  // into a receive in one piece the short way may lead
  for (const Row& row : rows) {
    INFO(row.what << (in_pieces ? ", and a receive in two pieces" : ""));
    Calm two;
    const LocalSegment rest = two.second().segment(kTo + 50, 90);
    const ReceiveRequest whole{7, two.second().segment(kTo, 140)};
    const ReceiveRequest pieces{7, two.second().segment(kTo, 50), std::span(&rest, 1)};
    REQUIRE(two.second().adapter.post_receive(two.second().number, in_pieces ? pieces : whole) == Status::ok);
    const auto before = two.second().buffer;
    REQUIRE(two.send(1, row.bytes, row.target(two)) == Status::ok);
    two.run();
    CHECK(two.first().take().size() == 1);  // it has left: that is all that the sender learns
    CHECK(two.taken().*row.counter == 1);
    CHECK(two.taken().datagrams_received == 0);
    CHECK(two.second().take().empty());
    const bool untouched = two.second().buffer == before;  // too long to be printed
    CHECK(untouched);
    // The receive is still there, and 100 bytes fit it.
    REQUIRE(two.send(2, 100, two.to_second()) == Status::ok);
    two.run();
    CHECK(two.second().take().size() == 1);
  }
}

TEST_CASE("the highest bit of a queue key stands for the sender's own", "[fabric][adapter][datagram]") {
  Calm two;
  REQUIRE(two.second().receive(7, kTo, 140) == Status::ok);
  REQUIRE(two.send(1, 10, two.to_second(0x8000'0000)) == Status::ok);
  two.run();
  CHECK(two.second().take().size() == 1);
}

TEST_CASE("datagram verbs are refused where they make no sense", "[fabric][adapter][datagram]") {
  Calm two;
  Endpoint& end = two.first();
  ChannelAdapter& adapter = end.adapter;
  // Shapes of queue pairs.
  QueuePairAttributes acknowledged = datagrams();
  acknowledged.domain = end.domain;
  acknowledged.send_completions = acknowledged.receive_completions = end.completions;
  acknowledged.acknowledged = true;
  CHECK_FALSE(adapter.create_queue_pair(acknowledged).has_value());
  // Requests.
  CHECK(two.send(1, 10, {AddressHandleNumber{}, two.second().number, kKey}) == Status::bad_argument);
  CHECK(two.send(1, 10, {two.handles[0], QpNumber{}, kKey}) == Status::bad_queue_pair);
  CHECK(two.send(1, 10, {two.handles[0], kMulticastQueuePair, kKey}) == Status::bad_queue_pair);
  CHECK(two.send(1, 256 - 32, two.to_second()) == Status::ok);
  CHECK(two.send(1, 256 - 31, two.to_second()) == Status::bad_length);
  WorkRequest write = write_request(1, end.segment(0, 10), {});
  write.datagram = two.to_second();
  CHECK(post(end, write) == Status::not_permitted);
  // Handles.
  CHECK_FALSE(adapter.create_address_handle({.path = PathNumber{2}}).has_value());
  CHECK_FALSE(adapter.create_address_handle({.service_level = 16}).has_value());
  CHECK_FALSE(adapter.create_address_handle({.flow_label = 1U << 20U}).has_value());
  CHECK_FALSE(adapter.create_address_handle({.group = port_gid(kLinkPorts[0])}).has_value());
  CHECK_FALSE(adapter.create_address_handle({.path = PathNumber{1}, .group = group_of(1)}).has_value());
  CHECK(adapter.destroy_address_handle(two.handles[0]) == Status::ok);
  CHECK(adapter.destroy_address_handle(two.handles[0]) == Status::bad_argument);
  const auto next = adapter.create_address_handle({}).value();
  CHECK(next != two.handles[0]);  // what was posted with the old one must not use it
  CHECK(two.send(1, 10, two.to_second()) == Status::bad_argument);
  // Groups.
  CHECK(adapter.attach_to_group(end.number, port_gid(kLinkPorts[0])) == Status::bad_argument);
  CHECK(adapter.attach_to_group(QpNumber{}, group_of(1)) == Status::bad_queue_pair);
  CHECK(adapter.attach_to_group(end.make_queue_pair({}), group_of(1)) == Status::not_permitted);
  CHECK(adapter.attach_to_group(end.number, group_of(1)) == Status::ok);
  CHECK(adapter.attach_to_group(end.number, group_of(1)) == Status::in_use);
  CHECK(adapter.detach_from_group(end.number, group_of(2)) == Status::bad_argument);
  CHECK(adapter.add_group_member(group_of(1), PathNumber{9}) == Status::bad_argument);
  CHECK(adapter.add_group_member(group_of(1), {}) == Status::ok);
  CHECK(adapter.add_group_member(group_of(1), {}) == Status::in_use);
  CHECK(adapter.remove_group_member(group_of(2), {}) == Status::bad_argument);
  for (std::uint8_t i = 2; i <= 64; ++i) CHECK(adapter.attach_to_group(end.number, group_of(i)) == Status::ok);
  CHECK(adapter.attach_to_group(end.number, group_of(65)) == Status::no_resources);
  CHECK(adapter.destroy_queue_pair(end.number) == Status::ok);
  CHECK(adapter.add_group_member(group_of(65), {}) == Status::ok);  // its groups are free again
}

TEST_CASE("a datagram queue pair outlives a peer that starts anew; what is sent meanwhile is dropped and counted",
          "[fabric][adapter][datagram][paths]") {
  Calm two;
  REQUIRE(two.second().receive(7, kTo, 200) == Status::ok);
  two.links.restart(0);  // of the sender's own end
  REQUIRE(two.send(1, 10, two.to_second()) == Status::ok);
  two.first().adapter.poll(two.links.now());
  CHECK(two.first().adapter.counters().dropped_datagram_no_path == 1);
  CHECK(two.first().take().size() == 1);
  two.run(20'000);
  REQUIRE(two.links.end(0).up());
  CHECK_FALSE(two.first().adapter.in_error(two.first().number));
  CHECK_FALSE(two.second().adapter.in_error(two.second().number));
  REQUIRE(two.send(2, 10, two.to_second()) == Status::ok);
  two.run();
  CHECK(two.second().take().size() == 1);
}

TEST_CASE("all datagrams to a peer that takes nothing wait for one timeout together", "[fabric][adapter][datagram]") {
  AdapterOptions options = test::small_cells();
  options.ack_timeout = milliseconds(1);
  Calm two(options);
  // Nobody polls the second adapter, so its lane fills up.
  const auto poll_first = [&two](int steps) {
    for (int i = 0; i < steps; ++i) {
      two.links.step();
      two.first().adapter.poll(two.links.now());
    }
  };
  std::uint64_t posted = 0;
  for (int turns = 0; two.first().adapter.counters().dropped_datagram_no_room == 0; ++turns) {
    REQUIRE(turns < 10'000);
    while (two.send(posted, 200, two.to_second()) == Status::ok) ++posted;
    poll_first(1);
    static_cast<void>(two.first().take());
  }
  // The rest follows at once.
  poll_first(10);
  CHECK_FALSE(two.first().adapter.outstanding());
  const AdapterCounters& counters = two.first().adapter.counters();
  CHECK(counters.datagrams_sent + counters.dropped_datagram_no_room == posted);
  CHECK(two.first().adapter.next_deadline() == kNever);
  // When the peer takes them again, datagrams go.
  for (int i = 0; i < 50; ++i) two.step();
  const std::uint64_t sent = counters.datagrams_sent;
  REQUIRE(two.send(posted, 10, two.to_second()) == Status::ok);
  two.run();
  CHECK(counters.datagrams_sent == sent + 1);
}

TEST_CASE("a peer that takes nothing delays the datagrams of others for a tenth of a second",
          "[fabric][adapter][datagram]") {
  Stopped three;
  three.poll(milliseconds(800));  // for how long it has waited already makes no difference
  for (int i = 0; i < 3; ++i) {
    three.send(three.to_stopped, three.stopped);
    three.send(three.to_other, three.other);
  }
  three.poll({});
  const Time others_go_at = three.now + milliseconds(100);
  CHECK(three.sender.adapter.next_deadline() == others_go_at);
  three.poll(others_go_at - three.now - microseconds(1));
  CHECK(three.other.take().empty());
  CHECK(three.counters().dropped_datagram_no_room == 0);
  three.poll(microseconds(1));
  CHECK(three.other.take().size() == 3);
  CHECK(three.counters().dropped_datagram_no_room == 4);
  std::uint64_t last = 0;
  for (const Completion& each : three.sender.take()) CHECK(std::exchange(last, each.id) < each.id);
  CHECK(last == three.posted);
  // From then on it delays nothing, until it has room again.
  three.send(three.to_stopped, three.stopped);
  three.send(three.to_other, three.other);
  three.poll({});
  CHECK(three.other.take().size() == 1);
  three.stopped.adapter.poll(three.now);
  three.poll({});
  const std::uint64_t sent = three.counters().datagrams_sent;
  three.send(three.to_stopped, three.stopped);
  three.poll({});
  CHECK(three.counters().datagrams_sent == sent + 1);
}

TEST_CASE("a datagram that delays none of another peer waits for room for the whole timeout",
          "[fabric][adapter][datagram]") {
  Stopped three;
  three.send(three.to_stopped, three.stopped);
  three.send(three.to_stopped, three.stopped);
  three.poll({});
  three.poll(milliseconds(999));
  CHECK(three.counters().dropped_datagram_no_room == 0);
  SECTION("and is dropped then") {
    three.poll(milliseconds(1));
    CHECK(three.counters().dropped_datagram_no_room == 3);
  }
  SECTION("and goes if there is room before") {
    three.stopped.adapter.poll(three.now);
    three.poll({});
    CHECK(three.counters().datagrams_sent == three.posted);
  }
}

TEST_CASE("datagrams that a slow peer takes within a tenth of a second are not lost, whatever waits behind them",
          "[fabric][adapter][datagram]") {
  Stopped three;
  for (int i = 0; i < 10; ++i) three.send(three.to_stopped, three.stopped);
  three.send(three.to_other, three.other);
  three.poll({});
  for (int i = 0; i < 20; ++i) {
    three.poll(milliseconds(90));
    three.stopped.adapter.poll(three.now);
  }
  three.poll({});
  CHECK(three.counters().datagrams_sent == three.posted);
  CHECK(three.counters().dropped_datagram_no_room == 0);
  CHECK(three.other.take().size() == 1);
}

TEST_CASE("a datagram waits up to two seconds for a path that comes up for the first time",
          "[fabric][adapter][datagram][paths]") {
  Waiting one;
  one.sender.adapter.poll(one.begin + milliseconds(1999));
  const AdapterCounters& counters = one.sender.adapter.counters();
  CHECK(counters.datagrams_sent + counters.dropped_datagram_no_room == 0);
  SECTION("and goes when the path is there") {
    one.show_path();
    CHECK(one.receiver.take().size() == 1);
    CHECK(counters.datagrams_sent == 1);
  }
  SECTION("and no longer") {
    one.sender.adapter.poll(one.begin + milliseconds(2000));
    CHECK(counters.dropped_datagram_no_room == 1);
    CHECK(one.sender.take().size() == 1);
  }
}

TEST_CASE("each datagram waits two seconds for its path, also where another one has waited before it",
          "[fabric][adapter][datagram][paths]") {
  Waiting one;
  ChannelAdapter& adapter = one.sender.adapter;
  const AdapterCounters& counters = adapter.counters();
  Time now = one.begin;
  SECTION("of a queue pair that was reset") {
    REQUIRE(adapter.modify(one.sender.number, QueuePairEvent::reset) == Status::ok);
    REQUIRE(adapter.connect(one.sender.number, {}) == Status::ok);
    now += seconds(3);
    adapter.poll(now);
    REQUIRE(one.send() == Status::ok);
  }
  SECTION("of a program that had slept before it posted") {
    REQUIRE(adapter.modify(one.sender.number, QueuePairEvent::reset) == Status::ok);
    REQUIRE(adapter.connect(one.sender.number, {}) == Status::ok);
    now += seconds(10);
    REQUIRE(one.send() == Status::ok);
    CHECK(adapter.next_deadline() <= now);  // the time has yet to begin
  }
  SECTION("behind one whose path was removed") {
    REQUIRE(adapter.detach(PathNumber{1}) == Status::ok);
    now += seconds(3);
    AwaitedLink later(one.links.end(0));
    adapter.poll(now);
    CHECK(counters.dropped_datagram_no_path == 1);
    REQUIRE(adapter.attach(later).has_value());
    one.handle = adapter.create_address_handle({}).value();
    REQUIRE(one.send() == Status::ok);
    adapter.poll(now);
    adapter.poll(now + milliseconds(1999));
    CHECK(counters.dropped_datagram_no_room == 0);
    adapter.poll(now + seconds(2));
    CHECK(counters.dropped_datagram_no_room == 1);
    REQUIRE(adapter.detach(PathNumber{1}) == Status::ok);
    return;
  }
  adapter.poll(now);
  adapter.poll(now + milliseconds(1999));
  CHECK(counters.dropped_datagram_no_room == 0);
  adapter.poll(now + seconds(2));
  CHECK(counters.dropped_datagram_no_room == 1);
}

TEST_CASE("a datagram that waits goes where its address handle said, although that is destroyed",
          "[fabric][adapter][datagram][paths]") {
  Waiting one;
  ChannelAdapter& adapter = one.sender.adapter;
  const AdapterCounters& counters = adapter.counters();
  constexpr PathNumber kPath{1};
  CHECK_FALSE(adapter.datagrams_outlive_handle(kPath));
  REQUIRE(adapter.destroy_address_handle(one.handle) == Status::ok);
  CHECK(adapter.destroy_address_handle(one.handle) == Status::bad_argument);
  CHECK(one.send() == Status::bad_argument);
  CHECK(adapter.create_address_handle({}).value() != one.handle);
  CHECK(adapter.datagrams_outlive_handle(kPath));
  CHECK_FALSE(adapter.datagrams_outlive_handle(PathNumber{2}));
  SECTION("when the path is there") {
    one.show_path();
    CHECK(one.receiver.take().size() == 1);
    CHECK(counters.datagrams_sent == 1);
  }
  SECTION("unless it waits too long") {
    adapter.poll(one.begin + milliseconds(2000));
    CHECK(counters.dropped_datagram_no_room == 1);
  }
  SECTION("unless the path is removed") {
    REQUIRE(adapter.detach(kPath) == Status::ok);
    adapter.poll(one.begin);
    CHECK(counters.dropped_datagram_no_path == 1);
  }
  SECTION("unless its queue pair is destroyed") {
    REQUIRE(adapter.destroy_queue_pair(one.sender.number) == Status::ok);
  }
  CHECK_FALSE(adapter.datagrams_outlive_handle(kPath));
}

TEST_CASE("the place of an address handle that was destroyed is free when no datagram waits with it any more",
          "[fabric][adapter][datagram]") {
  AdapterOptions options = small_cells();
  options.max_address_handles = 1;
  Waiting one(options);
  ChannelAdapter& adapter = one.sender.adapter;
  REQUIRE(adapter.destroy_address_handle(one.handle) == Status::ok);
  CHECK_FALSE(adapter.create_address_handle({}).has_value());
  one.show_path();
  CHECK(adapter.create_address_handle({}).has_value());
}

TEST_CASE("a datagram whose header makes no sense is dropped as a bad cell", "[fabric][adapter][datagram][hostile]") {
  struct Row {
    const char* what;
    std::size_t at;  // in the datagram's header
    std::uint8_t flip;
    QpNumber to;
  };
  // By a peer that seals what it likes, over a link whose cells name their source.
  for (const Row& row : {Row{"a reserved byte", 13, 1, {}}, Row{"another source than the cell's", 4, 1, {}},
                         Row{"a group for a queue pair", 16, 0xff, {}},
                         Row{"the multicast queue pair without a group", 0, 0, kMulticastQueuePair}}) {
    INFO(row.what);
    Ends<UdpSocketLinks> two;
    REQUIRE(two.second().receive(7, kTo, 200) == Status::ok);
    DatagramHeader header;
    header.queue_key = kKey;
    header.source_queue_pair = QpNumber{0x1000};
    DatagramBytes bytes = encode_datagram(header);
    auto raw = std::as_writable_bytes(std::span(&bytes, 1));
    raw[row.at] ^= std::byte{row.flip};
    Cell cell;
    cell.opcode = Opcode::datagram;
    cell.destination_queue_pair = row.to.value != 0 ? row.to : two.second().number;
    cell.source_queue_pair = QpNumber{0x1000};
    ClaimedPayload to;
    REQUIRE(two.links.end(0).claim(VirtualLane::data, cell, raw.size(), to));
    to.put(raw);
    std::uint32_t packet_crc = kPacketCrcStart;
    two.links.end(0).release(VirtualLane::data, cell, packet_crc);
    two.links.end(0).notify();
    two.run(20);
    CHECK(two.taken().dropped_bad_cell == 1);
    CHECK(two.second().take().empty());
  }
  Calm two;
  Cell cell;
  cell.opcode = Opcode::datagram;
  cell.destination_queue_pair = two.second().number;
  cell.source_queue_pair = QpNumber{0x1000};
  ClaimedPayload to;
  REQUIRE(two.links.end(0).claim(VirtualLane::data, cell, sizeof(DatagramBytes) - 1, to));
  to.put(std::vector<std::byte>(sizeof(DatagramBytes) - 1));
  std::uint32_t packet_crc = kPacketCrcStart;
  two.links.end(0).release(VirtualLane::data, cell, packet_crc);
  two.links.end(0).notify();
  two.run(5);
  CHECK(two.taken().dropped_bad_cell == 1);
}

TEST_CASE("datagrams go into a shared receive queue, and memory that is gone drops them",
          "[fabric][adapter][datagram]") {
  Calm two;
  Endpoint& end = two.second();
  const SrqNumber shared = end.adapter.create_shared_receive_queue(end.domain, 4).value();
  QueuePairAttributes with = datagrams();
  with.shared_receives = shared;
  const QpNumber number = end.make_queue_pair(with);
  REQUIRE(end.adapter.connect(number, {}) == Status::ok);
  REQUIRE(end.adapter.post_shared_receive(shared, {3, end.segment(kTo, 200)}) == Status::ok);
  const DatagramTarget target{two.handles[0], number, kKey};
  REQUIRE(two.send(1, 10, target) == Status::ok);
  two.run();
  const auto arrived = end.take();
  REQUIRE(arrived.size() == 1);
  CHECK(arrived[0].id == 3);
  REQUIRE(two.send(2, 10, target) == Status::ok);
  two.run();
  CHECK(two.taken().dropped_no_receive == 1);

  std::vector<std::byte> gone(200);
  const Stag tag = end.adapter.register_memory(end.domain, gone, kLocalRights).value();
  REQUIRE(end.adapter.post_receive(end.number, {4, {gone.data(), 200, tag}}) == Status::ok);
  REQUIRE(end.adapter.deregister(tag) == Status::ok);
  REQUIRE(two.send(3, 10, two.to_second()) == Status::ok);
  two.run();
  CHECK(two.taken().dropped_unacknowledged == 1);
  CHECK(end.take().empty());
}

}  // namespace splitnic::fabric::test::adapter_datagrams_test
