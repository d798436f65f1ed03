// rsetsockopt() and rgetsockopt().
#include <netinet/tcp.h>
#include <rdma/rsocket.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "fabric/rdmacm/rsocket_calls.h"

namespace splitnic::rdmacm {
namespace {

/// An option whose value is an integer: where it is, and what it may be.
struct Number {
  int RsocketOptions::*value = nullptr;
  int least = 0;
  int most = 0;
};
struct Flag {
  bool RsocketOptions::*value = nullptr;
};

constexpr int kAnySize = 1 << 28;

Number numeric_option(int level, int name) {
  if (level == SOL_SOCKET) {
    if (name == SO_SNDBUF) return {&RsocketOptions::send_bytes, 0, kAnySize};
    if (name == SO_RCVBUF) return {&RsocketOptions::receive_bytes, 0, kAnySize};
  } else if (level == IPPROTO_TCP) {
    if (name == TCP_KEEPIDLE) return {&RsocketOptions::keep_idle, 1, 32767};
    if (name == TCP_KEEPINTVL) return {&RsocketOptions::keep_interval, 1, 32767};
    if (name == TCP_KEEPCNT) return {&RsocketOptions::keep_count, 1, 127};
    if (name == TCP_MAXSEG) return {&RsocketOptions::segment_bytes, 0, kAnySize};
  } else if (level == SOL_RDMA) {
    if (name == RDMA_SQSIZE) return {&RsocketOptions::send_requests, 1, kAnySize};
    if (name == RDMA_RQSIZE) return {&RsocketOptions::receive_requests, 1, kAnySize};
    if (name == RDMA_INLINE) return {&RsocketOptions::inline_bytes, 0, kAnySize};
    if (name == RDMA_IOMAPSIZE) return {&RsocketOptions::io_maps, 0, kAnySize};
  }
  return {};
}

Flag flag_of(int level, int name) {
  if (level == SOL_SOCKET) {
    if (name == SO_REUSEADDR || name == SO_REUSEPORT) return {&RsocketOptions::reuse_address};
    if (name == SO_KEEPALIVE) return {&RsocketOptions::keep_alive};
    if (name == SO_OOBINLINE) return {&RsocketOptions::out_of_band_inline};
  } else if (level == IPPROTO_TCP) {
    if (name == TCP_NODELAY) return {&RsocketOptions::no_delay};
  } else if (level == IPPROTO_IPV6) {
    if (name == IPV6_V6ONLY) return {&RsocketOptions::only_ip6};
  }
  return {};
}

template <class Value>
int read_value(const void* from, socklen_t bytes, Value& value) {
  if (from == nullptr) return EFAULT;
  if (bytes < sizeof value) return EINVAL;
  std::memcpy(&value, from, sizeof value);
  return 0;
}

template <class Value>
int write_value(const Value& value, void* to, socklen_t* bytes) {
  if (to == nullptr || bytes == nullptr) return EFAULT;
  *bytes = std::min(*bytes, static_cast<socklen_t>(sizeof value));
  std::memcpy(to, &value, *bytes);
  return 0;
}

int set_time(Duration& time, const void* from, socklen_t bytes) {
  timeval value{};
  if (const int error_number = read_value(from, bytes, value)) return error_number;
  if (value.tv_sec < 0 || value.tv_usec < 0 || value.tv_usec >= 1'000'000) return EDOM;
  constexpr long kMaxSeconds = 1'000'000'000;
  time = std::chrono::seconds(std::min(value.tv_sec, kMaxSeconds)) + std::chrono::microseconds(value.tv_usec);
  return 0;
}

timeval as_timeval(Duration time) {
  const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(time).count();
  return {micros / 1'000'000, micros % 1'000'000};
}

int set_option(Rsocket& socket, int level, int name, const void* from, socklen_t bytes) {
  RsocketOptions& options = socket.options;
  if (const Number number = numeric_option(level, name); number.value != nullptr) {
    int value = 0;
    if (const int error_number = read_value(from, bytes, value)) return error_number;
    if (value < number.least || (level == IPPROTO_TCP && value > number.most)) return EINVAL;
    options.*number.value = std::min(value, number.most);
    return 0;
  }
  if (const Flag flag = flag_of(level, name); flag.value != nullptr) {
    int value = 0;
    if (const int error_number = read_value(from, bytes, value)) return error_number;
    options.*flag.value = value != 0;
    return 0;
  }
  if (level == SOL_SOCKET && name == SO_LINGER) {
    linger value{};
    if (const int error_number = read_value(from, bytes, value)) return error_number;
    options.lingers = value.l_onoff != 0;
    options.linger_seconds = std::max(value.l_linger, 0);
    return 0;
  }
  if (level == SOL_SOCKET && name == SO_RCVTIMEO) return set_time(options.receive_timeout, from, bytes);
  if (level == SOL_SOCKET && name == SO_SNDTIMEO) return set_time(options.send_timeout, from, bytes);
  // There is one path to each peer, so one that the program brings along changes nothing.
  if (level == SOL_RDMA && name == RDMA_ROUTE) return from != nullptr ? 0 : EFAULT;
  return ENOPROTOOPT;
}

/// What the socket is, and not what the program has chosen.
int get_state(Rsocket& socket, int name, void* to, socklen_t* bytes) {
  switch (name) {
    case SO_ERROR:
      socket.progress();
      return write_value(socket.take_error(), to, bytes);
    case SO_TYPE:
      return write_value(socket.type, to, bytes);
    case SO_DOMAIN:
      return write_value(socket.family, to, bytes);
    case SO_PROTOCOL:
      return write_value(static_cast<int>(socket.type == SOCK_STREAM ? IPPROTO_TCP : IPPROTO_UDP), to, bytes);
    case SO_ACCEPTCONN:
      return write_value(socket.listens() ? 1 : 0, to, bytes);
    case SO_LINGER:
      return write_value(linger{socket.options.lingers ? 1 : 0, socket.options.linger_seconds}, to, bytes);
    case SO_RCVTIMEO:
      return write_value(as_timeval(socket.options.receive_timeout), to, bytes);
    case SO_SNDTIMEO:
      return write_value(as_timeval(socket.options.send_timeout), to, bytes);
    default:
      return ENOPROTOOPT;
  }
}

int get_option(Rsocket& socket, int level, int name, void* to, socklen_t* bytes) {
  if (level == IPPROTO_TCP && name == TCP_MAXSEG) {
    const int chosen = socket.options.segment_bytes;
    return write_value(chosen != 0 ? chosen : socket.segment_bytes(), to, bytes);
  }
  if (const Number number = numeric_option(level, name); number.value != nullptr)
    return write_value(socket.options.*number.value, to, bytes);
  if (const Flag flag = flag_of(level, name); flag.value != nullptr)
    return write_value(socket.options.*flag.value ? 1 : 0, to, bytes);
  return level == SOL_SOCKET ? get_state(socket, name, to, bytes) : ENOPROTOOPT;
}

}  // namespace

extern "C" {

int rsetsockopt(int descriptor, int level, int name, const void* value, socklen_t bytes) {
  return on_socket(descriptor, [&](const std::shared_ptr<Rsocket>& socket) {
    const std::lock_guard guard(socket->lock);
    return answer(set_option(*socket, level, name, value, bytes));
  });
}

int rgetsockopt(int descriptor, int level, int name, void* value, socklen_t* bytes) {
  return on_socket(descriptor, [&](const std::shared_ptr<Rsocket>& socket) {
    const std::lock_guard guard(socket->lock);
    return answer(get_option(*socket, level, name, value, bytes));
  });
}

}  // extern "C"

}  // namespace splitnic::rdmacm
