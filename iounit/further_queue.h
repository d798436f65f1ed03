#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string_view>

#include "common/random.h"
#include "common/time.h"
#include "fabric/bridge/bridge.h"
#include "iounit/receiver_share.h"
#include "messaging/session.h"

namespace splitnic::iounit {

/// A bridge whose session does not come up uses memory for nothing. The unit closes it; a live host connects again.
inline constexpr Duration kDownLimit = std::chrono::seconds(10);

class FurtherQueue;

/// The calls of a further queue to its host, from the events of the queue's session.
class FurtherQueueOwner {
 public:
  virtual ~FurtherQueueOwner() = default;
  virtual tl::expected<messaging::HelloGrant, messaging::Refusal> admit_queue(
      const messaging::wire::HelloRequest& hello) = 0;
  virtual void queue_changed(const FurtherQueue& queue) = 0;
  virtual void queue_frame(const FurtherQueue& queue, const messaging::ReceivedFrame& frame) = 0;
  /// A line from the host.
  virtual void queue_says(std::string_view text) = 0;
};

/// One more queue of an attached host: a bridge with a session of its own, which carries frames alone. Everything else
/// about the host (name, address, filters, settings, statistics) belongs to its first session. Thread: the unit's.
class FurtherQueue final : public messaging::SessionEvents {
 public:
  /// number: 1 .. kMaxQueues - 1. options: those of the host's first session, as it has been negotiated.
  FurtherQueue(FurtherQueueOwner& owner, std::size_t number, std::shared_ptr<fabric::Bridge> bridge,
               const messaging::SessionOptions& options, RandomSource& random, Time now);

  [[nodiscard]] std::size_t number() const { return number_; }
  [[nodiscard]] fabric::Bridge& bridge() { return *bridge_; }
  [[nodiscard]] messaging::Session& session() { return session_; }
  [[nodiscard]] const messaging::Session& session() const { return session_; }
  [[nodiscard]] ReceiverShare& share() { return share_; }
  /// Up, and with the same features as the host's first session: it may get any frame of the host.
  [[nodiscard]] bool up() const { return session_.up() && same_features(); }
  /// The host has hung up, or the session has not come up for kDownLimit.
  [[nodiscard]] bool is_dead(Time now);
  /// When is_dead() may become true without an event.
  [[nodiscard]] Time dead_at() const { return down_since_ == kNever ? kNever : down_since_ + kDownLimit; }
  /// Call before each poll of the session.
  void note_time(Time now) { now_ = now; }

 private:
  tl::expected<messaging::HelloGrant, messaging::Refusal> on_hello(const messaging::wire::HelloRequest& hello) override;
  void on_up(const messaging::wire::HelloReply* reply) override;
  void on_down(std::string_view reason) override;
  void on_frame(const messaging::ReceivedFrame& frame) override { owner_.queue_frame(*this, frame); }
  messaging::Answer on_request(const messaging::wire::RequestBody& request) override;
  void on_reply(messaging::wire::CfgRequest, const messaging::Answer&) override {}
  [[nodiscard]] bool same_features() const {
    return session_.offloads() == options_.offloads && session_.udp_segments() == options_.udp_segments;
  }

  FurtherQueueOwner& owner_;
  std::size_t number_;
  messaging::SessionOptions options_;
  std::shared_ptr<fabric::Bridge> bridge_;
  ReceiverShare share_;
  Time now_;
  Time down_since_;
  messaging::Session session_;  // last member: its events use the others
};

}  // namespace splitnic::iounit
