#pragma once

#include <sys/socket.h>

namespace splitnic::os {

/// From now on the kernel refuses descriptors (SCM_RIGHTS) that are sent to this Unix socket, or to a connection that
/// it accepts. False: the kernel is older than Linux 6.16 and does not know how.
inline bool refuse_descriptors(int socket) {
#ifdef SO_PASSRIGHTS
  constexpr int kOption = SO_PASSRIGHTS;
#else
  constexpr int kOption = 83;  // younger than the headers
#endif
  const int pass = 0;
  return ::setsockopt(socket, SOL_SOCKET, kOption, &pass, sizeof pass) == 0;
}

}  // namespace splitnic::os
