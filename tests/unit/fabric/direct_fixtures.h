#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "adapter_requests.h"
#include "fabric/adapter/dma_provider.h"

/// What the tests of bytes that move through the window share.
namespace splitnic::fabric::test::direct {

/// An engine that takes its time: what was started is moved, or fails, when the test says so.
class SlowEngine final : public DmaProvider {
 public:
  [[nodiscard]] DmaStart start(const DmaTransfer& transfer) override {
    if (waiting.size() == room) return DmaStart::busy;
    waiting.push_back(transfer);
    return DmaStart::started;
  }
  [[nodiscard]] std::size_t poll(std::span<DmaCompletion> out) override {
    std::size_t count = 0;
    for (; count < out.size() && !ended.empty(); ++count) {
      out[count] = ended.front();
      ended.pop_front();
    }
    return count;
  }
  void abandon(const PeerWindow& window) override {
    std::erase_if(waiting, [&](const DmaTransfer& transfer) { return transfer.window == &window; });
    ++abandoned;
  }

  void finish(std::size_t which = 0) {
    const DmaTransfer transfer = take(which);
    ProcessorCopy copy;
    ended.push_back({transfer.id, copy.start(transfer) == DmaStart::moved});
  }
  void fail(std::size_t which = 0) { ended.push_back({take(which).id, false}); }

  std::size_t room = 16;
  std::deque<DmaTransfer> waiting;
  int abandoned = 0;

 private:
  DmaTransfer take(std::size_t which) {
    DmaTransfer transfer = waiting.at(which);
    waiting.erase(waiting.begin() + static_cast<std::ptrdiff_t>(which));
    return transfer;
  }
  std::deque<DmaCompletion> ended;
};

/// Bridge memory of an end, granted to its peer.
struct Granted {
  Granted(TwoEndpoints& two, std::size_t index, std::size_t bytes = 16384)
      : owner(&two.end(index)), range{two.pair.link(index).buffers().offset, bytes} {
    REQUIRE(grant());
    memory = two.pair.link(index).bridge().local_memory().slice(range.offset, bytes);
    two.run(milliseconds(1));
  }
  bool grant() {
    const auto made =
        owner->adapter.register_bridge_memory(owner->domain, range, kAllRights | Right::remote_read, true);
    if (made) tag = *made;
    return made.has_value();
  }
  [[nodiscard]] RemoteAddress at(std::size_t offset = 0) const {
    return {owner->adapter.region_address(tag) + offset, tag};
  }
  [[nodiscard]] std::vector<std::byte> bytes(std::size_t from, std::size_t count) const {
    std::vector<std::byte> copy(count);
    memory.copy_out(from, copy);
    return copy;
  }

  Endpoint* owner;
  MemoryRange range;
  Stag tag{};
  PeerMemory memory;
};

/// Two ends; the first moves its bytes by the engine.
struct WithEngine {
  explicit WithEngine(DmaProvider& engine) {
    AdapterOptions options = test::small_cells();
    options.dma = &engine;
    two.emplace(options);
  }
  Endpoint& end(std::size_t index) { return two->end(index); }
  std::optional<TwoEndpoints> two;
};

}  // namespace splitnic::fabric::test::direct
