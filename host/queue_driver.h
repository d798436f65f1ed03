#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/moved_frames.h"
#include "common/notices.h"
#include "common/random.h"
#include "common/reported_once.h"
#include "common/time.h"
#include "fabric/bridge/bridge_source.h"
#include "host/bridged_session.h"
#include "host/frame_pump.h"
#include "host/queue_group.h"
#include "host/virtual_nic.h"
#include "messaging/session.h"

namespace splitnic::host {

/// A further queue of the host module driver: a bridge with a session of its own that carries frames alone, and a queue
/// of the NIC. It joins the session of the HostDriver whenever that is up, and ends with it. Thread: one owner, which
/// calls poll(); most often not the HostDriver's.
class QueueDriver final : public messaging::SessionEvents {
 public:
  /// options: the HostDriver's. number: 0 for the first further queue of the group. All references must outlive this.
  QueueDriver(messaging::SessionOptions options, std::size_t number, FurtherNicQueue& nic,
              fabric::BridgeSource& bridges, QueueGroup& group, RandomSource& random, Notices& notices);
  ~QueueDriver() override;
  QueueDriver(const QueueDriver&) = delete;
  QueueDriver& operator=(const QueueDriver&) = delete;

  /// Does a bounded amount of work and returns how much.
  std::size_t poll(Time now);
  [[nodiscard]] Time next_deadline() const;
  /// See HostDriver.
  [[nodiscard]] bool prepare_sleep();
  void disarm() { session_.disarm(); }
  [[nodiscard]] bool peer_waits_for_core() { return session_.peer_waits_for_core(); }
  /// Frames that poll() has moved, both ways.
  [[nodiscard]] const MovedFrames& moved() const { return pump_.moved(); }
  void collect_descriptors(std::vector<int>& out) const;

  /// Starts an orderly end. Call poll() until finished(), or until the caller's time limit.
  void begin_shutdown();
  [[nodiscard]] bool finished() const { return session_.finished(); }

  [[nodiscard]] bool up() const { return session_.up(); }
  /// Null while there is no bridge.
  [[nodiscard]] const messaging::Session* session() const { return session_.get(); }

 private:
  tl::expected<messaging::HelloGrant, messaging::Refusal> on_hello(const messaging::wire::HelloRequest&) override;
  void on_up(const messaging::wire::HelloReply* reply) override;
  void on_down(std::string_view reason) override;
  void on_frame(const messaging::ReceivedFrame& frame) override { pump_.deliver(frame, *session_, now_); }
  messaging::Answer on_request(const messaging::wire::RequestBody& request) override;
  void on_reply(messaging::wire::CfgRequest, const messaging::Answer&) override {}

  void follow_session();
  std::size_t poll_bridge(Time now);
  void drop_session();
  void report();

  messaging::SessionOptions options_;
  std::size_t number_;
  FurtherNicQueue& nic_;
  fabric::BridgeSource& bridges_;
  QueueGroup& group_;
  Notices& notices_;
  FramePump pump_;
  QueueGroup::Terms terms_;
  BridgedSession session_;
  ReportedOnce reported_;  // why the queue went down, since it was last up
  Time now_{};
  Time report_due_{};
  bool stopping_ = false;
};

}  // namespace splitnic::host
