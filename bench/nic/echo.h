#pragma once

#include <cstdint>
#include <optional>

#include "common/os/unique_fd.h"
#include "common/result.h"
#include "common/time.h"

namespace splitnic::bench::nic {

/// ICMP echo requests (RFC 792) of 56 bytes, as ping(8) sends them.
class Echo {
 public:
  /// netns: where from. address: IPv4, in text. Errors: no permission for raw sockets.
  static Result<Echo> open(int netns, const char* address);

  /// Sends one request and waits for its answer. Returns the time between; nothing if no answer comes.
  std::optional<Duration> once(Duration patience);

 private:
  explicit Echo(os::UniqueFd socket) : socket_(std::move(socket)) {}
  bool receive_own_reply();

  os::UniqueFd socket_;
  std::uint16_t sequence_ = 0;
};

}  // namespace splitnic::bench::nic
