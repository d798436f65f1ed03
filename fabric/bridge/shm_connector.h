#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/os/unique_fd.h"
#include "common/result.h"
#include "common/time.h"
#include "fabric/bridge/bridge.h"
#include "fabric/bridge/shm_setup.h"

namespace splitnic::fabric {

struct ShmConnectOptions {
  std::string path;
  std::size_t local_bytes = 0;   ///< of the memory that the unit writes; 0: the unit's default
  std::size_t window_bytes = 0;  ///< of the memory that this end writes; likewise
  Duration reply_limit = std::chrono::seconds(2);
};

/// The host's side of the shm set-up: one attempt. The caller decides whether and when to try again.
/// Thread: the owner; nothing blocks.
class ShmConnector {
 public:
  /// Connects and sends the hello. Errors: nobody listens, no permission, path too long, the unit is too busy to
  /// accept.
  [[nodiscard]] static Result<std::unique_ptr<ShmConnector>> start(const ShmConnectOptions& options, Time now);

  /// nullopt: the attempt is not over yet. With a result it is over; destroy the connector then.
  [[nodiscard]] std::optional<Result<std::unique_ptr<Bridge>>> poll(Time now);
  /// Readable when poll() has something to do.
  [[nodiscard]] int descriptor() const { return socket_.get(); }
  [[nodiscard]] Time next_deadline() const { return deadline_; }

 private:
  ShmConnector(std::string path, os::UniqueFd socket, Time deadline)
      : path_(std::move(path)), socket_(std::move(socket)), deadline_(deadline) {}
  [[nodiscard]] std::optional<Error> receive();
  [[nodiscard]] Result<std::unique_ptr<Bridge>> finish();

  std::string path_;
  os::UniqueFd socket_;
  Time deadline_;
  std::array<std::byte, kShmSetupBytes> reply_{};
  std::size_t got_ = 0;
  std::vector<os::UniqueFd> descriptors_;
};

}  // namespace splitnic::fabric
