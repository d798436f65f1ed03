// rpoll() and rselect(): sockets over RDMA beside any other descriptors.
#include <rdma/rsocket.h>

#include <algorithm>
#include <chrono>

#include "fabric/rdmacm/rsocket_calls.h"

namespace splitnic::rdmacm {
namespace {

int poll_all(std::span<pollfd> all, Time deadline) {
  std::vector<Interest> sockets;
  std::vector<pollfd> plain;
  std::vector<std::size_t> places;  // of the plain ones, then of the sockets
  std::vector<std::size_t> socket_places;
  for (std::size_t index = 0; index < all.size(); ++index) {
    pollfd& one = all[index];
    one.revents = 0;
    if (auto socket = RsocketTable::get().find(one.fd)) {
      sockets.push_back({std::move(socket), static_cast<short>(one.events & kPollEvents), 0, nullptr});
      socket_places.push_back(index);
    } else if (one.fd >= 0) {
      plain.push_back(one);
      places.push_back(index);
    }
  }
  const auto count = await(sockets, plain, deadline);
  for (std::size_t index = 0; index < plain.size(); ++index) all[places[index]].revents = plain[index].revents;
  for (std::size_t index = 0; index < sockets.size(); ++index) all[socket_places[index]].revents = sockets[index].found;
  if (count) return *count;
  if (count.error() != EBADF) return refuse(count.error());
  // Another thread has closed one of them meanwhile.
  int closed = 0;
  for (std::size_t index = 0; index < sockets.size(); ++index) {
    if (RsocketTable::get().find(all[socket_places[index]].fd) == sockets[index].socket) continue;
    all[socket_places[index]].revents = POLLNVAL;
    ++closed;
  }
  return closed;
}

/// nullopt: it is no time.
std::optional<Time> deadline_of(const timeval* timeout) {
  if (timeout == nullptr) return kNever;
  if (timeout->tv_sec < 0 || timeout->tv_usec < 0) return std::nullopt;
  static constexpr long kLongestSeconds = 1'000'000'000;  // beyond it, the sum does not fit
  const auto at_most = [](long value) { return std::min(value, kLongestSeconds); };
  return monotonic_now() + std::chrono::seconds(at_most(timeout->tv_sec)) +
         std::chrono::microseconds(at_most(timeout->tv_usec));
}

bool is_in(const fd_set* set, int descriptor) { return set != nullptr && FD_ISSET(descriptor, set); }

/// Leaves those descriptors in the set whose events are among `events`. Returns how many.
int keep_ready(fd_set* set, std::span<const pollfd> all, int events, int asked) {
  if (set == nullptr) return 0;
  int count = 0;
  FD_ZERO(set);
  for (const pollfd& one : all) {
    if ((one.events & asked) == 0 || (one.revents & events) == 0) continue;
    FD_SET(one.fd, set);
    ++count;
  }
  return count;
}

}  // namespace

extern "C" {

int rpoll(pollfd* descriptors, nfds_t count, int timeout) {
  if (descriptors == nullptr && count != 0) return refuse(EFAULT);
  const Time deadline = timeout < 0 ? kNever : monotonic_now() + std::chrono::milliseconds(timeout);
  return keeping_errno([&] {
    return guarded([&] { return poll_all({descriptors, count}, timeout == 0 ? Time{} : deadline); });
  });
}

int rselect(int count, fd_set* reads, fd_set* writes, fd_set* exceptions, timeval* timeout) {
  const auto deadline = deadline_of(timeout);
  if (count < 0 || count > FD_SETSIZE || !deadline) return refuse(EINVAL);
  return keeping_errno([&] {
    return guarded([&] {
      std::vector<pollfd> all;
      for (int descriptor = 0; descriptor < count; ++descriptor) {
        const int events = (is_in(reads, descriptor) ? POLLIN : 0) | (is_in(writes, descriptor) ? POLLOUT : 0) |
                           (is_in(exceptions, descriptor) ? POLLPRI : 0);
        if (events != 0) all.push_back({descriptor, static_cast<short>(events), 0});
      }
      if (poll_all(all, *deadline) < 0) return -1;
      if (std::ranges::any_of(all, [](const pollfd& one) { return (one.revents & POLLNVAL) != 0; }))
        return refuse(EBADF);
      return keep_ready(reads, all, POLLIN | POLLHUP | POLLERR, POLLIN) +
             keep_ready(writes, all, POLLOUT | POLLERR, POLLOUT) + keep_ready(exceptions, all, POLLPRI, POLLPRI);
    });
  });
}

}  // extern "C"

}  // namespace splitnic::rdmacm
