#include "host/tap_queue.h"

#include <utility>

#include "common/frame/multicast.h"

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
  const std::size_t bytes = device_ && active_ ? device_->read_frame(to, max_complete_bytes, offload) : 0;
  if (bytes != 0) note_read(device_->head());
  return bytes;
}

bool TapQueue::write_frame(const messaging::ReceivedFrame& frame) {
  follow();
  note_passed();
  return device_ && device_->write_frame(frame);
}

void TapQueue::note_read(std::span<const std::byte> head) {
  note_passed();
  // The steering program sends reports to the first queue, but the kernel may have refused it.
  const bool to_group = (std::to_integer<unsigned>(head.front()) & 1U) != 0;
  if (!to_group || !frame::is_membership_report(head)) return;
  if (!reported_.exchange(true, std::memory_order_relaxed)) leader_.ring();
}

/// One load for most frames: passed_ stays until the TapNic looks.
void TapQueue::note_passed() {
  if (passed_.load(std::memory_order_relaxed)) return;
  passed_.store(true, std::memory_order_seq_cst);  // Q1
  if (call_next_.load(std::memory_order_seq_cst) && call_next_.exchange(false, std::memory_order_relaxed)) {
    leader_.ring();
  }
}

bool TapQueue::take_passed(bool call_next) {
  const auto taken = [this] {
    return passed_.load(std::memory_order_seq_cst) && passed_.exchange(false, std::memory_order_seq_cst);
  };
  if (taken()) return true;
  if (!call_next) return false;
  call_next_.store(true, std::memory_order_seq_cst);  // Q1
  return taken();
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
