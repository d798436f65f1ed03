#include <deque>

#include "adapter_requests.h"
#include "bridge_fixtures.h"
#include "fabric/adapter/dma_provider.h"
#include "fabric/adapter/placements.h"
#include "mapped_memory.h"

/// Reads whose bytes the reader's DMA provider takes out of the peer window.
namespace splitnic::fabric::test::adapter_pull_test {
namespace {

using Names = std::vector<std::string>;

/// Moves what is stored at once. A pull takes its time: its bytes move, or it fails, when the test says so.
class PullEngine final : public DmaProvider, private DmaPuller {
 public:
  [[nodiscard]] DmaStart start(const DmaTransfer& transfer) override { return copy_.start(transfer); }
  [[nodiscard]] std::size_t poll(std::span<DmaCompletion> out) override {
    std::size_t count = 0;
    for (; count < out.size() && !ended_.empty(); ++count) {
      out[count] = ended_.front();
      ended_.pop_front();
    }
    return count;
  }
  void abandon(const PeerWindow& window) override {
    std::erase_if(waiting, [&](const DmaTransfer& transfer) { return transfer.window == &window; });
    ++abandoned;
  }
  [[nodiscard]] DmaPuller* puller() override { return this; }

  /// The bytes of the oldest pull are moved now; it is reported later.
  void move() { ended_.push_back({waiting.front().id, copy_.puller()->pull(waiting.front()) == DmaStart::moved}); }
  void finish() {
    move();
    waiting.pop_front();
  }
  void fail() {
    ended_.push_back({waiting.front().id, false});
    waiting.pop_front();
  }

  std::size_t room = 16;
  std::deque<DmaTransfer> waiting;
  int stopped = 0;
  int abandoned = 0;

 private:
  [[nodiscard]] DmaStart pull(const DmaTransfer& transfer) override {
    if (waiting.size() == room) return DmaStart::busy;
    waiting.push_back(transfer);
    return DmaStart::started;
  }
  void stop(std::uint64_t id) override {
    stopped +=
        static_cast<int>(std::erase_if(waiting, [id](const DmaTransfer& transfer) { return transfer.id == id; }));
  }

  TwoWayCopy copy_;
  std::deque<DmaCompletion> ended_;
};

/// Offers all memory as soon as it is open; counts what it is asked to read.
class Offers final : public Placements {
 public:
  void admit(const PlacementUser&) override {}
  void dismiss(QpNumber) override {}
  bool offers(const PlacementTarget&) override { return open; }
  bool write(const PlacementTarget&, std::span<const iovec>) override { return false; }
  bool read(const PlacementTarget&, std::span<const iovec>) override {
    reads += open ? 1 : 0;
    return open;
  }

  bool open = false;
  int reads = 0;
};

constexpr Rights kReadable = kAllRights | Right::remote_read;
constexpr std::size_t kSink = 8192;  // where the reader's answers go, in its buffer

/// Two ends; the first has the engine, the second grants it 16 KiB of bridge memory.
struct Pulling {
  explicit Pulling(DmaProvider& engine, const QueuePairAttributes& queue_pair = {}, Rights rights = kReadable,
                   const SimBridgeOptions& bridge = LinkedPair::calm(), Placements* placements = nullptr) {
    AdapterOptions options = test::small_cells();
    options.dma = &engine;
    options.ack_timeout = milliseconds(2);
    options.placements = placements;
    two.emplace(options, queue_pair, bridge);
    range = {two->pair.link(1).buffers().offset, data.size()};
    tag = owner().adapter.register_bridge_memory(owner().domain, range, rights, true).value();
    at = {owner().adapter.region_address(tag), tag};
    memory = two->pair.link(1).bridge().local_memory().slice(range.offset, range.bytes);
    memory.store_bytes(0, data);
    two->run(bridge.write_delay_max + milliseconds(1));
  }
  Endpoint& reader() { return two->end(0); }
  Endpoint& owner() { return two->end(1); }
  [[nodiscard]] WorkRequest request(std::uint64_t id, std::size_t bytes, std::size_t from = 0) {
    return read_request(reader(), id, kSink, bytes, {at.address + from, tag});
  }
  Status read(std::uint64_t id, std::size_t bytes, std::size_t from = 0) {
    return post(reader(), request(id, bytes, from));
  }
  [[nodiscard]] bool arrived(std::size_t bytes, std::size_t from = 0) {
    return reader().holds(kSink, std::span(data).subspan(from, bytes));
  }
  [[nodiscard]] std::uint64_t pulled() { return reader().adapter.counters().pulled_reads; }
  /// Reads that the owner has answered.
  [[nodiscard]] std::uint64_t answered() {
    return owner().adapter.counters().segmented_reads + owner().adapter.counters().direct_reads;
  }

  std::vector<std::byte> data = pattern(16384, 3);
  std::optional<TwoEndpoints> two;
  MemoryRange range;
  Stag tag{};
  RemoteAddress at{};
  PeerMemory memory;
};

/// A further queue pair of each end, connected to each other.
std::array<QpNumber, 2> connect_more(TwoEndpoints& two, const QueuePairAttributes& owners) {
  const std::array numbers{two.end(0).make_queue_pair({}), two.end(1).make_queue_pair(owners)};
  REQUIRE(two.end(0).adapter.connect(numbers[0], {numbers[1], 1, 2}) == Status::ok);
  REQUIRE(two.end(1).adapter.connect(numbers[1], {numbers[0], 2, 1}) == Status::ok);
  two.run(milliseconds(1));
  return numbers;
}

QueuePairSettings rights_of(Rights rights) {
  QueuePairSettings settings;
  settings.remote_rights = rights;
  return settings;
}

}  // namespace

TEST_CASE("a provider that pulls takes a read's bytes itself, and the owner hears nothing of it",
          "[fabric][adapter][pull]") {
  TwoWayCopy engine;
  Pulling with(engine);
  WorkRequest request = with.request(1, 5000, 64);
  request.segments[1] = with.reader().segment(kSink + 5000, 3000);  // a scatter list
  request.segment_count = 2;
  REQUIRE(post(with.reader(), request) == Status::ok);
  const auto done = with.reader().take();
  REQUIRE(how(done) == Names{"success"});
  CHECK(done[0].bytes == 8000);
  CHECK(done[0].operation == Operation::rdma_read);
  CHECK(with.arrived(8000, 64));
  REQUIRE(with.two->settle());
  CHECK(with.pulled() == 1);
  CHECK(with.answered() == 0);
  CHECK(with.owner().adapter.counters().cells_received == 0);
}

TEST_CASE("a provider that says nothing of pulling leaves reads to their owner", "[fabric][adapter][pull]") {
  ProcessorCopy engine;
  Pulling with(engine);
  REQUIRE(with.read(1, 5000) == Status::ok);
  REQUIRE(with.two->settle());
  CHECK(how(with.reader().take()) == Names{"success"});
  CHECK(with.arrived(5000));
  CHECK(with.pulled() == 0);
  CHECK(with.answered() == 1);
}

TEST_CASE("in shared memory bytes are pulled without a copy between", "[fabric][adapter][pull]") {
  ShmPairBridges bridges;
  SeededRandom random(1);
  std::array<std::unique_ptr<FabricLink>, 2> links;
  for (std::size_t i = 0; i < 2; ++i) {
    LinkOptions options;
    options.port_address = kPorts[i];
    links[i] = std::make_unique<FabricLink>(bridges.end(i), options, random);
    links[i]->restart();
  }
  Time now{};
  while (!links[0]->up() || !links[1]->up()) {
    now += milliseconds(1);
    for (auto& link : links) link->poll(now);
  }
  TwoWayCopy engine;
  AdapterOptions options;
  options.dma = &engine;
  Endpoint reader(*links[0], options, random, {});
  Endpoint owner(*links[1], options, random, {});
  REQUIRE(reader.adapter.connect(reader.number, {owner.number, 1, 2}) == Status::ok);
  REQUIRE(owner.adapter.connect(owner.number, {reader.number, 2, 1}) == Status::ok);
  const MemoryRange range{links[1]->buffers().offset, 16384};
  const Stag tag = owner.adapter.register_bridge_memory(owner.domain, range, kReadable, true).value();
  const auto data = pattern(16384, 5);
  links[1]->bridge().local_memory().slice(range.offset, range.bytes).store_bytes(0, data);

  REQUIRE(post(reader, read_request(reader, 1, 0, 16384, {owner.adapter.region_address(tag), tag})) == Status::ok);
  CHECK(how(reader.take()) == Names{"success"});
  CHECK(reader.holds(0, data));
  CHECK(reader.adapter.counters().pulled_reads == 1);
}

TEST_CASE("a pulled read completes when its bytes are there, and what comes after it waits",
          "[fabric][adapter][pull]") {
  PullEngine engine;
  Pulling with(engine);
  REQUIRE(with.owner().receive(7, 0, 64) == Status::ok);
  REQUIRE(with.read(1, 5000) == Status::ok);
  REQUIRE(with.reader().send(2, 0, 8) == Status::ok);
  with.two->run(milliseconds(300));  // no time runs out for it
  REQUIRE(engine.waiting.size() == 1);
  CHECK(with.reader().take().empty());
  CHECK(with.reader().adapter.counters().cells_sent == 0);
  CHECK(with.reader().adapter.next_deadline() <= with.two->pair.now());  // an engine has to be polled
  engine.finish();
  REQUIRE(with.two->settle());
  CHECK(how(with.reader().take()) == Names{"success", "success"});
  CHECK(with.arrived(5000));
  CHECK(with.pulled() == 1);
  CHECK(with.owner().take().size() == 1);
}

TEST_CASE("a read sees what its queue pair has written in cells before it", "[fabric][adapter][pull]") {
  TwoWayCopy engine;
  QueuePairAttributes options;
  options.max_inline_bytes = 64;
  Pulling with(engine, options);
  const auto written = pattern(64, 8);
  with.reader().fill(0, written);
  WorkRequest write = write_request(1, with.reader().segment(0, 64), with.at);
  write.inline_data = true;  // goes in a cell
  REQUIRE(post(with.reader(), write) == Status::ok);
  REQUIRE(with.read(2, 64) == Status::ok);
  REQUIRE(with.two->settle());
  CHECK(how(with.reader().take()) == Names{"success", "success"});
  CHECK(with.reader().holds(kSink, written));
  CHECK(with.answered() == 1);
  REQUIRE(with.read(3, 64) == Status::ok);  // now nothing is under way
  CHECK(with.pulled() == 1);
}

TEST_CASE("a read's bytes are not overwritten by the answer to one before it", "[fabric][adapter][pull]") {
  TwoWayCopy engine;
  Pulling with(engine);
  const Owned private_memory = open(with.owner());
  with.owner().fill(0, pattern(64, 9));
  REQUIRE(post(with.reader(), read_request(with.reader(), 1, kSink, 64, private_memory.at)) == Status::ok);
  REQUIRE(with.read(2, 64) == Status::ok);
  REQUIRE(with.two->settle());
  CHECK(how(with.reader().take()) == Names{"success", "success"});
  CHECK(with.arrived(64));
}

TEST_CASE("a grant that has ended is not pulled from", "[fabric][adapter][pull]") {
  PullEngine engine;
  Pulling with(engine);
  REQUIRE(with.owner().adapter.deregister(with.tag) == Status::ok);
  with.two->run(milliseconds(1));
  REQUIRE(with.read(1, 100) == Status::ok);
  CHECK(engine.waiting.empty());
  with.two->run(milliseconds(1));
  CHECK(how(with.reader().take()) == Names{"remote_access_error"});
}

TEST_CASE("a grant that ends during a pull makes the owner decide, and the memory is kept for as long",
          "[fabric][adapter][pull]") {
  PullEngine engine;
  Pulling with(engine);
  REQUIRE(with.read(1, 100) == Status::ok);
  engine.move();  // the bytes are in place, and not reported yet
  REQUIRE(with.owner().adapter.deregister(with.tag) == Status::ok);
  with.two->pair.advance(microseconds(1));
  CHECK(with.owner().adapter.in_quarantine(with.range));
  engine.waiting.pop_front();
  with.two->run(milliseconds(1));
  CHECK(how(with.reader().take()) == Names{"remote_access_error"});
  CHECK(with.pulled() == 0);
  CHECK_FALSE(with.owner().adapter.in_quarantine(with.range));
}

TEST_CASE("memory is in quarantine until pulls through its tag have ended", "[fabric][adapter][pull]") {
  PullEngine engine;
  Pulling with(engine);
  REQUIRE(with.read(1, 100) == Status::ok);
  REQUIRE(with.owner().adapter.deregister(with.tag) == Status::ok);
  with.two->run(milliseconds(50));  // it is asked again meanwhile
  CHECK(with.owner().adapter.in_quarantine(with.range));
  engine.finish();
  with.two->run(milliseconds(1));
  CHECK_FALSE(with.owner().adapter.in_quarantine(with.range));
  CHECK(how(with.reader().take()) == Names{"remote_access_error"});
}

TEST_CASE("memory that is granted for writing alone is not pulled", "[fabric][adapter][pull]") {
  PullEngine engine;
  Pulling with(engine, {}, kAllRights);
  REQUIRE(with.read(1, 100) == Status::ok);
  CHECK(engine.waiting.empty());
  with.two->run(milliseconds(1));
  CHECK(how(with.reader().take()) == Names{"remote_access_error"});
}

TEST_CASE("nothing is pulled through a queue pair whose owner lets its peer not read", "[fabric][adapter][pull]") {
  PullEngine engine;
  Pulling with(engine);
  ChannelAdapter& owner = with.owner().adapter;
  QueuePairSettings settings;
  SECTION("by its rights") { settings = rights_of(Rights{} | Right::remote_write); }
  SECTION("because it answers nothing") { settings.answers_reads = false; }
  REQUIRE(owner.configure(with.owner().number, settings) == Status::ok);
  with.two->run(milliseconds(1));
  CHECK(with.reader().adapter.claim_direct(with.reader().number, with.at, 100).has_value());  // it may still write
  REQUIRE(with.read(1, 100) == Status::ok);
  CHECK(engine.waiting.empty());
  with.two->run(milliseconds(1));
  CHECK(with.reader().take().at(0).status != CompletionStatus::success);
}

TEST_CASE("a queue pair that may not be read through keeps others of its domain from pulling while it is connected",
          "[fabric][adapter][pull]") {
  TwoWayCopy engine;
  Pulling with(engine);
  QueuePairAttributes options;
  options.remote_rights = Rights{} | Right::remote_write;
  const auto more = connect_more(*with.two, options);
  const auto read = [&](std::uint64_t id) {
    REQUIRE(with.read(id, 100) == Status::ok);
    REQUIRE(with.two->settle());
    CHECK(how(with.reader().take()) == Names{"success"});
    CHECK(with.arrived(100));
  };
  read(1);
  CHECK(with.answered() == 1);
  CHECK(with.pulled() == 0);
  REQUIRE(with.reader().adapter.post_send(more[0], with.request(2, 100)) == Status::ok);
  with.two->run(milliseconds(1));
  CHECK(how(with.reader().take()) == Names{"remote_access_error"});
  read(3);  // the other has failed, and has left its connection
  CHECK(with.pulled() == 1);
}

TEST_CASE("a read that loses its queue pair's right during a pull is the owner's to refuse",
          "[fabric][adapter][pull]") {
  PullEngine engine;
  Pulling with(engine);
  REQUIRE(with.read(1, 100) == Status::ok);
  engine.move();
  REQUIRE(with.owner().adapter.configure(with.owner().number, rights_of(Rights{} | Right::remote_write)) == Status::ok);
  engine.waiting.pop_front();
  with.two->run(milliseconds(1));
  CHECK(how(with.reader().take()) == Names{"remote_access_error"});
  CHECK(with.pulled() == 0);
}

TEST_CASE("memory that counts how often it is touched is not pulled into", "[fabric][adapter][pull]") {
  const auto touch = GENERATE(TouchControl::one_touch, TouchControl::one_shot);
  PullEngine engine;
  Pulling with(engine);
  Endpoint& reader = with.reader();
  EntryOptions options;
  options.rights = kAllRights;
  options.touch = touch;
  const auto memory = std::span(reader.buffer).subspan(kSink, 512);
  const Stag once =
      reader.adapter.table().register_region(reader.domain, RegionMemory::of_process(memory), options).value();
  WorkRequest request = with.request(1, 512);
  request.segments[0].tag = once;
  REQUIRE(post(reader, request) == Status::ok);
  CHECK(engine.waiting.empty());
  REQUIRE(with.two->settle());
  CHECK(how(reader.take()) == Names{"success"});
  CHECK(with.arrived(512));
  CHECK_FALSE(reader.adapter.table().find(once)->valid);  // the answer has touched it
}

TEST_CASE("memory whose tag has ended is not stored into by a pull that was under way", "[fabric][adapter][pull]") {
  PullEngine engine;
  Pulling with(engine);
  Endpoint& reader = with.reader();
  const auto memory = std::span(reader.buffer).subspan(kSink, 512);
  const Stag own = reader.adapter.register_memory(reader.domain, memory, kAllRights).value();
  WorkRequest request = with.request(1, 512);
  request.segments[0].tag = own;
  REQUIRE(post(reader, request) == Status::ok);
  REQUIRE(engine.waiting.size() == 1);
  SECTION("deregistered") { REQUIRE(reader.adapter.deregister(own) == Status::ok); }
  SECTION("changed") {
    Reregister change;
    change.rights = Rights{} | Right::local_read;
    REQUIRE(reader.adapter.table().reregister(own, change).has_value());
  }
  CHECK(engine.stopped == 1);  // before the verb has returned
  with.two->run(milliseconds(1));
  CHECK(how(reader.take()) == Names{"local_protection_error"});
}

TEST_CASE("an end of another tag stops no pull", "[fabric][adapter][pull]") {
  PullEngine engine;
  Pulling with(engine);
  Endpoint& reader = with.reader();
  const Stag other = reader.adapter.register_memory(reader.domain, reader.buffer, kAllRights).value();
  REQUIRE(with.read(1, 512) == Status::ok);
  REQUIRE(reader.adapter.deregister(other) == Status::ok);
  CHECK(engine.stopped == 0);
  engine.finish();
  REQUIRE(with.two->settle());
  CHECK(how(reader.take()) == Names{"success"});
}

TEST_CASE("a read that is flushed has its memory back: its pull has stopped", "[fabric][adapter][pull]") {
  PullEngine engine;
  Pulling with(engine);
  Endpoint& reader = with.reader();
  REQUIRE(with.read(1, 512) == Status::ok);
  REQUIRE(engine.waiting.size() == 1);
  SECTION("reset") { REQUIRE(reader.adapter.modify(reader.number, QueuePairEvent::reset) == Status::ok); }
  SECTION("error") {
    REQUIRE(reader.adapter.modify(reader.number, QueuePairEvent::fail) == Status::ok);
    CHECK(how(reader.take()) == Names{"flushed"});
  }
  SECTION("destruction") {
    REQUIRE(reader.adapter.destroy_queue_pair(reader.number) == Status::ok);
    CHECK(how(reader.take()) == Names{"flushed"});
  }
  SECTION("a request of the peer that ends the stream") {
    REQUIRE(with.owner().write(9, 0, 8, {0, Stag{0x12345}}) == Status::ok);
    with.two->run(milliseconds(1));
    CHECK(how(reader.take()) == Names{"flushed"});
  }
  CHECK(engine.stopped == 1);
  with.two->run(milliseconds(1));
  CHECK(reader.take().empty());
}

TEST_CASE("an epoch's end abandons pulls, and nobody knows what their reads have stored", "[fabric][adapter][pull]") {
  PullEngine engine;
  Pulling with(engine);
  REQUIRE(with.read(1, 512) == Status::ok);
  REQUIRE(with.read(2, 512) == Status::ok);
  SECTION("none") {}
  SECTION("all") { engine.move(); }
  with.two->pair.link(1).restart();
  with.two->pair.come_up();
  with.two->step();
  CHECK(engine.abandoned == 1);
  CHECK(engine.waiting.empty());
  CHECK(how(with.reader().take()) == Names{"outcome_unknown", "flushed"});
  CHECK(with.pulled() == 0);
}

TEST_CASE("bytes that are pulled when their owner's program has died are not believed", "[fabric][adapter][pull]") {
  PullEngine engine;
  Pulling with(engine);
  REQUIRE(with.read(1, 512) == Status::ok);
  with.two->pair.bridges().forget(1, true);  // what its memory holds now may be anything
  engine.finish();
  with.reader().adapter.poll(with.two->pair.now());  // the reader's link is still up
  CHECK(with.reader().take().empty());
  with.two->pair.link(1).restart();
  with.two->pair.come_up();
  with.two->step();
  CHECK(how(with.reader().take()) == Names{"outcome_unknown"});
  CHECK(with.pulled() == 0);
}

TEST_CASE("bytes of the owner's next epoch are not believed either", "[fabric][adapter][pull]") {
  PullEngine engine;
  Pulling with(engine);
  REQUIRE(with.read(1, 512) == Status::ok);
  // The owner's end has laid out its memory anew, and the reader's has not seen that yet.
  const auto anchor = with.two->pair.link(1).bridge().local_memory().slice(0, kAnchorBytes);
  SECTION("the owner's epoch") { anchor.store<std::uint64_t>(offsetof(AnchorBytes, epoch), 1); }
  SECTION("the reader's") { anchor.store<std::uint64_t>(offsetof(AnchorBytes, peer_epoch), 1); }
  engine.finish();
  with.reader().adapter.poll(with.two->pair.now());
  CHECK(with.reader().take().empty());
  CHECK(with.pulled() == 0);
}

TEST_CASE("a read that is posted after the memory was deregistered is refused, however late that arrives",
          "[fabric][adapter][pull]") {
  TwoWayCopy engine;
  SimBridgeOptions bridge = LinkedPair::calm();
  bridge.write_delay_max = milliseconds(1);
  Pulling with(engine, {}, kReadable, bridge);
  REQUIRE(with.read(1, 100) == Status::ok);
  REQUIRE(how(with.reader().take()) == Names{"success"});
  REQUIRE(with.owner().adapter.deregister(with.tag) == Status::ok);
  REQUIRE(with.reader().adapter.claim_direct(with.reader().number, with.at, 100).has_value());  // it is on its way
  REQUIRE(with.read(2, 100) == Status::ok);
  CHECK(with.reader().take().empty());
  with.two->run(milliseconds(20));
  CHECK(how(with.reader().take()) == Names{"remote_access_error"});
  CHECK(with.pulled() == 1);
}

TEST_CASE("a grant that is there again after a pull is not the one that it began with", "[fabric][adapter][pull]") {
  PullEngine engine;
  Pulling with(engine);
  REQUIRE(with.read(1, 100) == Status::ok);
  engine.move();
  for (const Rights rights : {Rights{} | Right::remote_write, kReadable}) {
    REQUIRE(with.owner().adapter.configure(with.owner().number, rights_of(rights)) == Status::ok);
  }
  engine.waiting.pop_front();
  REQUIRE(with.two->settle());
  CHECK(how(with.reader().take()) == Names{"success"});
  CHECK(with.answered() == 1);  // it permits the read now
  CHECK(with.pulled() == 0);
}

TEST_CASE("a read that an engine pulls is not placed as well", "[fabric][adapter][pull]") {
  PullEngine engine;
  Offers placements;
  Pulling with(engine, {}, kReadable, LinkedPair::calm(), &placements);
  REQUIRE(with.read(1, 5000) == Status::ok);
  REQUIRE(engine.waiting.size() == 1);
  placements.open = true;
  with.two->run(milliseconds(1));
  CHECK(placements.reads == 0);
  CHECK(with.reader().take().empty());
  engine.finish();
  REQUIRE(with.two->settle());
  CHECK(how(with.reader().take()) == Names{"success"});
  CHECK(with.arrived(5000));
  CHECK(with.pulled() == 1);
}

TEST_CASE("a send queue is drained when the pull that had begun has ended", "[fabric][adapter][pull]") {
  PullEngine engine;
  Pulling with(engine);
  ChannelAdapter& adapter = with.reader().adapter;
  REQUIRE(with.read(1, 100) == Status::ok);
  REQUIRE(with.read(2, 100) == Status::ok);
  REQUIRE(adapter.modify(with.reader().number, QueuePairEvent::drain_sends) == Status::ok);
  with.two->run(milliseconds(1));
  CHECK(take_events(with.reader()).empty());
  CHECK(adapter.modify(with.reader().number, QueuePairEvent::fail_sends) == Status::in_use);
  engine.finish();
  with.two->run(milliseconds(1));
  CHECK(how(with.reader().take()) == Names{"success"});
  CHECK(take_events(with.reader()).at(0).kind == AsyncEventKind::send_queue_drained);
  CHECK(adapter.modify(with.reader().number, QueuePairEvent::fail_sends) == Status::ok);
  CHECK(how(with.reader().take()) == Names{"flushed"});
}

TEST_CASE("the owner answers a read that its reader's engine does not take, or fails to pull",
          "[fabric][adapter][pull]") {
  PullEngine engine;
  Pulling with(engine);
  SECTION("busy") {
    engine.room = 0;
    REQUIRE(with.read(1, 512) == Status::ok);
  }
  SECTION("failed") {
    REQUIRE(with.read(1, 512) == Status::ok);
    engine.fail();
  }
  REQUIRE(with.two->settle());
  CHECK(how(with.reader().take()) == Names{"success"});
  CHECK(with.arrived(512));
  CHECK(with.answered() == 1);
  CHECK(with.pulled() == 0);
}

TEST_CASE("memory that is gone ends a pulled read as any", "[fabric][adapter][pull]") {
  TwoWayCopy engine;
  Pulling with(engine);
  Endpoint& reader = with.reader();
  const MappedMemory gone(std::size_t{8192}, PROT_NONE);
  const Stag tag = reader.adapter.register_memory(reader.domain, {gone.data(), 8192}, kAllRights).value();
  WorkRequest request = with.request(1, 512);
  request.segments[0] = {gone.at(0), 512, tag};
  REQUIRE(post(reader, request) == Status::ok);
  with.two->run(milliseconds(1));
  CHECK(how(reader.take()) == Names{"local_protection_error"});
  CHECK(take_events(reader).at(0).kind == AsyncEventKind::memory_gone);
  CHECK(with.pulled() == 0);
}

TEST_CASE("a window that reads as ones, as where nobody is, is not believed", "[fabric][adapter][pull]") {
  TwoWayCopy engine;
  Pulling with(engine);
  const std::vector<std::byte> ones(512, std::byte{0xff});
  with.memory.store_bytes(0, ones);
  REQUIRE(with.read(1, 512) == Status::ok);
  CHECK(how(with.reader().take()) == Names{"success"});  // the owner's bytes may be ones
  CHECK(with.reader().holds(kSink, ones));
  CHECK(with.pulled() == 1);
  with.two->pair.bridges().cut();
  REQUIRE(with.read(2, 512) == Status::ok);
  CHECK(with.reader().take().empty());
  with.two->step();
  with.two->pair.bridges().restore();
  with.two->pair.come_up();
  with.two->step();
  CHECK(how(with.reader().take()) == Names{"outcome_unknown"});
  CHECK(with.pulled() == 1);
}

TEST_CASE("reads in a row are pulled one after the other, also behind a fence", "[fabric][adapter][pull]") {
  PullEngine engine;
  Pulling with(engine);
  for (std::uint64_t id = 1; id <= 6; ++id) {
    WorkRequest request = with.request(id, 100 * id);
    request.fence = id % 2 == 0;
    REQUIRE(post(with.reader(), request) == Status::ok);
  }
  for (std::uint64_t id = 1; id <= 6; ++id) {
    with.two->step();
    REQUIRE(engine.waiting.size() == 1);
    engine.finish();
    with.two->step();
    const auto done = with.reader().take();
    REQUIRE(done.size() == 1);
    CHECK(done[0].id == id);
    CHECK(with.arrived(100 * id));
  }
  CHECK(with.pulled() == 6);
}

}  // namespace splitnic::fabric::test::adapter_pull_test
