// Attacks by a host that poses as somebody else: other names and addresses, other queues, another core.
#include <algorithm>
#include <initializer_list>
#include <utility>

#include "tests/hostile_host/ends.h"

namespace splitnic::hostile {

namespace {

/// The address of another host of this program, which has hung up.
MacAddress address_of_one_that_is_gone(const Target& target) {
  Target other = target;
  other.name += "-gone";
  auto bridge = connect(other);
  if (!bridge) return kNobody;
  HostEnd end(other, std::move(bridge));
  return end.come_up(other) ? end.mac() : kNobody;
}

void take_addresses(Target& target, Counts& counts) {
  auto& requests = counts["requests"];
  const MacAddress foreign[] = {target.station, stable_mac_for(target.victim), address_of_one_that_is_gone(target)};
  std::uint64_t taken = 0;
  flood(target, counts, [&](HostEnd& end) {
    const MacAddress& one = foreign[target.random.below(std::size(foreign))];
    requests += end.session().request(wire::SetMacAddress{one}) ? 1 : 0;
    taken = std::max(taken, end.addresses());
    return frame_of(kBroadcastMac, one, 60);
  });
  if (taken != 0) counts["taken"] = taken;
}

void take_names(Target& target, Counts& counts) {
  auto& refused = counts["refused"];
  Target other = target;
  other.name = target.victim;
  while (target.goes_on()) {
    auto bridge = connect(other);
    if (!bridge) return;
    ControlEnd end(other, std::move(bridge));
    for (std::uint64_t answers = 0; target.goes_on(); ++refused) {
      if (end.greet(other)) ++counts["taken"];
      if (std::exchange(answers, end.answers()) == end.answers()) break;
    }
  }
}

/// Asks for the frames of its neighbours and of the LAN in every way that a receive filter has.
void overhear(Target& target, Counts& counts) {
  auto& requests = counts["requests"];
  const wire::ReceiveFilter everything{
      .unicast = {stable_mac_for(target.victim), target.station}, .all_multicast = true, .promiscuous = true};
  std::uint64_t taken = 0;
  while_up(target, counts, [&](HostEnd& end) {
    requests += end.session().request(everything) ? 1 : 0;
    taken = std::max(taken, end.overheard());
    target.be_idle(std::chrono::milliseconds(1));
  });
  if (taken != 0) counts["taken"] = taken;
}

/// A bridge whose owner claims to run on each core in turn, the unit's among them.
class CoreLiar final : public fabric::Bridge {
 public:
  explicit CoreLiar(std::unique_ptr<fabric::Bridge> real) : real_(std::move(real)) {}
  fabric::PeerMemory local_memory() override { return real_->local_memory(); }
  fabric::PeerWindow& peer_window() override { return real_->peer_window(); }
  std::uint32_t read_scratchpad(std::size_t index) override { return real_->read_scratchpad(index); }
  void write_scratchpad(std::size_t index, std::uint32_t value) override { real_->write_scratchpad(index, value); }
  void publish() override { real_->publish(); }
  void fence() override { real_->fence(); }
  void before_doorbell() override { real_->before_doorbell(); }
  void flush() override { real_->flush(); }
  void ring() override { real_->ring(); }
  bool take_doorbells() override { return real_->take_doorbells(); }
  [[nodiscard]] int doorbell_descriptor() const override { return real_->doorbell_descriptor(); }
  [[nodiscard]] std::uint32_t core() const override { return 1 + claims_++ % std::thread::hardware_concurrency(); }
  [[nodiscard]] std::uint64_t claims() const { return claims_; }
  fabric::LinkState link() override { return real_->link(); }

 private:
  std::unique_ptr<fabric::Bridge> real_;
  mutable std::uint32_t claims_ = 0;
};

void lie_about_the_core(Target& target, Counts& counts) {
  auto& claims = counts["claims"];
  auto& frames = counts["frames"];
  while (target.goes_on()) {
    auto real = connect(target);
    if (!real) return;
    const auto bridge = std::make_shared<CoreLiar>(std::move(real));
    HostEnd end(target, bridge);
    while (target.goes_on() && end.come_up(target)) {
      while (target.goes_on() && end.usable()) {
        // A few frames, so that its word counts, and then it seems to wait for the unit.
        if (target.random.below(64) == 0) frames += end.send_all(frame_of(kNobody, end.mac(), 60));
        if (end.poll() == 0) static_cast<void>(end.session().prepare_sleep());
        end.session().disarm();
      }
    }
    claims += bridge->claims();
  }
}

/// An Ethernet frame of this type with these bytes, and zeros up to 86.
std::vector<std::byte> claim(const HostEnd& end, unsigned type, std::initializer_list<unsigned> bytes) {
  auto frame = frame_of(kBroadcastMac, end.mac(), 86);
  frame[12] = static_cast<std::byte>(type >> 8U);
  frame[13] = static_cast<std::byte>(type & 0xffU);
  std::ranges::transform(bytes, frame.begin() + 14, [](unsigned octet) { return static_cast<std::byte>(octet); });
  return frame;
}

/// Answers of ARP and neighbour discovery in the names of others, and messages of a DHCP server and of a router.
void pose_as_others(Target& target, Counts& counts) {
  flood(target, counts, [&](HostEnd& end) {
    const auto number = static_cast<unsigned>(target.random.below(256));
    switch (target.random.below(4)) {
      case 0:
        return claim(end, 0x0806, {0, 1, 8, 0, 6, 4, 0, 2, 2, 0, 0, 0, 0, 1, 10, 77, 0, number});
      case 1:
        return claim(end, 0x0800, {0x45, 0,      0,   28,  0,   1,   0, 0,  64, 17, 0, 0, 10, 77,
                                   0,    number, 255, 255, 255, 255, 0, 67, 0,  68, 0, 8, 0,  0});
      default: {
        const unsigned type = number < 128 ? 134 : 136;  // of a router; a neighbour's address
        auto frame = claim(end, 0x86dd, {0x60, 0, 0, 0, 0, 32, 58, 255, 0xfe, 0x80});
        frame[14 + 40] = static_cast<std::byte>(type);
        frame[14 + 48] = std::byte{0xfd};
        frame[14 + 63] = static_cast<std::byte>(number);
        return frame;
      }
    }
  });
}

/// Guesses the cookies of sessions, brings more queues than a session may have, and sends through all of them.
void abuse_queues(Target& target, Counts& counts) {
  auto& guesses = counts["guesses"];
  auto& joined = counts["queues"];
  auto& frames = counts["frames"];
  while (target.goes_on()) {
    const std::shared_ptr<fabric::Bridge> bridge = connect(target);
    if (!bridge) return;
    HostEnd end(target, bridge);
    if (!end.come_up(target)) continue;
    std::vector<std::unique_ptr<HostEnd>> queues;
    while (target.goes_on() && end.usable()) {
      if (connect_once(target, target.random.next())) ++counts["guessed"];
      ++guesses;
      if (auto more = connect_once(target, bridge->group().cookie)) {
        queues.push_back(std::make_unique<HostEnd>(target, std::move(more)));
        ++joined;
      }
      for (unsigned turn = 0; turn < 200 && target.goes_on(); ++turn) {
        end.poll();
        for (const auto& queue : queues) {
          queue->poll();
          if (queue->usable()) frames += queue->send_all(frame_of(kNobody, end.mac(), 60));
        }
      }
      std::erase_if(queues, [](const auto& queue) { return queue->bridge().link() == fabric::LinkState::down; });
    }
  }
}

constexpr Attack kIdentityAttacks[] = {
    {"gateway", "requests addresses of the LAN, of a neighbour and of a host that is gone, and sends from them",
     take_addresses},
    {"names", "says hello under the name of a neighbour", take_names},
    {"overhearing", "asks for the frames of everybody else", overhear},
    {"core", "claims to wait for one core after the other", lie_about_the_core},
    {"claims", "poses as others in ARP, neighbour discovery, DHCP and router advertisements", pose_as_others},
    {"queues", "guesses cookies, brings too many queues, and sends through them", abuse_queues},
};

}  // namespace

std::span<const Attack> identity_attacks() { return kIdentityAttacks; }

}  // namespace splitnic::hostile
