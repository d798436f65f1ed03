#include "tests/sim_bridge/sim_bridge.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "common/check.h"

namespace splitnic::fabric {
namespace {

struct alignas(64) Line {
  std::byte bytes[64];
};

/// Writes under way to a memory, sorted by their arrival times.
class WritesUnderWay {
 public:
  void add(std::size_t offset, std::span<const std::byte> bytes, Time due) {
    const std::size_t end = offset + bytes.size();
    due = std::max(due, floor_);
    for (const auto& other : group_) {
      // Later writes to the same bytes arrive later.
      if (offset < other.end && other.offset < end) due = std::max(due, other.due);
    }
    group_.push_back({offset, end, due});
    latest_ = std::max(latest_, due);
    under_way_.emplace(std::pair(due, next_++), Write{offset, {bytes.begin(), bytes.end()}});
  }

  /// All later writes arrive after all earlier ones.
  void order() {
    floor_ = latest_;
    group_.clear();
  }

  template <class Land>
  void land_until(Time now, Land&& land) {
    while (!under_way_.empty() && under_way_.begin()->first.first <= now) {
      land(under_way_.begin()->second.offset, under_way_.begin()->second.bytes);
      under_way_.erase(under_way_.begin());
    }
    if (under_way_.empty()) group_.clear();
  }

  std::size_t lose() {
    const std::size_t lost = under_way_.size();
    under_way_.clear();
    group_.clear();
    return lost;
  }

  [[nodiscard]] Time next() const { return under_way_.empty() ? kNever : under_way_.begin()->first.first; }

 private:
  struct Write {
    std::size_t offset;
    std::vector<std::byte> bytes;
  };
  struct Extent {
    std::size_t offset;
    std::size_t end;
    Time due;
  };
  std::map<std::pair<Time, std::uint64_t>, Write> under_way_;
  std::vector<Extent> group_;  // since the last order()
  Time floor_{};
  Time latest_{};
  std::uint64_t next_ = 0;
};

}  // namespace

struct SimBridgePair::World {
  World(const SimBridgeOptions& from, RandomSource& source) : options(from), random(source) {}

  Time after(Duration delay_max) {
    return now + Duration(static_cast<Duration::rep>(random.below(static_cast<std::uint64_t>(delay_max.count()) + 1)));
  }
  bool happens(unsigned permille) { return permille > 0 && random.below(1000) < permille; }

  SimBridgeOptions options;
  RandomSource& random;
  Time now{};
  bool cut = false;
  Counters counters;
};

class SimBridgePair::End final : public Bridge, private PostedWrites {
 public:
  /// index: of this end, 0 or 1.
  End(World& world, std::size_t index)
      : world_(world),
        core_(world.options.cores[index]),
        peer_process_(world.options.processes[1 - index]),
        memory_(world.options.local_bytes[index] / sizeof(Line)),
        window_(PeerWindow::posted(this, world.options.local_bytes[1 - index])) {
    if (world_.options.memory_scribbled) scribble();
  }
  void join(End& peer) { peer_ = &peer; }

  PeerMemory local_memory() override { return PeerMemory::over(base(), memory_.size() * sizeof(Line)); }
  PeerWindow& peer_window() override { return window_; }
  std::uint32_t core() const override { return core_; }
  std::optional<BridgePeer> peer() const override { return peer_process_; }
  BridgeGroup group() const override { return world_.options.group; }

  std::uint32_t read_scratchpad(std::size_t index) override {
    SPLITNIC_CHECK(index < kScratchpads);
    return world_.cut ? ~std::uint32_t{0} : scratchpads_[index];
  }
  void write_scratchpad(std::size_t index, std::uint32_t value) override {
    SPLITNIC_CHECK(index < kScratchpads);
    if (world_.cut) return;
    Time& floor = scratchpad_floor_[index];
    floor = std::max(floor, world_.after(world_.options.scratchpad_delay_max));
    scratchpad_writes_.emplace(floor, std::pair(index, value));
  }

  void publish() override { writes_.order(); }
  void before_doorbell() override { publish(); }
  void flush() override {
    land(kNever);
    publish();
  }
  void fence() override {
    flush();
    peer_->flush();
  }

  void ring() override {
    ++world_.counters.doorbells;
    if (world_.cut || world_.happens(world_.options.doorbell_lost_permille)) {
      ++world_.counters.doorbells_lost;
      return;
    }
    peer_->doorbell_due_ = std::min(peer_->doorbell_due_, world_.after(world_.options.doorbell_delay_max));
  }
  bool take_doorbells() override { return std::exchange(doorbell_, false); }
  [[nodiscard]] int doorbell_descriptor() const override { return -1; }

  LinkState link() override {
    const bool was_cut = std::exchange(cut_unseen_, false);
    if (!world_.cut && !was_cut) back_unseen_ = false;
    return was_cut || world_.cut ? LinkState::down : LinkState::up;
  }

  void advance() {
    land(world_.now);
    while (!scratchpad_writes_.empty() && scratchpad_writes_.begin()->first <= world_.now) {
      const auto [index, value] = scratchpad_writes_.begin()->second;
      peer_->scratchpads_[index] = value;
      scratchpad_writes_.erase(scratchpad_writes_.begin());
    }
    if (doorbell_due_ <= world_.now) {
      doorbell_ = true;
      doorbell_due_ = kNever;
    }
    if (!world_.cut && world_.happens(world_.options.doorbell_spurious_permille)) {
      ++world_.counters.doorbells_spurious;
      doorbell_ = true;
    }
  }

  [[nodiscard]] Time next_event() const {
    const Time scratchpad = scratchpad_writes_.empty() ? kNever : scratchpad_writes_.begin()->first;
    return std::min({writes_.next(), scratchpad, doorbell_due_});
  }
  [[nodiscard]] bool wake_pending() const { return doorbell_ || cut_unseen_ || back_unseen_; }

  void cut() {
    world_.counters.writes_lost += writes_.lose();
    scratchpad_writes_.clear();
    doorbell_due_ = kNever;
    cut_unseen_ = true;
  }

  void restore() { back_unseen_ = true; }

  void forget(bool with_scribble) {
    doorbell_ = false;
    doorbell_due_ = kNever;
    cut_unseen_ = back_unseen_ = false;
    if (with_scribble) scribble();
  }

 private:
  void post(std::size_t offset, std::span<const std::byte> bytes) override {
    if (bytes.empty()) return;
    ++world_.counters.writes;
    if (world_.cut) {
      ++world_.counters.writes_lost;
      return;
    }
    std::size_t done = 0;
    if (bytes.size() > sizeof(std::uint64_t) && world_.happens(world_.options.torn_permille)) {
      ++world_.counters.torn_writes;
      for (int cuts = 0; cuts < 3; ++cuts) {
        // A write is cut at multiples of 8 bytes of the memory, wherever the write begins.
        const std::size_t to = (offset + done + world_.random.below(bytes.size() - done)) / 8 * 8;
        if (to <= offset + done) continue;
        post_piece(offset + done, bytes.subspan(done, to - offset - done));
        done = to - offset;
      }
    }
    post_piece(offset + done, bytes.subspan(done));
  }
  void post_piece(std::size_t offset, std::span<const std::byte> bytes) {
    writes_.add(offset, bytes, world_.after(world_.options.write_delay_max));
  }
  std::span<std::byte> stage(std::size_t, std::size_t bytes) override {
    staging_.resize(bytes);
    return staging_;
  }
  void read(std::size_t offset, std::span<std::byte> to) override {
    if (world_.cut) {
      std::ranges::fill(to, std::byte{0xff});
      return;
    }
    flush();
    if (!to.empty()) std::memcpy(to.data(), peer_->base() + offset, to.size());
  }

  void land(Time until) {
    writes_.land_until(until, [this](std::size_t offset, const std::vector<std::byte>& bytes) {
      std::memcpy(peer_->base() + offset, bytes.data(), bytes.size());
    });
  }

  void scribble() {
    std::byte* at = base();
    for (std::size_t i = 0; i < memory_.size() * sizeof(Line); i += sizeof(std::uint64_t)) {
      const std::uint64_t word = world_.random.next();
      std::memcpy(at + i, &word, sizeof word);
    }
  }

  std::byte* base() { return memory_.front().bytes; }

  World& world_;
  std::uint32_t core_;
  std::optional<BridgePeer> peer_process_;
  End* peer_ = nullptr;
  std::vector<Line> memory_;
  PeerWindow window_;
  WritesUnderWay writes_;
  std::vector<std::byte> staging_;
  std::array<std::uint32_t, kScratchpads> scratchpads_{};
  std::array<Time, kScratchpads> scratchpad_floor_{};
  std::multimap<Time, std::pair<std::size_t, std::uint32_t>> scratchpad_writes_;  // ours, for the peer
  Time doorbell_due_ = kNever;
  bool doorbell_ = false;
  bool cut_unseen_ = false;
  bool back_unseen_ = false;
};

SimBridgePair::SimBridgePair(const SimBridgeOptions& options, RandomSource& random)
    : world_(std::make_unique<World>(options, random)) {
  for (const std::size_t bytes : options.local_bytes) SPLITNIC_CHECK(bytes > 0 && bytes % sizeof(Line) == 0);
  for (const std::size_t index : {0U, 1U}) ends_[index] = std::make_unique<End>(*world_, index);
  ends_[0]->join(*ends_[1]);
  ends_[1]->join(*ends_[0]);
}

SimBridgePair::~SimBridgePair() = default;

Bridge& SimBridgePair::end(std::size_t index) { return *ends_.at(index); }

void SimBridgePair::advance(Time now) {
  SPLITNIC_CHECK(now >= world_->now);
  world_->now = now;
  for (auto& end : ends_) end->advance();
}

Time SimBridgePair::next_event() const { return std::min(ends_[0]->next_event(), ends_[1]->next_event()); }

bool SimBridgePair::wake_pending(std::size_t index) const { return ends_.at(index)->wake_pending(); }

void SimBridgePair::cut() {
  if (world_->cut) return;
  ++world_->counters.cuts;
  world_->cut = true;
  for (auto& end : ends_) end->cut();
}

void SimBridgePair::restore() {
  if (!world_->cut) return;
  world_->cut = false;
  for (auto& end : ends_) end->restore();
}

bool SimBridgePair::is_cut() const { return world_->cut; }

void SimBridgePair::forget(std::size_t index, bool scribble) { ends_.at(index)->forget(scribble); }

const SimBridgePair::Counters& SimBridgePair::counters() const { return world_->counters; }

}  // namespace splitnic::fabric
