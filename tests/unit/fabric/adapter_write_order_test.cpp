#include "adapter_requests.h"

/// What is stored through the peer window stays in order with what its queue pair has sent in cells.
namespace splitnic::fabric::test::adapter_write_order_test {
namespace {

constexpr std::size_t kFlagBytes = 64;

/// Two ends. The second lets the first store directly into memory of the bridge, and write into its buffer in cells.
struct Ends {
  explicit Ends(const QueuePairAttributes& queue_pair = {}) : two(small_cells(), queue_pair), data(open(owner)) {
    const MemoryRange range{two.pair.link(1).buffers().offset, 4096};
    const auto made = owner.adapter.register_bridge_memory(owner.domain, range, kAllRights | Right::remote_read, true);
    REQUIRE(made.has_value());
    flag = {owner.adapter.region_address(*made), *made};
    memory = two.pair.link(1).bridge().local_memory().slice(range.offset, range.bytes);
    writer.fill(0, pattern(Endpoint::kBufferBytes, 1));
    two.run(milliseconds(1));
  }
  /// Of which the second end has taken nothing.
  void arrive() { two.pair.advance(microseconds(10)); }
  [[nodiscard]] std::vector<std::byte> flag_bytes() const {
    std::vector<std::byte> bytes(kFlagBytes);
    memory.copy_out(0, bytes);
    return bytes;
  }
  [[nodiscard]] bool flag_holds(std::size_t offset) const { return writer.holds(offset, flag_bytes()); }
  [[nodiscard]] WorkRequest flag_write(std::uint64_t id, std::size_t from) {
    return write_request(id, writer.segment(from, kFlagBytes), flag);
  }
  [[nodiscard]] std::uint64_t direct_writes() const { return writer.adapter.counters().direct_writes; }

  TwoEndpoints two;
  Endpoint& writer = two.end(0);
  Endpoint& owner = two.end(1);
  Owned data;
  RemoteAddress flag{};
  PeerMemory memory;
};

/// Requests whose effects travel in cells.
enum class Before { write, inline_write, send, atomic };

WorkRequest request_before(Ends& ends, Before what) {
  Endpoint& writer = ends.writer;
  switch (what) {
    case Before::write:
      return write_request(1, writer.segment(0, 700), ends.data.at);
    case Before::inline_write: {
      WorkRequest request = write_request(1, writer.segment(0, 40), ends.data.at);
      request.inline_data = true;
      return request;
    }
    case Before::send:
      REQUIRE(ends.owner.receive(1, 4096, 1000) == Status::ok);
      return send_request(1, writer.segment(0, 700));
    case Before::atomic:
      break;
  }
  return add_request(writer, 1, 8192, 1, ends.data.at);
}

}  // namespace

TEST_CASE("a flag that may be stored directly is not visible before what was sent in cells before it",
          "[fabric][adapter][order]") {
  const Before before = GENERATE(Before::write, Before::inline_write, Before::send, Before::atomic);
  const bool acknowledged = GENERATE(true, false);
  if (before == Before::atomic && !acknowledged) return;  // there are none
  Ends ends({.acknowledged = acknowledged, .max_inline_bytes = 64});
  const std::vector<std::byte> untouched = ends.flag_bytes();
  REQUIRE(post(ends.writer, request_before(ends, before)) == Status::ok);
  REQUIRE(post(ends.writer, ends.flag_write(2, 1024)) == Status::ok);
  ends.arrive();
  CHECK(ends.flag_bytes() == untouched);
  REQUIRE(ends.two.settle());
  CHECK(ends.flag_holds(1024));
  CHECK(ends.direct_writes() == 0);

  // Nothing is under way: the next one is stored at once.
  ends.two.run(milliseconds(1));
  REQUIRE(post(ends.writer, ends.flag_write(3, 2048)) == Status::ok);
  ends.arrive();
  CHECK(ends.flag_holds(2048));
  CHECK(ends.direct_writes() == 1);
}

TEST_CASE("older bytes in cells never land over newer ones that may be stored directly", "[fabric][adapter][order]") {
  const bool acknowledged = GENERATE(true, false);
  Ends ends({.acknowledged = acknowledged, .max_inline_bytes = kFlagBytes});
  WorkRequest older = ends.flag_write(1, 0);
  older.inline_data = true;
  REQUIRE(post(ends.writer, older) == Status::ok);
  REQUIRE(post(ends.writer, ends.flag_write(2, 1024)) == Status::ok);
  REQUIRE(ends.two.settle());
  ends.two.run(milliseconds(1));
  CHECK(ends.flag_holds(1024));
}

TEST_CASE("a write that the peer has consumed and refused for now still comes before what may be stored directly",
          "[fabric][adapter][order]") {
  Ends ends({.max_inline_bytes = kFlagBytes});
  WorkRequest older = ends.flag_write(1, 0);
  older.inline_data = true;
  older.operation = Operation::rdma_write_with_immediate;
  REQUIRE(post(ends.writer, older) == Status::ok);
  for (int i = 0; i < 4; ++i) {  // there is no receive for it, which the writer has not heard yet
    ends.arrive();
    ends.owner.adapter.poll(ends.two.pair.now());
  }
  REQUIRE(ends.owner.adapter.counters().not_ready_sent > 0);
  REQUIRE(post(ends.writer, ends.flag_write(2, 1024)) == Status::ok);
  REQUIRE(ends.owner.receive(7, 0, 0) == Status::ok);
  REQUIRE(ends.two.settle());
  CHECK(ends.flag_holds(1024));
}

TEST_CASE("a read that lies between does not keep writes from being stored directly", "[fabric][adapter][order]") {
  Ends ends;
  REQUIRE(post(ends.writer, read_request(ends.writer, 1, 8192, 700, ends.data.at)) == Status::ok);
  REQUIRE(post(ends.writer, ends.flag_write(2, 1024)) == Status::ok);
  ends.arrive();
  CHECK(ends.flag_holds(1024));
  REQUIRE(ends.two.settle());
}

TEST_CASE("an older answer in cells never lands over a newer one that may be stored directly",
          "[fabric][adapter][order]") {
  Ends ends;
  Endpoint& reader = ends.owner;  // whose bridge memory takes the answers
  const Owned source = open(ends.writer);
  const auto sink = [&](std::size_t offset, std::size_t bytes) {
    return LocalSegment::at(ends.flag.address + offset, static_cast<std::uint32_t>(bytes), ends.flag.tag);
  };
  WorkRequest older = send_request(1, sink(0, 32));
  older.segments[older.segment_count++] = sink(32, 32);  // two pieces: in cells
  WorkRequest newer = send_request(2, sink(0, kFlagBytes));
  for (WorkRequest* request : {&older, &newer}) {
    request->operation = Operation::rdma_read;
    request->remote = source.at;
  }
  newer.remote.address += 1024;
  REQUIRE(post(reader, older) == Status::ok);
  REQUIRE(post(reader, newer) == Status::ok);
  REQUIRE(ends.two.settle());
  CHECK(ends.flag_holds(1024));

  newer.remote.address += 1024;
  REQUIRE(post(reader, newer) == Status::ok);
  REQUIRE(ends.two.settle());
  CHECK(ends.flag_holds(2048));
  CHECK(ends.writer.adapter.counters().direct_reads == 1);
}

}  // namespace splitnic::fabric::test::adapter_write_order_test
