#include "host/frame_pump.h"

#include <fmt/format.h>

namespace splitnic::host {

namespace {

constexpr std::size_t kFramesPerPoll = 64;
// The unit should begin with super-frames before all of a burst has been read.
constexpr std::size_t kBytesPerPoll = 256 << 10;

}  // namespace

std::size_t FramePump::push(messaging::Session& session) {
  std::size_t pushed = 0;
  for (std::size_t bytes_pushed = 0; pushed < kFramesPerPoll && bytes_pushed < kBytesPerPoll; ++pushed) {
    const auto memory = session.claim(session.longest_frame_bytes());
    if (memory.empty()) {
      // The driver does not read the NIC: frames wait in the NIC's own queue, which drops those that find no room.
      if (!waits_) ++counters_.tx_waits;
      waits_ = true;
      return pushed;
    }
    waits_ = false;
    frame::FrameOffload offload;
    const std::size_t bytes = session.offloads() ? nic_.read_unfinished(memory, session.max_frame_bytes(), offload)
                                                 : nic_.read_frame(memory.bytes);
    if (bytes == 0) break;
    session.commit(static_cast<std::uint32_t>(bytes), offload);
    bytes_pushed += bytes;
    moved_.add(bytes);
    // The next look at the NIC may find nothing, and is a system call: a unit that sleeps begins to wake up before it.
    // For the first frame only, so that a batch gets at most one doorbell more.
    if (pushed == 0 && session.peer_sleeps()) session.flush();
  }
  return pushed;
}

void FramePump::deliver(const messaging::ReceivedFrame& frame, messaging::Session& session, Time now) {
  moved_.add(frame.size());
  if (nic_.write_frame(frame)) {
    ++counters_.rx_frames;
    counters_.rx_bytes += frame.size();
    return;
  }
  ++counters_.rx_refused_by_nic;
  losses_.lost(session, now,
               [this] { return fmt::format("its interface refused frames, {} so far", counters_.rx_refused_by_nic); });
}

}  // namespace splitnic::host
