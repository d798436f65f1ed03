#pragma once

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/os/passed_descriptors.h"
#include "common/os/unique_fd.h"
#include "fabric/bridge/shm_connector.h"
#include "fabric/bridge/shm_setup.h"
#include "tests/unit/fabric/bridge_fixtures.h"

namespace splitnic::fabric::test {

inline sockaddr_un address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

/// A unit that hands the host whatever a test wants.
struct FakeUnit {
  explicit FakeUnit(ShmConnectOptions options = {})
      : path(directory.path("socket")), listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const sockaddr_un address = address_of(path);
    REQUIRE(bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(listen(listener.get(), 4) == 0);
    options.path = path;
    auto made = ShmConnector::start(options, Time{});
    REQUIRE(made.has_value());
    connector = std::move(*made);
    connection = os::UniqueFd(accept(listener.get(), nullptr, nullptr));
    int bells[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, bells) == 0);
    bell = os::UniqueFd(bells[0]);
    own_bell = os::UniqueFd(bells[1]);
    event = os::UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    memory[0] = memfd();
    memory[1] = memfd();
    reply.magic = kShmSetupMagic;
    reply.version = kShmSetupVersion;
    reply.local_bytes = kTestBytes;
    reply.window_bytes = kTestBytes;
    reply.cookie = 1;
  }
  ~FakeUnit() { unlink(path.c_str()); }

  static os::UniqueFd memfd(std::size_t bytes = kTestBytes + 4096,
                            int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL, unsigned flags = MFD_ALLOW_SEALING) {
    os::UniqueFd made(memfd_create("fake", flags | MFD_CLOEXEC));
    REQUIRE(ftruncate(made.get(), static_cast<off_t>(bytes)) == 0);
    if (seals != 0) REQUIRE(fcntl(made.get(), F_ADD_SEALS, seals) == 0);
    return made;
  }
  /// Its other end is closed.
  static os::UniqueFd stream_socket() {
    int ends[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    const os::UniqueFd other(ends[1]);
    return os::UniqueFd(ends[0]);
  }
  std::vector<int> descriptors() const { return {memory[0].get(), memory[1].get(), bell.get(), event.get()}; }

  void send_reply(const std::vector<int>& fds, std::size_t bytes = kShmReplyBytes) {
    const auto sent = std::as_bytes(std::span(&reply, 1)).first(bytes);
    REQUIRE(os::send_with_descriptors(connection.get(), sent, fds, 0) == static_cast<ssize_t>(bytes));
  }
  /// A reply without a bridge.
  void refuse(std::uint32_t status, const std::vector<int>& fds = {}) {
    reply = {};
    reply.magic = kShmSetupMagic;
    reply.version = kShmSetupVersion;
    reply.status = status;
    send_reply(fds);
  }
  /// What the host says to the reply; empty if it took it.
  std::string verdict() {
    auto result = connector->poll(Time{});
    REQUIRE(result.has_value());
    return result->has_value() ? "" : result->error().message;
  }

  TemporaryDirectory directory;
  std::string path;
  os::UniqueFd listener;
  std::unique_ptr<ShmConnector> connector;
  os::UniqueFd connection;
  os::UniqueFd bell;
  os::UniqueFd own_bell;
  os::UniqueFd event;
  std::array<os::UniqueFd, 2> memory;
  ShmReply reply{};
};

}  // namespace splitnic::fabric::test
