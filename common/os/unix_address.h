#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <string>

#include "common/check.h"
#include "common/os/unix_listener.h"

namespace splitnic::os {

/// The address of a Unix socket in the file system, as system calls take it.
class UnixAddress {
 public:
  /// path: check_socket_path() has accepted it.
  explicit UnixAddress(const std::string& path) {
    SPLITNIC_CHECK_OP(path.size(), <=, kMaxSocketPathBytes);
    address_.sun_family = AF_UNIX;
    std::copy(path.begin(), path.end(), address_.sun_path);
  }
  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address_); }
  [[nodiscard]] static constexpr socklen_t size() { return sizeof(sockaddr_un); }

 private:
  sockaddr_un address_{};
};

}  // namespace splitnic::os
