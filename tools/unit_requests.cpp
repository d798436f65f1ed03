#include "tools/unit_requests.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <span>
#include <utility>

#include "common/os/errno_text.h"
#include "common/os/read_file.h"
#include "common/os/write_file.h"
#include "iounit/packet_lan.h"
#include "iounit/packet_socket.h"
#include "iounit/policy_file.h"
#include "tools/policy_bytes.h"

namespace splitnic::tools {

namespace {

// A request for a packet socket has four bytes.
constexpr std::byte kPolicy{'p'};
constexpr std::byte kNames{'n'};

/// A file in memory with this text.
Result<os::UniqueFd> file_of(std::string_view text) {
  os::UniqueFd file(::memfd_create("splitnic-text", MFD_CLOEXEC));
  while (file && !text.empty()) {
    const ssize_t wrote = ::write(file.get(), text.data(), text.size());
    if (wrote <= 0) break;
    text.remove_prefix(static_cast<std::size_t>(wrote));
  }
  if (!file || !text.empty()) return fail("sending a text: {}", os::errno_text());
  return file;
}

}  // namespace

Result<os::PrivilegedMessage> UnitService::serve(const os::PrivilegedMessage& request) const {
  const std::byte what = request.bytes.size() == 1 ? request.bytes.front() : std::byte{};
  if (what == kPolicy && request.descriptors.empty()) return serve_policy();
  if (what == kNames && request.descriptors.size() == 1) return write_names(request.descriptors.front().get());
  if (interface.empty()) return fail("this unit has no interface");
  return iounit::serve_packet_socket(interface, iounit::kPacketReceiveBytes, request, fanout.get());
}

Result<os::PrivilegedMessage> UnitService::serve_policy() const {
  if (policy.empty()) return fail("there is no policy file (--policy)");
  auto rules = iounit::read_policy(policy, base,
                                   {[this](const std::string& text) { return accounts.user(text); },
                                    [this](const std::string& text) { return accounts.group(text); }});
  if (!rules) return tl::unexpected(rules.error());
  auto file = file_of(to_bytes(*std::move(rules)));
  if (!file) return tl::unexpected(file.error());
  os::PrivilegedMessage answer;
  answer.descriptors.push_back(*std::move(file));
  return answer;
}

/// The unit may have been taken over: the file gets names and users, and nothing else that it sends.
Result<os::PrivilegedMessage> UnitService::write_names(int file) const {
  if (names.empty()) return fail("there is no state directory");
  struct stat status {};
  if (::fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) return fail("names come in a file in memory");
  const auto text = os::read_file(file, names, kMaxPolicyBytes);
  if (!text) return tl::unexpected(text.error());
  const auto owned = iounit::parse_names(*text, names);
  if (!owned) return tl::unexpected(owned.error());
  return os::write_file(names, iounit::to_toml(*owned)).map([] { return os::PrivilegedMessage{}; });
}

Result<iounit::PolicyRules> request_policy(os::PrivilegedProcess& process) {
  return policy_in(process.request(std::span(&kPolicy, 1), {}));
}

Result<void> send_policy_request(os::PrivilegedProcess& process) { return process.send(std::span(&kPolicy, 1), {}); }

Result<iounit::PolicyRules> policy_in(const Result<os::PrivilegedMessage>& answer) {
  if (!answer) return tl::unexpected(answer.error());
  if (answer->descriptors.size() != 1) return fail("the privileged process answers something else");
  const auto bytes = os::read_file(answer->descriptors.front().get(), "the policy", kMaxPolicyBytes);
  if (!bytes) return tl::unexpected(bytes.error());
  return rules_in(*bytes);
}

Result<void> send_names(os::PrivilegedProcess& process, std::string_view text) {
  const auto file = file_of(text);
  if (!file) return tl::unexpected(file.error());
  const int descriptor = file->get();
  return process.send(std::span(&kNames, 1), std::span(&descriptor, 1));
}

}  // namespace splitnic::tools
