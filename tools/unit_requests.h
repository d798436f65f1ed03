#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "common/os/account.h"
#include "common/os/privileged_process.h"
#include "iounit/packet_fanout.h"
#include "iounit/policy_rules.h"

namespace splitnic::tools {

/// Of the policy, and of the file of the names.
inline constexpr std::size_t kMaxPolicyBytes = std::size_t{16} << 20U;

/// What an I/O unit's privileged process does. All requests are about what the unit's options name, and about nothing
/// else: a packet socket on the LAN interface (iounit/packet_socket.h), the policy file, and the file with the owners
/// of names.
struct UnitService {
  std::string interface;                           ///< empty: the unit has none
  std::shared_ptr<iounit::PacketFanout> fanout{};  ///< of the sockets on it; null: one alone gets all frames
  std::string policy;                              ///< the file's path; empty: none
  iounit::PolicyRules base;                        ///< see read_policy()
  os::KnownAccounts accounts;                      ///< of the policy
  std::string names;                               ///< the file's path; empty: none

  /// Errors: a request that a unit never makes, and what went wrong with one that it makes.
  [[nodiscard]] Result<os::PrivilegedMessage> serve(const os::PrivilegedMessage& request) const;

 private:
  [[nodiscard]] Result<os::PrivilegedMessage> serve_policy() const;
  [[nodiscard]] Result<os::PrivilegedMessage> write_names(int file) const;
};

/// Asks the privileged process for the rules of the policy file. Blocks until the request is answered.
[[nodiscard]] Result<iounit::PolicyRules> request_policy(os::PrivilegedProcess& process);
/// The same without waiting. policy_in() gets the policy out of what PrivilegedProcess::answer() returns.
[[nodiscard]] Result<void> send_policy_request(os::PrivilegedProcess& process);
[[nodiscard]] Result<iounit::PolicyRules> policy_in(const Result<os::PrivilegedMessage>& answer);
/// Asks it to write the file with the owners of names. Its answer, for PrivilegedProcess::answer(), is empty.
[[nodiscard]] Result<void> send_names(os::PrivilegedProcess& process, std::string_view text);

}  // namespace splitnic::tools
