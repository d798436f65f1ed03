#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/frame/frame_offload.h"
#include "common/os/log.h"
#include "common/os/unique_fd.h"
#include "common/result.h"
#include "common/time.h"
#include "iounit/frame_in_hand.h"
#include "iounit/interface_lan.h"
#include "iounit/packet_socket.h"
#include "iounit/send_batch.h"

namespace splitnic::iounit {

inline constexpr int kPacketReceiveBytes = 32 << 20;

struct PacketOptions {
  std::string interface {};
  /// Limit on the memory of frames that wait in the kernel for this process. The kernel counts a frame's whole buffer,
  /// 768 bytes or more for the smallest.
  int receive_bytes = kPacketReceiveBytes;
  /// The engines that share the interface's frames by flow have the same; null: this one gets them all.
  std::shared_ptr<PacketFanout> fanout{};
};

/// A LAN interface through a packet socket with virtio-net headers (packet(7)): promiscuous, inbound frames only. Each
/// frame comes with what its sender left to the NIC, so that checksums and super-frames of TCP and UDP are finished by
/// their metadata. Frames are received and sent in batches; flush() sends, and a long frame goes out at once behind
/// what was collected.
class PacketLan final : public InterfaceLan {
 public:
  /// See InterfaceLan::open_in_this_namespace. log: must outlive the engine. Errors: no such interface, no permission,
  /// not Ethernet, a kernel without virtio-net headers on packet sockets (before 2.6.39).
  [[nodiscard]] static Result<std::unique_ptr<PacketLan>> open(const PacketOptions& options, Time now, os::Log& log);
  ~PacketLan() override;

  bool send(std::span<const std::byte> frame) override { return send_unfinished(frame, {}); }
  [[nodiscard]] bool takes_offloads(frame::SegmentKind kind) const override {
    return kind != frame::SegmentKind::udp || !refuses_udp_segments_;
  }
  bool send_unfinished(std::span<const std::byte> frame, const frame::FrameOffload& offload) override;
  [[nodiscard]] bool gathers(std::span<const std::byte> /*head*/, std::size_t frame_bytes) const override {
    return frame_bytes > kLongFrameBytes;
  }
  bool send_gathered(std::span<const std::byte> head, std::span<const iovec> payload,
                     const frame::FrameOffload& offload) override;
  void flush() override;
  [[nodiscard]] Result<void> reopen_with(const PacketSockets& sockets) override {
    opener_ = sockets.open;
    opens_here_ = false;
    return {};
  }
  [[nodiscard]] std::string_view engine() const override { return "packet"; }

 private:
  struct Receiver;

  PacketLan(const PacketOptions& options, os::Log& log);
  Look look(LanSink& sink, std::size_t budget) override;
  [[nodiscard]] std::optional<Error> open_capture() override;
  [[nodiscard]] bool opens_here() const override { return opens_here_; }
  void close_capture() override { socket_ = {}; }
  [[nodiscard]] bool is_open() const override { return socket_.get() >= 0; }
  [[nodiscard]] int capture_descriptor() const override { return socket_.get(); }
  void read_kernel_drops() override;
  /// What became of an attempt to read one long frame to where the sink wants it.
  enum class Placed : std::uint8_t { yes, no, nothing_waits };
  [[nodiscard]] Placed receive_placed(LanSink& sink, std::size_t& bytes);
  void deliver(std::size_t slot, LanSink& sink, std::size_t& delivered);
  [[nodiscard]] bool may_send(std::span<const std::byte> head, std::size_t frame_bytes,
                              const frame::FrameOffload& offload);
  void note_refusal(const frame::VirtioNetHeader& header, std::size_t frame_bytes);
  void note_undescribed();
  void note_truncated();

  bool expects_long_frames_ = false;   ///< the last frame received was long
  bool said_too_long_ = false;         ///< the log has the hint about frames that are too long
  bool refuses_udp_segments_ = false;  ///< the kernel has refused a super-frame of UDP (before 6.2)
  std::function<Result<PacketSocket>(int index)> opener_;
  bool opens_here_ = true;
  os::UniqueFd socket_;
  std::unique_ptr<Receiver> receiver_;
  SendBatch batch_;
};

}  // namespace splitnic::iounit
