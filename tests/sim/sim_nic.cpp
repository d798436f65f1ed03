#include "sim_nic.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/bit_mix.h"

namespace splitnic::sim {

namespace {

constexpr std::size_t kNicQueueFrames = 600;
constexpr std::size_t kLanQueueFrames = 2000;
// How long after a change the unit may go by the old settings: a request, its answer, and doorbells lost on the way.
constexpr Duration kStale = std::chrono::milliseconds(1500);
// The host's stack refuses one frame in so many, while it refuses.
constexpr unsigned kRefusedEvery = 53;

}  // namespace

std::uint64_t LostDoorbells::since(Time since) const {
  const auto first = std::ranges::lower_bound(lost_, since, {}, &Loss::when);
  return first == lost_.end() ? 0 : total_ - first->before;
}

void judge_latency(const Edge& edge, const SentFrame& frame, std::size_t receiver) {
  if (!frame.judged) return;
  // One that was lost before the frame was sent still keeps its receiver asleep.
  const std::uint64_t lost = edge.doorbells_lost.since(frame.sent - kLostDoorbell);
  const Duration allowed = edge.latency_max + kLostDoorbell * static_cast<Duration::rep>(lost);
  if (edge.now - frame.sent <= allowed) return;
  edge.verdicts.violate(edge.now, fmt::format("a frame sent at {} came to {} too late: {} doorbells were lost since",
                                              to_text(frame.sent), receivers_text(receiver_bit(receiver)), lost));
}

SimNic::SimNic(const Edge& edge, const HostScenario& scenario, std::size_t index)
    : edge_(edge), scenario_(scenario), index_(index) {
  settings_.mac = scenario.macs[0];
  settings_.mtu = scenario.session.max_mtu;
  settings_.up = true;
  settings_.all_multicast = false;
  settings_.multicast = scenario.joined;
  while (further_.size() + 1 < scenario.queues) further_.push_back(std::make_unique<SimNicQueue>(*this));
}

/// As a multi-queue TAP: each flow, both directions of it, keeps its queue while the active queues are the same.
std::deque<std::uint32_t>& SimNic::queue_for(const SentFrame& frame) {
  std::vector<std::deque<std::uint32_t>*> active{&queue_};
  for (auto& queue : further_) {
    if (queue->active()) active.push_back(&queue->frames());
  }
  const std::uint64_t flow = mix(frame.source.as_number()) + mix(frame.destination.as_number());
  return *active[mix(flow) % active.size()];
}

void SimNic::send(const SentFrame& frame) {
  if (!settings_.up || queued() >= kNicQueueFrames) return;
  queue_for(frame).push_back(edge_.book.add(frame));
}

std::size_t SimNic::queued() const {
  std::size_t frames = queue_.size();
  for (const auto& queue : further_) frames += queue->frames().size();
  return frames;
}

void SimNic::drop_queue() {
  queue_.clear();
  for (auto& queue : further_) queue->frames().clear();
}

std::size_t SimNic::read_frame(std::span<std::byte> to) { return read_from(queue_, to); }

std::size_t SimNic::read_from(std::deque<std::uint32_t>& queue, std::span<std::byte> to) {
  while (!queue.empty()) {
    const std::uint32_t number = queue.front();
    queue.pop_front();
    const std::uint32_t bytes = edge_.book.at(number).bytes;
    if (bytes > to.size()) continue;  // as a TAP: dropped
    edge_.book.write(number, to.first(bytes));
    return bytes;
  }
  return 0;
}

std::size_t SimNicQueue::read_frame(std::span<std::byte> to) { return nic_.read_from(frames_, to); }

bool SimNicQueue::write_frame(const messaging::ReceivedFrame& frame) { return nic_.write_frame(frame); }

void SimNicQueue::set_active(bool active, const host::NicOffloads&) {
  active_ = active;
  if (!active) frames_.clear();
}

bool SimNic::write_frame(const messaging::ReceivedFrame& frame) {
  if (refusing_ && ++received_ % kRefusedEvery == 0) return false;
  copy_.resize(frame.size());
  frame.copy_out(copy_);
  const SentFrame* sent = edge_.book.arrived(index_, copy_, edge_.now);
  if (sent == nullptr) return true;
  judge_filter(*sent);
  judge_latency(edge_, *sent, index_);
  return true;
}

/// May a frame with this destination come to this host? Strict where nothing has changed for a while.
void SimNic::judge_filter(const SentFrame& frame) {
  const auto violate = [&](std::string_view why) {
    edge_.verdicts.violate(edge_.now, fmt::format("frame to {} at host{}: not for this receiver: {}",
                                                  to_string(frame.destination), index_, why));
  };
  const bool stale = disturbed_at_ + kStale > frame.sent;
  if (!stale && !settings_.up) return violate("its interface is down");
  if (settings_.promiscuous || promiscuous_until_ + kStale > frame.sent) return;
  if (frame.destination.is_broadcast()) return;
  if (frame.destination.is_multicast()) {
    const bool joined = std::ranges::binary_search(settings_.multicast, frame.destination);
    if (!stale && !joined && !settings_.all_multicast) violate("it has not joined this group");
    return;
  }
  if (std::ranges::find(scenario_.macs, frame.destination) == scenario_.macs.end()) {
    return violate("an address that is not its own");
  }
  if (!stale && frame.destination != settings_.mac) violate("an address that it has given up");
}

void SimNic::set_carrier(bool carrier) {
  if (carrier == carrier_) return;
  carrier_ = carrier;
  edge_.trace.event(edge_.now, carrier ? "carrier on" : "carrier off", index_);
}

void SimNic::set_max_mtu(std::uint32_t max_mtu) { settings_.mtu = std::min(settings_.mtu, max_mtu); }

void SimNic::set_mac(const MacAddress& mac) {
  if (scenario_.asks_for_mac || settings_.mac != scenario_.macs[0]) return;  // the system has set its own
  settings_.mac = mac;
  if (mac != scenario_.macs[0]) {
    edge_.verdicts.violate(edge_.now, fmt::format("host{} was assigned {}", index_, to_string(mac)));
  }
}

MacAddress SimNic::preferred_mac() const { return scenario_.asks_for_mac ? settings_.mac : MacAddress{}; }

const host::NicSettings& SimNic::settings(Time) {
  news_ = false;
  if (settings_.promiscuous) promiscuous_until_ = edge_.now;
  return settings_;
}

void SimLan::send_from_station(const SentFrame& frame) {
  if (!carrier_ || queue_.size() == kLanQueueFrames) return;
  queue_.push_back(edge_.book.add(frame));
}

void SimLan::plug(bool carrier) {
  carrier_ = carrier;
  news_ = true;
  if (!carrier) queue_.clear();
  edge_.trace.event(edge_.now, "LAN carrier", carrier ? 1 : 0);
}

void SimLan::set_mtu(std::uint32_t mtu) {
  news_ = news_ || mtu != mtu_;
  mtu_ = mtu;
  edge_.trace.event(edge_.now, "LAN MTU", mtu);
}

std::size_t SimLan::receive(iounit::LanSink& sink, std::size_t budget) {
  std::size_t handed = 0;
  for (; handed < budget && !queue_.empty(); ++handed) {
    const std::uint32_t number = queue_.front();
    queue_.pop_front();
    bytes_.resize(edge_.book.at(number).bytes);
    edge_.book.write(number, bytes_);
    ++counters_.rx_frames;
    sink.on_lan_frame(bytes_);
  }
  return handed;
}

bool SimLan::send(std::span<const std::byte> frame) {
  if (!carrier_) {
    ++counters_.tx_errors;
    return false;
  }
  ++counters_.tx_frames;
  if (const SentFrame* sent = edge_.book.arrived(kLan, frame, edge_.now)) judge_latency(edge_, *sent, kLan);
  return true;
}

namespace {

class PlantedNic final : public host::VirtualNic {
 public:
  PlantedNic(Plant plant, SimNic& nic, SimNic& other) : plant_(plant), nic_(nic), other_(other) {}

  std::size_t read_frame(std::span<std::byte> to) override { return nic_.read_frame(to); }
  bool write_frame(const messaging::ReceivedFrame& frame) override;
  void set_carrier(bool carrier) override { nic_.set_carrier(carrier); }
  void set_max_mtu(std::uint32_t max_mtu) override { nic_.set_max_mtu(max_mtu); }
  void set_mac(const MacAddress& mac) override { nic_.set_mac(mac); }
  [[nodiscard]] MacAddress preferred_mac() const override { return nic_.preferred_mac(); }
  const host::NicSettings& settings(Time now) override { return nic_.settings(now); }
  void collect_descriptors(std::vector<int>& out) const override { nic_.collect_descriptors(out); }

 private:
  Plant plant_;
  SimNic& nic_;
  SimNic& other_;
  std::vector<std::byte> bytes_;
  std::vector<std::byte> held_;
  unsigned frames_ = 0;
};

bool PlantedNic::write_frame(const messaging::ReceivedFrame& frame) {
  constexpr unsigned kEvery = 5;
  if (++frames_ % kEvery != 0 && held_.empty()) return nic_.write_frame(frame);
  bytes_.resize(frame.size());
  frame.copy_out(bytes_);
  switch (plant_) {
    case Plant::drop:
      return true;
    case Plant::duplicate:
      static_cast<void>(nic_.write_frame(messaging::ReceivedFrame::in_private_memory(bytes_)));
      break;
    case Plant::corrupt:
      bytes_.back() ^= std::byte{1};
      break;
    case Plant::swap:
      if (held_.empty()) {
        held_ = bytes_;
        return true;
      }
      static_cast<void>(nic_.write_frame(messaging::ReceivedFrame::in_private_memory(bytes_)));
      bytes_ = std::exchange(held_, {});
      break;
    case Plant::misdeliver:
      if (&other_ != &nic_) return other_.write_frame(messaging::ReceivedFrame::in_private_memory(bytes_));
      break;
    default:
      break;
  }
  return nic_.write_frame(messaging::ReceivedFrame::in_private_memory(bytes_));
}

}  // namespace

std::unique_ptr<host::VirtualNic> planted_nic(Plant plant, SimNic& nic, SimNic& other) {
  return std::make_unique<PlantedNic>(plant, nic, other);
}

}  // namespace splitnic::sim
