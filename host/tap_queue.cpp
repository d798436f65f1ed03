#include "host/tap_queue.h"

#include <utility>

namespace splitnic::host {

void TapQueue::replace(std::optional<TapDevice> device) {
  {
    const std::lock_guard lock(mutex_);
    next_ = std::move(device);
    replaced_.store(true, std::memory_order_relaxed);
  }
  if (wake_) wake_();
}

/// Takes over the device that the TapNic has provided, if there is a new one.
void TapQueue::follow() {
  if (!replaced_.load(std::memory_order_relaxed)) return;
  if (device_) {
    oversized_ += device_->oversized();
    unfinished_ += device_->unfinished();
  }
  {
    const std::lock_guard lock(mutex_);
    replaced_.store(false, std::memory_order_relaxed);
    device_ = std::exchange(next_, std::nullopt);
  }
  if (!device_) return;
  device_->follow_offloads(permitted_);
  if (active_) device_->set_active(true);
}

std::size_t TapQueue::read_frame(std::span<std::byte> to) {
  frame::FrameOffload none;
  return read_unfinished({to}, to.size(), none);
}

std::size_t TapQueue::read_unfinished(const messaging::FrameMemory& to, std::size_t max_complete_bytes,
                                      frame::FrameOffload& offload) {
  follow();
  return device_ && active_ ? device_->read_frame(to, max_complete_bytes, offload) : 0;
}

bool TapQueue::write_frame(const messaging::ReceivedFrame& frame) {
  follow();
  return device_ && device_->write_frame(frame);
}

void TapQueue::collect_descriptors(std::vector<int>& out) const {
  if (device_ && active_) out.push_back(device_->descriptor());
}

void TapQueue::set_active(bool active, const NicOffloads& permitted) {
  permitted_ = permitted;
  follow();
  if (device_) device_->follow_offloads(permitted);
  if (active == std::exchange(active_, active)) return;
  if (device_) device_->set_active(active);
}

}  // namespace splitnic::host
