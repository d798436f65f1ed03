#include "common/os/control_server.h"

#include <sys/socket.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <list>
#include <span>
#include <utility>
#include <vector>

#include "common/os/control_protocol.h"
#include "common/os/message_io.h"

namespace splitnic::os {

namespace asio = boost::asio;
using asio::posix::stream_descriptor;
using boost::system::error_code;

/// The state that the connections share. Handlers hold it, because they may run after the server's destruction.
struct ControlServer::Shared {
  ControlHandler handle;
  Log* log;
  ControlServerOptions options;
  std::list<std::weak_ptr<Connection>> connections{};  // oldest first
};

/// One client: length, message, reply, and again. The timer closes the connection whenever the client is late. Asio
/// waits only: its own receiving and sending needs system calls that the sandbox forbids.
class ControlServer::Connection : public std::enable_shared_from_this<Connection> {
 public:
  /// socket: it does not block.
  Connection(asio::io_context& context, UniqueFd socket, std::shared_ptr<Shared> shared)
      : socket_(context, socket.release()), timer_(context), shared_(std::move(shared)) {}
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection() {
    shared_->connections.remove_if([](const auto& connection) { return connection.expired(); });
  }

  void read_request() {
    restart_timer();
    // Waits first, so that a client with many requests leaves room for the loop's other work.
    const auto length = std::as_writable_bytes(std::span(&length_, 1));
    wait(stream_descriptor::wait_read, [this, length] { receive(length, &Connection::read_body); });
  }

  void close() {
    const auto self = std::exchange(awaiting_reply_, nullptr);  // ends with this function, if nothing else holds it
    error_code ignored;
    timer_.cancel();
    socket_.close(ignored);
  }

 private:
  using Step = void (Connection::*)();

  template <class Then>
  void wait(stream_descriptor::wait_type what, Then then) {
    socket_.async_wait(what, [self = shared_from_this(), then](const error_code& error) {
      if (!error && self->socket_.is_open()) return then();  // closed: the server may be gone
      self->close();
    });
  }

  /// to: part of this object.
  void receive(std::span<std::byte> to, Step then) {
    while (!to.empty()) {
      const ssize_t got = receive_bytes(socket_.native_handle(), to, MSG_DONTWAIT);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && errno == EAGAIN) {
        return wait(stream_descriptor::wait_read, [this, to, then] { receive(to, then); });
      }
      if (got <= 0) return close();
      to = to.subspan(static_cast<std::size_t>(got));
    }
    (this->*then)();
  }

  /// from: part of this object.
  void send(std::span<const std::byte> from) {
    while (!from.empty()) {
      const ssize_t sent = send_bytes(socket_.native_handle(), from, MSG_DONTWAIT);
      if (sent < 0 && errno == EINTR) continue;
      if (sent < 0 && errno == EAGAIN) {
        return wait(stream_descriptor::wait_write, [this, from] { send(from); });
      }
      if (sent <= 0) return close();
      from = from.subspan(static_cast<std::size_t>(sent));
    }
    read_request();
  }

  void restart_timer() {
    timer_.expires_after(shared_->options.request_timeout);
    timer_.async_wait([weak = weak_from_this()](const error_code& error) {
      const auto self = weak.lock();
      // The time may have been prolonged while this waited for its turn.
      const bool late = self && self->timer_.expiry() <= asio::steady_timer::clock_type::now();
      if (!error && late) self->close();
    });
  }

  void read_body() {
    const std::size_t bytes = length_.value();
    if (bytes == 0 || bytes > kMaxRequestBytes || bytes % sizeof(ControlMessage::value_type) != 0) {
      return refuse(fmt::format("a message of {} bytes", bytes));
    }
    message_.assign(bytes / sizeof(ControlMessage::value_type), 0);
    receive(std::as_writable_bytes(std::span(message_)), &Connection::answer);
  }

  void answer() {
    const auto request = decode_request(message_);
    if (!request) return refuse(request.error().message);
    timer_.expires_at(asio::steady_timer::time_point::max());
    awaiting_reply_ = shared_from_this();
    // The reply may be kept for longer than the server and its io_context live, so it must not hold the connection.
    shared_->handle(*request, [weak = weak_from_this()](const Result<ControlAnswer>& answer) {
      const auto self = weak.lock();
      if (self && self->awaiting_reply_) self->reply(answer);
    });
  }

  /// The caller holds this object.
  void reply(const Result<ControlAnswer>& answer) {
    awaiting_reply_.reset();
    restart_timer();
    message_ = answer ? encode_reply(*answer) : encode_error_reply(answer.error().message);
    if (message_.size() * sizeof(ControlMessage::value_type) > kMaxControlBytes) {
      message_ = encode_error_reply("the status is too large for one reply");
    }
    length_ = static_cast<std::uint32_t>(message_.size() * sizeof(ControlMessage::value_type));
    const auto length = std::as_bytes(std::span(&length_, 1));
    const auto message = std::as_bytes(std::span(message_));
    reply_.assign(length.begin(), length.end());
    reply_.insert(reply_.end(), message.begin(), message.end());
    send(reply_);
  }

  void refuse(std::string_view why) {
    shared_->log->limited("control", LogLevel::kWarning, "control socket: disconnected a client: {}", why);
    close();
  }

  stream_descriptor socket_;
  asio::steady_timer timer_;
  std::shared_ptr<Shared> shared_;
  ControlLength length_;
  ControlMessage message_;
  std::vector<std::byte> reply_;
  std::shared_ptr<Connection> awaiting_reply_;  // this object, while no wait of Asio's holds it
};

/// Accepts connections while it is open.
struct ControlServer::Acceptor : std::enable_shared_from_this<Acceptor> {
  asio::io_context& context;
  stream_descriptor listener;
  asio::steady_timer pause;
  std::shared_ptr<Shared> shared;

  /// descriptor: of a listening socket that does not block.
  Acceptor(asio::io_context& its_context, UniqueFd descriptor, std::shared_ptr<Shared> common)
      : context(its_context), listener(context, descriptor.release()), pause(context), shared(std::move(common)) {}

  void accept() {
    listener.async_wait(stream_descriptor::wait_read, [self = shared_from_this()](const error_code& error) {
      if (error || !self->listener.is_open()) return;
      UniqueFd socket(::accept4(self->listener.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (socket) {
        self->take(std::move(socket));
      } else if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
        return self->accept_later();
      }
      self->accept();
    });
  }

  // Most likely the process has no descriptors left. Accepting again at once would spin.
  void accept_later() {
    pause.expires_after(std::chrono::milliseconds(100));
    pause.async_wait([self = shared_from_this()](const error_code& error) {
      if (!error && self->listener.is_open()) self->accept();
    });
  }

  void take(UniqueFd socket) {
    auto& connections = shared->connections;
    if (connections.size() >= shared->options.max_connections) {
      const auto oldest = connections.front().lock();
      connections.pop_front();
      if (oldest) oldest->close();
    }
    const auto connection = std::make_shared<Connection>(context, std::move(socket), shared);
    connections.push_back(connection);
    connection->read_request();
  }
};

ControlHandler answered_at_once(std::function<Result<ControlAnswer>(ControlRequest)> answer) {
  return [answer = std::move(answer)](ControlRequest request, const ControlReply& reply) { reply(answer(request)); };
}

Result<std::unique_ptr<ControlServer>> ControlServer::open(asio::io_context& context, const std::string& path,
                                                           ControlHandler handle, Log& log,
                                                           ControlServerOptions options) {
  auto listener = UnixListener::listen(path);
  if (!listener) return fail("control socket: {}", listener.error().message);
  return serve(context, std::move(*listener), std::move(handle), log, options);
}

std::unique_ptr<ControlServer> ControlServer::serve(asio::io_context& context, UnixListener listener,
                                                    ControlHandler handle, Log& log, ControlServerOptions options) {
  auto shared = std::make_shared<Shared>(Shared{std::move(handle), &log, options});
  return std::unique_ptr<ControlServer>(new ControlServer(context, std::move(listener), std::move(shared)));
}

ControlServer::ControlServer(asio::io_context& context, UnixListener listener, std::shared_ptr<Shared> shared)
    : listener_(std::move(listener)),
      shared_(std::move(shared)),
      acceptor_(std::make_shared<Acceptor>(context, listener_.take_descriptor(), shared_)) {
  acceptor_->accept();
}

ControlServer::~ControlServer() {
  error_code ignored;
  acceptor_->listener.close(ignored);
  acceptor_->pause.cancel();
  // A connection that nothing else holds leaves the list when it closes.
  const auto connections = shared_->connections;
  for (const auto& weak : connections) {
    if (const auto connection = weak.lock()) connection->close();
  }
}

std::size_t ControlServer::connections() const { return shared_->connections.size(); }

}  // namespace splitnic::os
