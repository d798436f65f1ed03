#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "common/os/log.h"
#include "common/result.h"
#include "common/time.h"
#include "iounit/interface_lan.h"

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
class PcapLan final : public InterfaceLan {
 public:
  /// See InterfaceLan::open_in_this_namespace. log: must outlive the engine. Errors: no such interface, no permission,
  /// not Ethernet.
  [[nodiscard]] static Result<std::unique_ptr<PcapLan>> open(const PcapOptions& options, Time now, os::Log& log);
  ~PcapLan() override;

  std::size_t receive(LanSink& sink, std::size_t budget) override;
  bool send(std::span<const std::byte> frame) override;
  void flush() override {}
  [[nodiscard]] std::string_view engine() const override { return "pcap"; }

 private:
  struct Close {
    void operator()(pcap* capture) const;
  };

  PcapLan(const PcapOptions& options, os::Log& log)
      : InterfaceLan(options.interface, log), ring_bytes_(options.ring_bytes) {}
  [[nodiscard]] std::optional<Error> open_capture() override;
  void close_capture() override;
  [[nodiscard]] bool is_open() const override { return capture_ != nullptr; }
  [[nodiscard]] int capture_descriptor() const override;
  void read_kernel_drops() override;

  int ring_bytes_;
  std::unique_ptr<pcap, Close> capture_;
  std::uint32_t kernel_drops_seen_ = 0;  ///< of this capture
};

}  // namespace splitnic::iounit
