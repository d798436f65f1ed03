#pragma once

#include <memory>
#include <string>

#include "common/os/privileged_process.h"
#include "iounit/policy_rules.h"

namespace splitnic::tools {

/// What an I/O unit's privileged process does. Both requests are about what the unit's options name, and about nothing
/// else: a packet socket on the LAN interface (iounit/packet_socket.h), and the policy file.
class UnitService {
 public:
  /// interface: empty: the unit has none. policy: empty: no file. base: see read_policy().
  UnitService(std::string interface, std::string policy, iounit::PolicyRules base)
      : interface_(std::move(interface)), policy_(std::move(policy)), base_(std::move(base)) {}
  /// Errors: a request that a unit never makes, and what went wrong with one that it makes.
  [[nodiscard]] Result<os::PrivilegedMessage> serve(const os::PrivilegedMessage& request) const;

 private:
  [[nodiscard]] Result<os::PrivilegedMessage> policy() const;

  std::string interface_;
  std::string policy_;
  iounit::PolicyRules base_;
};

/// Asks the privileged process for the policy file, in TOML with numbers for the names of users and groups: to look
/// these names up may need any system call. Blocks until the request is answered.
[[nodiscard]] Result<std::string> request_policy(os::PrivilegedProcess& process);

}  // namespace splitnic::tools
