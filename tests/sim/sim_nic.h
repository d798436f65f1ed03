#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "frame_book.h"
#include "host/virtual_nic.h"
#include "iounit/lan_engine.h"

namespace splitnic::sim {

/// Descriptors that exist in the simulation alone: what a core asks to sleep on.
inline constexpr int kNicDescriptor = 1000;
inline constexpr int kLanDescriptor = 1001;
inline constexpr int kSourceDescriptor = 1002;

/// How many doorbells the whole world has lost, and when: each may cost a frame the time until somebody looks again.
class LostDoorbells {
 public:
  void count(Time now, std::uint64_t total) {
    if (total != total_) lost_.push_back({now, total_});
    total_ = total;
  }
  /// From `since` on, up to now.
  [[nodiscard]] std::uint64_t since(Time since) const;

 private:
  struct Loss {
    Time when;
    std::uint64_t before;  ///< lost until then
  };
  std::vector<Loss> lost_;
  std::uint64_t total_ = 0;
};

/// What an edge of the world needs of it.
struct Edge {
  FrameBook& book;
  Verdicts& verdicts;
  Trace& trace;
  const Time& now;
  const LostDoorbells& doorbells_lost;
  /// The longest that a judged frame may take where no doorbell is lost.
  Duration latency_max;
};

/// A judged frame in time? Draws the verdict.
/// What each lost doorbell may cost: the design's 100 ms, and the way there.
inline constexpr Duration kLostDoorbell = std::chrono::milliseconds(105);
void judge_latency(const Edge& edge, const SentFrame& frame, std::size_t receiver);

class SimNic;

/// A further queue of a SimNic.
class SimNicQueue final : public host::FurtherNicQueue {
 public:
  explicit SimNicQueue(SimNic& nic) : nic_(nic) {}
  std::size_t read_frame(std::span<std::byte> to) override;
  bool write_frame(const messaging::ReceivedFrame& frame) override;
  void collect_descriptors(std::vector<int>& out) const override { out.push_back(kNicDescriptor); }
  void set_active(bool active, const host::NicOffloads&) override;
  [[nodiscard]] bool active() const { return active_; }
  [[nodiscard]] bool readable() const { return !frames_.empty(); }
  std::deque<std::uint32_t>& frames() { return frames_; }
  [[nodiscard]] const std::deque<std::uint32_t>& frames() const { return frames_; }

 private:
  SimNic& nic_;
  std::deque<std::uint32_t> frames_;
  bool active_ = false;
};

/// The virtual NIC of one host, in the place of a TAP: a queue of frames that the host's stack sends, settings that its
/// system makes, and a receiver that knows what this host may be given. Outlives its driver, as a TAP does.
class SimNic final : public host::VirtualNic {
 public:
  SimNic(const Edge& edge, const HostScenario& scenario, std::size_t index);

  /// The host's stack sends; dropped there when the queue is full or the interface down.
  void send(const SentFrame& frame);
  [[nodiscard]] bool readable() const { return !queue_.empty() || news_; }
  [[nodiscard]] std::size_t queued() const;
  /// The stack gives up on what it has not sent yet.
  void drop_queue();
  [[nodiscard]] SimNicQueue& further(std::size_t number) const { return *further_[number]; }
  /// The system changes a setting; `settings()` is the driver's view of them.
  template <class Change>
  void change(Change&& change_it) {
    change_it(settings_);
    news_ = true;
    disturb();
  }
  /// Something happened after which the unit's knowledge of this host may be stale for a while.
  void disturb() { disturbed_at_ = edge_.now; }
  /// Whether the stack refuses a frame now and then.
  void set_refusing(bool refusing) { refusing_ = refusing; }
  [[nodiscard]] const host::NicSettings& current() const { return settings_; }
  [[nodiscard]] bool carrier() const { return carrier_; }

  std::size_t read_frame(std::span<std::byte> to) override;
  bool write_frame(const messaging::ReceivedFrame& frame) override;
  void set_carrier(bool carrier) override;
  void set_max_mtu(std::uint32_t max_mtu) override;
  void set_mac(const MacAddress& mac) override;
  [[nodiscard]] MacAddress preferred_mac() const override;
  const host::NicSettings& settings(Time now) override;
  void collect_descriptors(std::vector<int>& out) const override { out.push_back(kNicDescriptor); }

 private:
  friend class SimNicQueue;
  void judge_filter(const SentFrame& frame);
  [[nodiscard]] std::deque<std::uint32_t>& queue_for(const SentFrame& frame);
  std::size_t read_from(std::deque<std::uint32_t>& queue, std::span<std::byte> to);

  Edge edge_;
  std::vector<std::unique_ptr<SimNicQueue>> further_;
  const HostScenario& scenario_;
  std::size_t index_;
  host::NicSettings settings_;
  std::deque<std::uint32_t> queue_;
  std::vector<std::byte> copy_;
  Time disturbed_at_ = kStart;
  Time promiscuous_until_ = kStart - std::chrono::hours(1);
  unsigned received_ = 0;
  bool news_ = false;
  bool carrier_ = false;
  bool refusing_ = true;
};

/// The LAN on the other side of the I/O unit: a queue of frames from its stations, and a receiver for all that the
/// unit sends. Outlives the unit.
class SimLan final : public iounit::LanEngine {
 public:
  SimLan(const Edge& edge, std::uint32_t mtu) : edge_(edge), mtu_(mtu) {}

  void send_from_station(const SentFrame& frame);
  [[nodiscard]] bool readable() const { return !queue_.empty() || news_; }
  [[nodiscard]] std::size_t queued() const { return queue_.size(); }
  void plug(bool carrier);
  void set_mtu(std::uint32_t mtu);

  std::size_t receive(iounit::LanSink& sink, std::size_t budget) override;
  bool send(std::span<const std::byte> frame) override;
  void flush() override {}
  void poll(Time) override { news_ = false; }
  [[nodiscard]] Time next_deadline() const override { return kNever; }
  [[nodiscard]] bool carrier() const override { return carrier_; }
  [[nodiscard]] std::uint32_t mtu() const override { return mtu_; }
  [[nodiscard]] const iounit::LanCounters& counters() const override { return counters_; }
  void collect_descriptors(std::vector<int>& out) const override { out.push_back(kLanDescriptor); }
  [[nodiscard]] std::string name() const override { return "lan"; }

 private:
  Edge edge_;
  std::uint32_t mtu_;
  std::deque<std::uint32_t> queue_;
  std::vector<std::byte> bytes_;
  bool carrier_ = true;
  bool news_ = false;
  iounit::LanCounters counters_;
};

/// A NIC with a fault planted in what it is given. other: where misdelivered frames go.
std::unique_ptr<host::VirtualNic> planted_nic(Plant plant, SimNic& nic, SimNic& other);

}  // namespace splitnic::sim
