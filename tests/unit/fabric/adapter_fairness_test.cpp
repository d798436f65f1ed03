#include "adapter_requests.h"
#include "fabric/adapter/dma_provider.h"
#include "lossy_relay.h"

/// Whose turn it is among queue pairs, and among what a queue pair answers and what it asks.
namespace splitnic::fabric::test::adapter_fairness_test {
namespace {

constexpr std::size_t kReaders = 9;
constexpr std::size_t kReadBytes = std::size_t{1} << 20U;

/// End 1 owns a mebibyte, and end 0 reads all of it by every one of nine queue pairs, each into memory of its own.
struct ManyReaders {
  explicit ManyReaders(const AdapterOptions& options)
      : two(options), source(pattern(kReadBytes, 1)), sinks(kReaders, std::vector<std::byte>(kReadBytes)) {
    Endpoint& reader = two.end(0);
    Endpoint& owner = two.end(1);
    const Stag tag = owner.adapter.register_memory(owner.domain, source, kEverything).value();
    for (std::uint32_t i = 0; i < kReaders; ++i) {
      near.push_back(reader.make_queue_pair({}));
      far.push_back(owner.make_queue_pair({}));
      REQUIRE(reader.adapter.connect(near[i], {far[i], 1, 2}) == Status::ok);
      REQUIRE(owner.adapter.connect(far[i], {near[i], 2, 1}) == Status::ok);
      const Stag into = reader.adapter.register_memory(reader.domain, sinks[i], kAllRights).value();
      WorkRequest request = send_request(i, {sinks[i].data(), static_cast<std::uint32_t>(kReadBytes), into});
      request.operation = Operation::rdma_read;
      request.remote = {owner.adapter.region_address(tag), tag};
      REQUIRE(reader.adapter.post_send(near[i], request) == Status::ok);
    }
  }
  [[nodiscard]] bool begun(std::size_t reader) const {
    return std::equal(source.begin(), source.begin() + 64, sinks[reader].begin());
  }
  [[nodiscard]] bool whole(std::size_t reader) const { return sinks[reader] == source; }

  TwoEndpoints two;
  std::vector<std::byte> source;
  std::vector<std::vector<std::byte>> sinks;
  std::vector<QpNumber> near;
  std::vector<QpNumber> far;
};

}  // namespace

TEST_CASE("long answers to many readers hold up neither each other nor the owner's own requests",
          "[fabric][adapter][fairness]") {
  // Small cells use up a poll's budget, large ones the lane.
  AdapterOptions options = test::small_cells();
  options.cell_payload_bytes = GENERATE(256U, 16384U);
  const int steps = options.cell_payload_bytes == 256 ? 300 : 40;  // not half of what the answers need
  ManyReaders many(options);
  Endpoint& reader = many.two.end(0);
  Endpoint& owner = many.two.end(1);
  // More than leaves with the post: on the queue pair that answers first, the one that answers last, and one that
  // answers nothing.
  const std::vector<QpNumber> senders{many.far.front(), many.far.back(), owner.number};
  const std::vector<QpNumber> receivers{many.near.front(), many.near.back(), reader.number};
  constexpr std::uint64_t kSends = 4;
  constexpr std::size_t kSendBytes = 64U << 10U;
  many.two.run(microseconds(100));
  for (std::size_t i = 0; i < senders.size(); ++i) {
    for (std::uint64_t id = 0; id < kSends; ++id) {
      REQUIRE(reader.adapter.post_receive(receivers[i], {100, reader.segment(0, kSendBytes)}) == Status::ok);
      REQUIRE(owner.adapter.post_send(senders[i], send_request(200, owner.segment(0, kSendBytes))) == Status::ok);
    }
  }
  std::array<std::uint64_t, 3> received{};
  std::size_t answered = 0;
  const auto look = [&] {
    for (const Completion& done : reader.take()) {
      REQUIRE(done.status == CompletionStatus::success);
      if (!done.receive) ++answered;
      for (std::size_t i = 0; done.receive && i < receivers.size(); ++i) received[i] += done.queue_pair == receivers[i];
    }
  };
  for (int i = 0; i < steps; ++i) {
    many.two.step();
    look();
  }
  CHECK(answered == 0);
  for (std::size_t i = 0; i < kReaders; ++i) {
    INFO("reader " << i);
    CHECK(many.begun(i));
  }
  for (std::size_t i = 0; i < senders.size(); ++i) {
    INFO("sender " << i);
    CHECK(received[i] > 0);
  }
  REQUIRE(many.two.settle());
  look();
  CHECK(answered == kReaders);
  for (std::size_t i = 0; i < kReaders; ++i) CHECK(many.whole(i));
  CHECK(received == std::array{kSends, kSends, kSends});
  CHECK(owner.adapter.counters().retransmissions == 0);
}

TEST_CASE("of many queue pairs that wait for a full lane, one tries in each poll, and what is shorter passes",
          "[fabric][adapter][fairness]") {
  constexpr std::uint32_t kQueuePairs = 100;
  constexpr std::size_t kBytes = Endpoint::kBufferBytes;
  const bool reads = GENERATE(true, false);  // answers wait, or sends
  const bool pulls = GENERATE(false, true);  // which is for reads alone
  CAPTURE(reads, pulls);
  TwoWayCopy engine;
  LinkedPair pair;
  std::array<SealedLink, 2> links{SealedLink(pair.link(0)), SealedLink(pair.link(1))};
  AdapterOptions options;
  options.cell_payload_bytes = 16384;
  options.max_queue_pairs = 2 * kQueuePairs;
  if (pulls) options.dma = &engine;
  Endpoint peer(links[0], options, pair.random(), {});
  Endpoint full(links[1], options, pair.random(), {});
  const Stag readable = full.adapter.register_memory(full.domain, full.buffer, kEverything).value();
  const auto connected = [&] {
    const std::array numbers{peer.make_queue_pair({}), full.make_queue_pair({})};
    REQUIRE(peer.adapter.connect(numbers[0], {numbers[1], 1, 2}) == Status::ok);
    REQUIRE(full.adapter.connect(numbers[1], {numbers[0], 2, 1}) == Status::ok);
    return numbers;
  };
  const auto read = [&](QpNumber by, std::size_t bytes) {
    WorkRequest request = send_request(1, peer.segment(0, bytes));
    request.operation = Operation::rdma_read;
    request.remote = {full.adapter.region_address(readable), readable};
    REQUIRE(peer.adapter.post_send(by, request) == Status::ok);
  };
  for (std::uint32_t i = 0; i < kQueuePairs; ++i) {
    const auto numbers = connected();
    if (reads) {
      read(numbers[0], kBytes);
      continue;
    }
    REQUIRE(peer.adapter.post_receive(numbers[0], {1, peer.segment(0, kBytes)}) == Status::ok);
    REQUIRE(full.adapter.post_send(numbers[1], send_request(1, full.segment(0, kBytes))) == Status::ok);
  }
  const QpNumber with_short = connected()[0];
  SeededRandom random(1);
  LossyRelay relay(random, 0, 0);
  const auto step = [&] {
    pair.advance(microseconds(10));
    peer.adapter.poll(pair.now());
    relay.carry(links[0], links[1]);
    full.adapter.poll(pair.now());
  };
  for (int i = 0; i < 10; ++i) step();  // nothing takes what `full` sends
  REQUIRE(links[1].wants_room(VirtualLane::data));
  std::size_t before = links[1].refusals;
  step();
  CHECK(links[1].refusals == before + 1);

  const std::size_t waiting = links[1].out(VirtualLane::data).size();
  read(with_short, 64);
  before = links[1].refusals;
  step();
  CHECK(links[1].out(VirtualLane::data).size() == waiting + 1);
  CHECK(links[1].refusals == before + 2);  // because it has found room, one of the others tries again
  CHECK(links[1].wants_room(VirtualLane::data));

  std::size_t ended = 0;
  for (int i = 0; i < 10'000 && (peer.adapter.outstanding() || full.adapter.outstanding()); ++i) {
    relay.carry(links[1], links[0]);
    step();
    for (Endpoint* end : {&peer, &full}) {
      for (const Completion& done : end->take()) ended += done.status == CompletionStatus::success ? 1 : 0;
    }
  }
  CHECK(ended == (reads ? kQueuePairs : 2 * kQueuePairs) + 1);
}

}  // namespace splitnic::fabric::test::adapter_fairness_test
