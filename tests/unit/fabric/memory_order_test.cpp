// The orders that the fabric's machine code keeps between stores and loads of shared memory, searched in every
// interleaving. No processor has to be caught reordering: the trace shows which fences there are, and the search does
// what the processor may do.
#include "store_buffers.h"

#ifdef SPLITNIC_MEMORY_TRACE

#include <catch2/catch.hpp>

#include "bridge_fixtures.h"
#include "fabric/bridge/anchor.h"
#include "fabric/bridge/link.h"
#include "fabric/memory/mpt.h"
#include "fabric/memory/region.h"
#include "link_records.h"
#include "mapped_memory.h"

namespace splitnic::fabric::test::memory_order_test {
namespace {

constexpr VirtualLane kData = VirtualLane::data;
constexpr std::size_t kDataLane = 1;

/// Shared memory, as two processes have it.
class Mapped {
 public:
  static constexpr StoreOrder kOrder = StoreOrder::x86;
  static constexpr MemoryTrace::Fences kFences = MemoryTrace::Fences::of_the_processor;
  Bridge& end(std::size_t index) { return bridges_.end(index); }
  bool rung(std::size_t index) { return bridges_.rung(index); }
  void listens(MemoryTrace* /*trace*/) {}

 private:
  ShmPairBridges bridges_;
};

/// A bridge whose window is no memory: stores arrive later, in any order that publish() and the fences let them.
class Posted {
 public:
  static constexpr StoreOrder kOrder = StoreOrder::weaker;
  static constexpr MemoryTrace::Fences kFences = MemoryTrace::Fences::of_the_bridge;
  Posted() : ends_{{{*this, 0}, {*this, 1}}} {
    for (auto& memory : memories_) memory.resize(kTestBytes + kPage);
  }
  Bridge& end(std::size_t index) { return ends_.at(index); }
  bool rung(std::size_t index) { return end(index).take_doorbells(); }
  void listens(MemoryTrace* trace) { trace_ = trace; }

 private:
  static constexpr std::size_t kPage = 4096;

  class End final : public Bridge, private PostedWrites {
   public:
    End(Posted& pair, std::size_t index) : pair_(pair), index_(index), window_(PeerWindow::posted(this, kTestBytes)) {}
    PeerMemory local_memory() override { return PeerMemory::over(pair_.memory(index_), kTestBytes); }
    PeerWindow& peer_window() override { return window_; }
    std::uint32_t read_scratchpad(std::size_t index) override { return pair_.scratchpads_[1 - index_].at(index); }
    void write_scratchpad(std::size_t index, std::uint32_t value) override {
      pair_.scratchpads_[index_].at(index) = value;
    }
    void publish() override { pair_.fence(MemoryEvent::Kind::store_fence); }
    void fence() override { pair_.fence(MemoryEvent::Kind::full_fence); }
    void before_doorbell() override { pair_.fence(MemoryEvent::Kind::full_fence); }
    void flush() override { pair_.fence(MemoryEvent::Kind::full_fence); }
    void ring() override { pair_.rung_.at(1 - index_) = true; }
    bool take_doorbells() override { return std::exchange(pair_.rung_.at(index_), false); }
    [[nodiscard]] int doorbell_descriptor() const override { return -1; }
    LinkState link() override { return LinkState::up; }

   private:
    void post(std::size_t offset, std::span<const std::byte> bytes) override {
      std::ranges::copy(bytes, pair_.memory(1 - index_) + offset);
    }
    std::span<std::byte> stage(std::size_t /*offset*/, std::size_t bytes) override {
      staged_.resize(bytes);
      return staged_;
    }
    void read(std::size_t offset, std::span<std::byte> to) override {
      std::copy_n(pair_.memory(1 - index_) + offset, to.size(), to.begin());
    }
    Posted& pair_;
    std::size_t index_;
    PeerWindow window_;
    std::vector<std::byte> staged_;
  };

  std::byte* memory(std::size_t index) {
    std::byte* const start = memories_.at(index).data();
    return start + (kPage - reinterpret_cast<std::uintptr_t>(start) % kPage) % kPage;
  }
  void fence(MemoryEvent::Kind kind) {
    if (trace_ != nullptr) trace_->fence(kind);
  }

  std::array<std::vector<std::byte>, 2> memories_;
  std::array<std::array<std::uint32_t, kScratchpads>, 2> scratchpads_{};
  std::array<bool, 2> rung_{};
  MemoryTrace* trace_ = nullptr;
  std::array<End, 2> ends_;
};

/// Two links that are up, whose memories are watched. Link 0 sends, link 1 receives.
template <class Bridges>
class Watched {
 public:
  Watched() {
    for (auto& link : links) link.restart();
    for (int i = 0; i < 100 && !(links[0].up() && links[1].up()); ++i) poll();
    REQUIRE((links[0].up() && links[1].up()));
    for (std::size_t end = 0; end < 2; ++end) {
      AnchorBytes bytes;
      memory(end).copy_out(0, std::as_writable_bytes(std::span(&bytes, 1)));
      anchors[end] = decode_anchor(bytes, 0, memory(end).size()).value();
    }
    bridges.listens(&trace);
    while (bridges.rung(0) || bridges.rung(1)) continue;
  }
  ~Watched() { bridges.listens(nullptr); }
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;

  void poll() {
    now += std::chrono::milliseconds(1);
    for (auto& link : links) link.poll(now);
  }
  void send(std::size_t bytes, bool awaited = false) { REQUIRE(sent(bytes, awaited)); }
  [[nodiscard]] bool sent(std::size_t bytes, bool awaited = false) {
    Cell cell;
    cell.opcode = Opcode::send_only;
    cell.destination_queue_pair = cell.source_queue_pair = QpNumber{1};
    cell.awaited = awaited;
    ClaimedPayload to;
    if (!links[0].claim(kData, cell, bytes, to)) return false;
    for (std::size_t done = 0; done < bytes;) {
      const auto into = to.next(bytes);
      if (!memory_.load(done, into, to.stores())) return false;
      done += into.size();
    }
    std::uint32_t packet_crc = kPacketCrcStart;
    links[0].release(kData, cell, packet_crc);
    return true;
  }

  [[nodiscard]] PeerMemory memory(std::size_t end) { return bridges.end(end).local_memory(); }
  [[nodiscard]] std::byte* at(std::size_t end, std::size_t offset) {
    return static_cast<std::byte*>(memory(end).for_kernel(offset, 1).iov_base);
  }
  /// Of both ends' memories, so that one end's way can be traced as if the other had not gone its own.
  [[nodiscard]] std::array<std::vector<std::byte>, 2> contents() {
    std::array<std::vector<std::byte>, 2> all{std::vector<std::byte>(memory(0).size()),
                                              std::vector<std::byte>(memory(1).size())};
    for (std::size_t end = 0; end < 2; ++end) memory(end).copy_out(0, all[end]);
    return all;
  }
  void restore(const std::array<std::vector<std::byte>, 2>& contents) {
    for (std::size_t end = 0; end < 2; ++end) memory(end).store_bytes(0, contents[end]);
  }

  Bridges bridges;
  SeededRandom random{5};
  std::array<FabricLink, 2> links{FabricLink(bridges.end(0), options(), random),
                                  FabricLink(bridges.end(1), options(), random)};
  std::array<Anchor, 2> anchors;
  std::vector<std::byte> source = random_bytes(random, 8192);
  Time now{};
  MemoryTrace trace{{{at(0, 0), memory(0).size()}, {at(1, 0), memory(1).size()}}, Bridges::kFences};

 private:
  RegionMemory memory_ = RegionMemory::of_process(source);

  static LinkOptions options() {
    LinkOptions options;
    options.slot_bytes = {1024, 1024};
    options.payload_bytes = {4096, 16384};
    return options;
  }
};

/// The two traces of a lost wake-up can't happen together; without a full fence at either end they can.
void never_together(const MemoryEvents& producer, const MemoryEvents& consumer, StoreOrder order) {
  const TracedPair pair(producer, consumer, order);
  REQUIRE(pair.shared_loads() > 0);
  CHECK_FALSE(pair.can_happen());
  const auto kFence = MemoryEvent::Kind::full_fence;
  CHECK(TracedPair(without(producer, kFence), consumer, order).can_happen());
  CHECK(TracedPair(producer, without(consumer, kFence), order).can_happen());
}

}  // namespace

TEMPLATE_TEST_CASE("machine code: no order of stores lets a consumer sleep beside a record that nobody rings for",
                   "[fabric][link][sleep][order]", Mapped, Posted) {
  Watched<TestType> world;
  const auto before = world.contents();
  // The consumer finds nothing and sleeps; the producer, who has not seen that, does not ring.
  bool sleeps = false;
  const MemoryEvents consumer = world.trace.of([&] { sleeps = world.links[1].prepare_sleep(); });
  REQUIRE(sleeps);
  world.restore(before);
  bool sent = false;
  const MemoryEvents producer = world.trace.of([&] {
    sent = world.sent(40);
    world.links[0].notify();
  });
  REQUIRE(sent);
  REQUIRE_FALSE(world.bridges.rung(1));
  never_together(producer, consumer, TestType::kOrder);
}

TEMPLATE_TEST_CASE("machine code: no order of stores lets a sender sleep beside room that nobody rings for",
                   "[fabric][link][sleep][order]", Mapped, Posted) {
  Watched<TestType> world;
  while (world.sent(40)) continue;
  REQUIRE(world.links[0].wants_room(kData));
  world.links[0].notify();
  while (world.bridges.rung(1)) continue;
  const auto before = world.contents();
  bool sleeps = false;
  const MemoryEvents sender = world.trace.of([&] { sleeps = world.links[0].prepare_sleep(); });
  REQUIRE(sleeps);
  world.restore(before);
  while (take_record(world.links[1], kData)) continue;
  const MemoryEvents receiver = world.trace.of([&] {
    world.links[1].return_room(kData, true);
    world.links[1].notify();
  });
  REQUIRE_FALSE(world.bridges.rung(0));
  never_together(receiver, sender, TestType::kOrder);
}

TEMPLATE_TEST_CASE("machine code: no order of stores shows a slot before its header and its payload",
                   "[fabric][link][order]", Mapped, Posted) {
  const auto bytes = static_cast<std::size_t>(GENERATE(30, 90, 600, 2100));
  Watched<TestType> world;
  bool sent = false;
  const MemoryEvents sender = world.trace.of([&] { sent = world.sent(bytes); });
  REQUIRE(sent);
  std::optional<std::vector<std::byte>> taken;
  const MemoryEvents receiver = world.trace.of([&] { taken = take_record(world.links[1], kData); });
  REQUIRE(taken.has_value());
  REQUIRE(std::ranges::equal(*taken, std::span(world.source).first(bytes)));

  const MemoryRange slots = world.anchors[1].slots[kDataLane];
  const std::byte* const first = world.at(1, slots.offset);
  const auto is_sequence = [&](const std::byte* word) {
    return word >= first && word < first + slots.bytes && (word - first) % static_cast<std::ptrdiff_t>(kSlotLine) == 0;
  };
  const auto stale = [&](const MemoryEvents& stores) {
    return TracedPair(stores, receiver, TestType::kOrder).stale(is_sequence).has_value();
  };
  CHECK(TracedPair(sender, receiver, TestType::kOrder).shared_loads() > 2);
  CHECK_FALSE(stale(sender));
  // What needs a fence fails without it: stores past the caches, and all stores where they are not ordered.
  const bool streamed = std::ranges::any_of(
      sender, [](const MemoryEvent& event) { return event.kind == MemoryEvent::Kind::streamed_store; });
  const bool streams = TestType::kOrder == StoreOrder::x86 && bytes == 2100;
  CHECK(streamed == (streams && __builtin_cpu_supports("avx") != 0));
  const bool needs_fence = streamed || TestType::kOrder == StoreOrder::weaker;
  CHECK(stale(without(sender, MemoryEvent::Kind::store_fence)) == needs_fence);
}

TEST_CASE("machine code: the bytes of a direct write become visible from the first to the last",
          "[fabric][memory][order]") {
  constexpr std::size_t kPage = 4096;
  const auto words = static_cast<std::size_t>(GENERATE(1, 2, 3, 5, 8, 10, 16, 25, 40, 64, 375, 900));
  const auto at = static_cast<std::size_t>(GENERATE(0, 4, 16, 60));
  const std::size_t bytes = words * sizeof(std::uint32_t);
  const MappedMemory target(kPage);
  SeededRandom random(words);
  const std::vector<std::byte> source = random_bytes(random, bytes);
  std::byte* const to = target.data() + at;
  MemoryTrace trace({std::span(target.data(), kPage)}, MemoryTrace::Fences::of_the_processor);
  bool copied = false;
  const MemoryEvents stores = trace.of([&] { copied = guarded_copy(to, source.data(), bytes); });
  REQUIRE(copied);
  REQUIRE(std::memcmp(to, source.data(), bytes) == 0);
  REQUIRE_FALSE(stores.empty());
  const std::byte* visible = to;  // up to here; what is stored again holds the same
  for (const MemoryEvent& event : stores) {
    REQUIRE(event.kind == MemoryEvent::Kind::store);
    REQUIRE(event.word <= visible);
    visible = std::max(visible, event.word + sizeof(std::uint32_t));
  }
  CHECK(visible == to + bytes);
}

TEMPLATE_TEST_CASE("machine code: no order of stores shows what is settled before the answers that came first",
                   "[fabric][link][order]", Mapped, Posted) {
  Watched<TestType> world;
  world.send(40, true);
  REQUIRE(take_record(world.links[1], kData));
  REQUIRE(send_record(world.links[1], kData, bytes_of("an answer")));  // counted, and before `settled`
  world.links[1].settle(kData);
  const MemoryEvents receiver = world.trace.of([&] { world.links[1].return_room(kData, true); });
  const MemoryEvents sender = world.trace.of([&] { static_cast<void>(world.links[0].settled(kData)); });

  const std::byte* const line = world.at(0, world.anchors[0].tails[kDataLane].offset);
  const auto is_settled = [&](const std::byte* word) { return word == line + kTailSettledAt; };
  const auto stale = [&](const MemoryEvents& stores) {
    return TracedPair(stores, sender, TestType::kOrder).stale(is_settled).has_value();
  };
  CHECK(TracedPair(receiver, sender, TestType::kOrder).shared_loads() >= 2);  // words of both positions
  CHECK_FALSE(stale(receiver));
  CHECK(stale(without(receiver, MemoryEvent::Kind::store_fence)) == (TestType::kOrder == StoreOrder::weaker));
}

TEMPLATE_TEST_CASE("machine code: no order of stores shows a part of a grant or an admission, or counts it too early",
                   "[fabric][memory][order]", Mapped, Posted) {
  Watched<TestType> world;
  DirectAccess& owner = *world.links[0].direct();
  DirectAccess& initiator = *world.links[1].direct();
  const MptAdmission admission{QpNumber{3}, QpNumber{5}, ProtectionDomain{1}};
  MptGrant grant;
  grant.tag = Stag::from(7, 1);
  grant.length = 64;
  grant.window_offset = owner.buffers.offset;
  grant.rights = Rights{} | Right::remote_write;
  grant.domain = admission.domain;
  MptPublisher publisher;
  publisher.start(owner);
  const auto publish = [&](bool memory) {
    REQUIRE((memory ? publisher.grant(owner, grant) : publisher.admit(owner, admission)));
  };
  const bool memory = GENERATE(true, false);
  publish(!memory);
  const MemoryEvents change = world.trace.of([&] { publish(memory); });
  MptView view;
  WindowPlace at;
  const MemoryEvents claim = world.trace.of([&] {
    at = view.claim(initiator, {admission.peer, admission.queue_pair}, grant.tag, 0, 64);
  });
  REQUIRE(at == WindowPlace(owner.buffers.offset));

  constexpr std::size_t kSets = LinkOptions{}.mpt_entries / kMptWays;
  const std::size_t slot = initiator.mpt.offset + grant.tag.index() % kSets * kMptWays * sizeof(MptSlot);
  const std::size_t place =
      initiator.admissions.offset + kMptPlacesAt + admission.queue_pair.value % kSets * kMptWays * sizeof(MptPlace);
  const auto lies_in = [&](const std::byte* word, std::size_t offset, std::size_t bytes) {
    return word >= world.at(1, offset) && word < world.at(1, offset) + bytes;
  };
  const auto is_count = [&](const std::byte* word) { return lies_in(word, initiator.admissions.offset, 8); };
  const auto is_generation = [&](const std::byte* word) { return lies_in(word, slot, 4) || lies_in(word, place, 8); };
  const auto check = [&](const MemoryEvents& reader, const auto& announces) {
    const auto stale = [&](const MemoryEvents& stores) {
      return TracedPair(stores, reader, TestType::kOrder).stale(announces).has_value();
    };
    CHECK_FALSE(stale(change));
    CHECK(stale(without(change, MemoryEvent::Kind::store_fence)) == (TestType::kOrder == StoreOrder::weaker));
  };
  CHECK(TracedPair(change, claim, TestType::kOrder).shared_loads() > 2);
  check(claim, is_count);
  // Who comes before the change is counted sees all of it, too, or nothing.
  MemoryEvents early = claim;
  std::erase_if(early, [&](const MemoryEvent& event) { return is_count(event.word); });
  check(early, is_generation);
}

}  // namespace splitnic::fabric::test::memory_order_test

#endif
