#include "fabric/link/udp_peer.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string_view>

#include "tests/unit/fabric/datagram_network.h"

namespace splitnic::fabric::udp_peer_test {
namespace {

using namespace std::chrono_literals;
using test::DatagramFaults;
using test::DatagramNetwork;
using Bytes = std::vector<std::byte>;

constexpr VirtualLane kData = VirtualLane::data;
constexpr VirtualLane kControl = VirtualLane::control;

UdpOptions options_of(std::uint64_t port) {
  UdpOptions options;
  options.port_address = PortAddress{port};
  options.window_bytes = {4096, 16384};
  return options;
}

/// Two ends and the network between them, in simulated time.
struct Pair {
  explicit Pair(std::uint64_t seed = 1, const DatagramFaults& faults = {})
      : random(seed), a_to_b(random, faults), b_to_a(random, faults) {
    start_a();
    start_b();
  }
  void start_a() { a = std::make_unique<UdpPeer>(a_to_b, options_of(0xa), random); }
  void start_b() { b = std::make_unique<UdpPeer>(b_to_a, options_of(0xb), random); }

  void step(Duration by = 10us) {
    now += by;
    a_to_b.deliver(now, [this](const Bytes& datagram) { b->take(datagram, now); });
    b_to_a.deliver(now, [this](const Bytes& datagram) { a->take(datagram, now); });
    changed_a += a->poll(now);
    changed_b += b->poll(now);
  }
  void run(Duration time) {
    for (const Time end = now + time; now < end;) step(now + 1ms < end ? 100us : 10us);
  }
  template <class Condition>
  void run_until(Condition&& condition, Duration limit = 5s) {
    for (const Time end = now + limit; !condition();) {
      REQUIRE(now < end);
      step();
    }
  }
  void connect() {
    run_until([this] { return a->up() && b->up(); });
    // Until both have seen data, which ends the hellos.
    run(5ms);
  }

  SeededRandom random;
  DatagramNetwork a_to_b, b_to_a;
  std::unique_ptr<UdpPeer> a, b;
  Time now{};
  std::size_t changed_a = 0, changed_b = 0;
};

bool send(UdpPeer& from, VirtualLane lane, const Bytes& record) {
  const auto place = from.claim(lane, record.size());
  if (place.empty()) return false;
  std::ranges::copy(record, place.begin());
  from.release(lane, record.size());
  return true;
}

std::optional<Bytes> receive(UdpPeer& at, VirtualLane lane) {
  const auto front = at.front(lane);
  if (front.empty()) return std::nullopt;
  Bytes record(front.begin(), front.end());
  at.pop(lane);
  return record;
}

/// A record that says its number.
Bytes numbered(std::uint32_t number, std::size_t bytes = 64) {
  Bytes record(bytes, static_cast<std::byte>(number));
  std::memcpy(record.data(), &number, sizeof number);
  return record;
}
std::uint32_t number_of(const Bytes& record) {
  std::uint32_t number = 0;
  std::memcpy(&number, record.data(), sizeof number);
  return number;
}

std::uint64_t counter(const UdpPeer& peer, std::string_view name) {
  for (const NamedCounter& each : describe(peer.counters())) {
    if (each.name == name) return each.value;
  }
  FAIL("no counter " << name);
  return 0;
}

/// What a peer dropped, altogether.
std::uint64_t dropped(const UdpPeer& peer) {
  std::uint64_t sum = 0;
  for (const NamedCounter& each : describe(peer.counters())) {
    if (std::string_view(each.name).starts_with("dropped_")) sum += each.value;
  }
  return sum;
}

UdpHello hello_of(UdpKey receiver, UdpKey sender) {
  UdpHello hello;
  hello.receiver_key = receiver;
  hello.sender_key = sender;
  hello.epoch = Epoch{sender.value + 1};
  hello.port_address = PortAddress{0xc};
  hello.window_bytes = {4096, 4096};
  hello.datagram_bytes = 1472;
  return hello;
}
void give(UdpPeer& to, const UdpHello& hello, Time now) {
  const UdpHelloBytes bytes = encode_udp(hello);
  to.take(std::as_bytes(std::span(&bytes, 1)), now);
}

/// What a, which is up, tells its peer: its present key and its epochs.
UdpData data_seen(DatagramNetwork& network, UdpPeer& from) {
  REQUIRE(send(from, kControl, numbered(0)));
  REQUIRE(from.flush());
  const Bytes last = network.on_the_way.rbegin()->second;
  return std::get<UdpData>(decode_udp(last).value());
}

TEST_CASE("two ends find each other by three hellos, and records flow", "[fabric][udp]") {
  Pair pair;
  pair.connect();
  CHECK(pair.a->incarnation() == 1);
  CHECK(pair.b->incarnation() == 1);
  CHECK(pair.changed_a == 1);
  CHECK(pair.changed_b == 1);
  CHECK(pair.a->peer_port_address() == PortAddress{0xb});
  CHECK(pair.b->peer_port_address() == PortAddress{0xa});
  CHECK(pair.now < Time{} + 10ms);  // nobody waited for a repetition

  for (std::uint32_t i = 0; i < 10; ++i) REQUIRE(send(*pair.a, kData, numbered(i)));
  REQUIRE(send(*pair.a, kControl, numbered(77)));
  CHECK_FALSE(pair.a->drained(kData));
  REQUIRE(pair.a->flush());
  CHECK(pair.a->drained(kData));
  pair.run(100us);
  CHECK(receive(*pair.b, kControl) == numbered(77));
  for (std::uint32_t i = 0; i < 10; ++i) CHECK(receive(*pair.b, kData) == numbered(i));
  CHECK_FALSE(receive(*pair.b, kData).has_value());
  CHECK(dropped(*pair.a) == 0);
  CHECK(dropped(*pair.b) == 0);
}

TEST_CASE("a burst of cells shares a datagram", "[fabric][udp]") {
  Pair pair;
  pair.connect();
  const std::uint64_t before = pair.a_to_b.sent;
  for (std::uint32_t i = 0; i < 20; ++i) REQUIRE(send(*pair.a, kData, numbered(i)));
  REQUIRE(pair.a->flush());
  CHECK(pair.a_to_b.sent == before + 1);  // 20 x 66 bytes and a header of 48
  for (std::uint32_t i = 0; i < 22; ++i) REQUIRE(send(*pair.a, kData, numbered(i)));
  REQUIRE(pair.a->flush());
  CHECK(pair.a_to_b.sent == before + 3);  // one too many for a second one
}

TEST_CASE("hellos that are lost are repeated", "[fabric][udp]") {
  for (int lost = 0; lost < 8; ++lost) {
    INFO("which datagrams are lost: " << lost);
    Pair pair;
    // The first three datagrams of one direction, each of them lost or not.
    for (int i = 0; i < 3; ++i) {
      pair.a_to_b.faults.lost = (lost >> i & 1) != 0 ? 1000 : 0;
      const std::uint64_t sent = pair.a_to_b.sent;
      pair.run_until([&] { return pair.a_to_b.sent > sent; });
    }
    pair.a_to_b.faults.lost = 0;
    pair.connect();
    pair.run(1s);
    CHECK(pair.a->up());
    CHECK(pair.b->up());
    REQUIRE(send(*pair.a, kData, numbered(1)));
    REQUIRE(pair.a->flush());
    pair.run(1ms);
    CHECK(receive(*pair.b, kData) == numbered(1));
  }
}

TEST_CASE("an end stays up while its peer is quiet, and notices when it is gone", "[fabric][udp]") {
  Pair pair;
  pair.connect();
  pair.run(10s);
  CHECK(pair.a->incarnation() == 1);
  CHECK(pair.b->incarnation() == 1);
  const std::uint64_t sent = pair.a_to_b.sent;
  pair.run(10s);
  CHECK(pair.a_to_b.sent - sent <= 41);  // four keep-alives a second
  CHECK(pair.a_to_b.sent - sent >= 38);
  pair.b_to_a.faults.lost = 1000;
  const Time from = pair.now;
  pair.run_until([&] { return !pair.a->up(); });
  CHECK(pair.now - from <= 2s);
  CHECK(pair.now - from >= 1700ms);
  CHECK(counter(*pair.a, "peers_silent") == 1);
  pair.b_to_a.faults.lost = 0;
  pair.run_until([&] { return pair.a->incarnation() == 2 && pair.b->incarnation() == 2; });
  CHECK(pair.changed_a == 3);  // up, down, up
}

TEST_CASE("a peer that restarts is a new incarnation at once, and nothing of the old one arrives", "[fabric][udp]") {
  Pair pair;
  pair.connect();
  REQUIRE(send(*pair.a, kData, numbered(1)));
  REQUIRE(pair.a->flush());
  pair.step();
  REQUIRE_FALSE(pair.b->front(kData).empty());
  REQUIRE(send(*pair.b, kData, numbered(2)));  // in a datagram that is not sent yet
  const std::uint64_t wrong = counter(*pair.b, "dropped_wrong_key");
  REQUIRE(send(*pair.a, kData, numbered(3)));
  REQUIRE(pair.a->flush());  // on its way when a dies
  const std::multimap<Time, Bytes> old = pair.a_to_b.on_the_way;
  pair.a_to_b.on_the_way.clear();
  pair.start_a();
  const Time from = pair.now;
  pair.run_until([&] { return pair.a->up() && pair.b->incarnation() == 2; });
  CHECK(pair.now - from < 1ms);
  CHECK(pair.b->front(kData).empty());
  pair.run(10ms);
  for (const auto& [at, datagram] : old) pair.b->take(datagram, pair.now);
  CHECK(counter(*pair.b, "dropped_wrong_key") == wrong + old.size());
  CHECK(pair.b->front(kData).empty());
  CHECK(pair.a->front(kData).empty());
  CHECK(counter(*pair.b, "peers_new") == 2);
  pair.run(5s);
  CHECK(pair.b->incarnation() == 2);
  CHECK(pair.a->incarnation() == 1);
}

TEST_CASE("a restarted peer is found although the network repeats and delays what its predecessor said",
          "[fabric][udp]") {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    INFO("seed " << seed);
    Pair pair(seed, {.lost = 100, .duplicated = 200, .delay_min = 10us, .delay_max = 60ms});
    for (int life = 0; life < 5; ++life) {
      pair.run_until([&] { return pair.a->up() && pair.b->up(); }, 30s);
      pair.run(Duration(pair.random.below(200'000'000)));
      pair.random.below(2) == 0 ? pair.start_a() : pair.b->restart();
    }
    pair.run(1s);
    pair.run_until([&] { return pair.a->up() && pair.b->up(); }, 30s);
    // What is up stays up, and it is one incarnation at both ends: records flow both ways.
    const std::uint64_t a = pair.a->incarnation();
    const std::uint64_t b = pair.b->incarnation();
    pair.a_to_b.faults = pair.b_to_a.faults = DatagramFaults{};
    pair.run(3s);
    CHECK(pair.a->incarnation() <= a + 1);
    CHECK(pair.b->incarnation() <= b + 1);
    REQUIRE(send(*pair.a, kData, numbered(1)));
    REQUIRE(send(*pair.b, kData, numbered(2)));
    REQUIRE(pair.a->flush());
    REQUIRE(pair.b->flush());
    pair.run(1ms);
    CHECK(receive(*pair.b, kData) == numbered(1));
    CHECK(receive(*pair.a, kData) == numbered(2));
  }
}

TEST_CASE("a sender stops at the window that its peer grants, and goes on when there is room", "[fabric][udp]") {
  Pair pair;
  pair.connect();
  std::uint32_t sent = 0;
  while (send(*pair.a, kData, numbered(sent))) ++sent;
  CHECK(sent == 16384 / 66);
  CHECK(pair.a->wants_room(kData));
  // The other lane has a window of its own.
  CHECK(send(*pair.a, kControl, numbered(1)));
  CHECK_FALSE(pair.a->wants_room(kControl));
  REQUIRE(pair.a->flush());
  pair.run(100ms);
  CHECK_FALSE(send(*pair.a, kData, numbered(sent)));  // nothing was consumed
  CHECK(counter(*pair.b, "dropped_no_room") == 0);
  CHECK(counter(*pair.b, "dropped_beyond_window") == 0);

  std::uint32_t received = 0;
  while (const auto record = receive(*pair.b, kData)) CHECK(number_of(*record) == received++);
  CHECK(received == sent);
  pair.run(1ms);
  CHECK(send(*pair.a, kData, numbered(sent)));
  CHECK_FALSE(pair.a->wants_room(kData));
}

TEST_CASE("a whole window that is lost, and grants that are lost, hold a lane up for a moment only", "[fabric][udp]") {
  Pair pair;
  pair.connect();
  const auto fill = [&pair] {
    while (send(*pair.a, kData, numbered(0))) continue;
    REQUIRE(pair.a->flush());
  };
  pair.a_to_b.faults.lost = 1000;
  fill();
  pair.run(1ms);
  pair.a_to_b.faults.lost = 0;
  pair.run_until([&] { return send(*pair.a, kData, numbered(0)); }, 20ms);
  CHECK(counter(*pair.a, "asked_for_room") > 0);

  fill();
  pair.run(100us);
  pair.b_to_a.faults.lost = 1000;
  while (receive(*pair.b, kData)) continue;
  pair.run(1ms);
  pair.b_to_a.faults.lost = 0;
  pair.run_until([&] { return send(*pair.a, kData, numbered(0)); }, 20ms);
}

TEST_CASE("each record that arrives is one that was sent, however the network treats datagrams", "[fabric][udp]") {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    INFO("seed " << seed);
    Pair pair(seed, {.lost = 50, .duplicated = 100, .damaged = 20, .delay_min = 10us, .delay_max = 500us});
    pair.run_until([&] { return pair.a->up() && pair.b->up(); });
    std::uint32_t next = 0;
    std::uint32_t received = 0;
    bool late = false;
    bool twice = false;
    std::uint32_t highest = 0;
    std::set<std::uint32_t> seen;
    for (int i = 0; i < 3000; ++i) {
      for (auto burst = pair.random.below(8); burst > 0; --burst) {
        const auto bytes = static_cast<std::size_t>(64 + pair.random.below(1000));
        if (!send(*pair.a, kData, numbered(next, bytes))) break;
        ++next;
      }
      REQUIRE(pair.a->flush());
      pair.step();
      while (const auto record = receive(*pair.b, kData)) {
        const std::uint32_t number = number_of(*record);
        REQUIRE(number < next);
        REQUIRE(*record == numbered(number, record->size()));
        ++received;
        late = late || number < highest;
        twice = !seen.insert(number).second || twice;
        highest = std::max(highest, number);
      }
    }
    CHECK(received > next / 2);
    CHECK(late);
    CHECK(twice);
    CHECK(seen.size() < next);
    CHECK(pair.a->incarnation() == 1);
    CHECK(counter(*pair.b, "dropped_bad_check") + counter(*pair.b, "dropped_bad_magic") +
              counter(*pair.b, "dropped_bad_version") ==
          pair.a_to_b.damaged - std::ranges::count_if(pair.a_to_b.on_the_way, [](const auto& each) {
            return !decode_udp(each.second).has_value();
          }));
    CHECK(counter(*pair.b, "dropped_beyond_window") == 0);
  }
}

TEST_CASE("forged datagrams are counted and change nothing", "[fabric][udp]") {
  Pair pair;
  pair.connect();
  const UdpData real = data_seen(pair.a_to_b, *pair.a);  // keys that no forger knows
  pair.run(1ms);
  REQUIRE(receive(*pair.b, kControl).has_value());
  const UdpKey key = real.receiver_key;
  const UdpKey forger{0x1234};

  struct Row {
    const char* what;
    const char* counter;
    std::function<void()> forge;
  };
  const auto give_data = [&](const UdpData& data, std::size_t records = 0) {
    Bytes bytes(sizeof(UdpDataBytes));
    for (std::size_t i = 0; i < records; ++i) {
      bytes.push_back(std::byte{64});
      bytes.push_back(std::byte{0});
      bytes.insert(bytes.end(), 64, std::byte{0xee});
    }
    seal_udp(data, bytes);
    pair.b->take(bytes, pair.now);
  };
  const auto with = [&real](auto&& change) {
    UdpData data = real;
    data.records = {};
    change(data);
    return data;
  };
  const std::vector<Row> rows{
      {"data for a guessed key", "dropped_wrong_key",
       [&] { give_data(with([](UdpData& data) { ++data.receiver_key.value; }), 1); }},
      {"a hello for a guessed key", "dropped_wrong_key", [&] { give(*pair.b, hello_of(forger, forger), pair.now); }},
      {"a hello with the key of the present peer, from another", "dropped_wrong_peer",
       [&] { give(*pair.b, hello_of(key, forger), pair.now); }},
      {"data of other epochs", "dropped_wrong_epochs",
       [&] { give_data(with([](UdpData& data) { ++data.epochs; }), 1); }},
      {"data beyond what was granted", "dropped_beyond_window",
       [&] { give_data(with([](UdpData& data) { data.position = 1U << 20U; }), 1); }},
      {"a position at the end of all numbers", "dropped_beyond_window",
       [&] { give_data(with([](UdpData& data) { data.position = ~std::uint64_t{0}; }), 1); }},
      {"data that ends one record beyond what was granted", "dropped_beyond_window",
       [&] { give_data(with([](UdpData& data) { data.position = 4096 - 65; }), 1); }},
      {"a datagram longer than this end takes", "dropped_too_long", [&] { give_data(with([](UdpData&) {}), 22); }},
      {"the own hello", "dropped_reflected", [&] { give(*pair.b, hello_of(UdpKey{}, key), pair.now); }},
  };
  for (const Row& row : rows) {
    INFO(row.what);
    const std::uint64_t before = counter(*pair.b, row.counter);
    const std::uint64_t all = dropped(*pair.b);
    const std::uint64_t useful = counter(*pair.b, "datagrams_received");
    const std::uint64_t answers = pair.b_to_a.sent;
    row.forge();
    CHECK(counter(*pair.b, row.counter) == before + 1);
    CHECK(dropped(*pair.b) == all + 1);
    CHECK(counter(*pair.b, "datagrams_received") == useful);
    CHECK(pair.b_to_a.sent == answers);
    CHECK(pair.b->up());
    CHECK(pair.b->incarnation() == 1);
    CHECK(pair.b->front(kControl).empty());
    CHECK(pair.b->front(kData).empty());
  }
  // What is real still arrives.
  REQUIRE(send(*pair.a, kControl, numbered(9)));
  REQUIRE(pair.a->flush());
  pair.run(1ms);
  CHECK(receive(*pair.b, kControl) == numbered(9));
}

TEST_CASE("forged hellos are answered at a limited rate, and keep nobody from a connection", "[fabric][udp]") {
  Pair pair;
  pair.connect();
  const std::uint64_t answered = counter(*pair.b, "hellos_answered");
  const std::uint64_t limited = counter(*pair.b, "dropped_hello_limit");
  const Time from = pair.now;
  std::uint64_t forged = 0;
  while (pair.now < from + 100ms) {
    give(*pair.b, hello_of(UdpKey{}, UdpKey{++forged << 32U}), pair.now);
    pair.step(100us);
  }
  CHECK(counter(*pair.b, "hellos_answered") - answered == 100);
  CHECK(counter(*pair.b, "dropped_hello_limit") - limited == forged - 100);
  CHECK(pair.b->incarnation() == 1);
  CHECK(counter(*pair.a, "dropped_wrong_key") == 100);  // answers to what it never asked

  pair.start_a();
  pair.run_until([&] {
    if (pair.random.below(4) == 0) give(*pair.b, hello_of(UdpKey{}, UdpKey{++forged << 32U}), pair.now);
    return pair.a->up() && pair.b->incarnation() == 2;
  });
}

TEST_CASE("a peer that never says that it is up is given up soon", "[fabric][udp]") {
  SeededRandom random(3);
  DatagramNetwork network(random, {});
  UdpPeer peer(network, options_of(0xa), random);
  Time now{};
  peer.poll(now);
  const auto hello = std::get<UdpHello>(decode_udp(network.on_the_way.begin()->second).value());
  network.on_the_way.clear();
  give(peer, hello_of(hello.sender_key, UdpKey{5}), now);
  REQUIRE(peer.up());
  while (peer.up()) {
    now = peer.next_deadline();
    REQUIRE(now <= Time{} + 1s);
    peer.poll(now);
  }
  CHECK(now == Time{} + 500ms);
}

TEST_CASE("a datagram that the socket has no room for waits, and its lane with it", "[fabric][udp]") {
  Pair pair;
  pair.connect();
  pair.a_to_b.full = true;
  REQUIRE(send(*pair.a, kData, numbered(1, 1000)));
  CHECK_FALSE(pair.a->flush());
  CHECK_FALSE(send(*pair.a, kData, numbered(2, 1000)));
  CHECK(pair.a->wants_room(kData));
  CHECK_FALSE(pair.a->drained(kData));
  pair.a_to_b.full = false;
  REQUIRE(send(*pair.a, kData, numbered(2, 1000)));
  REQUIRE(pair.a->flush());
  pair.run(1ms);
  CHECK(receive(*pair.b, kData) == numbered(1, 1000));
  CHECK(receive(*pair.b, kData) == numbered(2, 1000));
}

TEST_CASE("ends that take datagrams of different sizes send the smaller", "[fabric][udp]") {
  Pair pair;
  UdpOptions large = options_of(0xa);
  large.datagram_bytes = 4000;
  pair.a = std::make_unique<UdpPeer>(pair.a_to_b, large, pair.random);
  pair.connect();
  CHECK(pair.a->max_record_bytes() == 1472 - 50);
  CHECK(pair.b->max_record_bytes() == 1472 - 50);
  REQUIRE(send(*pair.a, kData, numbered(1, 1472 - 50)));
  REQUIRE(pair.a->flush());
  pair.run(1ms);
  CHECK(receive(*pair.b, kData) == numbered(1, 1472 - 50));
}

TEST_CASE("every counter of the UDP link has a name of its own", "[fabric][udp]") {
  std::set<std::string_view> names;
  for (const NamedCounter& each : describe(UdpCounters{})) CHECK(names.insert(each.name).second);
  CHECK(names.size() == sizeof(UdpCounters) / sizeof(std::uint64_t));
}

TEST_CASE("a limit makes the windows smaller, and what was granted stays granted", "[fabric][link][udp]") {
  Pair pair;
  UdpOptions large = options_of(0xa);
  large.window_bytes = {64U << 10U, 256U << 10U};
  pair.a = std::make_unique<UdpPeer>(pair.a_to_b, large, pair.random);
  pair.a->limit_windows(160U << 10U);
  pair.connect();
  const auto fill = [&] {
    std::uint32_t sent = 0;
    while (send(*pair.b, kData, numbered(sent, 1022))) ++sent;  // 1024 bytes of the window
    return sent;
  };
  const auto take = [&] {
    pair.run(2ms);
    std::uint32_t taken = 0;
    while (receive(*pair.a, kData)) ++taken;
    pair.run(2ms);
    return taken;
  };
  CHECK(fill() == 128);  // half of what the options have, as of both lanes
  pair.a->limit_windows(0);
  CHECK(take() == 128);
  CHECK(fill() == 16);  // the least
  pair.a->limit_windows(std::uint64_t{1} << 40U);
  CHECK(take() == 16);
  CHECK(fill() > 128);
  CHECK(take() > 128);
  CHECK(dropped(*pair.a) == 0);
}

}  // namespace
}  // namespace splitnic::fabric::udp_peer_test
