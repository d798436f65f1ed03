#pragma once

#include <cstdint>

namespace splitnic::rdmacm {

/// Where an identifier is between its creation and the end of its connection.
enum class State : std::uint8_t {
  idle,
  bound,
  listening,
  address_resolved,
  route_resolved,
  calling,      ///< the request is sent, or waits to be sent
  answered,     ///< the reply is here; the program moves its own queue pair, and then says rdma_establish()
  requested,    ///< made by a request that waits for the program's answer
  accepted,     ///< the reply is sent
  established,  ///< of datagrams: the end
  disconnected,
  failed,  ///< rejected, unreachable, or an error
};
inline constexpr unsigned kStates = 12;

enum class Act : std::uint8_t {
  bind,
  listen,
  resolve_address,
  resolve_route,
  connect,
  accept,
  reject,
  establish,
  notify,
  disconnect,
  join,
};
inline constexpr unsigned kActs = 11;

/// Whether a program may do this in this state; otherwise the call answers EINVAL.
[[nodiscard]] bool permits(State state, Act act);

}  // namespace splitnic::rdmacm
