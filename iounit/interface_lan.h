#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/frame/ethernet.h"
#include "common/frame/software_offload.h"
#include "common/moved_frames.h"
#include "common/os/log.h"
#include "common/os/netlink.h"
#include "common/os/unique_fd.h"
#include "common/result.h"
#include "common/time.h"
#include "iounit/lan_engine.h"
#include "iounit/lan_pause.h"

namespace splitnic::iounit {

/// The common part of the engines that capture on an interface: it follows the interface's state. Carrier is down while
/// the interface is down or has vanished. When the kernel reports it up again, the engine reopens it by name. The
/// driver sleeps on the capture's descriptor and on the kernel's link events.
class InterfaceLan : public LanEngine {
 public:
  static constexpr Duration kReopenInterval = std::chrono::milliseconds{500};
  static constexpr Duration kCheckInterval = std::chrono::seconds{1};
  /// Minimum interval between two checks for link events. Each check is a system call, and the driver may call poll()
  /// once per batch of frames.
  static constexpr Duration kEventInterval = std::chrono::milliseconds{5};

  /// Where frames come fast, those that follow a look gather for a moment (LanPause).
  std::size_t receive(LanSink& sink, std::size_t budget) final;
  void begin_round(Time now) final { round_ = now; }
  [[nodiscard]] Time rests_until() const final { return pause_.until(); }
  void poll(Time now) final;
  [[nodiscard]] Time next_deadline() const final {
    return rests_ ? std::min(next_check_, pause_.until()) : next_check_;
  }
  [[nodiscard]] bool carrier() const final { return is_open() && link_.carrier; }
  [[nodiscard]] std::uint32_t mtu() const final { return link_.mtu; }
  [[nodiscard]] const LanCounters& counters() const final { return counters_; }
  void collect_descriptors(std::vector<int>& out) const final;
  [[nodiscard]] std::string name() const final { return interface_; }

 protected:
  struct Link {
    int index = 0;  ///< 0: there is no such interface
    bool up = false;
    bool carrier = false;
    std::uint32_t mtu = 1500;  ///< the last known
  };

  /// log: must outlive the engine.
  InterfaceLan(std::string interface, os::Log& log) : interface_(std::move(interface)), log_(log) {}

  /// Opens the interface in the thread's network namespace; the engine later reopens it in the same namespace. An
  /// interface that exists and is down is no error.
  [[nodiscard]] std::optional<Error> open_in_this_namespace(Time now);
  [[nodiscard]] const std::string& interface() const { return interface_; }
  [[nodiscard]] const Link& link() const { return link_; }
  [[nodiscard]] os::Log& log() const { return log_; }
  /// Bytes of the longest complete frame with such a header that the interface sends: the kernel allows for one tag
  /// beyond the MTU, of 802.1Q alone.
  [[nodiscard]] std::size_t longest_frame(const frame::EthernetHeader& header) const {
    const std::size_t tag = header.outer_tpid == frame::kEtherTypeVlan ? frame::kVlanTagBytes : 0;
    return std::min(frame::kEthernetHeaderBytes + link_.mtu + tag, frame::kMaxFrameBytes);
  }
  /// Lets the next poll() check the interface and reopen it: receive or send met an error.
  void check_at_once() { check_at_once_ = true; }

  /// What a look for frames has found.
  struct Look {
    std::size_t delivered = 0;
    bool emptied = false;  ///< and left none
  };
  /// Delivers at most `budget` waiting frames; only called while is_open(). Notes those that it delivers (note_moved).
  virtual Look look(LanSink& sink, std::size_t budget) = 0;
  /// Frames were received or sent.
  void note_moved(std::size_t frame_bytes) { moved_.add(frame_bytes); }
  void note_moved(const MovedFrames& more) { moved_ += more; }

  /// Opens the capture; link() is current and up. Errors: one sentence.
  [[nodiscard]] virtual std::optional<Error> open_capture() = 0;
  /// Whether open_capture() opens in this process, and so in the thread's network namespace.
  [[nodiscard]] virtual bool opens_here() const { return true; }
  virtual void close_capture() = 0;
  [[nodiscard]] virtual bool is_open() const = 0;
  /// Readable when look() has frames; only called while is_open().
  [[nodiscard]] virtual int capture_descriptor() const = 0;
  /// Adds the frames that the kernel has dropped since the last call to counters_; only called while is_open().
  virtual void read_kernel_drops() = 0;

  LanCounters counters_;

 private:
  [[nodiscard]] Result<void> read_link();
  [[nodiscard]] std::optional<Error> capture();
  void refresh(Time now);

  std::string interface_;
  os::Log& log_;
  os::UniqueFd namespace_;  ///< where the interface is
  std::optional<os::LinkSocket> links_;
  Link link_;
  int captured_index_ = 0;
  bool absent_ = false;       ///< the engine has logged its loss, but not its return
  std::string last_refusal_;  ///< of open_capture(), logged once
  bool check_at_once_ = false;
  MovedFrames moved_;
  LanPause pause_;
  Time round_{};        ///< of the next receive()
  bool rests_ = false;  ///< since the last receive()
  Time next_check_{};
  Time next_event_check_{};
};

}  // namespace splitnic::iounit
