#include "common/os/service_manager.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "common/os/errno_text.h"
#include "common/os/message_io.h"

namespace splitnic::os {

Result<ServiceManager> ServiceManager::from_environment() {
  ServiceManager manager;
  const char* variable = std::getenv("NOTIFY_SOCKET");
  if (variable == nullptr || *variable == '\0') return manager;
  const std::string name = variable;
  sockaddr_un address{};
  if ((name[0] != '/' && name[0] != '@') || name.size() >= sizeof(address.sun_path)) {
    return fail("NOTIFY_SOCKET={}: neither an absolute path nor an abstract name that the kernel takes", name);
  }
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, name.data(), name.size());
  if (name[0] == '@') address.sun_path[0] = '\0';
  manager.socket_.reset(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  if (!manager.socket_ || ::connect(manager.socket_.get(), reinterpret_cast<const sockaddr*>(&address), bytes) != 0) {
    return fail("NOTIFY_SOCKET={}: {}", name, errno_text());
  }
  return manager;
}

std::string ServiceManager::one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

void ServiceManager::send(const std::string& report, bool wait) {
  if (!socket_) return;
  // Ignore a failed report: nobody else reads it, and the administrator who restarts the service manager asks the
  // service manager, not this process.
  while (send_bytes(socket_.get(), std::as_bytes(std::span(report)), wait ? 0 : MSG_DONTWAIT) < 0 && errno == EINTR) {
  }
}

}  // namespace splitnic::os
