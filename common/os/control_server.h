#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "common/os/daemon_status.h"
#include "common/os/log.h"
#include "common/os/unix_listener.h"
#include "common/result.h"
#include "common/time.h"

namespace boost::asio {
class io_context;
}

namespace splitnic::os {

/// Sends the reply to one request, or an error that the server reports to the client. Call it once, at once or later.
/// It does nothing if the client has been cut off or the server is gone. Thread: the io_context's.
using ControlReply = std::function<void(Result<ControlAnswer>)>;
/// Does what a client requests, and calls reply when it has done that. Each request needs a reply; until then the
/// client is not cut off, except for a further connection. The server calls it on the io_context's thread.
using ControlHandler = std::function<void(ControlRequest request, ControlReply reply)>;
/// A handler that always has the answer at once.
[[nodiscard]] ControlHandler answered_at_once(std::function<Result<ControlAnswer>(ControlRequest)> answer);

struct ControlServerOptions {
  /// The time limit for one request, from the connection or the previous reply to the request's last byte; and for
  /// sending one reply.
  Duration request_timeout = std::chrono::seconds(5);
  /// A further connection replaces the oldest one, so that idle connections lock nobody out.
  std::size_t max_connections = 32;
};

/// Answers status requests on a Unix socket (control.capnp). Closes a connection that is idle, sends too much, or sends
/// something other than a request. Thread: the io_context's.
class ControlServer {
 public:
  /// path: the server creates it with mode 0600; same errors as UnixListener. context and log are lent; destroy the
  /// server before them.
  static Result<std::unique_ptr<ControlServer>> open(boost::asio::io_context& context, const std::string& path,
                                                     ControlHandler handle, Log& log,
                                                     ControlServerOptions options = {});
  /// The same with a socket that listens already, which a process opens before it gives up the right to.
  static std::unique_ptr<ControlServer> serve(boost::asio::io_context& context, UnixListener listener,
                                              ControlHandler handle, Log& log, ControlServerOptions options = {});
  ~ControlServer();

  [[nodiscard]] const std::string& path() const { return listener_.path(); }
  [[nodiscard]] std::size_t connections() const;

 private:
  class Connection;
  struct Shared;
  struct Acceptor;

  ControlServer(boost::asio::io_context& context, UnixListener listener, std::shared_ptr<Shared> shared);

  UnixListener listener_;
  std::shared_ptr<Shared> shared_;
  std::shared_ptr<Acceptor> acceptor_;
};

}  // namespace splitnic::os
