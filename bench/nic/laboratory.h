#pragma once

#include <functional>
#include <string>

#include "common/os/unique_fd.h"
#include "common/result.h"

namespace splitnic::bench {

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
  /// Waits for the contestant's TAP, then gives it its address and sets it up.
  Result<void> dress_tap();
  /// Removes the TAP if the contestant has left it, and the peer's neighbour entry for it.
  void clear_tap();

 private:
  Laboratory() = default;
  Result<void> make_namespaces();
  Result<void> make_cable();

  os::UniqueFd peer_;
  os::UniqueFd host_;
};

}  // namespace splitnic::bench
