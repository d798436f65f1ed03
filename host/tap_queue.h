#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "common/os/event_bell.h"
#include "host/tap_device.h"
#include "host/virtual_nic.h"

namespace splitnic::host {

/// A further queue of a TAP. The TapNic's thread provides the device, and replaces it when the interface was made
/// again; another thread serves the queue.
class TapQueue final : public FurtherNicQueue {
 public:
  /// leader: wakes the TapNic's thread. Lent; outlives this.
  explicit TapQueue(os::EventBell& leader) : leader_(leader) {}

  // --- The TapNic's thread. ---

  /// wake: ends a sleep of the serving thread; called on this thread. Set it before the serving thread starts.
  void on_replaced(std::function<void()> wake) { wake_ = std::move(wake); }
  /// device: inactive; nullopt: the interface is gone.
  void replace(std::optional<TapDevice> device);
  /// Whether a frame has passed since the last call. call_next: the next frame rings the leader's bell.
  [[nodiscard]] bool take_passed(bool call_next);
  /// Whether the host has sent a membership report since the last call. Each one that take_report() has not returned
  /// yet has rung the bell.
  [[nodiscard]] bool take_report() {
    return reported_.load(std::memory_order_relaxed) && reported_.exchange(false, std::memory_order_relaxed);
  }

  // --- The serving thread. ---

  std::size_t read_frame(std::span<std::byte> to) override;
  std::size_t read_unfinished(const messaging::FrameMemory& to, std::size_t max_complete_bytes,
                              frame::FrameOffload& offload) override;
  bool write_frame(const messaging::ReceivedFrame& frame) override;
  /// Takes note of a frame that was read. head: its first bytes.
  void note_read(std::span<const std::byte> head);
  void collect_descriptors(std::vector<int>& out) const override;
  void set_active(bool active, const NicOffloads& permitted) override;
  [[nodiscard]] std::uint64_t oversized() const override { return oversized_ + (device_ ? device_->oversized() : 0); }
  [[nodiscard]] std::uint64_t unfinished() const override {
    return unfinished_ + (device_ ? device_->unfinished() : 0);
  }

 private:
  void follow();
  void note_passed();

  os::EventBell& leader_;
  // Q1 (sequentially consistent): the serving thread stores passed_, then reads call_next_; the TapNic's stores
  // call_next_, then reads passed_. One of them sees the other's. Without it a frame could pass between the two, and
  // the TapNic's thread would sleep on.
  std::atomic<bool> passed_{false};
  std::atomic<bool> call_next_{false};
  std::atomic<bool> reported_{false};  // relaxed: the bell orders it
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
