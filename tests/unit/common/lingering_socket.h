#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "common/os/close_elsewhere.h"
#include "common/os/passed_descriptors.h"
#include "common/os/unique_fd.h"

namespace splitnic::os {

/// What a stranger attaches in order to stop the process that closes it: a TCP socket with SO_LINGER whose peer does
/// not read, so that an ordinary last close takes as long as the stranger wants.
class LingeringSocket {
 public:
  explicit LingeringSocket(int linger_seconds) : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof address;
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    REQUIRE(bind(listener_.get(), generic, sizeof address) == 0);
    REQUIRE(listen(listener_.get(), 1) == 0);
    REQUIRE(getsockname(listener_.get(), generic, &bytes) == 0);
    socket_ = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(connect(socket_.get(), generic, sizeof address) == 0);
    reader_ = UniqueFd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    REQUIRE(reader_);
    const std::vector<char> junk(64 << 10U);
    while (send(socket_.get(), junk.data(), junk.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
    }
    const linger option{1, linger_seconds};
    REQUIRE(setsockopt(socket_.get(), SOL_SOCKET, SO_LINGER, &option, sizeof option) == 0);
  }

  /// Valid until let_go().
  [[nodiscard]] int descriptor() const { return socket_.get(); }
  /// Sends `bytes` over a Unix socket with the TCP socket attached. False: the kernel refused.
  [[nodiscard]] bool attach_to(int socket, std::span<const std::byte> bytes) const {
    const std::array descriptors{socket_.get()};
    return send_with_descriptors(socket, bytes, descriptors, MSG_DONTWAIT) == static_cast<ssize_t>(bytes.size());
  }
  /// From now on those that it was sent to have the last references, unless they have closed them already.
  void let_go() {
    std::vector<UniqueFd> own;
    own.push_back(std::move(socket_));
    const bool closed = close_elsewhere(std::move(own)).empty();
    REQUIRE(closed);
  }
  /// Reads all that was sent, up to the end of the stream. True: the end came, so the last reference is closed.
  [[nodiscard]] bool closed_at_last() const {
    std::vector<char> junk(64 << 10U);
    for (;;) {
      pollfd state{reader_.get(), POLLIN, 0};
      if (::poll(&state, 1, 5000) != 1) return false;
      if (recv(reader_.get(), junk.data(), junk.size(), 0) <= 0) return true;
    }
  }

 private:
  UniqueFd listener_;
  UniqueFd socket_;
  UniqueFd reader_;
};

}  // namespace splitnic::os
