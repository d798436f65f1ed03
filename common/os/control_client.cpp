#include "common/os/control_client.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include "common/os/control_protocol.h"
#include "common/os/errno_text.h"
#include "common/os/unique_fd.h"
#include "common/os/unix_listener.h"

namespace splitnic::os {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr fmt::format_string<> kNoAnswer = "no answer (is the daemon stopped?)";

bool is_socket(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISSOCK(status.st_mode);
}

// Connects without Asio, because Asio mistakes a full queue (EAGAIN) for a connection under way. The kernel waits for
// room.
Result<UniqueFd> connect_within(const std::string& path, Duration timeout) {
  UniqueFd descriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto whole = std::chrono::duration_cast<std::chrono::seconds>(timeout);
  const auto rest = std::chrono::duration_cast<std::chrono::microseconds>(timeout - whole);
  const timeval patience{.tv_sec = whole.count(), .tv_usec = rest.count()};
  if (!descriptor || ::setsockopt(descriptor.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience) != 0) {
    return fail("{}", errno_text());
  }
  const asio::local::stream_protocol::endpoint address(path);
  if (::connect(descriptor.get(), address.data(), static_cast<socklen_t>(address.size())) == 0) return descriptor;
  switch (errno) {
    case ECONNREFUSED:
      if (!is_socket(path)) return fail("is no socket");
      return fail("nobody listens there (left behind by a daemon that died)");
    case EAGAIN:
      return fail(kNoAnswer);
    default:
      return fail("{}", errno_text());
  }
}

/// One request and its reply, step by step; `outcome` says how far the exchange has come.
struct Exchange {
  asio::io_context context{1};
  asio::local::stream_protocol::socket socket{context};
  ControlMessage message{};
  ControlLength length{};
  Result<void> outcome = fail(kNoAnswer);

  using Handler = void (Exchange::*)();

  auto then(Handler next) {
    return [this, next](const error_code& error, std::size_t = 0) {
      if (!error) return (this->*next)();
      outcome = error == asio::error::eof ? fail("the daemon closed the connection") : fail("{}", error.message());
    };
  }

  void send(ControlRequest what) {
    message = encode_request(what);
    length = static_cast<std::uint32_t>(message.size() * sizeof(ControlMessage::value_type));
    const std::array<asio::const_buffer, 2> request{asio::buffer(&length, sizeof length), asio::buffer(message)};
    asio::async_write(socket, request, then(&Exchange::receive_length));
  }

  void receive_length() {
    asio::async_read(socket, asio::buffer(&length, sizeof length), then(&Exchange::receive_body));
  }

  void receive_body() {
    const std::size_t bytes = length.value();
    if (bytes == 0 || bytes > kMaxControlBytes || bytes % sizeof(ControlMessage::value_type) != 0) {
      outcome = fail("the answer is no control message");
      return;
    }
    message.assign(bytes / sizeof(ControlMessage::value_type), 0);
    asio::async_read(socket, asio::buffer(message), then(&Exchange::finish));
  }

  void finish() { outcome = {}; }
};

/// The process that listens at the other end, in this process's PID namespace; 0: the kernel names none.
std::uint32_t listening_process(int socket) {
  ucred credentials{};
  socklen_t bytes = sizeof credentials;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &bytes) != 0) return 0;
  return static_cast<std::uint32_t>(credentials.pid);
}

/// Wanted: the alternative of ControlAnswer that answers this request. listener: of listening_process().
template <class Wanted>
Result<Wanted> query(const std::string& path, ControlRequest request, Duration timeout,
                     std::uint32_t* listener = nullptr) {
  if (auto fits = check_socket_path(path); !fits) return tl::unexpected(fits.error());
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  auto connected = connect_within(path, timeout);
  if (!connected) return fail("{}: {}", path, connected.error().message);
  if (listener != nullptr) *listener = listening_process(connected->get());
  Exchange exchange;
  exchange.socket.assign(asio::local::stream_protocol(), connected->release());
  exchange.send(request);
  exchange.context.run_until(deadline);
  if (!exchange.outcome) return fail("{}: {}", path, exchange.outcome.error().message);
  auto answer = decode_reply(exchange.message);
  if (!answer) return fail("{}: {}", path, answer.error().message);
  if (auto* wanted = std::get_if<Wanted>(&*answer)) return std::move(*wanted);
  return fail("{}: the answer is of another kind", path);
}

}  // namespace

Result<DaemonStatus> query_status(const std::string& path, ControlRequest request, Duration timeout) {
  std::uint32_t listener = 0;
  auto status = query<DaemonStatus>(path, request, timeout, &listener);
  // A daemon in a PID namespace of its own knows no other pid than its own there.
  if (status && listener != 0) status->pid = listener;
  return status;
}

Result<std::string> query_text(const std::string& path, ControlRequest request, Duration timeout) {
  return query<std::string>(path, request, timeout);
}

}  // namespace splitnic::os
