#include "fabric/rdmacm/rendezvous.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "common/os/runtime_directory.h"
#include "common/os/unix_address.h"

namespace splitnic::rdmacm {
namespace {

constexpr int kKind = SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC;

/// The process at the other end, as the kernel attests it. The fabric's folder keeps out who does not belong to it.
std::optional<pid_t> process_behind(int socket) {
  ucred credentials{};
  socklen_t bytes = sizeof credentials;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &bytes) != 0) return std::nullopt;
  return credentials.pid;
}

/// A child that the other process forked may keep the socket open, so its death is learned from the process.
Line line_to(os::PeerSocket socket, pid_t process) {
  Line line{std::move(socket), {}};
  if (process != 0 && process != ::getpid())
    line.process = os::UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, process, 0)));
  return line;
}

Call call_one(const Bindings& bindings, const Binding& listener, Line& line) {
  const std::string path = bindings.socket_path(listener);
  if (!os::check_socket_path(path)) return Call::nobody;
  os::PeerSocket socket(os::UniqueFd(::socket(AF_UNIX, kKind, 0)));
  if (!socket) return Call::failed;
  const os::UnixAddress address(path);
  if (::connect(socket.get(), address.get(), os::UnixAddress::size()) != 0)
    return errno == EAGAIN ? Call::busy : Call::nobody;
  const auto process = process_behind(socket.get());
  // A child of a listener that was killed may keep its socket; only the listener holds the binding.
  if (!process || bindings.holder(listener) != process) return Call::nobody;
  line = line_to(std::move(socket), *process);
  return Call::made;
}

}  // namespace

os::PeerSocket listen_at(const std::string& path) {
  if (!os::check_socket_path(path)) {
    errno = ENAMETOOLONG;
    return {};
  }
  os::PeerSocket socket(os::UniqueFd(::socket(AF_UNIX, kKind, 0)));
  if (!socket) return {};
  ::unlink(path.c_str());
  if (!os::bind_socket(socket.get(), path, os::socket_mode(path)) || ::listen(socket.get(), SOMAXCONN) != 0) {
    return {};
  }
  return socket;
}

void end_listener(os::PeerSocket listener) {
  // Nobody is queued any more from here on. Those who are queued would wait for as long as a child keeps its copy of
  // the listener; of what is accepted now it has none.
  ::shutdown(listener.get(), SHUT_RDWR);
  while (os::PeerSocket(os::UniqueFd(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)))) {
  }
}

Line::~Line() {
  // A close alone would not tell the other end while a forked child keeps its copy.
  if (socket && maker == ::getpid()) ::shutdown(socket.get(), SHUT_RDWR);
}

bool Line::send(const Record& record) const {
  const RecordBytes bytes = encode(record);
  return socket &&
         ::send(socket.get(), &bytes, sizeof bytes, MSG_DONTWAIT | MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof bytes);
}

std::optional<Line> accept_from(int listener) {
  os::PeerSocket socket(os::UniqueFd(::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)));
  if (!socket) {
    if (errno == ECONNABORTED) errno = EPROTO;
    return std::nullopt;
  }
  const auto process = process_behind(socket.get());
  if (!process) {
    errno = EPROTO;
    return std::nullopt;
  }
  return line_to(std::move(socket), *process);
}

Call call(const Bindings& bindings, Space space, const Address& destination, Line& line) {
  Address any_ip6;
  any_ip6.number = destination.number;
  Address any_of_family = destination.is_ip4() ? any_ip4() : any_ip6;
  any_of_family.number = destination.number;
  // `::` has one socket for IPv6 alone, and another one for both families.
  const std::array<Binding, 4> listeners{Binding{space, destination}, Binding{space, any_of_family, true},
                                         Binding{space, any_of_family}, Binding{space, any_ip6}};
  Call outcome = Call::nobody;
  for (const Binding& listener : listeners) {
    outcome = call_one(bindings, listener, line);
    if (outcome != Call::nobody) break;
  }
  return outcome;
}

Heard hear(const Line& line, Record& record) {
  std::array<std::byte, sizeof(RecordBytes) + 1> bytes;
  const auto [got, attached] = line.socket.receive(bytes);
  if (attached) return Heard::garbage;
  if (got < 0) return errno == EAGAIN || errno == EINTR ? Heard::nothing : Heard::ended;
  if (got == 0) return Heard::ended;
  auto decoded = decode(std::span(bytes).first(static_cast<std::size_t>(got)));
  if (!decoded) return Heard::garbage;
  record = *decoded;
  return Heard::record;
}

}  // namespace splitnic::rdmacm
