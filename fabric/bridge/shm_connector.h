#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
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
  std::string path{};
  std::size_t local_bytes = 0;   ///< of the memory that the unit writes; 0: as the unit chooses
  std::size_t window_bytes = 0;  ///< of the memory that this end writes; likewise
  /// Longer than the longest pause that a unit makes for a user whose hosts come and go.
  Duration reply_limit = std::chrono::seconds(6);
  ShmPurpose purpose = ShmPurpose::session;
  std::uint64_t cookie = 0;    ///< of the session that a further queue belongs to; otherwise 0
  std::uint64_t features = 0;  ///< that this end has
  std::string name{};          ///< see is_valid_shm_name
  /// The bridge hangs up by shutdown(), which also works while a forked child has a copy of its descriptors. false: by
  /// close alone, for processes that fork no such children and may not call shutdown().
  bool shuts_down = true;
  /// The unit is a peer like others, and what it sends besides a bridge, or instead of one, is closed elsewhere
  /// (os::close_elsewhere). false: in this thread, for processes that may start no threads.
  bool closes_elsewhere = false;
};

/// The host's side of the shm set-up: one attempt. The caller decides whether and when to try again.
/// Thread: the owner; nothing blocks.
class ShmConnector {
 public:
  /// Connects and sends the hello. Errors: nobody listens, no permission, path too long, the unit is too busy to
  /// accept.
  [[nodiscard]] static Result<std::unique_ptr<ShmConnector>> start(const ShmConnectOptions& options, Time now);
  /// The same over a socket that is connected to the unit already. options: the path is for messages, the name valid.
  [[nodiscard]] static Result<std::unique_ptr<ShmConnector>> start_connected(os::UniqueFd socket,
                                                                             const ShmConnectOptions& options,
                                                                             Time now);
  ~ShmConnector();
  ShmConnector(const ShmConnector&) = delete;
  ShmConnector& operator=(const ShmConnector&) = delete;

  /// nullopt: the attempt is not over yet. With a result it is over; destroy the connector then.
  [[nodiscard]] std::optional<Result<std::unique_ptr<Bridge>>> poll(Time now);
  /// Readable when poll() has something to do.
  [[nodiscard]] int descriptor() const { return socket_.get(); }
  [[nodiscard]] Time next_deadline() const { return deadline_; }
  /// Once poll() has returned an error: the unit refuses such attempts, and will until its configuration, or what this
  /// user has, is another.
  [[nodiscard]] bool refused_by_rule() const { return refused_by_rule_; }
  /// From the unit's reply, once poll() has returned a bridge: the session's cookie, and the features that both ends
  /// have.
  [[nodiscard]] std::uint64_t cookie() const { return cookie_; }
  [[nodiscard]] std::uint64_t features() const { return features_; }

 private:
  ShmConnector(const ShmConnectOptions& options, os::UniqueFd socket, Time now)
      : options_(options), socket_(std::move(socket)), deadline_(now + options.reply_limit) {}
  [[nodiscard]] std::optional<Error> receive();
  [[nodiscard]] std::optional<Error> check_identity();
  [[nodiscard]] std::optional<Error> check_status(const ShmReply& reply);
  [[nodiscard]] std::optional<Error> check_fields(const ShmReply& reply) const;
  [[nodiscard]] Result<std::unique_ptr<Bridge>> finish();

  ShmConnectOptions options_;
  os::UniqueFd socket_;
  Time deadline_;
  std::array<std::byte, kShmReplyBytes> reply_{};
  std::size_t got_ = 0;
  std::uint64_t cookie_ = 0;
  std::uint64_t features_ = 0;
  bool refused_by_rule_ = false;
  std::vector<os::UniqueFd> descriptors_;
};

}  // namespace splitnic::fabric
