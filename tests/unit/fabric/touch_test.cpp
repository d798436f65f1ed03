#include "fabric/memory/touch.h"

#include <catch2/catch.hpp>

#include "protection_fixture.h"

namespace splitnic::fabric::touch_test {
namespace {

constexpr std::uint32_t kWindow = 10;

/// next_expected is 100 unless wrapped by `shift`.
TouchAction act(bool last, bool one_touch, bool touched, std::uint32_t sequence, std::uint32_t shift) {
  return table_d(one_touch, touched, SegmentPosition{last, sequence + shift, 100 + shift, kWindow});
}

SegmentPosition in_order(bool last, std::uint32_t sequence) { return {last, sequence, sequence + 1, kWindow}; }

struct Touched : ProtectionFixture {
  /// A window with the touch control, and the access of a peer's write as packet 50.
  explicit Touched(TouchControl touch, Right right = Right::remote_write) {
    Bind bind = binding(window(EntryKind::window_type_1), region());
    bind.touch = touch;
    tag = table.bind(bind, me).value();
    what = {tag, domain, 8, right, me.queue_pair, 50};
    start = base(tag);
  }
  std::string ask(const Access& access) const { return verdict(table.check_remote(access, start)); }

  Stag tag{};
  Access what{};
  std::uint64_t start = 0;
};

}  // namespace

TEST_CASE("every row of table D", "[fabric][memory]") {
  for (const std::uint32_t shift : {0U, 0xffff'ff9cU, 0xffff'ff98U, 0x7fff'ff9cU}) {  // serial numbers wrap
    const std::uint32_t everywhere[] = {0, 98, 99, 100, 109, 110, 5000};
    for (const std::uint32_t sequence : everywhere) {
      for (const bool touched : {false, true}) {
        // Row 1: last not set. Row 2: one-touch not enabled.
        for (const bool one_touch : {false, true}) {
          CHECK(act(false, one_touch, touched, sequence, shift) == TouchAction::place);
        }
        CHECK(act(true, false, touched, sequence, shift) == TouchAction::place);
      }
      // Row 3: touched.
      CHECK(act(true, true, true, sequence, shift) == TouchAction::invalidate_and_terminate);
    }
    // Row 4: in order, the segment's last unit is the one before the next expected.
    CHECK(act(true, true, false, 99, shift) == TouchAction::place_and_invalidate);
    // Row 5: within the window, out of order.
    CHECK(act(true, true, false, 100, shift) == TouchAction::place_and_remember);
    CHECK(act(true, true, false, 109, shift) == TouchAction::place_and_remember);
    // Row 6: outside the window, on either side.
    CHECK(act(true, true, false, 98, shift) == TouchAction::drop);
    CHECK(act(true, true, false, 110, shift) == TouchAction::drop);
    CHECK(act(true, true, false, 5000, shift) == TouchAction::drop);
  }
}

TEST_CASE("a remembered segment is caught up with when everything up to it has arrived", "[fabric][memory]") {
  CHECK_FALSE(caught_up(105, 104));
  CHECK_FALSE(caught_up(105, 105));
  CHECK(caught_up(105, 106));
  CHECK(caught_up(105, 200));
  CHECK_FALSE(caught_up(2, 0xffff'fffe));
  CHECK(caught_up(0xffff'fffe, 2));
}

TEST_CASE("a one-touch entry ends with the last segment of the first write", "[fabric][memory]") {
  Touched t(TouchControl::one_touch);
  // Segments of two messages come in until one of them ends.
  Access other = t.what;
  other.sequence = 51;
  CHECK(t.ask(t.what) == "ok");
  CHECK(t.table.touch(t.what, in_order(false, 50)) == TouchAction::place);
  CHECK(t.ask(other) == "ok");
  CHECK(t.table.touch(other, in_order(false, 51)) == TouchAction::place);
  CHECK(t.ask(t.what) == "ok");
  const auto placement = t.table.check_remote(t.what, t.start);
  CHECK(t.table.touch(t.what, in_order(true, 52)) == TouchAction::place_and_invalidate);
  // The segment that ended it is placed all the same.
  CHECK(placement->store(std::array{std::byte{7}}));
  CHECK(t.memory[100] == std::byte{7});
  CHECK(t.ask(t.what) == "invalid_stag");
  CHECK(t.ask(other) == "invalid_stag");
  CHECK_FALSE(t.table.find(t.tag)->valid);
}

TEST_CASE("a one-touch entry is not touched by read requests, but by atomics and read responses", "[fabric][memory]") {
  {
    Touched t(TouchControl::one_touch, Right::remote_read);
    for (std::uint32_t i = 0; i < 5; ++i) {
      CHECK(t.ask(t.what) == "ok");
      CHECK(t.table.touch(t.what, in_order(true, 50 + i)) == TouchAction::place);
    }
  }
  {
    Touched t(TouchControl::one_touch, Right::remote_atomic);
    t.start += 4;  // to a multiple of 8
    CHECK(t.ask(t.what) == "ok");
    CHECK(t.table.touch(t.what, in_order(true, 50)) == TouchAction::place_and_invalidate);
    CHECK(t.ask(t.what) == "invalid_stag");
  }
  ProtectionFixture f;
  EntryOptions options;
  options.rights = Rights{} | Right::local_write;
  options.touch = TouchControl::one_touch;
  const Stag sink = f.region(options);
  const Access response = f.access(sink, 8, Right::remote_write);
  CHECK(verdict(f.table.check_response(response, f.base(sink))) == "ok");
  CHECK(f.table.touch(response, in_order(false, 1)) == TouchAction::place);
  CHECK(verdict(f.table.check_response(response, f.base(sink))) == "ok");
  CHECK(f.table.touch(response, in_order(true, 2)) == TouchAction::place_and_invalidate);
  CHECK(verdict(f.table.check_response(response, f.base(sink))) == "invalid_stag");
}

TEST_CASE("a last segment out of order ends a one-touch entry when the stream catches up", "[fabric][memory]") {
  Touched t(TouchControl::one_touch);
  CHECK(t.table.touch(t.what, {true, 105, 100, kWindow}) == TouchAction::place_and_remember);
  CHECK(t.table.find(t.tag)->sequence == 105);
  // What was sent before it still comes in.
  CHECK(t.ask(t.what) == "ok");
  CHECK(t.table.touch(t.what, {false, 103, 100, kWindow}) == TouchAction::place);
  CHECK_FALSE(t.table.catch_up(t.tag, 105));
  CHECK(t.ask(t.what) == "ok");
  CHECK(t.table.catch_up(t.tag, 106));
  CHECK(t.ask(t.what) == "invalid_stag");
  CHECK(t.table.catch_up(t.tag, 107));  // nothing is left to wait for
  CHECK(t.table.catch_up(Stag{}, 107));
}

TEST_CASE("a second message that ends in a touched entry ends it and the stream", "[fabric][memory]") {
  Touched t(TouchControl::one_touch);
  CHECK(t.table.touch(t.what, {true, 105, 100, kWindow}) == TouchAction::place_and_remember);
  CHECK(t.table.touch(t.what, {true, 107, 100, kWindow}) == TouchAction::invalidate_and_terminate);
  CHECK(t.ask(t.what) == "invalid_stag");
}

TEST_CASE("a last segment outside the transport's window leaves a one-touch entry as it was", "[fabric][memory]") {
  Touched t(TouchControl::one_touch);
  CHECK(t.table.touch(t.what, {true, 110, 100, kWindow}) == TouchAction::drop);
  CHECK(t.ask(t.what) == "ok");
  CHECK_FALSE(t.table.find(t.tag)->touched);
}

TEST_CASE("a one-shot entry is one operation's, from its first segment on", "[fabric][memory]") {
  for (const Right right : {Right::remote_read, Right::remote_write}) {
    Touched t(TouchControl::one_shot, right);
    CHECK(t.ask(t.what) == "ok");
    CHECK(t.table.touch(t.what, in_order(false, 50)) == TouchAction::place);
    CHECK(t.ask(t.what) == "ok");  // its other segments, and its retry from the start
    Access next = t.what;
    next.sequence = 51;
    CHECK(t.ask(next) == "invalid_stag");
    Access elsewhere = t.what;
    elsewhere.queue_pair = QpNumber{8};
    CHECK(t.ask(elsewhere) == "invalid_stag");
    CHECK(t.table.touch(t.what, in_order(true, 50)) == TouchAction::place_and_invalidate);
    CHECK(t.ask(t.what) == "invalid_stag");
  }
  Touched t(TouchControl::one_shot, Right::remote_atomic);
  CHECK(t.table.touch(t.what, in_order(true, 50)) == TouchAction::place_and_invalidate);
  CHECK(t.ask(t.what) == "invalid_stag");
}

TEST_CASE("a one-shot entry that a peer's request has taken is closed to an own request of the same number",
          "[fabric][memory]") {
  ProtectionFixture f;
  EntryOptions options;
  options.rights = Right::local_write | Right::remote_write;
  options.touch = TouchControl::one_shot;
  const Stag tag = f.region(options);
  Access request = f.access(tag, 8, Right::remote_write);
  request.sequence = 50;
  Access answer = request;
  answer.by = AccessBy::answer;
  Access unstarted = request;
  unstarted.by = AccessBy::unstarted;
  const bool by_answer = GENERATE(false, true);
  CHECK(f.table.touch(by_answer ? answer : request, in_order(false, 50)) == TouchAction::place);
  CHECK(verdict(f.table.check_remote(request, f.base(tag))) == (by_answer ? "invalid_stag" : "ok"));
  CHECK(verdict(f.table.check_response(answer, f.base(tag))) == (by_answer ? "ok" : "invalid_stag"));
  CHECK(verdict(f.table.check_response(unstarted, f.base(tag))) == "invalid_stag");
}

TEST_CASE("a one-shot entry ends with the queue pair that has taken it, and with no other", "[fabric][memory]") {
  Touched t(TouchControl::one_shot, Right::remote_read);
  t.table.end_taken(t.tag, t.me.queue_pair);  // nothing has taken it
  CHECK(t.ask(t.what) == "ok");
  CHECK(t.table.touch(t.what, in_order(false, 50)) == TouchAction::place);
  t.table.end_taken(t.tag, QpNumber{t.me.queue_pair.value + 1});
  t.table.end_taken(Stag::from(t.tag.index(), static_cast<std::uint8_t>(t.tag.instance() + 1)), t.me.queue_pair);
  CHECK(t.ask(t.what) == "ok");
  t.table.end_taken(t.tag, t.me.queue_pair);
  CHECK(t.ask(t.what) == "invalid_stag");

  Touched often(TouchControl::one_touch, Right::remote_read);
  CHECK(often.table.touch(often.what, in_order(false, 50)) == TouchAction::place);
  often.table.end_taken(often.tag, often.me.queue_pair);
  CHECK(often.ask(often.what) == "ok");
}

TEST_CASE("the owner's own accesses do not use a one-shot region up", "[fabric][memory]") {
  ProtectionFixture f;
  EntryOptions options;
  options.rights = Right::local_read | Right::remote_write;
  options.touch = TouchControl::one_shot;
  const Stag tag = f.region(options);
  Access write = f.access(tag, 8, Right::remote_write);
  CHECK(f.table.touch(write, in_order(false, 50)) == TouchAction::place);
  write.sequence = 51;
  CHECK(verdict(f.table.check_remote(write, f.base(tag))) == "invalid_stag");
  CHECK(verdict(f.table.check_local(f.access(tag, 8, Right::local_read), f.memory.data())) == "ok");
}

TEST_CASE("what one use has ended may be bound, and then used, again", "[fabric][memory]") {
  for (const TouchControl touch : {TouchControl::one_touch, TouchControl::one_shot}) {
    ProtectionFixture f;
    const Stag region = f.region();
    for (const EntryKind kind : {EntryKind::window_type_1, EntryKind::window_type_2}) {
      Bind bind = f.binding(f.window(kind), region);
      bind.touch = touch;
      for (int round = 0; round < 5; ++round) {
        const auto bound = f.table.bind(bind, f.me);
        REQUIRE(bound);
        CHECK(f.use(*bound) == "ok");
        CHECK(f.table.find(region)->bound == 1);
        CHECK(f.table.touch(f.access(*bound, 1, Right::remote_write), in_order(true, 1)) ==
              TouchAction::place_and_invalidate);
        CHECK(f.use(*bound) == "invalid_stag");
        CHECK(f.table.find(region)->bound == 0);
        bind.window = *bound;
        ++bind.key;
      }
      REQUIRE(f.table.deallocate(bind.window));
    }
    CHECK(f.table.deregister(region));
  }
}

}  // namespace splitnic::fabric::touch_test
