#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "host/tap_device.h"
#include "host/virtual_nic.h"

namespace splitnic::host {

/// A further queue of a TAP. The TapNic's thread provides the device, and replaces it when the interface was made
/// again; another thread serves the queue.
class TapQueue final : public FurtherNicQueue {
 public:
  // --- The TapNic's thread. ---

  /// wake: ends a sleep of the serving thread; called on this thread. Set it before the serving thread starts.
  void on_replaced(std::function<void()> wake) { wake_ = std::move(wake); }
  /// device: inactive; nullopt: the interface is gone.
  void replace(std::optional<TapDevice> device);

  // --- The serving thread. ---

  std::size_t read_frame(std::span<std::byte> to) override;
  std::size_t read_unfinished(const messaging::FrameMemory& to, std::size_t max_complete_bytes,
                              frame::FrameOffload& offload) override;
  bool write_frame(const messaging::ReceivedFrame& frame) override;
  void collect_descriptors(std::vector<int>& out) const override;
  void set_active(bool active, const NicOffloads& permitted) override;
  [[nodiscard]] std::uint64_t oversized() const override { return oversized_ + (device_ ? device_->oversized() : 0); }
  [[nodiscard]] std::uint64_t unfinished() const override {
    return unfinished_ + (device_ ? device_->unfinished() : 0);
  }

 private:
  void follow();

  std::function<void()> wake_;
  std::mutex mutex_;  // guards next_
  std::optional<TapDevice> next_;
  std::atomic<bool> replaced_{false};  // next_ is to replace device_; changed under the mutex, and read without it too
  std::optional<TapDevice> device_;
  bool active_ = false;
  NicOffloads permitted_;
  std::uint64_t oversized_ = 0;  // of earlier devices
  std::uint64_t unfinished_ = 0;
};

}  // namespace splitnic::host
