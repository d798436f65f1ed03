// Attacks on the unit's socket: before, with and after the hello.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include "common/os/close_elsewhere.h"
#include "common/os/passed_descriptors.h"
#include "common/os/unique_fd.h"
#include "fabric/bridge/shm_setup.h"
#include "tests/hostile_host/ends.h"

namespace splitnic::hostile {

namespace {

constexpr int kLingerSeconds = 5;
constexpr std::size_t kLingeringSockets = 100;

os::UniqueFd call(const Target& target) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, target.socket.c_str(), std::min(target.socket.size(), sizeof address.sun_path - 1));
  os::UniqueFd caller(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (::connect(caller.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return {};
  return caller;
}

bool say(const os::UniqueFd& caller, std::span<const std::byte> bytes) {
  return send(caller.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
}

void connect_and_go(Target& target, Counts& counts) {
  auto& connected = counts["connected"];
  while (target.goes_on()) connected += call(target) ? 1 : 0;
}

void say_garbage(Target& target, Counts& counts) {
  auto& said = counts["said"];
  while (target.goes_on()) {
    std::array<std::byte, fabric::kShmHelloBytes> bytes{};
    for (auto& byte : bytes) byte = static_cast<std::byte>(target.random.next());
    const os::UniqueFd caller = call(target);
    if (caller && say(caller, bytes)) ++said;
  }
}

void greet_and_go(Target& target, Counts& counts) {
  auto& bridges = counts["bridges"];
  while (target.goes_on()) bridges += connect(target) ? 1 : 0;
}

/// A TCP connection whose last close takes as long as SO_LINGER says, because its peer does not read.
class LingeringSocket {
 public:
  LingeringSocket() : listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof address;
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    if (bind(listener_.get(), generic, sizeof address) != 0 || listen(listener_.get(), 1) != 0) return;
    if (getsockname(listener_.get(), generic, &bytes) != 0) return;
    socket_ = os::UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(socket_.get(), generic, sizeof address) != 0) return;
    reader_ = os::UniqueFd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const std::vector<char> junk(64U << 10U);
    while (send(socket_.get(), junk.data(), junk.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
    }
    const linger option{1, kLingerSeconds};
    ready_ = setsockopt(socket_.get(), SOL_SOCKET, SO_LINGER, &option, sizeof option) == 0;
  }
  /// Sends the first byte of a hello with the socket, and lets go of it: the unit has the last reference. Returns
  /// whether that was tried; a kernel that knows SO_PASSRIGHTS refuses descriptors for the unit (EPERM).
  bool attach_to(const os::UniqueFd& caller) {
    const std::array descriptors{socket_.get()};
    const std::array first{std::byte{'S'}};
    const bool sent = ready_ && os::send_with_descriptors(caller.get(), first, descriptors, MSG_DONTWAIT) == 1;
    const bool refused = ready_ && !sent && errno == EPERM;
    std::vector<os::UniqueFd> own;
    own.push_back(std::move(socket_));
    static_cast<void>(os::close_elsewhere(std::move(own)));
    return sent || refused;
  }

 private:
  os::UniqueFd listener_;
  os::UniqueFd socket_;
  os::UniqueFd reader_;
  bool ready_ = false;
};

void attach_sockets(Target& target, Counts& counts) {
  auto& offered = counts["offered"];
  std::vector<LingeringSocket> unread;
  unread.reserve(kLingeringSockets);
  while (target.goes_on() && unread.size() < kLingeringSockets) {
    const os::UniqueFd caller = call(target);
    LingeringSocket& socket = unread.emplace_back();
    if (caller && socket.attach_to(caller)) ++offered;
  }
  while (target.goes_on()) static_cast<void>(call(target));
}

constexpr Attack kConnectionAttacks[] = {
    {"connect-storm", "connects and hangs up", connect_and_go},
    {"garbage-hello", "connects and sends random bytes instead of a hello", say_garbage},
    {"hello-storm", "completes the set-up, takes the memory, and hangs up", greet_and_go},
    {"linger", "attaches TCP sockets whose last close waits for seconds", attach_sockets},
};

}  // namespace

std::span<const Attack> connection_attacks() { return kConnectionAttacks; }

}  // namespace splitnic::hostile
