// A control socket on which strangers write anything: lengths, messages, parts of them, hang-ups. The daemon must
// answer a good request afterwards.
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/check.h"
#include "common/os/control_protocol.h"
#include "common/os/control_server.h"
#include "common/os/unique_fd.h"
#include "common/os/unix_address.h"
#include "tests/hostile_sessions/input.h"
#include "tests/unit/common/os_temporary_directory.h"

namespace {

using namespace splitnic;
using namespace splitnic::os;

constexpr std::size_t kMostConnections = 4;
constexpr std::size_t kMostStrangers = 8;

/// A daemon that only answers its control socket, in the thread that also plays the strangers.
class Daemon {
 public:
  Daemon() {
    auto opened = ControlServer::open(context_, directory_.path("ctl"),
                                      answered_at_once([this](ControlRequest) -> Result<ControlAnswer> {
                                        ++answers_;
                                        return std::string("fine");
                                      }),
                                      log_, {.max_connections = kMostConnections});
    SPLITNIC_CHECK(opened.has_value());
    server_ = std::move(*opened);
  }
  [[nodiscard]] UniqueFd connect() {
    UniqueFd descriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const UnixAddress address(server_->path());
    SPLITNIC_CHECK(::connect(descriptor.get(), address.get(), UnixAddress::size()) == 0);
    run();
    return descriptor;
  }
  void run() {
    while (context_.poll() != 0) {
    }
    context_.restart();
  }
  [[nodiscard]] std::uint64_t answers() const { return answers_; }
  [[nodiscard]] std::size_t connections() const { return server_->connections(); }

 private:
  TemporaryDirectory directory_;
  std::uint64_t answers_ = 0;
  Log log_{"fuzz", {.write = [](std::string_view) {}}};
  boost::asio::io_context context_;
  std::unique_ptr<ControlServer> server_;
};

std::vector<std::uint8_t> good_request() {
  const ControlMessage message = encode_request(ControlRequest::status);
  const ControlLength length(static_cast<std::uint32_t>(message.size() * sizeof(ControlMessage::value_type)));
  std::vector<std::uint8_t> bytes(sizeof length + length.value());
  std::memcpy(bytes.data(), &length, sizeof length);
  std::memcpy(bytes.data() + sizeof length, message.data(), length.value());
  return bytes;
}

void send(const UniqueFd& to, std::span<const std::uint8_t> bytes) {
  static_cast<void>(::send(to.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
}

void attack(Daemon& daemon, hostile::Input input) {
  static const std::vector<std::uint8_t> good = good_request();
  std::vector<UniqueFd> strangers;
  strangers.push_back(daemon.connect());
  while (!input.empty()) {
    const std::uint8_t what = input.byte();
    UniqueFd& stranger = strangers[what % strangers.size()];
    switch (what >> 5U) {
      case 0:
        if (strangers.size() < kMostStrangers) strangers.push_back(daemon.connect());
        break;
      case 1:
        stranger = daemon.connect();
        break;
      case 2:
        send(stranger, good);
        break;
      case 3:
        send(stranger, std::span(good).first(input.byte() % good.size()));
        break;
      case 4:
        static_cast<void>(::shutdown(stranger.get(), SHUT_WR));
        break;
      default: {
        std::vector<std::uint8_t> bytes(input.byte());
        for (auto& byte : bytes) byte = input.byte();
        send(stranger, bytes);
      }
    }
    daemon.run();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static Daemon daemon;
  attack(daemon, hostile::Input({data, std::min<std::size_t>(size, 1024)}));
  const UniqueFd honest = daemon.connect();
  const std::uint64_t before = daemon.answers();
  const auto good = good_request();
  send(honest, good);
  daemon.run();
  SPLITNIC_CHECK_OP(daemon.answers(), ==, before + 1);
  char reply = 0;
  SPLITNIC_CHECK(::recv(honest.get(), &reply, 1, MSG_DONTWAIT) == 1);
  SPLITNIC_CHECK_OP(daemon.connections(), <=, kMostConnections);
  return 0;
}
