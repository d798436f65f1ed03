#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "common/result.h"
#include "common/time.h"
#include "fabric/link/udp_link.h"

namespace splitnic::fabric {

/// An address of the UDP layer: an IPv4 or IPv6 address in numbers, and a UDP port.
struct UdpAddress {
  std::string ip = "127.0.0.1";
  std::uint16_t udp_port = 0;
  friend bool operator==(const UdpAddress&, const UdpAddress&) = default;
};
[[nodiscard]] std::string to_string(const UdpAddress& address);

struct UdpSocketCounters {
  std::uint64_t datagrams_received = 0;
  std::uint64_t dropped_unknown_source = 0;  ///< came from an address that no link has
  std::uint64_t send_failed = 0;             ///< the system refused a datagram (no route, too long); it counts as lost
  std::uint64_t receive_failed = 0;
};

/// One UDP port of this machine, which serves many peers: one link for each. Datagrams go by their source address to
/// the link of that address. Neither sending nor receiving blocks. Thread: the owner, who also polls all links.
class UdpSocket final : public DatagramSource {
 public:
  /// Binds; udp_port 0: any that is free. Errors: the address is not one, is taken, is not of this machine.
  [[nodiscard]] static Result<std::unique_ptr<UdpSocket>> open(const UdpAddress& local);
  ~UdpSocket() override;
  UdpSocket(const UdpSocket&) = delete;
  UdpSocket& operator=(const UdpSocket&) = delete;

  /// As bound.
  [[nodiscard]] UdpAddress local() const;
  /// Makes the link to the peer at an address, which no other link of this socket may have. The socket must outlive it.
  /// The links share what the kernel keeps for the socket: their windows are smaller than in the options where that is
  /// not enough (UdpPeer::limit_windows). random: lent. Errors: the address is not one, is not of the socket's family,
  /// or has a link already.
  [[nodiscard]] Result<std::unique_ptr<UdpLink>> connect(const UdpAddress& peer, const UdpOptions& options,
                                                         RandomSource& random);
  /// Gives each datagram that has come, up to a limit, to its link; returns how many.
  std::size_t receive(Time now) override;
  /// Readable when a datagram has come.
  [[nodiscard]] int descriptor() const override;
  [[nodiscard]] const UdpSocketCounters& counters() const;

 private:
  struct State;
  class PeerSink;
  explicit UdpSocket(std::unique_ptr<State> state);
  void forget(const UdpPeer& peer) override;

  std::unique_ptr<State> state_;
};

}  // namespace splitnic::fabric
