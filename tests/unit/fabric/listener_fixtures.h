#pragma once

#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/os/unique_fd.h"
#include "fabric/bridge/shm_setup.h"
#include "tests/unit/fabric/bridge_fixtures.h"

/// Strangers and hosts at the socket of a listener.
namespace splitnic::fabric::test {

inline os::UniqueFd call(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  os::UniqueFd caller(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(connect(caller.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  return caller;
}

/// Another user of the machine. Only root can connect as somebody else.
inline constexpr uid_t kOtherUser = 54321;
inline bool may_change_user() { return geteuid() == 0; }
inline os::UniqueFd call_as(uid_t user, const std::string& path) {
  REQUIRE(seteuid(user) == 0);
  auto caller = call(path);
  REQUIRE(seteuid(0) == 0);
  prctl(PR_SET_DUMPABLE, 1);  // a change of the user takes it away
  return caller;
}

inline std::vector<std::byte> hello_bytes(const ShmHelloFields& fields = {}) {
  const ShmHello hello = encode_shm_hello(fields);
  const auto bytes = std::as_bytes(std::span(&hello, 1));
  return {bytes.begin(), bytes.end()};
}

inline void say(const os::UniqueFd& caller, std::span<const std::byte> bytes) {
  REQUIRE(send(caller.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size()));
}

/// The unit's answer, if there is one. It stays in the socket with the descriptors of the bridge, so the caller is a
/// host until the socket is closed.
inline std::optional<ShmSetupStatus> answer_to(const os::UniqueFd& caller) {
  ShmReply reply{};
  if (recv(caller.get(), &reply, sizeof reply, MSG_PEEK | MSG_DONTWAIT) != static_cast<ssize_t>(sizeof reply))
    return std::nullopt;
  return static_cast<ShmSetupStatus>(reply.status.value());
}

/// A listener that the test polls at times of its choice.
struct Polled {
  explicit Polled(ShmListenOptions options = {}) {
    REQUIRE(chmod(directory.path().c_str(), 0755) == 0);
    options.path = directory.path("socket");
    options.window_bytes = kShmMinBytes;
    auto made = ShmListener::listen(options);
    REQUIRE(made.has_value());
    listener = std::move(*made);
  }
  void poll() {
    for (int i = 0; i < 3; ++i) listener->poll(now);
  }
  /// Until all memory is prefaulted.
  void settle() {
    now += PrefaultQueue::kDelay;
    while (listener->next_deadline() <= now) listener->poll(now);
  }
  [[nodiscard]] std::unique_ptr<ShmConnector> start(ShmConnectOptions options = {}) const {
    options.path = directory.path("socket");
    auto connector = ShmConnector::start(options, now);
    REQUIRE(connector.has_value());
    return std::move(*connector);
  }
  /// A host with its bridge, and the unit's end of it.
  struct Connected {
    std::unique_ptr<ShmConnector> connector;
    std::unique_ptr<Bridge> host;
    ShmAccepted unit;
  };
  [[nodiscard]] Connected connected(const ShmConnectOptions& options = {}) {
    Connected both;
    both.connector = start(options);
    poll();
    both.unit = std::move(listener->take().value());
    both.host = std::move(both.connector->poll(now).value().value());
    return both;
  }
  [[nodiscard]] std::string refusal(const ShmConnectOptions& options = {}) {
    const auto connector = start(options);
    poll();
    const auto outcome = connector->poll(now);
    REQUIRE(outcome.has_value());
    REQUIRE_FALSE(outcome->has_value());
    return outcome->error().message;
  }
  TemporaryDirectory directory;
  std::unique_ptr<ShmListener> listener;
  Time now{};
};

}  // namespace splitnic::fabric::test
