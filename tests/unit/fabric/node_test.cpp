#include "fabric/node/node.h"

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cstring>
#include <map>
#include <set>
#include <thread>
#include <vector>

#include "fabric/adapter/channel_adapter.h"
#include "fabric/verbs/objects.h"
#include "fabric/verbs/wait.h"
#include "verbs_fixture.h"

namespace splitnic::fabric::test::node_test {

using verbs::Context;
using verbs::ContextOptions;
using verbs::test::made;

namespace {

TEST_CASE("ranges of numbers are aligned and never overlap, and come back", "[fabric][node]") {
  SeededRandom random(1);
  constexpr std::uint32_t kEnd = 4096 - 1;
  NumberSpace space(kEnd);
  std::map<std::uint32_t, NumberRange> held;
  std::size_t refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    if (held.empty() || random.below(2) == 0) {
      const auto count = std::uint32_t{1} << random.below(9);
      const auto range = space.take(count);
      if (!range) {
        ++refused;
        continue;
      }
      CHECK(range->count == count);
      CHECK(range->first % count == 0);
      CHECK(range->first + count <= kEnd);
      const auto after = held.lower_bound(range->first);
      if (after != held.end()) CHECK(range->first + count <= after->first);
      if (after != held.begin()) {
        const NumberRange& before = std::prev(after)->second;
        CHECK(before.first + before.count <= range->first);
      }
      held.emplace(range->first, *range);
    } else {
      const auto some = std::next(held.begin(), static_cast<std::ptrdiff_t>(random.below(held.size())));
      space.give_back(some->second);
      held.erase(some);
    }
  }
  CHECK(refused != 0);
  for (const auto& [first, range] : held) space.give_back(range);
  CHECK(space.take(2048) == NumberRange{0, 2048});
}

TEST_CASE("the numbers of an adapter go back to its node with it", "[fabric][node]") {
  Node node;
  constexpr std::uint32_t kHalf = NumberSpace::kNumbers / 2;
  const auto first = node.take(kHalf, 64);
  REQUIRE(first != nullptr);
  auto second = node.take(kHalf, kHalf / 2);  // with fewer spare numbers
  REQUIRE(second != nullptr);
  CHECK_FALSE(second->tags() == first->tags());
  CHECK(node.take(64, 64) == nullptr);  // no tags
  second.reset();
  CHECK(node.take(64, kHalf) == nullptr);  // the upper half has the number that stands for multicast
  CHECK(node.take(kHalf, 64) != nullptr);  // the refusal kept no tags
}

/// What one adapter has drawn: the indices of its tags, and the numbers of its queue pairs.
struct Drawn {
  std::set<std::uint32_t> tags;
  std::set<std::uint32_t> queue_pairs;

  void draw(ChannelAdapter& adapter) {
    const CqNumber completions = adapter.create_completion_queue(8);
    const ProtectionDomain domain = adapter.allocate_domain();
    std::array<std::byte, 16> memory{};
    for (int i = 0; i < 300; ++i) {
      QueuePairAttributes attributes;
      attributes.domain = domain;
      attributes.send_completions = attributes.receive_completions = completions;
      const auto queue_pair = adapter.create_queue_pair(attributes);
      const auto tag = adapter.register_memory(domain, memory, Rights{} | Right::local_read);
      REQUIRE((queue_pair && tag));
      CHECK(adapter.table().find(*tag) != nullptr);
      CHECK(adapter.state(*queue_pair) == QueuePairState::reset);
      tags.insert(tag->index());
      queue_pairs.insert(queue_pair->value);
      REQUIRE(adapter.deregister(*tag) == Status::ok);
      REQUIRE(adapter.destroy_queue_pair(*queue_pair) == Status::ok);
    }
  }
};

bool disjoint(const std::set<std::uint32_t>& one, const std::set<std::uint32_t>& other) {
  return std::ranges::none_of(one, [&](std::uint32_t number) { return other.contains(number); });
}

TEST_CASE("adapters of one node never have the same tag or queue pair", "[fabric][node]") {
  const bool together = GENERATE(true, false);
  Node node;
  SeededRandom randoms[2] = {SeededRandom(5), SeededRandom(5)};  // the same draws
  AdapterOptions options[2];
  for (AdapterOptions& each : options) {
    if (together) each.numbers = take_numbers(node, each);
  }
  ChannelAdapter adapters[2] = {{options[0], randoms[0]}, {options[1], randoms[1]}};
  Drawn drawn[2];
  for (std::size_t i = 0; i < 2; ++i) drawn[i].draw(adapters[i]);
  CHECK(drawn[0].queue_pairs.size() > 250);  // a number seldom comes again
  CHECK(disjoint(drawn[0].tags, drawn[1].tags) == together);
  CHECK(disjoint(drawn[0].queue_pairs, drawn[1].queue_pairs) == together);
}

TEST_CASE("an adapter refuses the tags of another adapter of its node", "[fabric][node]") {
  Node node;
  SeededRandom random(6);
  std::array<std::byte, 16> memory{};
  AdapterOptions options;
  options.numbers = take_numbers(node, options);
  ChannelAdapter first(options, random);
  options.numbers = take_numbers(node, options);
  ChannelAdapter second(options, random);
  const Stag tag = first.register_memory(first.allocate_domain(), memory, Rights{} | Right::local_read).value();
  CHECK(first.deregister(Stag{tag.value + (std::uint32_t{1} << 8U)}) == Status::bad_tag);
  CHECK(second.deregister(tag) == Status::bad_tag);
  CHECK(second.table().find(tag) == nullptr);
  CHECK(second.table().at(tag.index()) == nullptr);
  CHECK(first.deregister(tag) == Status::ok);
}

/// One context of a node, with a thread of its own. It sends messages to the other one, and makes and ends queue pairs
/// and regions meanwhile.
struct Program {
  static constexpr std::uint64_t kMessages = 300;

  explicit Program(Node& node) {
    ContextOptions options;
    options.node = &node;
    context = made(Context::open(options));
    domain = made(context.allocate_domain());
    completions = made(context.create_completion_queue(64));
    region = made(domain.register_memory(memory, verbs::test::kEverything));
    queue_pair = made(another());
    for (std::uint64_t i = 0; i < kSlots; ++i) post_receive(i);
  }
  [[nodiscard]] verbs::Expected<verbs::QueuePair> another() {
    verbs::QueuePairOptions options;
    options.send_completions = options.receive_completions = &completions;
    return domain.create_queue_pair(options);
  }
  void post_receive(std::uint64_t slot) {
    const auto status = queue_pair.post_receive(verbs::receive(slot, region.segment(512 + 8 * slot, 8)));
    failed = failed || status != Status::ok;
  }
  void send() {
    const std::uint64_t number = sent++;
    std::memcpy(memory.data() + 8 * (number % kSlots), &number, sizeof number);
    const auto segment = region.segment(8 * (number % kSlots), 8);
    failed = failed || queue_pair.post_send(verbs::send(kSend, {segment})) != Status::ok;
  }
  void take(const verbs::Completion& done) {
    failed = failed || done.status != verbs::CompletionStatus::success;
    if (!done.receive) return;
    std::uint64_t number = 0;
    std::memcpy(&number, memory.data() + 512 + 8 * done.id, sizeof number);
    failed = failed || number != received++;
    post_receive(done.id);
  }
  /// The thread.
  void run() {
    while (!failed && (received < kMessages || sent < kMessages)) {
      const Time now = monotonic_now();
      std::size_t moved = context.poll(now);
      std::array<verbs::Completion, 16> done;
      const std::size_t count = completions.poll(done);
      for (std::size_t i = 0; i < count; ++i) take(done[i]);
      if (path.up() && sent < kMessages && sent < received + kAhead) {
        send();
        const verbs::QueuePair one = made_here(another());
        const verbs::MemoryRegion other = made_here(domain.register_memory(memory, verbs::test::kEverything));
        queue_pairs.insert(one.address().queue_pair.value);
        tags.insert(other.tag().index());
        ++moved;
      }
      if (moved + count == 0) {
        failed = failed || verbs::wait(context, now, now + std::chrono::seconds(10)) != Status::ok;
      }
    }
  }
  template <class T>
  T made_here(verbs::Expected<T> object) {  // no assertions of the test on this thread
    failed = failed || !object;
    return object ? std::move(*object) : T();
  }

  static constexpr std::uint64_t kSlots = 8;  // of messages that leave, and of receives
  static constexpr std::uint64_t kAhead = 4;  // of the messages that have arrived: the other end is as far ahead
  static constexpr std::uint64_t kSend = 100;
  std::vector<std::byte> memory = std::vector<std::byte>(1024);
  Context context;
  verbs::ProtectionDomain domain;
  verbs::CompletionQueue completions;
  verbs::MemoryRegion region;
  verbs::QueuePair queue_pair;
  verbs::Path path;
  std::uint64_t sent = 0;
  std::uint64_t received = 0;
  bool failed = false;
  std::set<std::uint32_t> tags;
  std::set<std::uint32_t> queue_pairs;
};

// Under ThreadSanitizer this shows that two adapters of a node share nothing but the rings of the link between them.
TEST_CASE("two contexts of a node, each with a thread, talk over a loop-back and have numbers of their own",
          "[fabric][node][stress]") {
  Node node;
  auto first = std::make_unique<Program>(node);
  auto second = std::make_unique<Program>(node);
  auto paths = made(first->context.add_loopback(second->context));
  first->path = std::move(paths[0]);
  second->path = std::move(paths[1]);
  while (!first->path.up() || !second->path.up()) {
    first->context.poll(monotonic_now());
    second->context.poll(monotonic_now());
  }
  REQUIRE(first->queue_pair.connect(first->path, second->queue_pair.address()) == Status::ok);
  REQUIRE(second->queue_pair.connect(second->path, first->queue_pair.address()) == Status::ok);
  std::thread other([&second] { second->run(); });
  first->run();
  other.join();
  CHECK_FALSE(first->failed);
  CHECK_FALSE(second->failed);
  CHECK(first->received == Program::kMessages);
  CHECK(second->received == Program::kMessages);
  CHECK(disjoint(first->tags, second->tags));
  CHECK(disjoint(first->queue_pairs, second->queue_pairs));

  // The end of one context is the end of the other's path, and of nothing else.
  const Stag tag = first->region.tag();
  second.reset();
  while (first->path.up()) first->context.poll(monotonic_now());
  CHECK(first->context.object()->adapter.table().find(tag) != nullptr);
}

TEST_CASE("what a context remembers of its tags does not depend on the other contexts of its node", "[fabric][node]") {
  Node node;
  const auto owners = [&node] {
    SeededRandom random(8);  // the same draws
    ContextOptions options;
    options.node = &node;
    options.random = &random;
    Context context = made(Context::open(options));
    auto domain = made(context.allocate_domain());
    std::array<std::byte, 16> memory{};
    const auto region = made(domain.register_memory(memory, Rights{} | Right::local_read));
    CHECK(region.valid());
    return context.object()->tag_owners.size();
  };
  const std::size_t of_first = owners();
  CHECK(of_first != 0);
  AdapterOptions others;
  std::vector<std::shared_ptr<const Node::Numbers>> taken;
  for (int i = 0; i < 8; ++i) taken.push_back(take_numbers(node, others));
  CHECK(owners() == of_first);
}

TEST_CASE("verbs: a loop-back needs two contexts of this process", "[fabric][verbs][node]") {
  Node node;
  ContextOptions options;
  options.node = &node;
  Context context = made(Context::open(options));
  Context none;
  CHECK(verbs::test::refusal(context.add_loopback(context)) == Status::bad_argument);
  CHECK(verbs::test::refusal(context.add_loopback(none)) == Status::bad_argument);
  CHECK(verbs::test::refusal(none.add_loopback(context)) == Status::bad_argument);
  options.adapter.max_regions = ContextOptions::kMaxTags;  // all tags of a node
  CHECK(verbs::test::refusal(Context::open(options)) == Status::no_resources);
}

}  // namespace
}  // namespace splitnic::fabric::test::node_test
