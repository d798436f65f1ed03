#include <deque>

#include "adapter_requests.h"
#include "link_fixtures.h"

/// Adapters over every kind of link: what a queue pair promises does not depend on the link.
namespace splitnic::fabric::test::adapter_links_test {
namespace {

AdapterOptions quick() {
  AdapterOptions options;
  options.ack_timeout = milliseconds(2);
  options.retry_count = 200;
  options.receiver_not_ready_retries = 1000;
  options.receiver_not_ready_delay = microseconds(100);
  options.cell_payload_bytes = 512;
  return options;
}

template <class Links>
struct OverLinks {
  explicit OverLinks(const QueuePairAttributes& queue_pair = {}) {
    for (int i = 0; i < 100'000 && !(links.end(0).up() && links.end(1).up()); ++i) links.step();
    REQUIRE((links.end(0).up() && links.end(1).up()));
    for (std::size_t i = 0; i < 2; ++i) {
      ends[i] = std::make_unique<Endpoint>(links.end(i), quick(), random, queue_pair);
    }
    REQUIRE(first().adapter.connect(first().number, {second().number, 0xffff'fff0, 0x7fff'fff8}) == Status::ok);
    REQUIRE(second().adapter.connect(second().number, {first().number, 0x7fff'fff8, 0xffff'fff0}) == Status::ok);
  }
  void step() {
    links.step();
    for (auto& end : ends) end->adapter.poll(links.now());
  }
  Endpoint& first() { return *ends[0]; }
  Endpoint& second() { return *ends[1]; }

  Links links;
  SeededRandom random{21};
  std::array<std::unique_ptr<Endpoint>, 2> ends;
};

/// A request and what it must bring.
struct Expected {
  Operation operation = Operation::send;
  std::size_t offset = 0;
  std::vector<std::byte> bytes{};
  std::uint64_t sum = 0;
};

constexpr std::size_t kSlot = 4096;
constexpr std::size_t kRequests = 150;
constexpr std::size_t kAtOnce = 8;
// Of the second end's buffer: its data for reads, what is written, the counter, what is received.
constexpr std::size_t kReadable = 60'000;
constexpr std::size_t kWritten = 64'000;
constexpr std::size_t kCounter = 128'000;
constexpr std::size_t kReceived = 131'072;

}  // namespace

TEMPLATE_TEST_CASE("sends, writes, reads and atomics are carried out once and in order over every link",
                   "[fabric][adapter][link]", SPLITNIC_EVERY_LINK) {
  OverLinks<TestType> two;
  Endpoint& first = two.first();
  Endpoint& second = two.second();
  const Owned owned = open(second);
  const auto data = pattern(kReadable, 1);
  second.fill(0, data);
  set_word(second, kCounter, 0);
  const auto remote = [&owned](std::size_t offset) { return RemoteAddress{owned.at.address + offset, owned.at.tag}; };

  SeededRandom random(2);
  std::deque<Expected> expected;
  std::deque<std::vector<std::byte>> to_receive;
  std::size_t posted = 0;
  std::size_t completed = 0;
  std::size_t receives = 0;
  std::size_t received = 0;
  std::uint64_t sum = 0;
  const auto post_next = [&] {
    const std::size_t slot = posted % kAtOnce * kSlot;
    Expected one;
    WorkRequest request;
    switch (random.below(4)) {
      case 0:
        one = {Operation::rdma_read, static_cast<std::size_t>(random.below(kReadable - kSlot)), {}, 0};
        one.bytes.assign(data.begin() + static_cast<std::ptrdiff_t>(one.offset),
                         data.begin() + static_cast<std::ptrdiff_t>(one.offset + 1 + random.below(kSlot - 1)));
        request = read_request(first, posted, slot, one.bytes.size(), remote(one.offset));
        break;
      case 1:
        one = {Operation::fetch_add, 0, {}, sum};
        request = add_request(first, posted, slot, 1 + posted, remote(kCounter));
        sum += 1 + posted;
        break;
      case 2:
        one = {Operation::rdma_write, kWritten + slot, pattern(1 + random.below(kSlot), posted), 0};
        first.fill(slot, one.bytes);
        request = write_request(posted, first.segment(slot, one.bytes.size()), remote(one.offset));
        break;
      default:
        one = {Operation::send, 0, pattern(random.below(kSlot), posted), 0};
        first.fill(slot, one.bytes);
        request = send_request(posted, first.segment(slot, one.bytes.size()));
        to_receive.push_back(one.bytes);
    }
    REQUIRE(post(first, request) == Status::ok);
    expected.push_back(one);
    ++posted;
  };
  for (int i = 0; i < 1'000'000 && completed < kRequests; ++i) {
    if (posted < kRequests && posted - completed < kAtOnce) post_next();
    if (receives - received < 4 && random.below(4) == 0) {
      REQUIRE(second.receive(receives, kReceived + receives % kAtOnce * kSlot, kSlot) == Status::ok);
      ++receives;
    }
    two.step();
    for (const Completion& done : second.take()) {
      REQUIRE(done.status == CompletionStatus::success);
      REQUIRE(done.id == received);
      REQUIRE(done.bytes == to_receive.front().size());
      REQUIRE(second.holds(kReceived + received % kAtOnce * kSlot, to_receive.front()));
      to_receive.pop_front();
      ++received;
    }
    for (const Completion& done : first.take()) {
      REQUIRE(done.status == CompletionStatus::success);
      REQUIRE(done.id == completed);
      const Expected& one = expected.front();
      const std::size_t slot = completed % kAtOnce * kSlot;
      if (one.operation == Operation::rdma_read) REQUIRE(first.holds(slot, one.bytes));
      if (one.operation == Operation::rdma_write) REQUIRE(second.holds(one.offset, one.bytes));
      if (one.operation == Operation::fetch_add) REQUIRE(word(first, slot) == one.sum);
      expected.pop_front();
      ++completed;
    }
  }
  CHECK(completed == kRequests);
  CHECK(to_receive.empty());
  CHECK(word(second, kCounter) == sum);
  CHECK(second.adapter.counters().dropped_bad_cell == 0);
}

TEST_CASE("what a network loses, repeats and reorders really reaches the transport", "[fabric][adapter][link]") {
  OverLinks<UdpNetworkLinks> two;
  const Owned owned = open(two.second());
  std::size_t posted = 0;
  std::size_t completed = 0;
  for (int i = 0; i < 1'000'000 && completed < 200; ++i) {
    if (posted < 200 && posted - completed < 8) {
      const WorkRequest request = write_request(posted, two.first().segment(0, 4000), owned.at);
      REQUIRE(post(two.first(), request) == Status::ok);
      ++posted;
    }
    two.step();
    for (const Completion& done : two.first().take()) REQUIRE(done.id == completed++);
  }
  CHECK(completed == 200);
  const AdapterCounters& owner = two.second().adapter.counters();
  CHECK(owner.dropped_duplicate > 0);
  CHECK(owner.dropped_out_of_sequence > 0);
  CHECK(two.first().adapter.counters().retransmissions > 0);
  CHECK(two.first().adapter.counters().direct_writes == 0);
  CHECK(two.first().adapter.counters().segmented_writes == 200);
}

TEST_CASE("a one-touch region is written once over a network, though its last segment comes early, late and twice",
          "[fabric][adapter][link]") {
  OverLinks<UdpNetworkLinks> two;
  Endpoint& owner = two.second();
  for (int round = 0; round < 40; ++round) {
    EntryOptions once;
    once.rights = kAllRights;
    once.touch = TouchControl::one_touch;
    const auto memory = std::span(owner.buffer).first(3000);
    std::ranges::fill(memory, std::byte{0});
    const auto tag = owner.adapter.table().register_region(owner.domain, RegionMemory::of_process(memory), once);
    REQUIRE(tag.has_value());
    const RemoteAddress at{owner.adapter.region_address(*tag), *tag};
    const auto bytes = pattern(3000, 77 + static_cast<std::uint64_t>(round));
    two.first().fill(0, bytes);
    REQUIRE(post(two.first(), write_request(1, two.first().segment(0, 3000), at)) == Status::ok);
    std::vector<Completion> done;
    for (int i = 0; i < 100'000 && done.empty(); ++i) {
      two.step();
      done = two.first().take();
    }
    REQUIRE(done.size() == 1);
    REQUIRE(done[0].status == CompletionStatus::success);
    REQUIRE(owner.holds(0, bytes));
    const ProtectionEntry* entry = owner.adapter.table().find(*tag);
    REQUIRE((entry == nullptr || !entry->valid));  // ended by its one write, which came whole
  }
  CHECK(owner.adapter.counters().dropped_duplicate > 0);
  CHECK(owner.adapter.counters().dropped_out_of_sequence > 0);
  CHECK(owner.adapter.counters().access_refused == 0);
}

}  // namespace splitnic::fabric::test::adapter_links_test
