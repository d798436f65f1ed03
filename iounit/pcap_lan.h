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

#include "common/os/log.h"
#include "common/result.h"
#include "common/time.h"
#include "iounit/interface_lan.h"
#include "iounit/send_batch.h"

struct pcap;

namespace splitnic::iounit {

struct PcapOptions {
  std::string interface {};
  /// Size of the kernel's capture ring. Where receive offloads are on, each frame takes a slot of 128 KiB, whatever its
  /// length. The slots hold frames while the driver isn't scheduled.
  int ring_bytes = 32 << 20;
};

/// A LAN interface through libpcap: promiscuous, inbound frames only, immediate mode. Frames keep their VLAN tags in
/// place. libpcap has no metadata of checksums and segmentation.
///
/// In a process that may not open captures, the engine keeps its capture while the interface is away, and lets a
/// privileged process bind its socket to the interface that came back. The capture's slots keep their size: frames that
/// are longer than the first interface's MTU permitted count as rx_truncated where no receive offload was on.
class PcapLan final : public InterfaceLan {
 public:
  /// See InterfaceLan::open_in_this_namespace. log: must outlive the engine. Errors: no such interface, no permission,
  /// not Ethernet.
  [[nodiscard]] static Result<std::unique_ptr<PcapLan>> open(const PcapOptions& options, Time now, os::Log& log);
  ~PcapLan() override;

  bool send(std::span<const std::byte> frame) override;
  void flush() override;
  /// Errors: there is no capture yet, because the interface is down.
  [[nodiscard]] Result<void> reopen_with(const PacketSockets& sockets) override;
  [[nodiscard]] std::string_view engine() const override { return "pcap"; }

 private:
  struct Close {
    void operator()(pcap* capture) const;
  };

  PcapLan(const PcapOptions& options, os::Log& log)
      : InterfaceLan(options.interface, log), ring_bytes_(options.ring_bytes) {}
  Look look(LanSink& sink, std::size_t budget) override;
  [[nodiscard]] std::optional<Error> open_capture() override;
  [[nodiscard]] std::optional<Error> move_capture();
  [[nodiscard]] bool opens_here() const override { return !move_; }
  void close_capture() override;
  [[nodiscard]] bool is_open() const override { return capture_ != nullptr && !away_; }
  [[nodiscard]] bool has_socket_error() const;
  [[nodiscard]] int capture_descriptor() const override;
  void read_kernel_drops() override;

  SendBatch batch_;
  int ring_bytes_;
  std::unique_ptr<pcap, Close> capture_;
  std::uint32_t kernel_drops_seen_ = 0;                                          ///< of this capture
  std::function<Result<std::vector<std::string>>(int socket, int index)> move_;  ///< see PacketSockets
  bool away_ = false;  ///< the capture waits until its interface is back
};

}  // namespace splitnic::iounit
