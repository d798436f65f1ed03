#include "common/os/control_server.h"

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <list>
#include <utility>

#include "common/os/control_protocol.h"

namespace splitnic::os {

namespace asio = boost::asio;
using boost::system::error_code;
using StreamSocket = asio::local::stream_protocol::socket;

/// The state that the connections share. Handlers hold it, because they may run after the server's destruction.
struct ControlServer::Shared {
  std::function<Result<ControlAnswer>(ControlRequest)> answer;
  Log* log;
  ControlServerOptions options;
  std::list<std::weak_ptr<Connection>> connections{};  // oldest first
};

/// One client: length, message, reply, and again. The timer closes the connection in every state.
class ControlServer::Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(StreamSocket socket, std::shared_ptr<Shared> shared)
      : socket_(std::move(socket)), timer_(socket_.get_executor()), shared_(std::move(shared)) {}
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection() {
    shared_->connections.remove_if([](const auto& connection) { return connection.expired(); });
  }

  void read_request() {
    restart_timer();
    asio::async_read(socket_, asio::buffer(&length_, sizeof length_),
                     [self = shared_from_this()](const error_code& error, std::size_t) {
                       if (!error && self->socket_.is_open()) return self->read_body();
                       self->close();
                     });
  }

  void close() {
    error_code ignored;
    timer_.cancel();
    socket_.close(ignored);
  }

 private:
  void restart_timer() {
    timer_.expires_after(shared_->options.request_timeout);
    timer_.async_wait([weak = weak_from_this()](const error_code& error) {
      const auto self = weak.lock();
      if (!error && self) self->close();
    });
  }

  void read_body() {
    const std::size_t bytes = length_.value();
    if (bytes == 0 || bytes > kMaxRequestBytes || bytes % sizeof(ControlMessage::value_type) != 0) {
      return refuse(fmt::format("a message of {} bytes", bytes));
    }
    message_.assign(bytes / sizeof(ControlMessage::value_type), 0);
    asio::async_read(socket_, asio::buffer(message_),
                     [self = shared_from_this()](const error_code& error, std::size_t) {
                       if (!error && self->socket_.is_open()) return self->answer();  // closed: the server may be gone
                       self->close();
                     });
  }

  void answer() {
    const auto request = decode_request(message_);
    if (!request) return refuse(request.error().message);
    const auto reply_of = shared_->answer(*request);
    message_ = reply_of ? encode_reply(*reply_of) : encode_error_reply(reply_of.error().message);
    if (message_.size() * sizeof(ControlMessage::value_type) > kMaxControlBytes) {
      message_ = encode_error_reply("the status is too large for one reply");
    }
    length_ = static_cast<std::uint32_t>(message_.size() * sizeof(ControlMessage::value_type));
    const std::array<asio::const_buffer, 2> reply{asio::buffer(&length_, sizeof length_), asio::buffer(message_)};
    asio::async_write(socket_, reply, [self = shared_from_this()](const error_code& error, std::size_t) {
      if (!error) return self->read_request();
      self->close();
    });
  }

  void refuse(std::string_view why) {
    shared_->log->limited("control", LogLevel::kWarning, "control socket: disconnected a client: {}", why);
    close();
  }

  StreamSocket socket_;
  asio::steady_timer timer_;
  std::shared_ptr<Shared> shared_;
  ControlLength length_;
  ControlMessage message_;
};

/// Accepts connections while it is open.
struct ControlServer::Acceptor : std::enable_shared_from_this<Acceptor> {
  asio::local::stream_protocol::acceptor acceptor;
  asio::steady_timer pause;
  std::shared_ptr<Shared> shared;

  Acceptor(asio::io_context& context, int descriptor, std::shared_ptr<Shared> common)
      : acceptor(context, asio::local::stream_protocol(), descriptor), pause(context), shared(std::move(common)) {}

  void accept() {
    acceptor.async_accept([self = shared_from_this()](const error_code& error, StreamSocket socket) {
      if (error == asio::error::operation_aborted || !self->acceptor.is_open()) return;
      if (error) return self->accept_later();
      self->take(std::move(socket));
      self->accept();
    });
  }

  // Most likely the process has no descriptors left. Accepting again at once would spin.
  void accept_later() {
    pause.expires_after(std::chrono::milliseconds(100));
    pause.async_wait([self = shared_from_this()](const error_code& error) {
      if (!error && self->acceptor.is_open()) self->accept();
    });
  }

  void take(StreamSocket socket) {
    auto& connections = shared->connections;
    if (connections.size() >= shared->options.max_connections) {
      if (const auto oldest = connections.front().lock()) oldest->close();
      connections.pop_front();
    }
    const auto connection = std::make_shared<Connection>(std::move(socket), shared);
    connections.push_back(connection);
    connection->read_request();
  }
};

Result<std::unique_ptr<ControlServer>> ControlServer::open(asio::io_context& context, const std::string& path,
                                                           std::function<Result<ControlAnswer>(ControlRequest)> answer,
                                                           Log& log, ControlServerOptions options) {
  auto listener = UnixListener::listen(path);
  if (!listener) return fail("control socket: {}", listener.error().message);
  return serve(context, std::move(*listener), std::move(answer), log, options);
}

std::unique_ptr<ControlServer> ControlServer::serve(asio::io_context& context, UnixListener listener,
                                                    std::function<Result<ControlAnswer>(ControlRequest)> answer,
                                                    Log& log, ControlServerOptions options) {
  auto shared = std::make_shared<Shared>(Shared{std::move(answer), &log, options});
  return std::unique_ptr<ControlServer>(new ControlServer(context, std::move(listener), std::move(shared)));
}

ControlServer::ControlServer(asio::io_context& context, UnixListener listener, std::shared_ptr<Shared> shared)
    : listener_(std::move(listener)),
      shared_(std::move(shared)),
      acceptor_(std::make_shared<Acceptor>(context, listener_.take_descriptor().release(), shared_)) {
  acceptor_->accept();
}

ControlServer::~ControlServer() {
  error_code ignored;
  acceptor_->acceptor.close(ignored);
  acceptor_->pause.cancel();
  for (const auto& weak : shared_->connections) {
    if (const auto connection = weak.lock()) connection->close();
  }
}

std::size_t ControlServer::connections() const { return shared_->connections.size(); }

}  // namespace splitnic::os
