#include "messaging/channel.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "fabric/bridge/link.h"
#include "fabric/bridge/shm_bridge.h"
#include "tests/unit/loads_once.h"

namespace splitnic::messaging::channel_test {

namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

struct Received final : ChannelSink {
  std::vector<std::vector<std::byte>> messages;
  std::vector<std::uint32_t> immediates;
  std::vector<fabric::CompletionStatus> failures;
  void on_message(std::span<const std::byte> message) override {
    messages.emplace_back(message.begin(), message.end());
  }
  void on_immediate(std::uint32_t immediate) override { immediates.push_back(immediate); }
  void on_channel_failure(fabric::CompletionStatus status) override { failures.push_back(status); }
};

/// One end: a link, an adapter, a channel, and what came out of it.
struct End {
  End(fabric::Bridge& bridge, RandomSource& random) : link(bridge, {}, random), random_(random) { link.restart(); }
  ~End() { REQUIRE(link.doorbells_left_out() == 0); }
  void open(const ChannelOptions& options) {
    if (!adapter) {
      adapter = std::make_unique<fabric::ChannelAdapter>(link, fabric::AdapterOptions{}, random_);
      domain = adapter->allocate_domain();
    }
    channel = Channel::open(*adapter, domain, options);
    REQUIRE(channel);
  }
  /// The adapter alone: what arrives waits for the channel.
  void poll_adapter(Time now) {
    link.poll(now);
    if (adapter) adapter->poll(now);
    link.notify();
  }

  fabric::FabricLink link;
  std::unique_ptr<fabric::ChannelAdapter> adapter;
  fabric::ProtectionDomain domain{};
  std::unique_ptr<Channel> channel;
  Received got;

 private:
  RandomSource& random_;
};

/// A channel between two ends in one process, in simulated time.
class Dialogue {
 public:
  explicit Dialogue(const ChannelOptions& options) : Dialogue(options, options) {}
  Dialogue(const ChannelOptions& of_left, const ChannelOptions& of_right) {
    while (!left.link.up() || !right.link.up()) step();
    left.open(of_left);
    right.open(of_right);
    REQUIRE(left.channel->connect({.number = right.channel->number()}) == fabric::Status::ok);
    REQUIRE(right.channel->connect({.number = left.channel->number()}) == fabric::Status::ok);
  }

  void step() {
    left.poll_adapter(now);
    right.poll_adapter(now);
    now += microseconds(20);
  }
  /// Both run, and both channels are polled.
  void run(Duration time = milliseconds(2)) {
    for (const Time end = now + time; now < end;) {
      step();
      if (left.channel) left.channel->poll(left.got, 64);
      if (right.channel) right.channel->poll(right.got, 64);
    }
  }
  /// Only the adapters run: completions wait.
  void run_adapters(Duration time = milliseconds(2)) {
    for (const Time end = now + time; now < end;) step();
  }
  bool send(std::size_t bytes, std::byte fill = std::byte{7}) {
    const auto buffer = left.channel->claim();
    if (buffer.size() < bytes) return false;
    std::fill_n(buffer.begin(), bytes, fill);
    return left.channel->commit(bytes);
  }

 private:
  std::pair<std::unique_ptr<fabric::Bridge>, std::unique_ptr<fabric::Bridge>> ends_ =
      std::move(*fabric::shm_pair(1U << 20U, 1U << 20U));
  SeededRandom random_{3};

 public:
  Time now{};
  splitnic::test::LoadsOnce loads_{ends_.first->local_memory(), ends_.second->local_memory()};
  End left{*ends_.first, random_};
  End right{*ends_.second, random_};
};

ChannelOptions small() { return {.send_buffers = 4, .receive_buffers = 4, .message_bytes = 256}; }

}  // namespace

TEST_CASE("a message arrives whole, from one byte to the size of the buffers", "[messaging][channel]") {
  Dialogue dialogue(small());
  std::size_t count = 0;
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{255}, std::size_t{256}}) {
    REQUIRE(dialogue.send(bytes, static_cast<std::byte>(bytes)));
    dialogue.run();
    REQUIRE(dialogue.right.got.messages.size() == ++count);
    REQUIRE(dialogue.right.got.messages.back() == std::vector<std::byte>(bytes, static_cast<std::byte>(bytes)));
  }
  REQUIRE(dialogue.left.channel->claim().size() == 256);
  REQUIRE(dialogue.left.got.messages.empty());
  REQUIRE(dialogue.left.got.failures.empty());
}

TEST_CASE("a message that the receiver's buffer can't hold ends the channel at both ends", "[messaging][channel]") {
  auto of_right = small();
  of_right.message_bytes = 128;
  Dialogue dialogue(small(), of_right);
  REQUIRE(dialogue.send(127));
  REQUIRE(dialogue.send(128));
  dialogue.run();
  REQUIRE(dialogue.right.got.messages.size() == 2);
  REQUIRE(dialogue.left.got.failures.empty());
  REQUIRE(dialogue.send(129));
  dialogue.run();
  REQUIRE(dialogue.right.got.messages.size() == 2);
  REQUIRE_FALSE(dialogue.left.got.failures.empty());
  REQUIRE_FALSE(dialogue.right.got.failures.empty());
  REQUIRE(dialogue.left.channel->claim().empty());
  REQUIRE_FALSE(dialogue.left.channel->can_write());
}

TEST_CASE("there are as many claims as send buffers, and a completion brings one back", "[messaging][channel]") {
  Dialogue dialogue(small());
  const std::byte* first = dialogue.left.channel->claim().data();
  REQUIRE(dialogue.left.channel->claim().data() == first);  // not used yet: the same again
  for (int count = 0; count < 4; ++count) {
    REQUIRE(dialogue.left.channel->posted() == static_cast<std::uint64_t>(count));
    REQUIRE(dialogue.send(10));
  }
  REQUIRE(dialogue.left.channel->claim().empty());
  REQUIRE(dialogue.left.channel->posted() == 4);
  REQUIRE(dialogue.left.channel->completed() == 0);
  dialogue.run_adapters();
  REQUIRE(dialogue.left.channel->claim().empty());  // completed, and not polled
  REQUIRE(dialogue.left.channel->completed() == 0);
  REQUIRE(dialogue.left.channel->poll(dialogue.left.got, 1) == 1);
  REQUIRE(dialogue.left.channel->completed() == 1);
  REQUIRE(dialogue.send(10));
  REQUIRE(dialogue.left.channel->claim().empty());
  REQUIRE(dialogue.left.channel->posted() == 5);
  dialogue.run();
  REQUIRE(dialogue.left.channel->completed() == 5);
  REQUIRE(dialogue.right.got.messages.size() == 5);
}

TEST_CASE("messages beyond the posted receives wait for a buffer, and arrive in order", "[messaging][channel]") {
  auto of_left = small();
  of_left.send_buffers = 16;
  for (const std::size_t count : {3U, 4U, 5U, 16U}) {
    Dialogue dialogue(of_left, small());
    for (std::size_t number = 0; number < count; ++number) REQUIRE(dialogue.send(8, static_cast<std::byte>(number)));
    dialogue.run_adapters();
    dialogue.left.channel->poll(dialogue.left.got, 64);
    REQUIRE(dialogue.left.channel->completed() == std::min<std::size_t>(count, 4));
    dialogue.run(milliseconds(100));
    REQUIRE(dialogue.right.got.messages.size() == count);
    for (std::size_t number = 0; number < count; ++number) {
      REQUIRE(dialogue.right.got.messages[number][0] == static_cast<std::byte>(number));
    }
    REQUIRE(dialogue.left.channel->completed() == count);
    REQUIRE(dialogue.left.got.failures.empty());
  }
}

TEST_CASE("a poll handles what its budget allows, and says how much that was", "[messaging][channel]") {
  Dialogue dialogue(small());
  for (int count = 0; count < 4; ++count) REQUIRE(dialogue.send(8));
  dialogue.run_adapters();
  auto& right = dialogue.right;
  REQUIRE(right.channel->poll(right.got, 0) == 0);
  REQUIRE(right.channel->poll(right.got, 3) == 3);
  REQUIRE(right.got.messages.size() == 3);
  REQUIRE(right.channel->poll(right.got, 2) == 1);
  REQUIRE(right.channel->poll(right.got, 1) == 0);
  REQUIRE(right.got.messages.size() == 4);
}

TEST_CASE("a poll takes more than one batch where its budget is larger", "[messaging][channel]") {
  const ChannelOptions options{.send_buffers = 70, .receive_buffers = 70, .message_bytes = 64};
  Dialogue dialogue(options);
  for (int count = 0; count < 70; ++count) REQUIRE(dialogue.send(8));
  dialogue.run_adapters(milliseconds(5));
  REQUIRE(dialogue.right.channel->poll(dialogue.right.got, 65) == 65);
  REQUIRE(dialogue.right.channel->poll(dialogue.right.got, 100) == 5);
}

TEST_CASE("a buffer received into is posted again, for as long as the channel lives", "[messaging][channel]") {
  Dialogue dialogue(small());
  for (std::size_t number = 1; number <= 100; ++number) {
    REQUIRE(dialogue.send(16, static_cast<std::byte>(number)));
    dialogue.run(microseconds(200));
    REQUIRE(dialogue.right.got.messages.size() == number);
    REQUIRE(dialogue.right.got.messages.back()[15] == static_cast<std::byte>(number));
  }
}

TEST_CASE("writes leave the send buffers' places to messages", "[messaging][channel]") {
  auto options = small();
  options.writes = 2;
  Dialogue dialogue(options);
  std::vector<std::byte> memory(1024);
  const auto tag = dialogue.right.adapter->register_memory(dialogue.right.domain, memory,
                                                           fabric::Right::local_read | fabric::Right::remote_write);
  REQUIRE(tag);
  const fabric::RemoteAddress to{dialogue.right.adapter->region_address(*tag), *tag};
  auto& channel = *dialogue.left.channel;
  const std::uint32_t immediate = 0x01020304;
  REQUIRE(channel.can_write());
  REQUIRE_FALSE(channel.claim().empty());
  REQUIRE(channel.commit_write(100, to, &immediate));
  REQUIRE(channel.can_write());
  REQUIRE_FALSE(channel.claim().empty());
  REQUIRE(channel.commit_write(100, {to.address + 100, to.tag}, nullptr));
  REQUIRE_FALSE(channel.can_write());
  REQUIRE(dialogue.send(8));  // a message still has a place
  REQUIRE(dialogue.send(8));
  REQUIRE(channel.posted() == 4);
  dialogue.run();
  REQUIRE(channel.can_write());
  REQUIRE(channel.completed() == 4);
  REQUIRE(dialogue.right.got.immediates == std::vector<std::uint32_t>{immediate});
  REQUIRE(dialogue.right.got.messages.size() == 2);
}

TEST_CASE("immediates leave the posted receives to messages, and none of them is posted anew", "[messaging][channel]") {
  ChannelOptions options = small();
  options.writes = 4;
  Dialogue dialogue(options);
  End& right = dialogue.right;
  std::vector<std::byte> memory(256);
  const auto tag =
      right.adapter->register_memory(right.domain, memory, fabric::Right::local_read | fabric::Right::remote_write);
  const fabric::RemoteAddress to{right.adapter->region_address(tag.value()), *tag};
  for (std::uint32_t round = 0; round < 10; ++round) {
    // As many of each as there are receives wait for the channel.
    for (std::uint32_t i = 0; i < 4; ++i) {
      REQUIRE_FALSE(dialogue.left.channel->claim().empty());
      REQUIRE(dialogue.left.channel->commit_write(8, to, &i));
    }
    dialogue.run_adapters();
    dialogue.left.channel->poll(dialogue.left.got, 64);
    for (std::size_t i = 0; i < 4; ++i) REQUIRE(dialogue.send(10));
    dialogue.run_adapters();
    CHECK(dialogue.left.channel->completed() == 8 * (round + 1));
    dialogue.run();
  }
  CHECK(right.got.immediates.size() == 40);
  CHECK(right.got.messages.size() == 40);
  const auto counts = right.adapter->counts(right.channel->number());
  REQUIRE(counts.has_value());
  CHECK(counts->receives_taken == 40);
  CHECK(counts->receives_posted == 44);
  CHECK(right.got.failures.empty());
}

TEST_CASE("a write puts the claim's bytes where it says, and nothing elsewhere", "[messaging][channel]") {
  auto options = small();
  options.writes = 8;
  Dialogue dialogue(options);
  std::vector<std::byte> memory(1024);
  const auto tag = dialogue.right.adapter->register_memory(dialogue.right.domain, memory,
                                                           fabric::Right::local_read | fabric::Right::remote_write);
  REQUIRE(tag);
  const std::uint64_t address = dialogue.right.adapter->region_address(*tag);
  const auto write = [&](std::uint64_t offset, std::size_t bytes) {
    const auto buffer = dialogue.left.channel->claim();
    std::fill(buffer.begin(), buffer.end(), std::byte{9});
    REQUIRE(dialogue.left.channel->commit_write(bytes, {address + offset, *tag}, nullptr));
    dialogue.run();
  };
  write(100, 50);
  auto expected = std::vector<std::byte>(1024);
  std::fill_n(expected.begin() + 100, 50, std::byte{9});
  REQUIRE(memory == expected);
  write(1024 - 50, 50);
  std::fill_n(expected.begin() + 974, 50, std::byte{9});
  REQUIRE(memory == expected);
  REQUIRE(dialogue.left.got.failures.empty());
  write(1024 - 50, 51);  // one byte beyond the region
  REQUIRE(memory == expected);
  REQUIRE_FALSE(dialogue.left.got.failures.empty());
}

TEST_CASE("an unacknowledged channel completes without the peer", "[messaging][channel]") {
  auto options = small();
  options.acknowledged = false;
  Dialogue dialogue(options);
  REQUIRE(dialogue.send(8));
  dialogue.left.poll_adapter(dialogue.now);
  dialogue.left.channel->poll(dialogue.left.got, 64);
  REQUIRE(dialogue.left.channel->completed() == 1);
  dialogue.run();
  REQUIRE(dialogue.right.got.messages.size() == 1);
  REQUIRE(dialogue.left.got.failures.empty());
}

TEST_CASE("a closed channel leaves nothing behind: there is room for the next one, for ever", "[messaging][channel]") {
  Dialogue dialogue(small());
  for (int count = 0; count < 2000; ++count) {
    dialogue.left.channel.reset();
    dialogue.left.open(small());
  }
  SECTION("a well-known number can be used again") {
    auto known = small();
    known.number = fabric::QpNumber{1};
    dialogue.left.open(known);
    REQUIRE(dialogue.left.channel->number() == fabric::QpNumber{1});
    REQUIRE(Channel::open(*dialogue.left.adapter, dialogue.left.domain, known) == nullptr);  // while it is in use
    dialogue.left.channel.reset();
    dialogue.left.open(known);
  }
}

}  // namespace splitnic::messaging::channel_test
