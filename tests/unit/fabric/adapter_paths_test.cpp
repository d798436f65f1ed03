#include "adapter_requests.h"

/// One adapter with several peers: what one of them does, or its death, is nothing to the others.
namespace splitnic::fabric::test::adapter_paths_test {
namespace {

constexpr std::size_t kBytes = 4096;

/// An owner with a path to each of two peers, and a queue pair for each, all connected.
struct Star {
  Star() : owner({}, owners_random), buffer(kBytes) {
    domain = owner.allocate_domain();
    completions = owner.create_completion_queue(256);
    tag = owner.register_memory(domain, buffer, kEverything).value();
    for (std::size_t i = 0; i < 2; ++i) {
      pairs[i] = std::make_unique<LinkedPair>(LinkedPair::calm(), 10 + i);
      paths[i] = owner.attach(pairs[i]->link(1)).value();
      peers[i] =
          std::make_unique<Endpoint>(pairs[i]->link(0), test::small_cells(), pairs[i]->random(), QueuePairAttributes{});
      connect(i);
    }
  }
  void connect(std::size_t i) {
    queue_pairs[i] =
        owner.create_queue_pair({.domain = domain, .send_completions = completions, .receive_completions = completions})
            .value();
    QueuePairPeer to{peers[i]->number, 100, 200};
    to.path = paths[i];
    REQUIRE(owner.connect(queue_pairs[i], to) == Status::ok);
    REQUIRE(peers[i]->adapter.connect(peers[i]->number, {queue_pairs[i], 200, 100}) == Status::ok);
  }
  void step() {
    for (std::size_t i = 0; i < 2; ++i) {
      pairs[i]->advance(microseconds(10));
      peers[i]->adapter.poll(pairs[i]->now());
    }
    owner.poll(pairs[0]->now());
  }
  void run(int steps = 200) {
    for (int i = 0; i < steps; ++i) step();
  }
  void restart_peer(std::size_t i) {
    pairs[i]->link(0).restart();
    pairs[i]->come_up();
    run();
  }
  [[nodiscard]] RemoteAddress at(std::size_t offset = 0) const { return {owner.region_address(tag) + offset, tag}; }
  std::vector<Completion> take() {
    std::vector<Completion> all(256);
    all.resize(owner.poll_completions(completions, all));
    return all;
  }
  std::vector<AsyncEvent> events() {
    std::vector<AsyncEvent> all(64);
    all.resize(owner.poll_events(all));
    return all;
  }
  bool writes(std::size_t i, std::size_t offset, RemoteAddress to) {
    const auto bytes = pattern(100, offset + i);
    peers[i]->fill(0, bytes);
    if (peers[i]->write(1, 0, 100, to) != Status::ok) return false;
    run();
    const auto done = peers[i]->take();
    return done.size() == 1 && done[0].status == CompletionStatus::success;
  }

  SeededRandom owners_random{3};
  ChannelAdapter owner;
  std::vector<std::byte> buffer;
  ProtectionDomain domain{};
  CqNumber completions{};
  Stag tag{};
  std::array<std::unique_ptr<LinkedPair>, 2> pairs;
  std::array<PathNumber, 2> paths{};
  std::array<std::unique_ptr<Endpoint>, 2> peers;
  std::array<QpNumber, 2> queue_pairs{};
};

}  // namespace

TEST_CASE("one region of an adapter serves several peers", "[fabric][adapter][paths]") {
  Star star;
  REQUIRE(star.writes(0, 0, star.at(0)));
  REQUIRE(star.writes(1, 1000, star.at(1000)));
  CHECK(std::ranges::equal(pattern(100, 0), std::span(star.buffer).first(100)));
  CHECK(std::ranges::equal(pattern(100, 1001), std::span(star.buffer).subspan(1000, 100)));
}

TEST_CASE("a peer that starts anew ends its own path and nothing else", "[fabric][adapter][paths]") {
  Star star;
  std::array<Stag, 2> in_bridge{};
  for (std::size_t i = 0; i < 2; ++i) {
    const MemoryRange range{star.pairs[i]->link(1).buffers().offset, kBytes};
    in_bridge[i] = star.owner.register_bridge_memory(star.domain, range, kEverything, true, star.paths[i]).value();
  }
  // Under way to both: what the first peer would have received is unknown, the second one's arrives.
  for (std::size_t i = 0; i < 2; ++i) REQUIRE(star.peers[i]->receive(5, 0, 64) == Status::ok);
  star.restart_peer(0);
  CHECK(star.owner.in_error(star.queue_pairs[0]));
  CHECK_FALSE(star.owner.in_error(star.queue_pairs[1]));
  const auto events = star.events();
  REQUIRE(events.size() == 2);
  CHECK(events[0].kind == AsyncEventKind::queue_pair_fatal);
  CHECK(events[0].queue_pair == star.queue_pairs[0]);
  CHECK(events[1].kind == AsyncEventKind::path_down);
  CHECK(events[1].path == star.paths[0]);
  // Tags: the first bridge's memory is void, everything else lives.
  CHECK(star.owner.table().find(in_bridge[0]) == nullptr);
  CHECK(star.owner.table().find(in_bridge[1]) != nullptr);
  CHECK(star.writes(1, 0, {star.owner.region_address(in_bridge[1]), in_bridge[1]}));
  CHECK(star.peers[1]->adapter.counters().direct_writes == 1);
  CHECK(star.writes(1, 0, star.at()));
  CHECK_FALSE(star.owner.register_bridge_memory(star.domain, {}, kEverything, false).has_value());  // whose?

  // The first peer comes back, with another queue pair, to the same tag.
  REQUIRE(star.peers[0]->adapter.destroy_queue_pair(star.peers[0]->number) == Status::ok);
  star.peers[0]->number = star.peers[0]->make_queue_pair({});
  star.take();
  star.connect(0);
  star.peers[0]->take();
  CHECK(star.writes(0, 2000, star.at(2000)));
  CHECK(std::ranges::equal(pattern(100, 2000), std::span(star.buffer).subspan(2000, 100)));
}

TEST_CASE("a peer cannot speak for another path's queue pair", "[fabric][adapter][paths][hostile]") {
  Star star;
  // The first peer's adapter claims the numbers of the connection between the owner and the second peer.
  Endpoint& liar = *star.peers[0];
  QpNumber number = liar.make_queue_pair({});
  REQUIRE(liar.adapter.connect(number, {star.queue_pairs[1], 200, 100}) == Status::ok);
  WorkRequest request = send_request(9, liar.segment(0, 32));
  request.operation = Operation::rdma_write;
  request.remote = star.at();
  REQUIRE(liar.adapter.post_send(number, request) == Status::ok);
  const auto before = star.buffer;
  star.run(5);
  CHECK(star.buffer == before);
  CHECK(star.owner.counters().dropped_unknown_queue_pair >= 1);
  CHECK_FALSE(star.owner.in_error(star.queue_pairs[1]));
}

TEST_CASE("a verb that needs a path takes the only one, names one of several, and refuses what there is not",
          "[fabric][adapter][paths]") {
  SeededRandom random(4);
  LinkedPair first;
  LinkedPair second;
  AdapterOptions options = test::small_cells();
  options.max_paths = 2;
  ChannelAdapter adapter(options, random);
  CHECK(adapter.set_cell_payload(512) == Status::bad_argument);
  CHECK(adapter.detach(PathNumber{1}) == Status::bad_argument);
  const PathNumber one = adapter.attach(first.link(0)).value();
  CHECK(adapter.set_cell_payload(512) == Status::ok);
  const PathNumber other = adapter.attach(second.link(0)).value();
  CHECK(one != other);
  CHECK(adapter.set_cell_payload(512) == Status::bad_argument);
  CHECK(adapter.set_cell_payload(512, other) == Status::ok);
  CHECK_FALSE(adapter.attach(second.link(1)).has_value());
  const auto domain = adapter.allocate_domain();
  const auto completions = adapter.create_completion_queue(8);
  const QpNumber queue_pair =
      adapter.create_queue_pair({.domain = domain, .send_completions = completions, .receive_completions = completions})
          .value();
  CHECK(adapter.connect(queue_pair, {QpNumber{17}, 1, 2}) == Status::bad_argument);
  QueuePairPeer nowhere{QpNumber{17}, 1, 2};
  nowhere.path = PathNumber{3};
  CHECK(adapter.connect(queue_pair, nowhere) == Status::bad_argument);
  CHECK(adapter.detach(PathNumber{}) == Status::bad_argument);
  CHECK(adapter.detach(one) == Status::ok);
  CHECK(adapter.detach(one) == Status::bad_argument);
  CHECK(adapter.connect(queue_pair, {QpNumber{17}, 1, 2}) == Status::ok);
}

TEST_CASE("a path that is detached fails its queue pairs, and its link is used no more", "[fabric][adapter][paths]") {
  Star star;
  REQUIRE(star.owner.detach(star.paths[0]) == Status::ok);
  CHECK(star.owner.in_error(star.queue_pairs[0]));
  CHECK_FALSE(star.owner.in_error(star.queue_pairs[1]));
  star.pairs[0].reset();
  star.peers[0].reset();
  star.owner.poll(star.pairs[1]->now());
  CHECK(star.owner.next_deadline() >= star.pairs[1]->now());
  CHECK(star.owner.destroy_queue_pair(star.queue_pairs[0]) == Status::ok);
  REQUIRE(star.peers[1]->write(1, 0, 10, star.at()) == Status::ok);
  for (int i = 0; i < 100; ++i) {
    star.pairs[1]->advance(microseconds(10));
    star.peers[1]->adapter.poll(star.pairs[1]->now());
    star.owner.poll(star.pairs[1]->now());
  }
  CHECK(star.peers[1]->take().size() == 1);
}

TEST_CASE("an adapter that holds both ends of a bridge talks to itself", "[fabric][adapter][paths]") {
  LinkedPair pair;
  SeededRandom random(5);
  ChannelAdapter adapter({}, random);
  const std::array paths{adapter.attach(pair.link(0)).value(), adapter.attach(pair.link(1)).value()};
  const auto domain = adapter.allocate_domain();
  const auto completions = adapter.create_completion_queue(16);
  std::vector<std::byte> buffer(kBytes);
  const Stag tag = adapter.register_memory(domain, buffer, kEverything).value();
  std::array<QpNumber, 2> ends{};
  for (QpNumber& end : ends) {
    end =
        adapter
            .create_queue_pair({.domain = domain, .send_completions = completions, .receive_completions = completions})
            .value();
  }
  for (std::size_t i = 0; i < 2; ++i) {
    QueuePairPeer to{ends[1 - i], static_cast<std::uint32_t>(100 + i), static_cast<std::uint32_t>(101 - i)};
    to.path = paths[i];
    REQUIRE(adapter.connect(ends[i], to) == Status::ok);
  }
  const auto message = pattern(500, 7);
  std::ranges::copy(message, buffer.begin());
  REQUIRE(adapter.post_receive(ends[1], {1, {buffer.data() + 1000, 500, tag}}) == Status::ok);
  REQUIRE(adapter.post_send(ends[0], send_request(2, {buffer.data(), 500, tag})) == Status::ok);
  for (int i = 0; i < 100; ++i) {
    pair.advance(microseconds(10));
    adapter.poll(pair.now());
  }
  std::array<Completion, 4> done{};
  REQUIRE(adapter.poll_completions(completions, done) == 2);
  CHECK(std::ranges::equal(message, std::span(buffer).subspan(1000, 500)));
}

}  // namespace splitnic::fabric::test::adapter_paths_test
