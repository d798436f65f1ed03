#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <string>

#include "common/os/unique_fd.h"

namespace splitnic::os {

/// What a killed daemon leaves behind.
inline void leave_stale_socket(const std::string& path, int type = SOCK_STREAM) {
  const UniqueFd descriptor(::socket(AF_UNIX, type, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  REQUIRE(::bind(descriptor.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
}

}  // namespace splitnic::os
