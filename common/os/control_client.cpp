#include "common/os/control_client.h"

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <functional>

#include "common/os/control_protocol.h"
#include "common/os/unix_listener.h"

namespace splitnic::os {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

/// One request and its reply, step by step; `outcome` tells how far it came.
struct Exchange {
  asio::io_context context{1};
  asio::local::stream_protocol::socket socket{context};
  asio::steady_timer pause{context};
  ControlMessage message = encode_request();
  ControlLength length{};
  Result<void> outcome = fail("no answer");

  using Handler = void (Exchange::*)();

  auto then(Handler next) {
    return [this, next](const error_code& error, std::size_t = 0) {
      if (!error) return (this->*next)();
      outcome = error == asio::error::eof ? fail("the daemon closed the connection") : fail("{}", error.message());
    };
  }

  void start(const std::string& path) {
    socket.async_connect(asio::local::stream_protocol::endpoint(path), [this, &path](const error_code& error) {
      if (!error) return send();
      if (error == asio::error::try_again) return start_later(path);
      const bool stale = error == asio::error::connection_refused;
      outcome = fail("{}", stale ? "nobody listens there (left behind by a daemon that died)" : error.message());
    });
  }

  // The daemon's queue of connections is full at the moment, which Unix sockets don't wait for.
  void start_later(const std::string& path) {
    pause.expires_after(std::chrono::milliseconds(5));
    pause.async_wait([this, &path](const error_code& error) {
      if (!error) start(path);
    });
  }

  void send() {
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

}  // namespace

Result<DaemonStatus> query_status(const std::string& path, Duration timeout) {
  if (auto fits = check_socket_path(path); !fits) return tl::unexpected(fits.error());
  Exchange exchange;
  exchange.start(path);
  exchange.context.run_for(timeout);
  if (!exchange.outcome) return fail("{}: {}", path, exchange.outcome.error().message);
  auto status = decode_reply(exchange.message);
  if (!status) return fail("{}: {}", path, status.error().message);
  return status;
}

}  // namespace splitnic::os
