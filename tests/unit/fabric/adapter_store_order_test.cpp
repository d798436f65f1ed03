// In which order adapters store: a slot is the peer's after its payload is there, and it is settled, and its room given
// back, after it was placed. One thread sees its own stores at once, so only a trace of the instructions can tell.
#include "memory_trace.h"

#ifdef SPLITNIC_MEMORY_TRACE

#include <catch2/catch.hpp>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "bridge_fixtures.h"
#include "fabric/adapter/channel_adapter.h"
#include "fabric/bridge/anchor.h"
#include "fabric/bridge/link.h"
#include "fabric/verbs/requests.h"
#include "mapped_memory.h"

namespace splitnic::fabric::test::adapter_store_order_test {
namespace {

using Kind = MemoryEvent::Kind;

constexpr std::size_t kDataLane = 1;
constexpr std::size_t kTargetBytes = 16384;
constexpr Rights kRights = Right::local_read | Right::local_write | Right::remote_write;

/// Two adapters over shared memory, connected. The first sends; what the second receives is watched, as their bridge
/// is.
class World {
 public:
  World() {
    for (auto& link : links) link.restart();
    for (int i = 0; i < 100 && !(links[0].up() && links[1].up()); ++i) poll(0), poll(1);
    REQUIRE((links[0].up() && links[1].up()));
    for (std::size_t end = 0; end < 2; ++end) {
      adapters[end] = std::make_unique<ChannelAdapter>(links[end], AdapterOptions{}, random);
      domains[end] = adapters[end]->allocate_domain();
      QueuePairAttributes with;
      with.domain = domains[end];
      with.send_completions = with.receive_completions = adapters[end]->create_completion_queue(256);
      with.max_inline_bytes = 64;
      numbers[end] = adapters[end]->create_queue_pair(with).value();
      AnchorBytes bytes;
      memory(end).copy_out(0, std::as_writable_bytes(std::span(&bytes, 1)));
      anchors[end] = decode_anchor(bytes, 0, memory(end).size()).value();
    }
    for (std::size_t end = 0; end < 2; ++end) {
      REQUIRE(adapters[end]->connect(numbers[end], {numbers[1 - end], 5, 5}) == Status::ok);
    }
    from = adapters[0]->register_memory(domains[0], source, kRights).value();
    into = adapters[1]->register_memory(domains[1], {target.data(), target.size()}, kRights).value();
    granted = {links[1].buffers().offset, kTargetBytes};
    const Stag tag = adapters[1]->register_bridge_memory(domains[1], granted, kRights, /*placeable=*/true).value();
    direct = {adapters[1]->region_address(tag), tag};
    settle();
    trace.emplace(std::vector{pages(0, anchors[0].tails[kDataLane]), pages(1, anchors[1].slots[kDataLane]),
                              pages(1, anchors[1].payloads[kDataLane]), pages(1, granted),
                              std::span(target.data(), target.size())},
                  MemoryTrace::Fences::of_the_processor);
  }

  void poll(std::size_t end) {
    now += std::chrono::microseconds(10);
    links[end].poll(now);
    if (adapters[end] != nullptr) static_cast<void>(adapters[end]->poll(now));
  }
  void settle() {
    for (int i = 0; i < 20; ++i) poll(0), poll(1);
  }
  [[nodiscard]] PeerMemory memory(std::size_t end) { return bridges.end(end).local_memory(); }
  [[nodiscard]] std::byte* at(std::size_t end, std::size_t offset) {
    return static_cast<std::byte*>(memory(end).for_kernel(offset, 1).iov_base);
  }
  [[nodiscard]] bool in_range(const std::byte* word, std::size_t end, const MemoryRange& range) {
    const std::byte* const first = at(end, range.offset);
    return word >= first && word < first + range.bytes;
  }
  /// Of the slots and payloads that the first end sends, or of what it stores directly.
  [[nodiscard]] bool is_sent(const std::byte* word) { return in_slot(word) || in_range(word, 1, granted); }
  [[nodiscard]] bool in_slot(const std::byte* word) {
    return in_range(word, 1, anchors[1].slots[kDataLane]) || in_range(word, 1, anchors[1].payloads[kDataLane]);
  }
  [[nodiscard]] bool is_sequence(const std::byte* word) {
    const MemoryRange& slots = anchors[1].slots[kDataLane];
    return in_range(word, 1, slots) && (word - at(1, slots.offset)) % static_cast<std::ptrdiff_t>(kSlotLine) == 0;
  }
  [[nodiscard]] LocalSegment part(std::size_t offset, std::size_t bytes) {
    return {source.data() + offset, static_cast<std::uint32_t>(bytes), from};
  }

  ShmPairBridges bridges;
  SeededRandom random{5};
  std::array<FabricLink, 2> links{FabricLink(bridges.end(0), {}, random), FabricLink(bridges.end(1), {}, random)};
  std::array<std::unique_ptr<ChannelAdapter>, 2> adapters;
  std::array<ProtectionDomain, 2> domains;
  std::array<QpNumber, 2> numbers;
  std::array<Anchor, 2> anchors;
  std::vector<std::byte> source = random_bytes(random, kTargetBytes);
  MappedMemory target{kTargetBytes};  ///< of receives, and of writes in cells
  Stag from{};
  Stag into{};
  RemoteAddress direct{};
  MemoryRange granted{};  ///< where `direct` lies
  Time now{};
  std::optional<MemoryTrace> trace;

 private:
  /// The whole pages with this range of an end's memory.
  [[nodiscard]] std::span<std::byte> pages(std::size_t end, MemoryRange range) {
    const std::size_t first = range.offset / page_bytes() * page_bytes();
    const std::size_t behind = (range.offset + range.bytes + page_bytes() - 1) / page_bytes() * page_bytes();
    return {at(end, first), behind - first};
  }
};

struct Case {
  const char* name;
  std::function<WorkRequest(World&)> request;
  bool stores_directly = false;
  bool scattered = false;  ///< into a receive of two segments, and so by the general way
  bool behind = false;     ///< a direct write that is not settled
  bool in_a_row = false;   ///< after another one, in a list
};

WorkRequest as_inline(WorkRequest request) {
  request.inline_data = true;
  return request;
}

const std::array kCases{
    Case{"a send of one line", [](World& world) { return verbs::send(1, {world.part(0, 30)}); }},
    Case{"a send of two lines", [](World& world) { return verbs::send(1, {world.part(0, 80)}); }},
    Case{"a send through the payload ring", [](World& world) { return verbs::send(1, {world.part(0, 600)}); }},
    Case{"a send past the caches", [](World& world) { return verbs::send(1, {world.part(0, 4000)}); }},
    Case{"a send into two segments", [](World& world) { return verbs::send(1, {world.part(0, 80)}); }, false, true},
    Case{"a send through the payload ring into two segments",
         [](World& world) { return verbs::send(1, {world.part(0, 600)}); }, false, true},
    Case{"a send of two segments",
         [](World& world) {
           return verbs::send(1, {world.part(0, 300), world.part(500, 300)});
         }},
    Case{"an inline send", [](World& world) { return as_inline(verbs::send(1, {world.part(0, 60)})); }},
    Case{"a write in cells",
         [](World& world) {
           const RemoteAddress to{world.adapters[1]->region_address(world.into), world.into};
           return verbs::rdma_write_with_immediate(1, {world.part(0, 600)}, to, 7);
         }},
    Case{"a direct write",
         [](World& world) { return verbs::rdma_write_with_immediate(1, {world.part(0, 64)}, world.direct, 7); }, true},
    Case{"a direct write past the caches",
         [](World& world) { return verbs::rdma_write_with_immediate(1, {world.part(0, 4000)}, world.direct, 7); },
         true},
    Case{"a direct write of two segments",
         [](World& world) {
           return verbs::rdma_write_with_immediate(1, {world.part(0, 300), world.part(500, 300)}, world.direct, 7);
         },
         true},
    Case{"a direct write in a row",
         [](World& world) { return verbs::rdma_write_with_immediate(1, {world.part(0, 64)}, world.direct, 7); }, true,
         false, false, true},
    Case{"a direct write behind another",
         [](World& world) { return verbs::rdma_write(1, {world.part(0, 64)}, world.direct); }, true, false, true},
};

bool is_store(const MemoryEvent& event) { return event.kind == Kind::store || event.kind == Kind::streamed_store; }
bool is_fence(const MemoryEvent& event) { return event.kind == Kind::store_fence || event.kind == Kind::full_fence; }

/// The traces of one message: of the end that sends it, and of the one that receives it and then looks at what a direct
/// write has stored.
struct Message {
  MemoryEvents sender;
  MemoryEvents receiver;
};

void post_receive(World& world, const Case& one) {
  const std::uint32_t first = one.scattered ? 48 : static_cast<std::uint32_t>(world.target.size());
  const LocalSegment rest{world.target.data() + first, static_cast<std::uint32_t>(world.target.size()) - first,
                          world.into};
  const auto more = std::span(&rest, 1).first(one.scattered ? 1 : 0);
  REQUIRE(world.adapters[1]->post_receive(world.numbers[1], {1, {world.target.data(), first, world.into}, more}) ==
          Status::ok);
}

/// again: the message has been sent before, so that everything is remembered that it needs.
Message trace_message(World& world, const Case& one, bool again) {
  const WorkRequest request = one.request(world);
  if (again) {
    post_receive(world, one);
    REQUIRE(world.adapters[0]->post_send(world.numbers[0], request) == Status::ok);
    world.settle();
    std::ranges::fill(std::span(world.target.data(), world.target.size()), std::byte{});
  }
  std::vector<std::byte> expected;
  for (const LocalSegment& segment : std::span(request.segments).first(request.segment_count)) {
    expected.insert(expected.end(), segment.address, segment.address + segment.bytes);
  }
  std::byte* const target = one.stores_directly ? world.at(1, world.granted.offset) : world.target.data();
  std::ranges::fill(std::span(target, expected.size()), std::byte{});
  post_receive(world, one);
  if (one.in_a_row) post_receive(world, one);
  if (one.behind) {
    const RemoteAddress at{world.direct.address + kTargetBytes / 2, world.direct.tag};
    const WorkRequest first = verbs::rdma_write_with_immediate(2, {world.part(0, 64)}, at, 7);
    REQUIRE(world.adapters[0]->post_send(world.numbers[0], first) == Status::ok);
  }
  const std::vector<WorkRequest> requests(one.in_a_row ? 2 : 1, request);
  Message message;
  std::size_t posted = 0;
  message.sender = world.trace->of([&] {
    static_cast<void>(world.adapters[0]->post_send(world.numbers[0], requests, posted));
    world.poll(0);
  });
  REQUIRE(posted == requests.size());
  volatile std::byte looked{};
  message.receiver = world.trace->of([&] {
    for (int i = 0; i < 5; ++i) world.poll(1);
    for (std::size_t i = 0; one.stores_directly && i < expected.size(); i += 4) looked = target[i];
  });
  REQUIRE(std::ranges::equal(expected, std::span(target, expected.size())));
  return message;
}

/// What the receiver loads although it may be older than the release of its slot. On x86 stores become visible in their
/// order, except those past the caches, which a fence orders.
std::optional<MemoryEvent> published_late(World& world, const Message& message) {
  std::map<const std::byte*, std::size_t> stored;  // when last
  for (std::size_t i = 0; i < message.sender.size(); ++i) {
    const MemoryEvent& event = message.sender[i];
    if (is_store(event) && world.is_sent(event.word)) stored[event.word] = i;
  }
  std::size_t released = 0;
  std::size_t looked_at = 0;
  for (const MemoryEvent& load : message.receiver) {
    const auto found = stored.find(load.word);
    if (load.kind != Kind::load || found == stored.end()) continue;
    const std::size_t when = found->second;
    if (world.is_sequence(load.word) && message.sender[when].value == load.value) {
      released = std::max(released, when);
      continue;
    }
    ++looked_at;
    const bool in_time = when < released;
    const bool streamed = message.sender[when].kind == Kind::streamed_store;
    const auto between = std::span(message.sender).subspan(when, in_time ? released - when : 0);
    if (!in_time || (streamed && std::ranges::none_of(between, is_fence))) return load;
  }
  REQUIRE(released != 0);
  REQUIRE(looked_at > 2);
  return std::nullopt;
}

/// When the receiver first says, in the word at `offset` of the tail line, what it says last.
std::size_t said_at(World& world, const MemoryEvents& receiver, std::size_t offset) {
  const std::byte* const word = world.at(0, world.anchors[0].tails[kDataLane].offset) + offset;
  std::optional<std::size_t> when;
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < receiver.size(); ++i) {
    if (!is_store(receiver[i]) || receiver[i].word != word) continue;
    if (!when || receiver[i].value != value) when = i;
    value = receiver[i].value;
  }
  REQUIRE(when.has_value());
  return *when;
}

/// The last event of the kind for which `which` holds; 0: there is none.
template <class Which>
std::size_t last(const MemoryEvents& events, Which&& which) {
  for (std::size_t i = events.size(); i > 0; --i) {
    if (which(events[i - 1])) return i - 1;
  }
  return 0;
}

void check_settled_when_placed(World& world, const Message& message, bool stores_directly) {
  const std::size_t placed = last(message.receiver, [&](const MemoryEvent& event) {
    return is_store(event) && event.word >= world.target.data() && event.word < world.target.at(kTargetBytes);
  });
  std::set<const std::byte*> sent;
  for (const MemoryEvent& event : message.sender) {
    if (is_store(event)) sent.insert(event.word);
  }
  const std::size_t read = last(message.receiver, [&](const MemoryEvent& event) {
    return event.kind == Kind::load && world.in_slot(event.word) && sent.contains(event.word);
  });
  CHECK((placed != 0) == !stores_directly);
  CHECK(read != 0);
  CHECK(placed < said_at(world, message.receiver, kTailSettledAt));
  CHECK(read < said_at(world, message.receiver, kTailAt));
}

}  // namespace

TEST_CASE("machine code: adapters release slots when their payload is stored, and settle them when it is placed",
          "[fabric][adapter][order]") {
  for (const Case& one : kCases) {
    for (const bool again : {false, true}) {
      INFO(one.name << (again ? ", again" : ""));
      World world;
      const Message message = trace_message(world, one, again);
      CHECK_FALSE(published_late(world, message).has_value());
      check_settled_when_placed(world, message, one.stores_directly);
    }
  }
}

}  // namespace splitnic::fabric::test::adapter_store_order_test

#endif
