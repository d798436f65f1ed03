// Tags that end with their use, and strict domains.
#include "tests/two_processes/end.h"

namespace splitnic::verbs::two_processes {
namespace {

using enum CompletionStatus;

// Several cells, so that a message has a first segment and a last one.
constexpr std::size_t kBytes = 3000;

/// Opens a page to the peer through the window.
RemoteKey bind(End& end, MemoryWindow& window, TouchControl touch, std::uint64_t offset = 0) {
  Binding binding;
  binding.offset = offset;
  binding.bytes = kPage;
  binding.rights = kRemote;
  binding.touch = touch;
  REQUIRE(end.queue_pair.post_bind(window, end.region, binding, {5}) == Status::ok);
  end.expect(5, success);
  REQUIRE(window.valid());
  return window.remote_key();
}

/// Opens the end's second page through the send queue, for one operation.
RemoteKey register_one_shot(End& end, MemoryRegion& fast, std::uint8_t key) {
  const std::array<std::byte*, 1> pages{end.page(1)};
  Registration opened;
  opened.pages = PageList{pages, kPage, 0, kPage};
  opened.rights = kRemote | Right::local_read | Right::local_write;  // a tag that ends takes no windows
  opened.touch = TouchControl::one_shot;
  opened.key = key;
  opened.base = kPage;
  REQUIRE(end.queue_pair.post_register(fast, opened, {5}) == Status::ok);
  end.expect(5, success);
  return fast.remote_key();
}

WorkRequest request(End& end, Operation operation, const RemoteKey& key) {
  switch (operation) {
    case Operation::rdma_read:
      return rdma_read(2, {end.region.segment(4 * kPage, kBytes)}, key.at());
    case Operation::fetch_add:
      return fetch_add(2, end.region.segment(4 * kPage, 8), key.at(), 1);
    default:
      return rdma_write(2, {end.region.segment(0, kBytes)}, key.at());
  }
}

fabric::TerminateReason invalid_tag(Operation operation) {
  return operation == Operation::rdma_write ? kInvalidTagOfWrite : kInvalidTagOfRead;
}

}  // namespace

TEST_CASE("a one-touch tag serves reads, ends with the last segment of the first write, and then refuses",
          "[two_processes]") {
  const auto owner = [](End& end) {
    MemoryWindow window = made(end.domain.allocate_window(WindowType::type_1));
    end.fill(0, pattern(kBytes, 1));
    const RemoteKey key = bind(end, window, TouchControl::one_touch);
    end.offer(key);
    end.meet();  // the initiator has read, and waits
    REQUIRE(window.valid());
    end.meet();
    end.expect_refusal(1, kInvalidTagOfWrite);
    REQUIRE_FALSE(window.valid());
    REQUIRE(end.holds(0, pattern(kBytes, 2)));
    end.connect();
    end.expect_refusal(2, kInvalidTagOfRead);
    // Bound again, the window serves again, by another tag.
    end.connect();
    const RemoteKey next = bind(end, window, TouchControl::one_touch);
    REQUIRE(next.tag != key.tag);
    end.offer(next);
    end.meet();
    REQUIRE_FALSE(window.valid());
    REQUIRE(end.holds(0, pattern(kBytes, 4)));
  };
  const auto initiator = [](End& end) {
    const RemoteKey key = end.take_offer();
    for (int i = 0; i < 2; ++i) {
      end.carry_out(request(end, Operation::rdma_read, key));
      REQUIRE(end.holds(4 * kPage, pattern(kBytes, 1)));
    }
    end.meet();
    end.meet();
    // The second write is posted before the first has ended the tag.
    end.fill(0, pattern(kBytes, 2));
    end.fill(kPage, pattern(kBytes, 3));
    REQUIRE(end.queue_pair.post_send(request(end, Operation::rdma_write, key)) == Status::ok);
    REQUIRE(end.queue_pair.post_send(rdma_write(3, {end.region.segment(kPage, kBytes)}, key.at())) == Status::ok);
    end.expect(2, success);
    end.expect(3, remote_access_error);
    end.expect_end(kInvalidTagOfWrite, true);
    end.connect();
    end.expect_refused(request(end, Operation::rdma_read, key), kInvalidTagOfRead);
    end.connect();
    const RemoteKey next = end.take_offer();
    end.fill(0, pattern(kBytes, 4));
    end.carry_out(request(end, Operation::rdma_write, next));
    end.meet();
  };
  run({}, owner, initiator);
}

TEST_CASE("a one-shot tag serves the first operation of any kind, and refuses the second of any kind",
          "[two_processes]") {
  constexpr std::array kKinds{Operation::rdma_write, Operation::rdma_read, Operation::fetch_add};
  const auto owner = [&](End& end) {
    std::uint64_t refusals = 0;
    for (const Operation first : kKinds) {
      for (const Operation second : kKinds) {
        CAPTURE(to_string(first), to_string(second));
        MemoryRegion fast = made(end.domain.allocate_region(1));
        auto before = pattern(kBytes, 1);
        before[0] = std::byte{1};
        end.fill(kPage, before);
        end.offer(register_one_shot(end, fast, static_cast<std::uint8_t>(refusals)));
        end.expect_refusal(++refusals, invalid_tag(second));
        // After a read the entry stays taken, in case its answer is lost.
        if (first != Operation::rdma_read) REQUIRE_FALSE(fast.valid());
        // What the first operation did is there, and nothing of the second.
        auto after = first == Operation::rdma_write ? pattern(kBytes, 2) : before;
        if (first == Operation::fetch_add) after[0] = std::byte{2};
        REQUIRE(end.holds(kPage, after));
        end.connect();
      }
    }
    REQUIRE(end.context.counters().atomics == kKinds.size());
  };
  const auto initiator = [&](End& end) {
    for (const Operation first : kKinds) {
      for (const Operation second : kKinds) {
        CAPTURE(to_string(first), to_string(second));
        const RemoteKey key = end.take_offer();
        end.fill(0, pattern(kBytes, 2));
        end.carry_out(request(end, first, key));
        auto read = pattern(kBytes, 1);
        read[0] = std::byte{1};
        if (first == Operation::rdma_read) REQUIRE(end.holds(4 * kPage, read));
        if (first == Operation::fetch_add) REQUIRE(end.holds(4 * kPage, std::span(read).first(8)));
        const std::vector<std::byte> untouched(kBytes);
        end.fill(0, pattern(kBytes, 3));
        end.fill(4 * kPage, untouched);
        end.expect_refused(request(end, second, key), invalid_tag(second));
        REQUIRE(end.holds(4 * kPage, untouched));
        end.connect();
      }
    }
  };
  run({}, owner, initiator);
}

TEST_CASE("in strict domains a region's tag is refused to the other process, and a window's serves it",
          "[two_processes]") {
  const auto owner = [](End& end) {
    // Bridge memory is no exception: the initiator is granted no direct writes.
    MemoryRegion direct = made(end.domain.register_bridge_memory(end.path, 0, kPage, kEverything));
    const auto before = pattern(kBytes, 1);
    end.fill(0, before);
    REQUIRE(direct.store(0, before) == Status::ok);
    std::uint64_t refusals = 0;
    for (const MemoryRegion* region : {&end.region, &direct}) {
      for (const Operation operation : {Operation::rdma_write, Operation::rdma_read, Operation::fetch_add}) {
        end.offer(region->remote_key());
        end.expect_refusal(++refusals, invalid_tag(operation));
        std::vector<std::byte> held(kBytes);
        REQUIRE(region->load(0, held) == Status::ok);
        REQUIRE(held == before);
        end.connect();
      }
    }
    REQUIRE(end.context.counters().direct_writes == 0);
    MemoryWindow window = made(end.domain.allocate_window(WindowType::type_1));
    end.offer(bind(end, window, TouchControl::unlimited));
    end.meet();
    REQUIRE(end.holds(0, pattern(kBytes, 2)));
    REQUIRE(window.valid());
    REQUIRE(end.context.counters().access_refused == refusals);
  };
  const auto initiator = [](End& end) {
    // A read's sink is written by the owner's data, so it is a window, too.
    MemoryWindow sink = made(end.domain.allocate_window(WindowType::type_1));
    const auto read = [&](const RemoteKey& key) { return rdma_read(2, {sink.segment(0, kBytes)}, key.at()); };
    const auto add = [&](const RemoteKey& key) { return fetch_add(2, sink.segment(0, 8), key.at(), 1); };
    end.fill(0, pattern(kBytes, 2));
    for (int region = 0; region < 2; ++region) {
      const RemoteKey to_write = end.take_offer();
      end.expect_refused(request(end, Operation::rdma_write, to_write), kInvalidTagOfWrite);
      end.connect();
      const RemoteKey to_read = end.take_offer();
      bind(end, sink, TouchControl::unlimited, 4 * kPage);
      end.expect_refused(read(to_read), kInvalidTagOfRead);
      end.connect();
      const RemoteKey to_add = end.take_offer();
      end.expect_refused(add(to_add), kInvalidTagOfRead);
      end.connect();
    }
    REQUIRE(end.holds(4 * kPage, std::vector<std::byte>(kBytes)));
    const RemoteKey window = end.take_offer();
    end.carry_out(request(end, Operation::rdma_write, window));
    REQUIRE(end.queue_pair.post_send(request(end, Operation::rdma_read, window)) == Status::bad_tag);
    end.carry_out(read(window));
    REQUIRE(end.holds(4 * kPage, pattern(kBytes, 2)));
    end.meet();
  };
  run({.rules = DomainRules::strict}, owner, initiator);
}

}  // namespace splitnic::verbs::two_processes
