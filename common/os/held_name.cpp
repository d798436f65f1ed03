#include "common/os/held_name.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <utility>

#include "common/check.h"

namespace splitnic::os {

HeldName hold_name(std::string_view name) {
  sockaddr_un address{};
  SPLITNIC_CHECK(!name.empty() && name.size() < sizeof address.sun_path);
  address.sun_family = AF_UNIX;
  std::ranges::copy(name, address.sun_path + 1);  // behind a zero
  // A stream socket that does not listen: nobody can send anything to it.
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket) return {};
  const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), bytes) != 0) {
    return {.is_anothers = errno == EADDRINUSE};
  }
  return {.descriptor = std::move(socket)};
}

}  // namespace splitnic::os
