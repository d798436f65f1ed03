#include <unistd.h>

#include <deque>

#include "adapter_requests.h"
#include "direct_fixtures.h"
#include "fabric/adapter/dma_provider.h"
#include "mapped_memory.h"

/// What moves bytes through the window.
namespace splitnic::fabric::test::adapter_direct_test {
namespace {

using direct::Granted;
using direct::SlowEngine;
using direct::WithEngine;
using Names = std::vector<std::string>;

/// A DMA engine that moves what it was given when it is polled.
class PolledEngine final : public DmaProvider {
 public:
  [[nodiscard]] DmaStart start(const DmaTransfer& transfer) override {
    waiting.push_back(transfer);
    return DmaStart::started;
  }
  [[nodiscard]] std::size_t poll(std::span<DmaCompletion> out) override {
    if (waiting.empty() || out.empty()) return 0;
    out[0] = {waiting.front().id, copy_.start(waiting.front()) == DmaStart::moved};
    waiting.pop_front();
    return 1;
  }
  void abandon(const PeerWindow& window) override {
    std::erase_if(waiting, [&](const DmaTransfer& transfer) { return transfer.window == &window; });
  }

  std::deque<DmaTransfer> waiting;

 private:
  ProcessorCopy copy_;
};

/// A device that has the bytes itself: part of the process's address range stands for a file, whose bytes never pass
/// through the process's memory. Whatever else is to be moved the processor copies.
class FileEngine final : public DmaProvider {
 public:
  FileEngine(int file, const MappedMemory& stands_for) : file_(file), begin_(stands_for.data()) {}

  [[nodiscard]] DmaStart start(const DmaTransfer& transfer) override {
    const DmaPiece& piece = transfer.pieces[0];
    if (transfer.piece_count != 1 || !piece.memory.holds(begin_, 1)) return copy_.start(transfer);
    const auto claimed = transfer.window->claim(transfer.to, piece.bytes);
    const auto at = static_cast<off_t>(piece.offset - piece.memory.offset_of(begin_));
    const ssize_t moved = pread(file_, claimed.data(), claimed.size(), at);
    if (moved != static_cast<ssize_t>(claimed.size())) return DmaStart::failed;
    transfer.window->commit(transfer.to, claimed);
    ++from_file;
    return DmaStart::moved;
  }
  [[nodiscard]] std::size_t poll(std::span<DmaCompletion> /*out*/) override { return 0; }
  void abandon(const PeerWindow& /*window*/) override {}

  int from_file = 0;

 private:
  ProcessorCopy copy_;
  int file_;
  const std::byte* begin_;
};

/// The tags of the end's events that say so.
std::vector<Stag> gone(Endpoint& end) {
  std::vector<Stag> tags;
  for (const AsyncEvent& event : take_events(end)) {
    if (event.kind == AsyncEventKind::memory_gone) tags.push_back(event.tag);
  }
  return tags;
}

}  // namespace

TEST_CASE("an engine's copy that has ended becomes the completion of its write, in the order of the queue",
          "[fabric][adapter][dma]") {
  SlowEngine engine;
  WithEngine with(engine);
  Granted granted(*with.two, 1);
  const auto data = pattern(5000, 1);
  with.end(0).fill(0, data);
  REQUIRE(with.end(1).receive(7, 0, 64) == Status::ok);
  REQUIRE(with.end(0).write(1, 0, 5000, granted.at()) == Status::ok);
  REQUIRE(with.end(0).send(2, 0, 8) == Status::ok);
  with.two->run(milliseconds(1));
  REQUIRE(engine.waiting.size() == 1);
  CHECK(with.end(0).adapter.counters().cells_sent == 0);               // what follows waits
  CHECK(with.end(0).adapter.next_deadline() <= with.two->pair.now());  // an engine has to be polled
  engine.finish();
  REQUIRE(with.two->settle());
  CHECK(how(with.end(0).take()) == Names{"success", "success"});
  CHECK(granted.bytes(0, 5000) == data);
  CHECK(with.end(1).take().size() == 1);
  CHECK(with.end(0).adapter.counters().direct_writes == 1);
}

TEST_CASE("an engine that is busy is asked again, and ends copies in any order", "[fabric][adapter][dma]") {
  SlowEngine engine;
  engine.room = 1;
  WithEngine with(engine);
  Granted granted(*with.two, 1);
  const QpNumber near = with.end(0).make_queue_pair({});
  const QpNumber far = with.end(1).make_queue_pair({});
  REQUIRE(with.end(0).adapter.connect(near, {far, 1, 2}) == Status::ok);
  REQUIRE(with.end(1).adapter.connect(far, {near, 2, 1}) == Status::ok);
  with.two->step();
  const auto data = pattern(200, 2);
  with.end(0).fill(0, data);
  REQUIRE(with.end(0).write(1, 0, 100, granted.at()) == Status::ok);
  REQUIRE(with.end(0).adapter.post_send(near, write_request(2, with.end(0).segment(100, 100), granted.at(100))) ==
          Status::ok);
  with.two->run(microseconds(100));
  REQUIRE(engine.waiting.size() == 1);
  engine.room = 2;
  with.two->run(microseconds(100));
  REQUIRE(engine.waiting.size() == 2);
  engine.finish(1);
  with.two->run(microseconds(100));
  CHECK(with.end(0).take().at(0).id == 2);
  engine.finish();
  REQUIRE(with.two->settle());
  CHECK(with.end(0).take().at(0).id == 1);
  CHECK(granted.bytes(0, 200) == data);
}

TEST_CASE("a copy that fails ends its write with an error, and nothing announces it", "[fabric][adapter][dma]") {
  SlowEngine engine;
  WithEngine with(engine);
  Granted granted(*with.two, 1);
  REQUIRE(with.end(0).write(1, 0, 100, granted.at(), 5) == Status::ok);
  REQUIRE(with.end(0).send(2, 0, 8) == Status::ok);
  with.two->step();
  engine.fail();
  with.two->run(milliseconds(1));
  CHECK(how(with.end(0).take()) == Names{"local_protection_error", "flushed"});
  CHECK(gone(with.end(0)).empty());  // it is the engine that has failed
  CHECK(with.end(0).adapter.in_error(with.end(0).number));
  CHECK(with.end(0).adapter.counters().cells_sent == 2);  // with the answer to the owner, whose queue pair has failed
  CHECK(with.end(0).adapter.counters().terminates_sent == 1);
  CHECK(with.end(1).adapter.in_error(with.end(1).number));
}

TEST_CASE("the event of a write whose memory is gone names the segment that is gone, also when an engine moves it",
          "[fabric][adapter][dma]") {
  SlowEngine engine;
  const bool by_engine = GENERATE(false, true);
  AdapterOptions options = test::small_cells();
  options.dma = by_engine ? &engine : nullptr;
  TwoEndpoints two(options);
  Granted granted(two, 1);
  Endpoint& end = two.end(0);
  const MappedMemory memory(4 * page_bytes());
  const Stag tag = end.adapter.register_memory(end.domain, {memory.data(), memory.size()}, kAllRights).value();
  WorkRequest request = write_request(1, end.segment(0, 100), granted.at());
  request.segments[1] = {memory.at(100), static_cast<std::uint32_t>(3 * page_bytes()), tag};
  request.segment_count = 2;
  memory.protect(3 * page_bytes(), page_bytes(), PROT_NONE);  // the last 100 bytes
  REQUIRE(post(end, request) == Status::ok);
  two.step();
  if (by_engine) engine.finish();
  two.run(milliseconds(1));
  CHECK(how(end.take()) == Names{"local_protection_error"});
  CHECK(gone(end) == std::vector{tag});
}

TEST_CASE("an engine answers reads, and what it fails to copy goes in cells", "[fabric][adapter][dma]") {
  SlowEngine engine;
  WithEngine with(engine);  // its end 0 is the owner here
  Granted sink(*with.two, 1);
  const Owned owned = open(with.end(0));
  const auto data = pattern(3000, 1);
  with.end(0).fill(0, data);
  WorkRequest request = read_request(with.end(1), 1, 0, 3000, owned.at);
  request.segments[0] = LocalSegment::at(sink.at(64).address, 3000, sink.tag);
  REQUIRE(post(with.end(1), request) == Status::ok);
  REQUIRE(post(with.end(1), read_request(with.end(1), 2, 0, 8, owned.at)) == Status::ok);
  with.two->run(milliseconds(1));
  REQUIRE(engine.waiting.size() == 1);
  CHECK(with.end(1).take().empty());
  SECTION("moved") {
    engine.finish();
    REQUIRE(with.two->settle());
    CHECK(how(with.end(1).take()) == Names{"success", "success"});
    CHECK(sink.bytes(64, 3000) == data);
    CHECK(with.end(0).adapter.counters().direct_reads == 1);
  }
  SECTION("failed") {
    engine.fail();
    REQUIRE(with.two->settle());
    CHECK(how(with.end(1).take()) == Names{"success", "success"});
    CHECK(sink.bytes(64, 3000) == data);
    CHECK(with.end(0).adapter.counters().direct_reads == 0);
    CHECK(gone(with.end(0)).empty());
  }
  SECTION("failed, and the memory is not the peer's to read any more") {
    REQUIRE(with.end(0).adapter.deregister(owned.at.tag) == Status::ok);
    engine.fail();
    with.two->run(milliseconds(1));
    CHECK(how(with.end(1).take()) == Names{"remote_access_error", "flushed"});
    CHECK(gone(with.end(0)).empty());
  }
}

TEST_CASE("memory that is gone ends the stream at the read that an engine was to answer out of it, with an event",
          "[fabric][adapter][dma]") {
  SlowEngine engine;
  WithEngine with(engine);  // its end 0 is the owner here
  Granted sink(*with.two, 1);
  Endpoint& owner = with.end(0);
  const MappedMemory memory(2 * page_bytes());
  const Stag tag =
      owner.adapter.register_memory(owner.domain, {memory.data(), memory.size()}, kAllRights | Right::remote_read)
          .value();
  WorkRequest request = read_request(with.end(1), 1, 0, 3000, {owner.adapter.region_address(tag), tag});
  request.segments[0] = LocalSegment::at(sink.at(64).address, 3000, sink.tag);
  REQUIRE(post(with.end(1), request) == Status::ok);
  with.two->run(milliseconds(1));
  REQUIRE(engine.waiting.size() == 1);
  memory.protect(0, page_bytes(), PROT_NONE);
  engine.finish();
  with.two->run(milliseconds(1));
  CHECK(how(with.end(1).take()) == Names{"remote_operation_error"});
  CHECK(owner.adapter.counters().terminates_sent == 1);
  CHECK(take_events(with.end(1)).at(0).reason == TerminateReason{0, 0, 0});
  CHECK(gone(owner) == std::vector{tag});
}

TEST_CASE("sends do not fail under a write that an engine moves", "[fabric][adapter][dma]") {
  SlowEngine engine;
  WithEngine with(engine);
  Granted granted(*with.two, 1);
  Endpoint& writer = with.end(0);
  REQUIRE(writer.write(1, 0, 100, granted.at()) == Status::ok);
  REQUIRE(engine.waiting.size() == 1);
  REQUIRE(writer.adapter.modify(writer.number, QueuePairEvent::drain_sends) == Status::ok);
  with.two->run(milliseconds(1));
  CHECK(take_events(writer).empty());
  CHECK(writer.adapter.modify(writer.number, QueuePairEvent::fail_sends) == Status::in_use);
  engine.finish();
  REQUIRE(with.two->settle());
  CHECK(how(writer.take()) == Names{"success"});
  CHECK(take_events(writer).at(0).kind == AsyncEventKind::send_queue_drained);
  CHECK(writer.adapter.modify(writer.number, QueuePairEvent::fail_sends) == Status::ok);
}

TEST_CASE("a sink that was deregistered takes no direct answer", "[fabric][adapter][dma]") {
  SlowEngine engine;
  WithEngine with(engine);
  Granted sink(*with.two, 1);
  const Owned owned = open(with.end(0));
  WorkRequest request = read_request(with.end(1), 1, 0, 3000, owned.at);
  request.segments[0] = LocalSegment::at(sink.at(64).address, 3000, sink.tag);
  REQUIRE(post(with.end(1), request) == Status::ok);
  with.two->run(milliseconds(1));
  REQUIRE(with.end(1).adapter.deregister(sink.tag) == Status::ok);
  with.two->run(milliseconds(1));
  CHECK(with.end(1).adapter.in_quarantine(sink.range));  // the copy is under way
  engine.finish();
  with.two->run(milliseconds(1));
  CHECK(how(with.end(1).take()) == Names{"local_protection_error"});
  CHECK(with.end(1).adapter.counters().terminates_sent == 1);
  CHECK(take_events(with.end(0)).at(0).reason == TerminateReason{1, 1, 0});  // no such tag
  CHECK_FALSE(with.end(1).adapter.in_quarantine(sink.range));
}

TEST_CASE("a copy of an epoch that is over never lands in the next one", "[fabric][adapter][dma]") {
  PolledEngine engine;
  WithEngine with(engine);
  Granted granted(*with.two, 1);
  with.end(0).fill(0, std::vector<std::byte>(100, std::byte{0xbd}));
  REQUIRE(with.end(0).write(1, 0, 100, granted.at()) == Status::ok);
  REQUIRE(engine.waiting.size() == 1);
  with.two->pair.link(1).restart();
  with.two->pair.come_up();
  const std::vector<std::byte> marker(100, std::byte{0x11});
  granted.memory.store_bytes(0, marker);
  with.two->run(milliseconds(1));
  CHECK(granted.bytes(0, 100) == marker);
  CHECK(engine.waiting.empty());
}

TEST_CASE("an epoch's end abandons the engine's copies, and nobody knows what they have stored",
          "[fabric][adapter][dma]") {
  SlowEngine engine;
  WithEngine with(engine);
  Granted granted(*with.two, 1);
  REQUIRE(with.end(0).write(1, 0, 100, granted.at()) == Status::ok);
  REQUIRE(with.end(0).write(2, 0, 100, granted.at()) == Status::ok);
  with.two->step();
  REQUIRE(engine.waiting.size() == 1);
  with.two->pair.link(1).restart();
  with.two->pair.come_up();
  with.two->step();
  CHECK(engine.abandoned == 1);
  CHECK(how(with.end(0).take()) == Names{"outcome_unknown", "flushed"});
}

TEST_CASE("a copy that outlives its queue pair ends for nobody, not even a successor of the same number",
          "[fabric][adapter][dma]") {
  SlowEngine engine;
  WithEngine with(engine);
  Endpoint& owner = with.end(1);
  REQUIRE(owner.adapter.modify(owner.number, QueuePairEvent::reset) == Status::ok);
  REQUIRE(owner.adapter.connect(owner.number, {QpNumber{3}, 2, 1}) == Status::ok);
  Granted granted(*with.two, 1);
  Endpoint& end = with.end(0);
  QueuePairAttributes options;
  options.number = QpNumber{3};
  const auto start = [&](std::uint64_t id) {
    REQUIRE(end.adapter.connect(QpNumber{3}, {owner.number, 1, 2}) == Status::ok);
    REQUIRE(end.adapter.post_send(QpNumber{3}, write_request(id, end.segment(0, 100), granted.at())) == Status::ok);
  };
  CHECK(end.make_queue_pair(options) == QpNumber{3});
  start(1);
  const bool reset = GENERATE(false, true);
  if (reset) {
    REQUIRE(end.adapter.modify(QpNumber{3}, QueuePairEvent::reset) == Status::ok);
  } else {
    REQUIRE(end.adapter.destroy_queue_pair(QpNumber{3}) == Status::ok);
    CHECK(end.make_queue_pair(options) == QpNumber{3});
  }
  start(2);
  REQUIRE(engine.waiting.size() == 2);
  engine.finish();
  with.two->step();
  CHECK(end.adapter.counters().cells_sent == 0);  // the second is still being moved
  engine.finish();
  with.two->step();
  CHECK(end.adapter.counters().cells_sent == 1);
}

TEST_CASE("a file is a provider: its bytes go into the peer's memory without being the process's",
          "[fabric][adapter][dma]") {
  MemoryFile file(8192);
  const auto data = pattern(8192, 9);
  REQUIRE(pwrite(file.descriptor(), data.data(), data.size(), 0) == 8192);
  const MappedMemory stands_for(std::size_t{8192}, PROT_NONE);  // addresses, no memory
  FileEngine engine(file.descriptor(), stands_for);
  WithEngine with(engine);
  Granted granted(*with.two, 1);
  Endpoint& end = with.end(0);
  const Stag tag =
      end.adapter.register_memory(end.domain, {stands_for.data(), 8192}, kAllRights | Right::remote_read).value();

  REQUIRE(post(end, write_request(1, {stands_for.at(1000), 5000, tag}, granted.at(32))) == Status::ok);
  REQUIRE(end.write(2, 0, 16, granted.at(6000)) == Status::ok);  // of ordinary memory
  REQUIRE(with.two->settle());
  CHECK(how(end.take()) == Names{"success", "success"});
  CHECK(granted.bytes(32, 5000) == std::vector<std::byte>(data.begin() + 1000, data.begin() + 6000));
  CHECK(engine.from_file == 1);

  // The peer reads it into granted memory, too; what is not granted would have to pass through the process.
  WorkRequest request = read_request(with.end(1), 3, 0, 4096, {end.adapter.region_address(tag) + 4096, tag});
  request.segments[0] = LocalSegment::at(granted.at(8192).address, 4096, granted.tag);
  REQUIRE(post(with.end(1), request) == Status::ok);
  REQUIRE(with.two->settle());
  CHECK(how(with.end(1).take()) == Names{"success"});
  CHECK(granted.bytes(8192, 4096) == std::vector<std::byte>(data.begin() + 4096, data.end()));

  SECTION("the file has become shorter") {
    file.resize(4096);
    REQUIRE(post(end, write_request(4, {stands_for.at(4000), 200, tag}, granted.at())) == Status::ok);
    CHECK(how(end.take()) == Names{"local_protection_error"});
    CHECK(gone(end) == std::vector{tag});
  }
  SECTION("in cells") {
    REQUIRE(post(end, write_request(4, {stands_for.at(0), 200, tag}, with.end(1).remote())) == Status::ok);
    CHECK(how(end.take()) == Names{"local_protection_error"});
    CHECK(gone(end) == std::vector{tag});
  }
}

}  // namespace splitnic::fabric::test::adapter_direct_test
