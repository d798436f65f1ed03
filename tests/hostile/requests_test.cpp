// Requests that are well-formed, with correct CRCs, but for memory that the initiator may not access.
#include <array>
#include <catch2/catch.hpp>
#include <string>

#include "tests/hostile/owner.h"

namespace splitnic::fabric::hostile::requests_test {
namespace {

/// A request for bytes of a grant, and the owner's expected answer.
struct FalseRequest {
  const char* name;
  Opcode opcode;
  Grant Introduction::*grant;
  std::int64_t offset;  ///< from the grant's first byte
  std::uint32_t bytes;
  TerminateReason told;
};

constexpr std::int64_t kOpenBytes = Arena::kOpen.bytes;
constexpr std::int64_t kReadableBytes = Arena::kReadable.bytes;
constexpr std::int64_t kWindowBytes = Arena::kWindow.bytes;
constexpr std::int64_t kDirectBytes = kHostileDirectBytes;

// Source: RFC 5041 section 7 for writes; RFC 5040 section 4.8 for requests with a response, and for rights.
constexpr TerminateReason kWriteInvalid{1, 1, 0};
constexpr TerminateReason kWriteBounds{1, 1, 1};
constexpr TerminateReason kWriteForeign{1, 1, 2};
constexpr TerminateReason kWriteWrap{1, 1, 3};
constexpr TerminateReason kInvalid{0, 1, 0};
constexpr TerminateReason kBounds{0, 1, 1};
constexpr TerminateReason kRight{0, 1, 2};
constexpr TerminateReason kForeign{0, 1, 3};
constexpr TerminateReason kWrap{0, 1, 4};
constexpr TerminateReason kMisaligned{0, 1, 0xff};

using I = Introduction;
constexpr std::array kFalseRequests{
    FalseRequest{"a write one byte before", Opcode::write_only, &I::open, -1, 100, kWriteBounds},
    FalseRequest{"a write one byte beyond", Opcode::write_only, &I::open, kOpenBytes - 99, 100, kWriteBounds},
    FalseRequest{"a write far beyond", Opcode::write_only, &I::open, 100U << 10U, 100, kWriteBounds},
    FalseRequest{"a write beyond the window, within its region", Opcode::write_only, &I::window, kWindowBytes, 64,
                 kWriteBounds},
    FalseRequest{"a write before the window, within its region", Opcode::write_only, &I::window, -64, 64, kWriteBounds},
    FalseRequest{"a write by a region's tag where only its window is open", Opcode::write_only, &I::windowed, 0, 64,
                 kRight},
    FalseRequest{"a write where it may only read", Opcode::write_only, &I::readable, 0, 100, kRight},
    FalseRequest{"a write where it may do nothing", Opcode::write_only, &I::local, 0, 100, kRight},
    FalseRequest{"a write into another domain", Opcode::write_only, &I::foreign, 0, 100, kWriteForeign},
    FalseRequest{"a write by another queue pair's tag", Opcode::write_only, &I::others, 0, 100, kWriteForeign},
    FalseRequest{"a write by a tag that was deregistered", Opcode::write_only, &I::stale, 0, 100, kWriteInvalid},
    FalseRequest{"a read one byte before", Opcode::read_request, &I::open, -1, 100, kBounds},
    FalseRequest{"a read one byte beyond", Opcode::read_request, &I::readable, kReadableBytes - 99, 100, kBounds},
    FalseRequest{"a read of everything", Opcode::read_request, &I::open, 0, 0xffff'ffff, kBounds},
    FalseRequest{"a read beyond the window, within its region", Opcode::read_request, &I::window, kWindowBytes - 8, 64,
                 kBounds},
    FalseRequest{"a read where it may only write", Opcode::read_request, &I::writable, 0, 100, kRight},
    FalseRequest{"a read where it may do nothing", Opcode::read_request, &I::local, 0, 100, kRight},
    FalseRequest{"a read from another domain", Opcode::read_request, &I::foreign, 0, 100, kForeign},
    FalseRequest{"a read by another queue pair's tag", Opcode::read_request, &I::others, 0, 100, kForeign},
    FalseRequest{"a read by a tag that was deregistered", Opcode::read_request, &I::stale, 0, 100, kInvalid},
    FalseRequest{"an atomic beyond", Opcode::fetch_add, &I::open, kOpenBytes, 8, kBounds},
    FalseRequest{"an atomic across the end", Opcode::compare_swap, &I::open, kOpenBytes - 4, 8, kBounds},
    FalseRequest{"an atomic off its word", Opcode::fetch_add, &I::open, 4, 8, kMisaligned},
    FalseRequest{"an atomic where it may write", Opcode::fetch_add, &I::writable, 0, 8, kRight},
    FalseRequest{"an atomic where it may read", Opcode::compare_swap, &I::readable, 0, 8, kRight},
    FalseRequest{"an atomic on a window without that right", Opcode::fetch_add, &I::window, 0, 8, kRight},
    FalseRequest{"an atomic in another domain", Opcode::compare_swap, &I::foreign, 0, 8, kForeign},
    FalseRequest{"an atomic by a tag that was deregistered", Opcode::fetch_add, &I::stale, 0, 8, kInvalid},
};

/// Waits for the refusal, and then continues to write. The writes must have no effect, not even another terminate.
void be_refused(HostileHost& host) {
  host.wait_for(Opcode::terminate);
  for (int i = 0; i < 50; ++i) host.put(host.cell(Opcode::write_only, host.owner().open, 0, 64), host.random_bytes(64));
}

/// Sends a cell that is a whole request, and waits for its refusal. The bytes of a write are random.
void ask_and_be_refused(HostileHost& host, const Cell& cell) {
  const bool carries = traits(cell.opcode).is(MessageKind::write) && !cell.direct;
  host.put(cell, host.random_bytes(carries ? cell.message_bytes : 0));
  be_refused(host);
}

void expect_refused(const Outcome& outcome, TerminateReason told) {
  CHECK(outcome.counters.access_refused == 1);
  CHECK(outcome.counters.terminates_sent == 1);
  CHECK(outcome.times_told == 1);
  CHECK(outcome.told == told);
  CHECK(outcome.counters.segmented_reads == 0);
  CHECK(outcome.counters.atomics == 0);
}

}  // namespace

TEST_CASE("what the hostile initiator may do is done, and its session lives", "[hostile]") {
  const Outcome outcome = endure(Ending::harmless, [](HostileHost& host) {
    // A busy machine may leave it no turn for long.
    for (; host.goes_on() || host.board().count <= 20; ++host.board().count) {
      host.put(host.cell(Opcode::write_only, host.owner().open, 0, 200), host.random_bytes(200));
      host.put(host.cell(Opcode::fetch_add, host.owner().open, 1024, 8));
      host.put(host.cell(Opcode::read_request, host.owner().window, 0, 4096));
      if (!host.wait_for(Opcode::read_response_last)) break;
    }
  });
  CHECK(outcome.count > 20);
  CHECK(outcome.counters.atomics == outcome.count);
  CHECK(outcome.counters.segmented_reads == outcome.count);
  CHECK(outcome.counters.access_refused == 0);
  CHECK(outcome.times_told == 0);
}

TEST_CASE("a request for what is not its own is refused by its name, told once, and the queue pair ends", "[hostile]") {
  for (const FalseRequest& row : kFalseRequests) {
    DYNAMIC_SECTION(row.name) {
      const Outcome outcome = endure(Ending::queue_pair, [row](HostileHost& host) {
        ask_and_be_refused(host, host.cell(row.opcode, host.owner().*row.grant, row.offset, row.bytes));
      });
      expect_refused(outcome, row.told);
    }
  }
}

TEST_CASE("an address that wraps at 2^64 is refused", "[hostile]") {
  const Opcode opcode = GENERATE(Opcode::write_only, Opcode::read_request);
  const Outcome outcome = endure(Ending::queue_pair, [opcode](HostileHost& host) {
    Cell cell = host.cell(opcode, host.owner().open, 0, 100);
    cell.address = ~std::uint64_t{0} - 50;
    ask_and_be_refused(host, cell);
  });
  expect_refused(outcome, opcode == Opcode::write_only ? kWriteWrap : kWrap);
}

TEST_CASE("a tag of any other instance is refused", "[hostile]") {
  const Outcome outcome = endure(Ending::queue_pair, [](HostileHost& host) {
    Cell cell = host.cell(Opcode::write_only, host.owner().open, 0, 100);
    const auto other = static_cast<std::uint8_t>(1 + host.random().below(255));
    cell.tag.value ^= other;
    ask_and_be_refused(host, cell);
  });
  expect_refused(outcome, kWriteInvalid);
}

TEST_CASE("a direct write announced to memory that is not open to such is refused", "[hostile]") {
  const Outcome outcome = endure(Ending::queue_pair, [](HostileHost& host) {
    Cell cell = host.cell(Opcode::write_only, host.owner().open, 0, 4096);
    cell.direct = true;
    ask_and_be_refused(host, cell);
  });
  expect_refused(outcome, kWriteInvalid);
}

TEST_CASE("a direct write announced beyond its grant is refused", "[hostile]") {
  const std::int64_t offset = GENERATE(std::int64_t{-8}, kDirectBytes - 4088);
  const Outcome outcome = endure(Ending::queue_pair, [offset](HostileHost& host) {
    Cell cell = host.cell(Opcode::write_only, host.owner().direct, offset, 4096);
    cell.direct = true;
    ask_and_be_refused(host, cell);
  });
  expect_refused(outcome, kWriteBounds);
}

TEST_CASE("the neighbour's tag, known in every detail, is no tag on another's link", "[hostile]") {
  const Opcode opcode = GENERATE(Opcode::write_only, Opcode::read_request, Opcode::fetch_add);
  const Outcome outcome = endure(Ending::queue_pair, [opcode](HostileHost& host) {
    ask_and_be_refused(host, host.cell(opcode, host.owner().neighbour, 0, 8));
  });
  CHECK(outcome.counters.access_refused == 1);
  CHECK(outcome.times_told == 1);
}

TEST_CASE("a message that names a tag to end ends nothing that was not opened to it", "[hostile]") {
  Grant Introduction::*const grant = GENERATE(&I::open, &I::direct, &I::window, &I::foreign, &I::windowed);
  const Outcome outcome = endure(Ending::queue_pair, [grant](HostileHost& host) {
    Cell cell = host.cell(Opcode::send_only_invalidate);
    cell.invalidate = (host.owner().*grant).tag;
    host.put(cell, host.random_bytes(32));
    be_refused(host);
  });
  CHECK(outcome.counters.access_refused == 1);
  CHECK(outcome.times_told == 1);
}

TEST_CASE("the first cell of a long write is refused for its end already, and nothing of it is placed", "[hostile]") {
  const Outcome outcome = endure(Ending::queue_pair, [](HostileHost& host) {
    const auto payload = host.random_bytes(256);
    Cell cell = host.cell(Opcode::write_first, host.owner().window, kWindowBytes - 512, 768);
    host.put(cell, payload);
    cell.opcode = Opcode::write_middle;
    cell.cell_sequence = 1;
    host.put(cell, payload);
    cell.opcode = Opcode::write_last;
    cell.cell_sequence = 2;
    host.put(cell, payload);
    host.wait_for(Opcode::terminate);
  });
  expect_refused(outcome, kWriteBounds);
}

TEST_CASE("guessed tags let nobody in", "[hostile]") {
  const int guess = GENERATE(range(0, 16));  // each with another seed
  CAPTURE(guess);
  const Outcome outcome = endure(Ending::queue_pair, [](HostileHost& host) {
    Cell cell = host.cell(Opcode::write_only, host.owner().open, 0, 8);
    // Changes the index, because the initiator knows its own tags.
    cell.tag.value ^= host.random().next32() | 0x100U;
    ask_and_be_refused(host, cell);
  });
  CHECK(outcome.counters.access_refused == 1);
  CHECK(outcome.times_told == 1);
}

TEST_CASE("reads beyond the negotiated depth end the queue pair, after the answers that were promised", "[hostile]") {
  const Outcome outcome = endure(Ending::queue_pair, [](HostileHost& host) {
    // The initiator gives back no room, so all requests arrive before the owner has answered the first one.
    for (int i = 0; i < 100; ++i) {
      host.put(host.cell(Opcode::read_request, host.owner().open, 0, 16U << 10U));
    }
    be_refused(host);
  });
  CHECK(outcome.times_told == 1);
  CHECK(outcome.told == TerminateReason{1, 2, 2});
  CHECK(outcome.counters.segmented_reads <= 16);
}

TEST_CASE("the same read asked for again and again is answered in turn, and keeps nobody waiting", "[hostile]") {
  const Outcome outcome = endure(Ending::harmless, [](HostileHost& host) {
    const Cell cell = host.cell(Opcode::read_request, host.owner().open, 0, 16U << 10U);
    while (host.goes_on()) {
      for (int i = 0; i < 100; ++i) host.put(cell);
      static_cast<void>(host.take());
    }
  });
  CHECK(outcome.counters.dropped_duplicate > 100);
  CHECK(outcome.counters.access_refused == 0);
}

TEST_CASE("a message sequence number out of turn ends the queue pair", "[hostile]") {
  const std::uint32_t ahead = GENERATE(0U, 2U, 1000U, 0x8000'0000U);
  const Outcome outcome = endure(Ending::queue_pair, [ahead](HostileHost& host) {
    Cell cell = host.cell(Opcode::read_request, host.owner().open, 0, 64);
    cell.message_sequence = ahead;
    ask_and_be_refused(host, cell);
  });
  expect_refused(outcome, {1, 2, 3});
}

}  // namespace splitnic::fabric::hostile::requests_test
