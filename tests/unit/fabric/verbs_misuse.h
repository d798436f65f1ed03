#pragma once

#include <array>
#include <catch2/catch.hpp>
#include <initializer_list>

#include "mapped_memory.h"
#include "verbs_fixture.h"

// Again last, as in the fixture.

/// For the tests that call every verb as it should not be: a status, and nothing else changes.
namespace splitnic::verbs::test {

struct Row {
  const char* call;
  Status answered;
  Status expected;
};

inline void check(std::initializer_list<Row> rows) {
  for (const Row& row : rows) {
    INFO(row.call << ": " << to_string(row.answered) << ", should be " << to_string(row.expected));
    CHECK(row.answered == row.expected);
  }
}

inline constexpr Status kBad = Status::bad_argument;

/// What a verb is called with, of one program.
struct Objects {
  explicit Objects(End& end)
      : channel(made(end.context.create_completion_channel())),
        queue(made(end.context.create_completion_queue(16, &channel))),
        shared(made(end.domain.create_shared_receive_queue(4))),
        type_1(made(end.domain.allocate_window(WindowType::type_1))),
        type_2(made(end.domain.allocate_window(WindowType::type_2))),
        through_queue(made(end.domain.allocate_region(1))) {}

  CompletionChannel channel;
  CompletionQueue queue;
  SharedReceiveQueue shared;
  MemoryWindow type_1;
  MemoryWindow type_2;
  MemoryRegion through_queue;
};

/// One page, registered by nobody.
struct Page {
  fabric::MappedMemory memory{fabric::page_bytes()};
  std::array<std::byte*, 1> pages{memory.data()};
  Registration registration() const {
    Registration made;
    made.pages.pages = pages;
    made.rights = kEverything;
    return made;
  }
};

inline Binding small_binding() {
  Binding binding;
  binding.bytes = 8;
  binding.rights = binding.rights | Right::remote_write;
  return binding;
}

/// Misuse has left nothing behind.
inline void still_works(Pair& pair) {
  pair.mend();
  for (End* end : {&pair.a, &pair.b}) end->take();
  REQUIRE(pair.b.queue_pair.post_receive(receive(1, pair.b.region.segment(0, 64))) == Status::ok);
  CHECK(pair.outcome(send(2, {pair.a.region.segment(0, 64)})) == CompletionStatus::success);
  CHECK(pair.b.take().size() == 1);
  CHECK(pair.write(pair.b.region.remote_key().at()) == CompletionStatus::success);
}

}  // namespace splitnic::verbs::test
