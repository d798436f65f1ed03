#include "fabric/endnode/knock.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <span>
#include <utility>

#include "common/os/errno_text.h"
#include "common/os/runtime_directory.h"
#include "common/os/unix_address.h"

namespace splitnic::fabric {
Result<Knock> Knock::listen(const std::string& path, LocalId own, bool refuse_descriptors) {
  if (auto fits = os::check_socket_path(path); !fits) return tl::unexpected(fits.error());
  os::PeerSocket socket(os::UniqueFd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)),
                        refuse_descriptors);
  if (!socket) return fail("{}: {}", path, os::errno_text());
  ::unlink(path.c_str());
  if (!os::bind_socket(socket.get(), path, os::socket_mode(path))) return fail("{}: {}", path, os::errno_text());
  return Knock(std::move(socket), path, own);
}

Knock::~Knock() {
  if (socket_) ::unlink(path_.c_str());
}

bool Knock::send(const std::string& path) const {
  if (!os::check_socket_path(path)) return false;
  const os::UnixAddress address(path);
  KnockMessage message{};
  message.magic = kKnockMagic;
  message.version = kKnockVersion;
  message.from = own_.value;
  return ::sendto(socket_.get(), &message, sizeof message, MSG_DONTWAIT | MSG_NOSIGNAL, address.get(),
                  os::UnixAddress::size()) == static_cast<ssize_t>(sizeof message);
}

Knock::Heard Knock::hear(LocalId& from) const {
  KnockMessage message{};
  // MSG_TRUNC: the datagram's length, even if it is longer.
  const auto [got, attached] = socket_.receive(std::as_writable_bytes(std::span(&message, 1)), MSG_TRUNC);
  if (attached) {
    socket_.discard();
    return Heard::garbage;
  }
  if (got < 0) return Heard::nothing;
  const std::uint16_t sender = message.from.value();
  if (got != static_cast<ssize_t>(sizeof message) || message.magic.value() != kKnockMagic ||
      message.version.value() != kKnockVersion || sender == 0 || sender > kMaxLocalId) {
    return Heard::garbage;
  }
  from = LocalId{sender};
  return Heard::knock;
}

}  // namespace splitnic::fabric
