#include "host/frame_ring.h"

#include <sys/eventfd.h>

#include "common/check.h"
#include "common/os/errno_text.h"
#include "common/result.h"

namespace splitnic::host {

FrameRing::FrameRing(std::size_t frames, std::size_t frame_bytes)
    : frame_bytes_(frame_bytes),
      storage_(new std::byte[frames * frame_bytes]),
      filled_(frames),
      free_(frames),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!wake_) throw StartupError{fmt::format("no descriptor for a frame ring: {}", os::errno_text())};
  for (std::uint32_t place = 0; place < frames; ++place) SPLITNIC_CHECK(free_.push(place));
}

std::span<std::byte> FrameRing::claim() {
  if (free_.read_available() == 0) return {};
  return {at(free_.front()), frame_bytes_};
}

void FrameRing::commit(std::size_t bytes) {
  SPLITNIC_CHECK_OP(bytes, <=, frame_bytes_);
  const std::uint32_t place = free_.front();
  SPLITNIC_CHECK(free_.pop());
  SPLITNIC_CHECK(filled_.push(Frame{place, static_cast<std::uint32_t>(bytes)}));
  // X1 (acquire-release exchange): publishes the frame before it checks armed_; pairs with X2 in front(). One of the
  // two exchanges comes first. If X2 is first, X1 sees the flag and signals. If X1 is first, X2 reads from it and finds
  // the frame. With a plain load here, both sides could miss each other: the consumer would sleep on an unsignalled
  // descriptor while a frame waits.
  if (armed_.exchange(false, std::memory_order_acq_rel)) ::eventfd_write(wake_.get(), 1);
}

std::span<const std::byte> FrameRing::front() {
  if (filled_.read_available() == 0) {
    if (armed_.load(std::memory_order_relaxed)) return {};
    ::eventfd_t rung = 0;
    ::eventfd_read(wake_.get(), &rung);
    // X2 (acquire-release exchange): arms before the second check; see X1 in commit().
    armed_.exchange(true, std::memory_order_acq_rel);
    if (filled_.read_available() == 0) return {};
  }
  const Frame& frame = filled_.front();
  return {at(frame.place), frame.bytes};
}

void FrameRing::pop() {
  const std::uint32_t place = filled_.front().place;
  SPLITNIC_CHECK(filled_.pop());
  SPLITNIC_CHECK(free_.push(place));
}

}  // namespace splitnic::host
