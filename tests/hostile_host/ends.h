#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fabric/bridge/link.h"
#include "messaging/session.h"
#include "messaging/wire/encode.h"
#include "tests/hostile_host/attack.h"
#include "tests/valid_end/valid_end.h"

namespace splitnic::hostile {

namespace wire = messaging::wire;

/// A finished bridge; null: the unit gave none before the attack's end.
[[nodiscard]] std::unique_ptr<fabric::Bridge> connect(const Target& target);
/// One attempt; null: refused. cookie: of the session that the bridge is to be a further queue of; 0: none.
[[nodiscard]] std::unique_ptr<fabric::Bridge> connect_once(const Target& target, std::uint64_t cookie = 0);

/// The valid part of an attack by a host that is up: a real session in the host's role.
class HostEnd final : private messaging::SessionEvents {
 public:
  /// bridge: not null.
  HostEnd(const Target& target, std::shared_ptr<fabric::Bridge> bridge, bool offloads = false);

  /// Polls until the session is up; false: it did not come up in time.
  [[nodiscard]] bool come_up(const Target& target);
  std::size_t poll();
  [[nodiscard]] bool usable() { return session_.up() && bridge_->link() == fabric::LinkState::up; }
  [[nodiscard]] messaging::Session& session() { return session_; }
  [[nodiscard]] fabric::Bridge& bridge() { return *bridge_; }
  [[nodiscard]] const MacAddress& mac() const { return mac_; }
  [[nodiscard]] std::uint64_t received() const { return received_; }
  /// Of these, frames for the address of somebody else.
  [[nodiscard]] std::uint64_t overheard() const { return overheard_; }
  /// Requests for another address that the unit has granted.
  [[nodiscard]] std::uint64_t addresses() const { return addresses_; }
  /// Sends as many of these frames as fit; returns how many.
  std::size_t send_all(const std::vector<std::byte>& frame, const frame::FrameOffload& offload = {});

 private:
  tl::expected<messaging::HelloGrant, messaging::Refusal> on_hello(const wire::HelloRequest&) override {
    return tl::unexpected(messaging::Refusal{});
  }
  void on_up(const wire::HelloReply* reply) override { mac_ = reply->assigned_mac; }
  void on_down(std::string_view) override {}
  void on_frame(const messaging::ReceivedFrame& frame) override {
    ++received_;
    MacAddress to;
    frame.first(to.octets.size()).copy_out(std::as_writable_bytes(std::span(to.octets)));
    if (!to.is_multicast() && to != mac_) ++overheard_;
  }
  messaging::Answer on_request(const wire::RequestBody&) override { return wire::Acknowledged{}; }
  void on_reply(wire::CfgRequest request, const messaging::Answer& answer) override {
    if (request == wire::CfgRequest::set_mac_address && answer) ++addresses_;
  }

  SystemRandom random_;
  std::shared_ptr<fabric::Bridge> bridge_;
  MacAddress mac_;
  std::uint64_t received_ = 0;
  std::uint64_t overheard_ = 0;
  std::uint64_t addresses_ = 0;
  messaging::Session session_;
};

/// The valid part of an attack on the control session: link, adapter, control channel and hello are right, and what
/// follows is whatever the attack says.
class ControlEnd {
 public:
  ControlEnd(const Target& target, std::unique_ptr<fabric::Bridge> bridge);

  /// Brings the link up, says hello in an epoch of its own, and waits for the answer that accepts it. False: not in
  /// time.
  [[nodiscard]] bool greet(const Target& target);
  /// The same, and brings the session up, with elements on both sides.
  [[nodiscard]] bool come_up(const Target& target);
  /// False: the unit has ended this epoch.
  bool poll();
  [[nodiscard]] test::ValidEnd& end() { return end_; }
  /// Sends what encode(span) writes; false: no buffer is free.
  template <class Encode>
  bool say(Encode&& encode) {
    return end_.say(std::forward<Encode>(encode));
  }
  bool request(const wire::RequestBody& body) { return end_.request(body); }
  [[nodiscard]] std::uint64_t answers() const { return end_.answers(); }

 private:
  [[nodiscard]] bool wait(const Target& target, const std::function<bool()>& condition);
  /// A new epoch, connected.
  [[nodiscard]] bool start_over(const Target& target);
  [[nodiscard]] bool ended() const { return end_.failed() || end_.incarnation() != incarnation_; }

  SystemRandom random_;
  std::unique_ptr<fabric::Bridge> bridge_;
  test::ValidEnd end_;
  std::uint64_t incarnation_ = 0;  // of the epoch in which it said hello
};

/// Runs act over and over on a host that is up, and makes a new one when the unit has ended it.
template <class Act>
void while_up(Target& target, Counts& counts, Act&& act, bool offloads = false) {
  auto& ups = counts["sessions"];
  while (target.goes_on()) {
    std::shared_ptr<fabric::Bridge> bridge = connect(target);
    if (!bridge) return;
    HostEnd end(target, std::move(bridge), offloads);
    while (target.goes_on() && end.come_up(target)) {
      ++ups;
      while (target.goes_on() && end.usable()) {
        act(end);
        end.poll();
      }
    }
  }
}

/// Sends the frames that make(end) makes, as many as fit.
template <class Make>
void flood(Target& target, Counts& counts, Make&& make) {
  auto& frames = counts["frames"];
  while_up(target, counts, [&](HostEnd& end) { frames += end.send_all(make(end)); });
}

/// A frame of an experimental EtherType.
[[nodiscard]] std::vector<std::byte> frame_of(const MacAddress& to, const MacAddress& from, std::size_t bytes,
                                              std::span<const std::uint16_t> tags = {});
/// A station that nobody has.
inline constexpr MacAddress kNobody{{0x02, 0, 0, 0, 0x99, 0x99}};

}  // namespace splitnic::hostile
