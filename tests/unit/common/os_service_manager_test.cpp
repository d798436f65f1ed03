#include "common/os/service_manager.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "common/os/unique_fd.h"
#include "os_temporary_directory.h"

namespace splitnic::os_service_manager_test {

using splitnic::os::ServiceManager;

namespace {

/// The service manager's end, at the name that NOTIFY_SOCKET has for as long as this object lives.
class Listener {
 public:
  explicit Listener(const std::string& name) : socket_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, name.data(), name.size());
    if (name[0] == '@') address.sun_path[0] = '\0';
    const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
    REQUIRE(::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), bytes) == 0);
    REQUIRE(::setenv("NOTIFY_SOCKET", name.c_str(), 1) == 0);
  }
  ~Listener() { ::unsetenv("NOTIFY_SOCKET"); }

  /// The next datagram; empty if there is none.
  std::string next() {
    std::array<char, 256> buffer{};
    const auto bytes = ::recv(socket_.get(), buffer.data(), buffer.size(), 0);
    return bytes < 0 ? std::string{} : std::string(buffer.data(), static_cast<std::size_t>(bytes));
  }

 private:
  os::UniqueFd socket_;
};

std::string abstract_name() { return "@splitnic-test-" + std::to_string(::getpid()); }

}  // namespace

TEST_CASE("a service manager gets ready, status and stopping as datagrams", "[common][os]") {
  const os::TemporaryDirectory directory;
  const std::string name = GENERATE_REF(directory.path("notify"), abstract_name());
  Listener listener(name);
  auto manager = ServiceManager::from_environment();
  REQUIRE(manager);
  manager->ready("serving lan0");
  CHECK(listener.next() == "READY=1\nSTATUS=serving lan0");
  manager->status("a host is up\nREADY=0");
  CHECK(listener.next() == "STATUS=a host is up READY=0");
  manager->stopping();
  CHECK(listener.next() == "STOPPING=1\nSTATUS=ending");
  CHECK(listener.next().empty());
}

TEST_CASE("status reports to a service manager that does not read never block", "[common][os]") {
  Listener listener(abstract_name());
  auto manager = ServiceManager::from_environment();
  REQUIRE(manager);
  for (int report = 0; report < 5000; ++report) manager->status("report " + std::to_string(report));
  CHECK(listener.next() == "STATUS=report 0");
}

TEST_CASE("without a service manager reports do nothing, and a wrong NOTIFY_SOCKET is an error", "[common][os]") {
  ::unsetenv("NOTIFY_SOCKET");
  auto none = ServiceManager::from_environment();
  REQUIRE(none);
  none->ready("serving lan0");
  none->stopping();
  const std::string wrong = GENERATE(as<std::string>{}, "notify", "/nowhere/notify", "/" + std::string(200, 'x'));
  REQUIRE(::setenv("NOTIFY_SOCKET", wrong.c_str(), 1) == 0);
  const auto manager = ServiceManager::from_environment();
  ::unsetenv("NOTIFY_SOCKET");
  REQUIRE(!manager);
  CHECK(manager.error().message.starts_with("NOTIFY_SOCKET=" + wrong + ": "));
}

}  // namespace splitnic::os_service_manager_test
