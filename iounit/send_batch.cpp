#include "iounit/send_batch.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace splitnic::iounit {

SendBatch::SendBatch() : memory_(kMostBytes) {}

void SendBatch::add(std::span<const std::byte> header, std::span<const std::byte> frame) {
  std::byte* const to = memory_.data() + used_ + header.size();
  std::memcpy(to, frame.data(), frame.size());
  refer(header, {to, frame.size()});
  used_ += frame.size();
}

void SendBatch::refer(std::span<const std::byte> header, std::span<const std::byte> frame,
                      std::span<const iovec> payload) {
  std::byte* const to = memory_.data() + used_;
  std::ranges::copy(header, to);
  parts_[queued_] = {iovec{to, header.size()}, iovec{const_cast<std::byte*>(frame.data()), frame.size()}};
  std::ranges::copy(payload, parts_[queued_].begin() + 2);
  messages_[queued_] = {};
  messages_[queued_].msg_hdr.msg_iov = parts_[queued_].data();
  messages_[queued_].msg_hdr.msg_iovlen = 2 + payload.size();
  used_ += header.size();
  ++queued_;
}

std::size_t SendBatch::send(int socket, LanCounters& counters,
                            const std::function<void(std::size_t message)>& refused) {
  std::size_t of_received = 0;
  bool again = false;  // the next message had an error that may be of a received frame
  for (std::size_t done = 0; done < queued_;) {
    const int sent =
        socket >= 0 ? ::sendmmsg(socket, &messages_[done], static_cast<unsigned>(queued_ - done), MSG_DONTWAIT) : -1;
    if (sent > 0) {
      counters.tx_frames += static_cast<std::size_t>(sent);
      done += static_cast<std::size_t>(sent);
      if (std::exchange(again, false)) ++of_received;
      continue;
    }
    if (socket >= 0 && errno == EINTR) continue;
    if (socket >= 0 && errno == EINVAL && !std::exchange(again, true)) continue;
    again = false;
    if (socket >= 0) refused(done);
    ++counters.tx_errors;  // the first of the rest; the others have a try of their own
    ++counters.tx_lost;
    ++done;
  }
  queued_ = 0;
  used_ = 0;
  return of_received;
}

std::span<const std::byte> SendBatch::header(std::size_t message) const {
  const iovec& part = parts_[message].front();
  return {static_cast<const std::byte*>(part.iov_base), part.iov_len};
}

std::size_t SendBatch::frame_bytes(std::size_t message) const {
  std::size_t bytes = 0;
  for (const iovec& part : std::span(parts_[message]).subspan(1, messages_[message].msg_hdr.msg_iovlen - 1)) {
    bytes += part.iov_len;
  }
  return bytes;
}

bool interface_lost(int error) { return error == ENETDOWN || error == ENXIO || error == ENODEV; }

}  // namespace splitnic::iounit
