#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/time.h"

namespace splitnic::iounit {

/// Takes frames from a LanEngine.
class LanSink {
 public:
  virtual ~LanSink() = default;
  /// A frame from the LAN, destination address first, without FCS. The bytes are the engine's and valid during the
  /// call; they may carry a partial checksum or be larger than the MTU (see common/frame/software_offload.h).
  virtual void on_lan_frame(std::span<const std::byte> frame) = 0;
};

/// Counters of a LAN engine since it was opened.
struct LanCounters {
  std::uint64_t rx_frames = 0;
  std::uint64_t tx_frames = 0;
  std::uint64_t rx_truncated = 0;     ///< captured shorter than it was, dropped
  std::uint64_t rx_kernel_drops = 0;  ///< lost before this process saw them
  std::uint64_t tx_errors = 0;        ///< the interface refused a frame
};

/// The I/O-unit driver's lower edge: a LAN. libpcap on an interface, savefiles, a model in the simulation.
/// Thread: the driver's owner. Source: S1 Fig. 5, LAN interface 548.
class LanEngine {
 public:
  virtual ~LanEngine() = default;

  /// Hands at most `budget` waiting frames to sink; returns how many. Never blocks.
  virtual std::size_t receive(LanSink& sink, std::size_t budget) = 0;
  /// Sends one frame (14 bytes at least, padded by the engine if the medium wants more). False: refused, counted.
  virtual bool send(std::span<const std::byte> frame) = 0;
  /// Ends a batch of sends: nothing stays behind in this process.
  virtual void flush() = 0;

  /// Bounded housekeeping: notices that the interface vanished or came back, reopens it.
  virtual void poll(Time now) = 0;
  /// When poll wants to run next.
  [[nodiscard]] virtual Time next_deadline() const = 0;

  [[nodiscard]] virtual bool carrier() const = 0;
  /// Layer-3 bytes.
  [[nodiscard]] virtual std::uint32_t mtu() const = 0;
  /// For savefiles: called when `sessions` hosts are up, so that playback can wait for the first (or --wait-hosts).
  virtual void on_sessions(std::size_t /*sessions*/, Time /*now*/) {}
  [[nodiscard]] virtual const LanCounters& counters() const = 0;
  /// Appends the descriptors that become readable when receive or poll may have work; they may change after poll().
  virtual void collect_descriptors(std::vector<int>& out) const = 0;
  [[nodiscard]] virtual std::string name() const = 0;
};

}  // namespace splitnic::iounit
