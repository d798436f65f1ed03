#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>

#include "common/os/unique_fd.h"
#include "common/result.h"

namespace splitnic::bench::nic {

/// Runs work in a process of its own, in new user (unless root), mount, process and network namespaces with a private
/// /run, and returns the result of work. However this process or that one ends, by any signal, the kernel ends all
/// processes that work started, and removes every interface and namespace that it made.
/// Throws StartupError where this user may not make namespaces. Call before any thread exists.
int run_apart(const std::function<int()>& work);

/// Two network namespaces with a cable between them, and a third one for the host whose virtual NIC is measured:
///
///   peer: eth0 10.77.0.1 --- veth --- unit: lan0          host: tap0 10.77.0.2
///
/// The contestant carries frames between lan0 and tap0. Only inside run_apart.
class Laboratory {
 public:
  static constexpr const char* kPeer = "peer";
  static constexpr const char* kUnit = "unit";
  static constexpr const char* kHost = "host";
  static constexpr const char* kLan = "lan0";
  static constexpr const char* kTap = "tap0";
  static constexpr const char* kPeerAddress = "10.77.0.1";
  static constexpr const char* kHostAddress = "10.77.0.2";

  static Result<Laboratory> build();

  [[nodiscard]] int peer_netns() const { return peer_.get(); }
  [[nodiscard]] int host_netns() const { return host_.get(); }
  /// Where sockets and logs may go.
  [[nodiscard]] std::string scratch(const std::string& name) const;

  /// Whether the peer leaves checksums and segmentation to the contestant, as far as the contestant's interfaces say
  /// that they do it. Off, its frames suit a contestant that neither completes checksums nor segments frames.
  [[nodiscard]] Result<void> set_peer_offloads(bool on) const;
  /// Makes the kernel's bridge between lan0 and a veth whose other end is tap0, in place of a contestant. offloads:
  /// whether tap0 leaves checksums and segmentation to it.
  Result<void> make_bridge(bool offloads) const;
  /// Moves the TAP of a contestant that made it in the unit's namespace to the host's, with its offloads off.
  Result<void> give_tap_to_host();
  /// Waits for the contestant's TAP, then gives it its address and sets it up. offloads: whether the host may leave
  /// checksums and segmentation to it.
  Result<void> dress_tap(bool offloads);

  /// A host in a namespace of its own, for measurements with several.
  struct FurtherHost {
    std::string name;     ///< of its namespace
    int netns = -1;       ///< lent
    std::string address;  ///< of its tap0
  };
  /// index: below 200. The first call for an index makes the namespace.
  Result<FurtherHost> further_host(std::size_t index);
  /// dress_tap() for such a host.
  Result<void> dress_tap(const FurtherHost& host);
  /// Waits until the TAP of an idle host, which lies in the unit's namespace, has its carrier; then sets it up.
  Result<void> await_idle_tap(const std::string& tap);
  /// Removes the TAP if the contestant has left it, the kernel's bridge if there is one, and the peer's neighbour entry
  /// for it.
  void clear_tap();

 private:
  Laboratory() = default;
  Result<void> make_namespaces();
  Result<void> make_cable();

  /// netns_name: a namespace, whose descriptor is netns.
  Result<void> dress_tap(const std::string& netns_name, int netns, const std::string& address);
  Result<void> make_namespace(const std::string& name, os::UniqueFd& made);

  os::UniqueFd peer_;
  os::UniqueFd unit_;
  os::UniqueFd host_;
  std::map<std::size_t, os::UniqueFd> further_;
};

}  // namespace splitnic::bench::nic
