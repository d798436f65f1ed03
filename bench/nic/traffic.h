#pragma once

#include <cstddef>

#include "common/result.h"
#include "common/time.h"

namespace splitnic::bench::nic {

/// Where traffic starts and ends: descriptors of two network namespaces (lent) and the IPv4 address in each.
struct Route {
  int from_netns = -1;
  const char* from_address = nullptr;
  int to_netns = -1;
  const char* to_address = nullptr;
};

/// All of these open plain sockets in both namespaces, run for `length` after a short warm-up, and then return.
/// Errors: no connection, or nothing arrives for seconds.

struct StreamRate {
  double bits_per_second = 0;  ///< as received
  double busy_cores = 0;       ///< of the whole machine, meanwhile
};
/// TCP connections, written as fast as they take.
Result<StreamRate> measure_tcp_stream(const Route& route, Duration length, std::size_t connections);

struct RequestRate {
  double per_second = 0;
  double p99_microseconds = 0;  ///< a hundredth of the round trips took longer
  double busy_cores = 0;        ///< of the whole machine, meanwhile
};
/// One byte there, one byte back, over one TCP connection.
Result<RequestRate> measure_tcp_request_response(const Route& route, Duration length);

struct PacketRate {
  double received_per_second = 0;
  double lost_share = 0;  ///< 0 .. 1 of the packets sent meanwhile
};
/// UDP of 64-byte frames (18 bytes of payload), sent as fast as the sender can.
Result<PacketRate> measure_udp_rate(const Route& route, Duration length);

/// ICMP echo, answered by the kernel at the far end. interval: between two echoes; 0: the next as soon as the last is
/// back. Returns the median round trip in microseconds. Errors also: more than a tenth lost.
Result<double> measure_ping(const Route& route, Duration length, Duration interval);

/// Whether an echo comes back before the deadline: the way is open.
bool wait_until_reachable(const Route& route, Time deadline);

}  // namespace splitnic::bench::nic
