#include "tools/unit_requests.h"

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <span>
#include <utility>

#include "common/os/errno_text.h"
#include "iounit/packet_lan.h"
#include "iounit/packet_socket.h"
#include "iounit/policy_file.h"

namespace splitnic::tools {

namespace {

// A request for a packet socket has four bytes.
constexpr std::byte kPolicy{'p'};

/// A file in memory with this text, positioned at its start.
Result<os::UniqueFd> file_of(std::string_view text) {
  os::UniqueFd file(::memfd_create("splitnic-policy", MFD_CLOEXEC));
  while (file && !text.empty()) {
    const ssize_t wrote = ::write(file.get(), text.data(), text.size());
    if (wrote <= 0) break;
    text.remove_prefix(static_cast<std::size_t>(wrote));
  }
  if (!file || !text.empty() || ::lseek(file.get(), 0, SEEK_SET) != 0) {
    return fail("sending the policy: {}", os::errno_text());
  }
  return file;
}

}  // namespace

Result<os::PrivilegedMessage> UnitService::serve(const os::PrivilegedMessage& request) const {
  if (request.bytes.size() == 1 && request.bytes.front() == kPolicy && request.descriptors.empty()) return policy();
  if (interface_.empty()) return fail("this unit has no interface");
  return iounit::serve_packet_socket(interface_, iounit::kPacketReceiveBytes, request);
}

Result<os::PrivilegedMessage> UnitService::policy() const {
  if (policy_.empty()) return fail("there is no policy file (--policy)");
  const auto rules = iounit::read_policy(policy_, base_);
  if (!rules) return tl::unexpected(rules.error());
  auto file = file_of(iounit::to_toml(*rules));
  if (!file) return tl::unexpected(file.error());
  os::PrivilegedMessage answer;
  answer.descriptors.push_back(*std::move(file));
  return answer;
}

Result<std::string> request_policy(os::PrivilegedProcess& process) {
  auto answer = process.request(std::span(&kPolicy, 1), {});
  if (!answer) return tl::unexpected(answer.error());
  if (answer->descriptors.size() != 1) return fail("the privileged process answers something else");
  std::string text;
  std::array<char, 16384> chunk{};
  for (ssize_t got = 0; (got = ::read(answer->descriptors.front().get(), chunk.data(), chunk.size())) > 0;) {
    text.append(chunk.data(), static_cast<std::size_t>(got));
  }
  return text;
}

}  // namespace splitnic::tools
