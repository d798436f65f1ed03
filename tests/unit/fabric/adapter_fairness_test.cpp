#include "adapter_requests.h"

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

}  // namespace splitnic::fabric::test::adapter_fairness_test
