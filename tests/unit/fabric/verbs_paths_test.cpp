#include <poll.h>

#include <catch2/catch.hpp>

#include "fabric/bridge/shm_bridge.h"
#include "fabric/link/udp_socket.h"
#include "fabric/verbs/wait.h"
#include "verbs_misuse.h"

// Again last, as in the fixture.

/// One context with many peers.
namespace splitnic::verbs::test::verbs_paths_test {

using enum CompletionStatus;

namespace {

constexpr std::size_t kPeers = 3;

/// A hub, and three peers, each at a bridge of its own.
struct Star {
  Star() : hub(bridges[0], 0, plain(), DomainRules::verbs) {
    paths[0] = std::move(hub.path);
    for (std::size_t i = 1; i < kPeers; ++i) paths[i] = made(hub.context.add_path(bridges[i].end(0)));
    for (std::size_t i = 0; i < kPeers; ++i) {
      for (std::size_t drawn = 0; drawn < i; ++drawn) bridges[i].random().next();  // else all have one port address
      peers[i].emplace(bridges[i], 1, plain(), DomainRules::verbs);
      queue_pairs[i] = hub.another(plain());
    }
    for (int i = 0; i < 10'000 && !all_up(); ++i) step(milliseconds(1));
    REQUIRE(all_up());
    for (std::size_t i = 0; i < kPeers; ++i) connect(i);
  }
  void connect(std::size_t i) { Pair::connect(queue_pairs[i], peers[i]->queue_pair); }
  [[nodiscard]] bool all_up() const {
    for (std::size_t i = 0; i < kPeers; ++i) {
      if (!paths[i].up() || !peers[i]->path.up()) return false;
    }
    return true;
  }
  void step(Duration by = microseconds(10)) {
    now += by;
    for (auto& each : bridges) each.sim().advance(now);
    hub.context.poll(now);
    for (auto& peer : peers) {
      if (peer) peer->context.poll(now);
    }
  }
  void run() {
    for (int i = 0; i < 200; ++i) step();
  }
  /// A message of the peer, into the hub; its status at the peer.
  CompletionStatus to_hub(std::size_t i) {
    REQUIRE(queue_pairs[i].post_receive(receive(i, hub.region.segment(1000 * i, 100))) == Status::ok);
    peers[i]->fill(0, pattern(100, i));
    REQUIRE(peers[i]->queue_pair.post_send(send(9, {peers[i]->region.segment(0, 100)})) == Status::ok);
    run();
    const auto ended = peers[i]->take();
    REQUIRE(ended.size() == 1);
    return ended[0].status;
  }

  std::array<Bridges, kPeers> bridges;
  Time now{};
  End hub;
  std::array<Path, kPeers> paths;
  std::array<QueuePair, kPeers> queue_pairs;
  std::array<std::optional<End>, kPeers> peers;
};

/// One datagram by the path, to a queue pair that is not there.
void send_to_nobody(Context& from, const Path& by) {
  ProtectionDomain domain = made(from.allocate_domain());
  CompletionQueue queue = made(from.create_completion_queue(4));
  QueuePairOptions shape;
  shape.send_completions = shape.receive_completions = &queue;
  shape.datagram = true;
  shape.acknowledged = false;
  QueuePair queue_pair = made(domain.create_queue_pair(shape));
  REQUIRE(queue_pair.start() == Status::ok);
  const AddressHandle to = made(domain.create_address_handle(by));
  REQUIRE(queue_pair.post_send(send_datagram(1, {}, to, QpNumber{99}, 1)) == Status::ok);
  from.poll(monotonic_now());
}

}  // namespace

TEST_CASE("verbs: one context has a path to each of its peers, and queue pairs on each", "[fabric][verbs][path]") {
  Star star;
  for (std::size_t i = 0; i < kPeers; ++i) {
    CHECK(star.paths[i].peer_port() == star.peers[i]->context.port_address());
    CHECK(star.peers[i]->path.peer_port() == star.hub.context.port_address());
    CHECK(star.to_hub(i) == success);
    CHECK(star.hub.holds(1000 * i, pattern(100, i)));
    const auto got = star.hub.take();
    REQUIRE(got.size() == 1);
    CHECK(got[0].queue_pair == star.queue_pairs[i].address().queue_pair);
  }
  // One region, and its key serves all of them.
  const RemoteKey key = star.hub.region.remote_key();
  for (std::size_t i = 0; i < kPeers; ++i) {
    REQUIRE(star.peers[i]->queue_pair.post_send(fetch_add(1, star.peers[i]->region.segment(0, 8), key.at(8000), 1)) ==
            Status::ok);
    star.run();
    CHECK(star.peers[i]->word(0) == i);
  }
  CHECK(star.hub.word(8000) == kPeers);
}

TEST_CASE("verbs: a path that is given up takes its queue pairs along, and nothing else", "[fabric][verbs][path]") {
  Star star;
  MemoryRegion on_bridge =
      made(star.hub.domain.register_bridge_memory(star.paths[1], 0, 4096, kEverything, BridgeAccess::segmented));
  const AddressHandle way = made(star.hub.domain.create_address_handle(star.paths[1]));
  REQUIRE(star.queue_pairs[1].post_receive(receive(5, star.hub.region.segment(0, 8))) == Status::ok);
  const PathNumber number = star.paths[1].number();
  star.paths[1] = Path();
  CHECK(star.queue_pairs[1].state() == QueuePairState::error);
  CHECK_FALSE(on_bridge.valid());
  CHECK_FALSE(way.valid());
  const auto ended = star.hub.take();
  REQUIRE(ended.size() == 1);
  CHECK(ended[0].status == flushed);
  const auto events = star.hub.events();
  const auto down = std::ranges::find(events, AsyncEventKind::path_down, &AsyncEvent::kind);
  REQUIRE(down != events.end());
  CHECK(down->path == number);
  const QueuePairAddress its = star.peers[1]->queue_pair.address();
  REQUIRE(star.queue_pairs[1].modify(QueuePairState::reset) == Status::ok);
  check({
      {"no way there any more", star.queue_pairs[1].connect(its), kBad},
      {"by its handle", star.queue_pairs[1].connect(way, its), Status::link_down},
      {"over another path", star.queue_pairs[1].connect(star.paths[0], its), kBad},
      {"over another context's path", star.queue_pairs[1].connect(star.peers[0]->path, its), kBad},
  });
  for (const std::size_t i : {0U, 2U}) CHECK(star.to_hub(i) == success);

  // The bridge can be taken again, as a new path; the peer has noticed.
  star.hub.take();
  star.paths[1] = made(star.hub.context.add_path(star.bridges[1].end(0)));
  for (int i = 0; i < 10'000 && !star.all_up(); ++i) star.step(milliseconds(1));
  star.run();
  CHECK(star.peers[1]->queue_pair.state() == QueuePairState::error);
  star.peers[1]->take();
  REQUIRE(star.peers[1]->queue_pair.modify(QueuePairState::reset) == Status::ok);
  star.connect(1);
  CHECK(star.to_hub(1) == success);
}

TEST_CASE("verbs: as many paths as the options say", "[fabric][verbs][path]") {
  Bridges one;
  Bridges other;
  ContextOptions options;
  options.random = &one.random();
  options.adapter.max_paths = 1;
  Context context = made(Context::open(options));
  Path path = made(context.add_path(one.end(0)));
  CHECK(refusal(context.add_path(other.end(0))) == Status::no_resources);
  CHECK(refusal(context.add_loopback()) == Status::no_resources);
  path = Path();
  CHECK(context.add_path(other.end(0)).has_value());
}

TEST_CASE("verbs: queue pairs of one context talk over a loop-back", "[fabric][verbs][path]") {
  Bridges bridges;
  End end(bridges, 0, plain(), DomainRules::verbs);
  auto ends = made(end.context.add_loopback());
  Time now{};
  const auto run = [&] {
    for (int i = 0; i < 200; ++i) end.context.poll(now += milliseconds(1));
  };
  run();
  REQUIRE((ends[0].up() && ends[1].up()));
  CHECK(ends[0].peer_port() == end.context.port_address());
  QueuePair other = end.another(plain());
  // Two paths lead to this port, and only the program knows which queue pair has which.
  CHECK(end.queue_pair.connect(other.address()) == Status::bad_argument);
  REQUIRE(end.queue_pair.connect(ends[0], other.address()) == Status::ok);
  REQUIRE(other.connect(ends[1], end.queue_pair.address()) == Status::ok);
  end.fill(0, pattern(50, 3));
  REQUIRE(other.post_receive(receive(1, end.region.segment(100, 50))) == Status::ok);
  REQUIRE(end.queue_pair.post_send(send(2, {end.region.segment(0, 50)})) == Status::ok);
  run();
  CHECK(end.take().size() == 2);
  CHECK(end.holds(100, pattern(50, 3)));
}

namespace {

bool readable(int descriptor) {
  pollfd one{descriptor, POLLIN, 0};
  return poll(&one, 1, 0) == 1;
}

std::shared_ptr<fabric::CellLink> udp(fabric::UdpSocket& from, const fabric::UdpSocket& to, const Context& of,
                                      RandomSource& random) {
  fabric::UdpOptions options;
  options.port_address = of.port_address();
  auto link = from.connect(to.local(), options, random);
  REQUIRE(link.has_value());
  return {std::move(*link)};
}

/// A context with a peer over shared memory and one over UDP, whose descriptors are real.
struct Mixed {
  Mixed() {
    auto bridge = fabric::shm_pair();
    REQUIRE(bridge.has_value());
    for (auto& socket : sockets) socket = std::move(*fabric::UdpSocket::open({}));
    for (Context* each : {&hub, &by_bridge, &by_udp}) *each = made(Context::open());
    paths[0] = made(hub.add_path(std::move(bridge->first)));
    ends[0] = made(by_bridge.add_path(std::move(bridge->second)));
    paths[1] = made(hub.add_path(udp(*sockets[0], *sockets[1], hub, random)));
    ends[1] = made(by_udp.add_path(udp(*sockets[1], *sockets[0], by_udp, random)));
    const Time limit = monotonic_now() + std::chrono::seconds(10);
    const auto all_up = [this] { return paths[0].up() && paths[1].up() && ends[0].up() && ends[1].up(); };
    while (!all_up() && monotonic_now() < limit) settle();
    REQUIRE(all_up());
    settle();
  }
  void settle() {
    std::size_t moved = 0;
    do {
      const Time now = monotonic_now();
      moved = hub.poll(now) + by_bridge.poll(now) + by_udp.poll(now);
    } while (moved != 0);
  }

  SeededRandom random{5};
  std::array<std::unique_ptr<fabric::UdpSocket>, 2> sockets;  // outlive the paths
  Context hub;
  Context by_bridge;
  Context by_udp;
  std::array<Path, 2> paths;
  std::array<Path, 2> ends;
};

}  // namespace

TEST_CASE("verbs: each of several peers ends the sleep, by one descriptor", "[fabric][verbs][path]") {
  Mixed mixed;
  for (Context* peer : {&mixed.by_bridge, &mixed.by_udp}) {
    const Path& way = peer == &mixed.by_bridge ? mixed.ends[0] : mixed.ends[1];
    while (!mixed.hub.prepare_sleep()) mixed.settle();
    CHECK_FALSE(readable(mixed.hub.descriptor()));
    send_to_nobody(*peer, way);
    CHECK(readable(mixed.hub.descriptor()));
    CHECK(wait(mixed.hub, monotonic_now(), monotonic_now() + std::chrono::hours(1)) == Status::ok);
    mixed.hub.disarm();
    mixed.settle();
  }
  CHECK(mixed.hub.counters().dropped_unknown_queue_pair == 2);
  // With one path, its descriptor alone; with none, no peer rings.
  const int several = mixed.hub.descriptor();
  mixed.paths[1] = Path();
  CHECK(mixed.hub.descriptor() >= 0);
  CHECK(mixed.hub.descriptor() != several);
  mixed.paths[0] = Path();
  CHECK(mixed.hub.descriptor() == -1);
  CHECK(mixed.hub.prepare_sleep());
}

TEST_CASE("verbs: what came over one path keeps the context awake, and no other path is left armed",
          "[fabric][verbs][path]") {
  const std::size_t busy = GENERATE(0U, 1U);  // one of them is armed before the other
  const std::size_t silent = 1 - busy;
  Context hub = made(Context::open());
  std::array<Context, 2> peers;
  std::array<Path, 2> paths;
  std::array<Path, 2> ends;
  std::array<fabric::Bridge*, 2> doorbells{};
  for (std::size_t i = 0; i < 2; ++i) {
    auto bridge = fabric::shm_pair();
    REQUIRE(bridge.has_value());
    doorbells[i] = bridge->first.get();
    peers[i] = made(Context::open());
    paths[i] = made(hub.add_path(std::move(bridge->first)));
    ends[i] = made(peers[i].add_path(std::move(bridge->second)));
  }
  const auto settle = [&] {
    std::size_t moved = 0;
    do {
      const Time now = monotonic_now();
      moved = hub.poll(now) + peers[0].poll(now) + peers[1].poll(now);
    } while (moved != 0);
  };
  const Time limit = monotonic_now() + std::chrono::seconds(10);
  while (!(paths[0].up() && paths[1].up() && ends[0].up() && ends[1].up()) && monotonic_now() < limit) settle();
  settle();
  REQUIRE(hub.prepare_sleep());  // takes the doorbells of the handshake
  hub.disarm();
  send_to_nobody(peers[busy], ends[busy]);
  CHECK_FALSE(hub.prepare_sleep());
  send_to_nobody(peers[silent], ends[silent]);
  CHECK_FALSE(readable(doorbells[silent]->doorbell_descriptor()));
}

TEST_CASE("verbs: a link with another port address is no path of the context", "[fabric][verbs][path][misuse]") {
  Context context = made(Context::open());
  Context other = made(Context::open());
  SeededRandom random(5);
  auto socket = std::move(*fabric::UdpSocket::open({}));
  auto peer = std::move(*fabric::UdpSocket::open({}));
  CHECK(refusal(context.add_path(udp(*socket, *peer, other, random))) == Status::bad_argument);
  CHECK(context.add_path(udp(*socket, *peer, context, random)).has_value());
}

}  // namespace splitnic::verbs::test::verbs_paths_test
