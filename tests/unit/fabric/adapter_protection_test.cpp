#include <array>

#include "adapter_fixtures.h"

/// Where the adapter's own state and the protection table's meet. Found by tests/sim/memory.
namespace splitnic::fabric::test::adapter_protection_test {
namespace {

constexpr Rights kEverything{0x3f};

/// Reads 8 bytes into the start of end 0's buffer; how it ended.
CompletionStatus read(TwoEndpoints& two, RemoteAddress from) {
  WorkRequest request;
  request.operation = Operation::rdma_read;
  request.segments[0] = two.end(0).segment(0, 8);
  request.segment_count = 1;
  request.remote = from;
  REQUIRE(two.end(0).adapter.post_send(two.end(0).number, request) == Status::ok);
  REQUIRE(two.settle());
  const auto completions = two.end(0).take();
  REQUIRE(completions.size() == 1);
  return completions[0].status;
}

}  // namespace

TEST_CASE("a placeable region of a strict domain is not granted: what its check refuses is not stored before",
          "[fabric][adapter]") {
  TwoEndpoints two;
  Endpoint& owner = two.end(1);
  owner.adapter.table().set_rules(owner.domain, DomainRules::strict);
  FabricLink& link = two.pair.link(1);
  const MemoryRange range{link.buffers().offset, 4096};
  const Stag tag = owner.adapter.register_bridge_memory(owner.domain, range, kAllRights, true).value();
  const PeerMemory memory = link.bridge().local_memory().slice(range.offset, range.bytes);
  memory.zero(0, range.bytes);
  two.run(milliseconds(1));

  const RemoteAddress to{owner.adapter.region_address(tag), tag};
  CHECK_FALSE(two.end(0).adapter.claim_direct(to, 64).has_value());
  two.end(0).fill(0, pattern(64, 1));
  REQUIRE(two.end(0).write(1, 0, 64, to) == Status::ok);
  REQUIRE(two.settle());
  const auto completions = two.end(0).take();
  REQUIRE(completions.size() == 1);
  CHECK(completions[0].status == CompletionStatus::remote_access_error);
  std::array<std::byte, 64> stored{};
  memory.copy_out(0, stored);
  CHECK(stored == std::array<std::byte, 64>{});
}

TEST_CASE("memory of the process that was called placeable leaves nothing of the bridge's in quarantine",
          "[fabric][adapter]") {
  TwoEndpoints two;
  Endpoint& owner = two.end(1);
  EntryOptions options;
  options.rights = kAllRights;
  options.placeable = true;
  const auto memory = RegionMemory::of_process(owner.buffer);
  const Stag tag = owner.adapter.table().register_region(owner.domain, memory, options).value();
  REQUIRE(owner.adapter.deregister(tag) == Status::ok);
  CHECK_FALSE(owner.adapter.in_quarantine({0, two.pair.link(1).bridge().local_memory().size()}));
}

TEST_CASE("a read that is forgotten does not end a one-shot window that was bound anew under the same tag",
          "[fabric][adapter]") {
  QueuePairAttributes options;
  options.reads_in = options.reads_out = 2;
  TwoEndpoints two(test::small_cells(), options);
  Endpoint& owner = two.end(1);
  ProtectionTable& table = owner.adapter.table();
  const Consumer consumer{owner.domain, owner.number};
  EntryOptions region_options;
  region_options.rights = kEverything;
  const Stag region =
      table.register_region(owner.domain, RegionMemory::of_process(owner.buffer), region_options).value();
  const RemoteAddress anywhere{owner.adapter.region_address(region), region};

  std::array<Stag, 1> window{};
  REQUIRE(table.allocate_windows(owner.domain, EntryKind::window_type_2, window));
  Bind bind;
  bind.window = window[0];
  bind.region = region;
  bind.address = anywhere.address;
  bind.length = 64;
  bind.rights = Rights{} | Right::remote_read;
  bind.touch = TouchControl::one_shot;
  bind.key = 7;
  const Stag first = table.bind(bind, consumer).value();
  REQUIRE(read(two, {bind.address, first}) == CompletionStatus::success);

  REQUIRE(table.invalidate_local(first, consumer));
  bind.window = first;
  const Stag second = table.bind(bind, consumer).value();
  REQUIRE(second == first);
  for (int i = 0; i < 3; ++i) REQUIRE(read(two, anywhere) == CompletionStatus::success);
  CHECK(read(two, {bind.address, second}) == CompletionStatus::success);
}

}  // namespace splitnic::fabric::test::adapter_protection_test
