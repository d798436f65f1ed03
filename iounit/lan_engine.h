#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/frame/frame_offload.h"
#include "common/time.h"
#include "iounit/packet_socket.h"
#include "messaging/frame_memory.h"

namespace splitnic::iounit {

/// Receives frames from a LanEngine.
class LanSink {
 public:
  virtual ~LanSink() = default;
  /// A frame from the LAN, destination address first, without FCS. The engine owns the bytes, which are valid during
  /// the call. The frame may carry a partial checksum or be larger than the MTU (see common/frame/software_offload.h).
  virtual void on_lan_frame(std::span<const std::byte> frame) = 0;
  /// The same from an engine that knows what the sender left to the NIC. With the default FrameOffload the frame's
  /// checksums are complete. The metadata may be wrong: the driver checks it.
  virtual void on_lan_frame(std::span<const std::byte> frame, const frame::FrameOffload& offload) = 0;

  /// A frame of a host of another unit of the daemon, from an engine that knows such hosts (GroupLan). Its unit has
  /// judged the source. addressed: it was for a host of this unit, and nobody else gets it as its destination. False:
  /// this unit has no such host any more and has not counted the frame, so it is the LAN's.
  virtual bool on_unit_frame(std::span<const std::byte> frame, const frame::FrameOffload& offload, bool /*addressed*/) {
    on_lan_frame(frame, offload);
    return true;
  }

  /// An engine that has seen the head of a long frame before it reads the frame may ask where to put the rest. frame:
  /// memory of the engine as long as the frame, of which only the first head_bytes are there. Returns memory for all of
  /// the frame, which the engine fills from head_bytes on before it calls on_placed_frame(); none: the engine reads the
  /// frame as any other. Write-only, and valid until the next call of the sink.
  virtual messaging::FrameMemory place_for(std::span<const std::byte> /*frame*/, std::size_t /*head_bytes*/,
                                           const frame::FrameOffload& /*offload*/) {
    return {};
  }
  /// The frame for which the last place_for() gave memory, with the same head and metadata.
  virtual void on_placed_frame(std::span<const std::byte> /*frame*/, std::size_t /*head_bytes*/,
                               const frame::FrameOffload& /*offload*/) {}
};

/// Counters of a LAN engine since it was opened.
struct LanCounters {
  std::uint64_t rx_frames = 0;
  std::uint64_t tx_frames = 0;
  std::uint64_t rx_truncated = 0;     ///< frames dropped because their capture is incomplete
  std::uint64_t rx_undescribed = 0;   ///< super-frames lost because the kernel can't say how they are to be cut
  std::uint64_t rx_kernel_drops = 0;  ///< frames lost before this process received them
  std::uint64_t tx_errors = 0;        ///< frames that the interface refused
  std::uint64_t tx_lost = 0;          ///< of tx_errors: those that send() had accepted before
};

/// The I/O-unit driver's lower interface, a LAN: a packet socket or libpcap on an interface, savefiles, what one of
/// several units has of these (GroupLan), or a model in the simulation. Thread: the driver's owner. Source: S1 Fig. 5,
/// LAN interface 548.
class LanEngine {
 public:
  virtual ~LanEngine() = default;

  /// The time of the receive() that comes next.
  virtual void begin_round(Time /*now*/) {}
  /// Delivers at most `budget` waiting frames to `sink`; returns how many. Never blocks. It may leave frames where they
  /// are until rests_until(), and then watches for no more of them.
  virtual std::size_t receive(LanSink& sink, std::size_t budget) = 0;
  /// In the past: the engine leaves no frames where they are.
  [[nodiscard]] virtual Time rests_until() const { return {}; }
  /// Sends one frame of at least 14 bytes; the engine pads it if the medium requires more. False: refused, counted. An
  /// engine that collects frames until flush() counts those that the interface refuses then under tx_errors and
  /// tx_lost.
  virtual bool send(std::span<const std::byte> frame) = 0;
  /// Whether the LAN takes frames with a partial checksum, and super-frames of this kind, and finishes them itself.
  /// Where it does not, the caller does, with frame::SoftwareOffload.
  [[nodiscard]] virtual bool takes_offloads(frame::SegmentKind /*kind*/) const { return false; }
  /// The same as send(frame) for a frame whose checksum or segmentation is left to the LAN, if takes_offloads() for its
  /// kind. frame::judge_unfinished() must have found it whole for the LAN's MTU.
  virtual bool send_unfinished(std::span<const std::byte> frame, const frame::FrameOffload& offload) {
    return !offload.asks_for_work() && send(frame);
  }
  /// Whether send_gathered() takes a frame of so many bytes. head: of the frame, with all headers.
  [[nodiscard]] virtual bool gathers(std::span<const std::byte> /*head*/, std::size_t /*frame_bytes*/) const {
    return false;
  }
  /// The same as send_unfinished() for a frame in parts: its head, with all headers, and the payload behind it. The
  /// payload may be in memory that a host can still write; it is read once, before the call returns.
  virtual bool send_gathered(std::span<const std::byte> /*head*/, std::span<const iovec> /*payload*/,
                             const frame::FrameOffload& /*offload*/) {
    return false;
  }
  /// Ends a batch of sends: leaves no sent frame in this process.
  virtual void flush() = 0;

  /// Does bounded housekeeping: detects that the interface vanished or came back, and reopens it.
  virtual void poll(Time now) = 0;
  /// When the driver must call poll() next.
  [[nodiscard]] virtual Time next_deadline() const = 0;

  /// Before the driver sleeps on the descriptors. False: frames wait that no descriptor reports.
  [[nodiscard]] virtual bool prepare_sleep() { return true; }
  /// After each prepare_sleep().
  virtual void disarm() {}

  [[nodiscard]] virtual bool carrier() const = 0;
  /// Layer-3 bytes.
  [[nodiscard]] virtual std::uint32_t mtu() const = 0;
  /// For interfaces: captures again in this way after the interface was away, because the process gives up the right to
  /// do it itself. Errors: the engine can't, as its interface is at present.
  [[nodiscard]] virtual Result<void> reopen_with(const PacketSockets& /*sockets*/) { return {}; }
  /// For savefiles: reports that `sessions` hosts are up, so that playback can wait for the first (or --wait-hosts).
  virtual void on_sessions(std::size_t /*sessions*/, Time /*now*/) {}
  [[nodiscard]] virtual const LanCounters& counters() const = 0;
  /// Appends the descriptors that become readable when receive() or poll() may have work; poll() may change them.
  virtual void collect_descriptors(std::vector<int>& out) const = 0;
  [[nodiscard]] virtual std::string name() const = 0;
  /// How the engine reaches the LAN, for `splitnic status`: "pcap", "packet", "savefile"; other engines may leave it.
  [[nodiscard]] virtual std::string_view engine() const { return "other"; }
};

}  // namespace splitnic::iounit
