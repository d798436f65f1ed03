#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "adapter_requests.h"
#include "bridge_fixtures.h"
#include "fabric/adapter/placements.h"
#include "threads_fixtures.h"

/// Which requests go past the fabric, and when. tests/ibverbs/placement_test.cpp has the real memory.
namespace splitnic::fabric::test::adapter_placements_test {
namespace {

/// One region of a peer.
class OneRegion final : public Placements {
 public:
  explicit OneRegion(std::size_t bytes) : stored(bytes) {}

  void admit(const PlacementUser&) override {}
  void dismiss(QpNumber) override {}
  bool offers(const PlacementTarget& target) override {
    const bool inside = target.remote.address - base + target.bytes <= stored.size();
    return target.remote.tag == tag && inside;
  }
  bool write(const PlacementTarget& target, std::span<const iovec> from) override {
    if (!offers(target)) return false;
    std::byte* to = stored.data() + (target.remote.address - base);
    moved += target.bytes;
    for (const iovec& part : from) {
      std::memcpy(to, part.iov_base, part.iov_len);
      to += part.iov_len;
    }
    return true;
  }
  bool read(const PlacementTarget& target, std::span<const iovec> into) override {
    if (!offers(target)) return false;
    const std::byte* from = stored.data() + (target.remote.address - base);
    moved += target.bytes;
    for (const iovec& part : into) {
      std::memcpy(part.iov_base, from, part.iov_len);
      from += part.iov_len;
    }
    return true;
  }

  Stag tag{};  ///< 0: none is offered
  std::uint64_t base = 0;
  std::vector<std::byte> stored;
  std::uint64_t moved = 0;  ///< bytes
};

/// Two adapters over shared memory, where a message of one cell goes the short way, with one region for both.
class TwoEnds {
 public:
  explicit TwoEnds(const QueuePairAttributes& queue_pair = {}) {
    AdapterOptions options;
    options.placements = &region;
    options.max_message_bytes = Placements::kMostBytes;
    for (std::size_t i = 0; i < 2; ++i) {
      links_[i] = std::make_unique<FabricLink>(bridges_.end(i), LinkOptions{}, random_);
      links_[i]->restart();
    }
    for (int i = 0; i < 1000 && !(links_[0]->up() && links_[1]->up()); ++i) poll_links();
    for (std::size_t i = 0; i < 2; ++i) {
      ends_[i] = std::make_unique<Endpoint>(*links_[i], options, random_, queue_pair);
    }
    for (std::size_t i = 0; i < 2; ++i) {
      REQUIRE(end(i).adapter.connect(end(i).number, {end(1 - i).number, 1, 1}) == Status::ok);
    }
  }
  Endpoint& end(std::size_t index) { return *ends_[index]; }
  /// From now on the second end's buffer is the region.
  void open_region() {
    region.tag = end(1).tag;
    region.base = end(1).remote().address;
  }
  /// One poll of the first end; returns how many bytes were placed by it.
  std::uint64_t poll_first() {
    poll_links();
    const std::uint64_t before = region.moved;
    end(0).adapter.poll(now_);
    return region.moved - before;
  }
  /// Until nothing is outstanding; false after many steps.
  bool settle() {
    for (int i = 0; i < 10'000; ++i) {
      poll_links();
      for (auto& each : ends_) each->adapter.poll(now_);
      if (!end(0).adapter.outstanding() && !end(1).adapter.outstanding()) return true;
    }
    return false;
  }

  OneRegion region{Endpoint::kBufferBytes};

 private:
  void poll_links() {
    now_ += microseconds(10);
    for (auto& link : links_) link->poll(now_);
  }

  SeededRandom random_{1};
  Time now_{};
  ShmPairBridges bridges_;
  std::array<std::unique_ptr<FabricLink>, 2> links_;
  std::array<std::unique_ptr<Endpoint>, 2> ends_;
};

}  // namespace

TEST_CASE("a long write that can be placed waits for what is before it, and a short one leaves in a cell",
          "[fabric][adapter][placements]") {
  const bool is_long = GENERATE(false, true);
  constexpr std::size_t kShort = 64;
  constexpr std::size_t kLong = 4096;
  TwoEnds two;
  Endpoint& from = two.end(0);
  Endpoint& to = two.end(1);
  for (std::uint64_t id = 0; id < 2; ++id) REQUIRE(to.receive(id, 0, kShort) == Status::ok);
  REQUIRE(from.send(1, 0, kShort) == Status::ok);  // the memory is remembered from now on
  REQUIRE(two.settle());
  two.open_region();
  const auto bytes = pattern(kLong, 1);
  from.fill(0, bytes);

  REQUIRE(from.send(2, 0, kShort) == Status::ok);
  REQUIRE(from.write(3, 0, is_long ? kLong : kShort, to.remote(8192)) == Status::ok);
  CHECK(from.adapter.counters().placed_writes == 0);
  CHECK(from.adapter.counters().segmented_writes == (is_long ? 0 : 1));
  REQUIRE(two.settle());
  CHECK(from.adapter.counters().placed_writes == (is_long ? 1 : 0));
  const auto written = std::span(bytes).first(is_long ? kLong : kShort);
  CHECK(std::ranges::equal(std::span(two.region.stored).subspan(8192, written.size()), written) == is_long);
  CHECK(to.holds(8192, written) == !is_long);
}

TEST_CASE("a write is not placed before what its unacknowledged queue pair has sent in cells",
          "[fabric][adapter][placements]") {
  constexpr std::size_t kBytes = 64;
  TwoEnds two({.acknowledged = false});
  Endpoint& from = two.end(0);
  const bool sends = GENERATE(false, true);
  REQUIRE(two.end(1).receive(1, 0, kBytes) == Status::ok);
  REQUIRE((sends ? from.send(1, 0, kBytes) : from.write(1, 0, kBytes, two.end(1).remote())) == Status::ok);
  REQUIRE(from.take().size() == 1);  // it has left, and its peer has not looked
  two.open_region();
  REQUIRE(from.write(2, 0, kBytes, two.end(1).remote()) == Status::ok);
  CHECK(from.adapter.counters().placed_writes == 0);

  REQUIRE(two.settle());
  REQUIRE(from.write(3, 0, kBytes, two.end(1).remote()) == Status::ok);
  CHECK(from.adapter.counters().placed_writes == 1);
}

TEST_CASE("a write is not placed before what its list has sent in cells without acknowledgement",
          "[fabric][adapter][placements]") {
  constexpr std::size_t kBytes = 64;
  TwoEnds two({.acknowledged = false});
  Endpoint& from = two.end(0);
  REQUIRE(two.end(1).receive(1, 0, kBytes) == Status::ok);
  two.open_region();
  const std::array list{send_request(1, from.segment(0, kBytes)),
                        write_request(2, from.segment(0, kBytes), two.end(1).remote())};
  std::size_t posted = 0;
  REQUIRE(from.adapter.post_send(from.number, list, posted) == Status::ok);
  CHECK(from.take().size() == 2);
  CHECK(from.adapter.counters().placed_writes == 0);
}

TEST_CASE("a queue pair that may not read does not read by placement either", "[fabric][adapter][placements]") {
  constexpr std::size_t kBytes = 64;
  const auto post_read = [](TwoEnds& two) {
    two.open_region();
    return post(two.end(0), read_request(two.end(0), 1, 0, kBytes, two.end(1).remote()));
  };
  SECTION("it may") {
    TwoEnds two;
    CHECK(post_read(two) == Status::ok);
    CHECK(two.end(0).adapter.counters().placed_reads == 1);
  }
  SECTION("nobody answers") {
    TwoEnds two({.acknowledged = false});
    CHECK(post_read(two) == Status::not_permitted);
    CHECK(two.end(0).adapter.counters().placed_reads == 0);
  }
  SECTION("it may have no read outstanding") {
    TwoEnds two({.reads_out = 0});
    CHECK(post_read(two) == Status::not_permitted);
    CHECK(two.end(0).adapter.counters().placed_reads == 0);
  }
}

TEST_CASE("a write that is placed leaves nothing to do and wakes nobody", "[fabric][adapter][placements]") {
  TwoEnds two;
  Endpoint& from = two.end(0);
  Endpoint& to = two.end(1);
  REQUIRE(two.settle());
  REQUIRE_FALSE(from.adapter.has_unannounced());
  two.open_region();
  for (std::uint64_t id = 0; id < 20; ++id) REQUIRE(from.write(id, 0, 64, to.remote()) == Status::ok);
  CHECK(from.adapter.counters().placed_writes == 20);
  CHECK_FALSE(from.adapter.has_unannounced());
  CHECK(from.take().size() == 20);
  REQUIRE(to.receive(1, 0, 64) == Status::ok);
  CHECK_FALSE(to.adapter.has_unannounced());
  REQUIRE(from.send(20, 0, 64) == Status::ok);
  CHECK(from.adapter.has_unannounced());
}

/// A registered buffer of the first end, which is longer than what is placed at once.
struct LongBuffer {
  static constexpr std::size_t kBytes = 2 * Placements::kAtOnceBytes + 1000;

  explicit LongBuffer(TwoEnds& two) : bytes(kBytes) {
    std::ranges::copy(pattern(4093, 7), bytes.begin());  // a prime: no part of the buffer is like another
    for (std::size_t i = 4093; i != kBytes; ++i) bytes[i] = bytes[i - 4093];
    two.region.stored.resize(kBytes);
    tag = two.end(0).adapter.register_memory(two.end(0).domain, bytes, kAllRights).value();
  }
  [[nodiscard]] LocalSegment segment(std::size_t offset, std::size_t length) {
    return {bytes.data() + offset, static_cast<std::uint32_t>(length), tag};
  }

  std::vector<std::byte> bytes;
  Stag tag{};
};

TEST_CASE("no post and no poll places more than a bounded number of bytes, and all get there in their order",
          "[fabric][adapter][placements]") {
  TwoEnds two;
  REQUIRE(two.settle());
  LongBuffer buffer(two);
  two.open_region();
  Endpoint& from = two.end(0);
  const RemoteAddress to = two.end(1).remote();
  std::vector<WorkRequest> list;
  SECTION("a list of short writes") {
    constexpr std::size_t kBytes = 64U << 10U;
    for (std::size_t at = 0; at + kBytes <= LongBuffer::kBytes; at += kBytes) {
      list.push_back(write_request(list.size(), buffer.segment(at, kBytes), {to.address + at, to.tag}));
    }
  }
  SECTION("a long write of several segments, and a short one behind it") {
    WorkRequest all = write_request(0, buffer.segment(0, 1000), to);
    all.segments[1] = buffer.segment(1000, LongBuffer::kBytes - 1100);
    all.segments[2] = buffer.segment(LongBuffer::kBytes - 100, 100);
    all.segment_count = 3;
    list = {all, write_request(1, buffer.segment(0, 64), to)};
  }
  std::size_t posted = 0;
  REQUIRE(from.adapter.post_send(from.number, list, posted) == Status::ok);
  CHECK(two.region.moved <= Placements::kAtOnceBytes);
  // Also another post, and one that would go in a cell if it did not wait.
  REQUIRE(post(from, write_request(list.size(), buffer.segment(0, 64), to)) == Status::ok);
  CHECK(two.region.moved <= Placements::kAtOnceBytes);
  std::vector<Completion> ends = from.take();
  for (int polls = 0; ends.size() != list.size() + 1 && polls != 100; ++polls) {
    CHECK(two.poll_first() <= Placements::kAtOnceBytes);
    std::ranges::copy(from.take(), std::back_inserter(ends));
  }
  REQUIRE(ends.size() == list.size() + 1);
  for (std::size_t i = 0; i != ends.size(); ++i) {
    CHECK(ends[i].id == i);
    CHECK(ends[i].status == CompletionStatus::success);
  }
  CHECK(from.adapter.counters().placed_writes == ends.size());
  const std::size_t written = list.size() == 2 ? LongBuffer::kBytes : list.size() << 16U;
  CHECK(std::ranges::equal(std::span(two.region.stored).first(written), std::span(buffer.bytes).first(written)));
}

TEST_CASE("a long read is placed in parts, too", "[fabric][adapter][placements]") {
  TwoEnds two;
  REQUIRE(two.settle());
  LongBuffer buffer(two);
  std::ranges::copy(pattern(4093, 9), two.region.stored.begin());
  for (std::size_t i = 4093; i != LongBuffer::kBytes; ++i) two.region.stored[i] = two.region.stored[i - 4093];
  two.open_region();
  WorkRequest request = read_request(two.end(0), 1, 0, 0, two.end(1).remote());
  request.segments[0] = buffer.segment(0, LongBuffer::kBytes);
  REQUIRE(post(two.end(0), request) == Status::ok);
  CHECK(two.region.moved == Placements::kAtOnceBytes);
  for (int polls = 0; polls != 3; ++polls) CHECK(two.poll_first() <= Placements::kAtOnceBytes);
  const auto ends = two.end(0).take();
  REQUIRE(ends.size() == 1);
  CHECK(ends[0].bytes == LongBuffer::kBytes);
  CHECK(two.end(0).adapter.counters().placed_reads == 1);
  CHECK(buffer.bytes == two.region.stored);
}

TEST_CASE("a write whose parts can't be placed any more goes to the owner as a whole",
          "[fabric][adapter][placements]") {
  TwoEnds two;
  REQUIRE(two.settle());
  LongBuffer buffer(two);
  std::vector<std::byte> target(LongBuffer::kBytes);
  Endpoint& owner = two.end(1);
  const Stag tag = owner.adapter.register_memory(owner.domain, target, kAllRights).value();
  const RemoteAddress to{owner.adapter.region_address(tag), tag};
  two.region.tag = tag;
  two.region.base = to.address;
  REQUIRE(post(two.end(0), write_request(1, buffer.segment(0, LongBuffer::kBytes), to)) == Status::ok);
  CHECK(two.region.moved == Placements::kAtOnceBytes);
  two.region.tag = Stag{};
  REQUIRE(two.settle());
  const auto ends = two.end(0).take();
  REQUIRE(ends.size() == 1);
  CHECK(ends[0].status == CompletionStatus::success);
  CHECK(two.end(0).adapter.counters().placed_writes == 0);
  CHECK(target == buffer.bytes);
}

TEST_CASE("of a long write that ends beyond the region no part is placed", "[fabric][adapter][placements]") {
  TwoEnds two;
  REQUIRE(two.settle());
  LongBuffer buffer(two);
  two.region.stored.resize(LongBuffer::kBytes - 1);
  two.open_region();
  const RemoteAddress to = two.end(1).remote();
  REQUIRE(post(two.end(0), write_request(1, buffer.segment(0, LongBuffer::kBytes), to)) == Status::ok);
  CHECK(two.region.moved == 0);
}

TEST_CASE("threads: a program that places its writes leaves the thread asleep, and takes nothing over",
          "[fabric][threads][placements]") {
  OneRegion region(SharedEnd::kBytes);
  AdapterOptions options = patient_requests();
  options.placements = &region;
  SharedPair pair({}, options);
  pair.exchange(1);
  const RemoteAddress to = pair.second().remote(0);
  pair.first().adapter->use([&](ChannelAdapter&) {
    region.base = to.address;
    region.tag = to.tag;
  });
  REQUIRE(pair.first().adapter->arm(pair.first().completions, Arm::solicited) == Status::ok);
  const std::uint64_t before = pair.first().adapter->counters().caller_takeovers;
  constexpr std::uint64_t kWrites = 1000;
  for (std::uint64_t id = 0; id < kWrites; ++id) REQUIRE(pair.first().write(id, to, 8) == Status::ok);
  const std::uint64_t placed =
      pair.first().adapter->use([](ChannelAdapter& verbs) { return verbs.counters().placed_writes; });
  CHECK(placed == kWrites);
  CHECK(pair.first().adapter->counters().caller_takeovers == before);
}

}  // namespace splitnic::fabric::test::adapter_placements_test
