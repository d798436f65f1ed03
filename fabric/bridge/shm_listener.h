#pragma once

#include <sys/types.h>

#include <boost/describe/class.hpp>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/os/unique_fd.h"
#include "common/os/unix_listener.h"
#include "common/result.h"
#include "common/time.h"
#include "fabric/bridge/bridge.h"
#include "fabric/bridge/shm_setup.h"

namespace splitnic::fabric {

struct ShmListenOptions {
  std::string path;
  /// Users who may connect, besides root and the process's own user.
  std::vector<uid_t> allow_uids;
  std::vector<gid_t> allow_gids;  ///< primary or supplementary
  std::size_t default_bytes = kShmDefaultBytes;
  std::size_t max_bytes = 64U << 20U;  ///< of each memory; a host that asks for more is refused
  std::size_t max_setting_up = 64;     ///< connections without a complete hello; one more closes the oldest
  Duration hello_limit = std::chrono::seconds(2);
};

/// How connections ended: as bridges, or why not. Each ended connection counts once.
struct ShmListenerCounters {
  std::uint64_t connected = 0;
  std::uint64_t refused_credentials = 0;
  std::uint64_t refused_version = 0;
  std::uint64_t refused_sizes = 0;
  std::uint64_t refused_resources = 0;  ///< no memory or descriptors were left
  std::uint64_t closed_garbage = 0;     ///< the bytes received were not a hello
  std::uint64_t closed_silent = 0;      ///< no complete hello within the limit
  std::uint64_t closed_excess = 0;      ///< closed for newer connections
  std::uint64_t closed_hung_up = 0;     ///< closed by the other side
  std::uint64_t accept_paused = 0;      ///< out of descriptors; accepts again shortly (not a connection)
};
/// The counters' names, as `splitnic stats` reports them after the prefix "connections_".
BOOST_DESCRIBE_STRUCT(ShmListenerCounters, (),
                      (connected, refused_credentials, refused_version, refused_sizes, refused_resources,
                       closed_garbage, closed_silent, closed_excess, closed_hung_up, accept_paused))

/// A new bridge to a host, with the host's credentials.
struct ShmAccepted {
  std::unique_ptr<Bridge> bridge;
  pid_t pid = 0;
  uid_t uid = 0;
  gid_t gid = 0;
};

/// The I/O unit's side of the shm set-up: it listens, checks credentials, and makes memory and doorbells for each
/// connection. No connection can block or starve others. Thread: the owner. Source: design, "The bridge", shm.
class ShmListener {
 public:
  /// Listens, and replaces a stale socket. A live socket, or a file that is not a socket, is an error and stays.
  [[nodiscard]] static Result<std::unique_ptr<ShmListener>> listen(ShmListenOptions options);
  ~ShmListener();
  ShmListener(const ShmListener&) = delete;
  ShmListener& operator=(const ShmListener&) = delete;

  /// Accepts connections, reads hellos, and closes connections that are too slow; bounded. Returns how many it served.
  /// It makes system calls, so call it when descriptor() is readable or next_deadline() has come, not in every turn.
  std::size_t poll(Time now);
  /// The next bridge that is ready; nullopt: none.
  [[nodiscard]] std::optional<ShmAccepted> take();
  /// Readable when poll() has something to do.
  [[nodiscard]] int descriptor() const { return events_.get(); }
  [[nodiscard]] Time next_deadline() const;
  [[nodiscard]] const ShmListenerCounters& counters() const { return counters_; }
  /// The cause of the last connection counted as refused_resources; empty if there is none.
  [[nodiscard]] const std::string& last_error() const { return last_error_; }
  [[nodiscard]] std::size_t setting_up() const { return setting_up_.size(); }

 private:
  /// A connection whose hello is not complete.
  struct Caller {
    os::UniqueFd socket;
    ShmAccepted who;
    Time deadline{};
    std::byte hello[kShmSetupBytes];
    std::size_t got = 0;
  };
  enum class Progress { waiting, done };

  ShmListener(ShmListenOptions options, os::UnixListener socket, os::UniqueFd events);
  [[nodiscard]] bool accept_one(Time now);
  void pause_accepting(Time now);
  [[nodiscard]] bool watch_listener(bool on);
  [[nodiscard]] bool permitted(const Caller& caller) const;
  [[nodiscard]] Progress read_hello(Caller& caller);
  void answer(Caller& caller);
  [[nodiscard]] std::optional<Error> set_up(Caller& caller, std::size_t local_bytes, std::size_t window_bytes);
  void refuse(Caller& caller, ShmSetupStatus status, std::uint64_t& counter);

  ShmListenOptions options_;
  os::UnixListener socket_;
  os::UniqueFd events_;
  std::deque<Caller> setting_up_;  // oldest first
  std::deque<ShmAccepted> accepted_;
  Time accept_again_ = kNever;  // while paused
  ShmListenerCounters counters_;
  std::string last_error_;
};

}  // namespace splitnic::fabric
