#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <boost/describe/class.hpp>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/os/unique_fd.h"
#include "common/os/unix_listener.h"
#include "common/random.h"
#include "common/result.h"
#include "common/time.h"
#include "fabric/bridge/bridge.h"
#include "fabric/bridge/prefault_queue.h"
#include "fabric/bridge/shm_bridge.h"
#include "fabric/bridge/shm_setup.h"
#include "fabric/bridge/user_limits.h"

namespace splitnic::fabric {

struct ShmListenOptions {
  std::string path;
  /// Users who may connect, besides root and the process's own user.
  std::vector<uid_t> allow_uids;
  std::vector<gid_t> allow_gids;  ///< primary or supplementary
  /// Of each memory, at least kShmMinBytes. A host may ask for less, but not for more.
  std::size_t window_bytes = kShmDefaultBytes;
  /// Of each memory, from its start: mapped ahead of use, and so taken from the machine.
  std::size_t prefault_bytes = ~std::size_t{0};
  /// The limits per user bind neither root nor the process's own user; the pauses bind every user.
  UserLimitOptions limits;
  /// The most further queues that a session has at a time. It binds every user.
  std::size_t further_queues = 7;
  std::vector<ShmPurpose> purposes = {ShmPurpose::session};  ///< those that are served
  /// Connections without a bridge yet, of all users and of one. One more closes the oldest one of the user who has the
  /// most, or of this user.
  std::size_t max_setting_up = 64;
  std::size_t max_setting_up_per_user = 16;
  Duration hello_limit = std::chrono::seconds(2);
  /// Where the kernel can (Linux 6.16), it refuses descriptors that a caller attaches when the caller sends them.
  bool refuse_descriptors = true;
};

/// How connections ended: as bridges, or why not. Each ended connection counts once.
struct ShmListenerCounters {
  std::uint64_t connected = 0;
  std::uint64_t refused_credentials = 0;
  std::uint64_t refused_version = 0;
  std::uint64_t refused_sizes = 0;
  std::uint64_t refused_purpose = 0;
  std::uint64_t refused_session = 0;     ///< a further queue for a session that is not there, or is another user's
  std::uint64_t refused_places = 0;      ///< all places were taken
  std::uint64_t refused_user_limit = 0;  ///< the user, or a queue's session, had as much as one may have
  std::uint64_t refused_resources = 0;   ///< no memory or descriptors were left
  std::uint64_t closed_garbage = 0;      ///< the bytes received were not a hello
  std::uint64_t closed_descriptors = 0;  ///< the caller attached descriptors
  std::uint64_t closed_silent = 0;       ///< no complete hello within the limit
  std::uint64_t closed_excess = 0;       ///< closed for newer connections
  std::uint64_t closed_hung_up = 0;      ///< closed by the other side
  std::uint64_t accept_paused = 0;       ///< out of descriptors; accepts again shortly (not a connection)
  std::uint64_t setup_delayed = 0;       ///< the user's hosts came and went too often; served later (not an end)
};
/// The counters' names, as `splitnic stats` reports them after the prefix "connections_".
BOOST_DESCRIBE_STRUCT(ShmListenerCounters, (),
                      (connected, refused_credentials, refused_version, refused_sizes, refused_purpose, refused_session,
                       refused_places, refused_user_limit, refused_resources, closed_garbage, closed_descriptors,
                       closed_silent, closed_excess, closed_hung_up, accept_paused, setup_delayed))

/// A new bridge to a host, and what the host said about itself. The kernel attests the credentials.
struct ShmAccepted {
  std::unique_ptr<Bridge> bridge;
  pid_t pid = 0;
  uid_t uid = 0;
  gid_t gid = 0;
  ShmPurpose purpose = ShmPurpose::session;
  std::uint64_t cookie = 0;    ///< of the session; other purposes have none of their own
  std::uint64_t features = 0;  ///< that both ends have
  std::string name{};          ///< empty: none
};

/// The I/O unit's side of the shm set-up: it listens, checks credentials and limits, and makes memory and doorbells for
/// each connection, and prefaults the memory when it has nothing else to do. No connection can block or starve others,
/// and no close of what strangers attach runs in the owner's thread. Making memory takes milliseconds, so a thread that
/// moves frames leaves all this to a Doorman. Thread: the owner; the bridges may be used, and end, on another one.
/// Source: design, "The bridge", shm.
class ShmListener {
 public:
  /// Listens, and replaces a stale socket. A live socket, or a file that is not a socket, is an error and stays.
  [[nodiscard]] static Result<std::unique_ptr<ShmListener>> listen(ShmListenOptions options);
  ~ShmListener();
  ShmListener(const ShmListener&) = delete;
  ShmListener& operator=(const ShmListener&) = delete;

  /// From now on somebody else removes the socket.
  void leave_path() { socket_.leave_path(); }
  /// Call it when the process has become another user: its own user has no limits.
  void note_own_user() { own_user_ = geteuid(); }
  /// Accepts connections, reads hellos, makes bridges, takes back those that have ended, and closes connections that
  /// are too slow; bounded. Returns how many it served.
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
  /// Bridges that have not ended yet, and how many hang-ups of theirs poll() has seen since the start.
  [[nodiscard]] std::size_t bridges() const { return bridges_.size(); }
  [[nodiscard]] std::uint64_t hang_ups() const { return hang_ups_; }

 private:
  /// A connection without a bridge: its hello is not complete, or has to wait.
  struct Caller {
    os::UniqueFd socket;
    BridgePeer who;
    Time deadline{};  ///< of the hello, and of a hello that waits for a place
    std::optional<ShmHelloFields> hello;
    Time served_at = kNever;  ///< while a pause delays it
  };
  /// A bridge that its user has not ended yet.
  struct Held {
    uid_t user = 0;
    std::size_t bytes = 0;
    ShmPurpose purpose = ShmPurpose::session;
    std::uint64_t cookie = 0;                    ///< of the session, or of the one that a further queue belongs to
    int socket = -1;                             ///< of the doorbell, which the parts own
    std::shared_ptr<std::atomic<bool>> hung_up;  ///< the thread that uses the bridge may notice it first
    std::optional<ShmParts> parts;               ///< given back; the host has not hung up yet
    bool ends_soon = false;                      ///< counted in ending_soon_
  };
  /// Both memories and all descriptors of a bridge to be.
  struct Made;
  struct Returns;
  enum class Progress { waiting, done };

  ShmListener(ShmListenOptions options, os::UnixListener socket, os::UniqueFd events, os::UniqueFd returned);
  [[nodiscard]] bool watch(int descriptor, std::uint32_t events, std::uint64_t tag);
  void take_events(Time now);
  void take_back(Time now);
  void note_hang_up(std::uint64_t number, Time now);
  void ends_soon(Held& held);
  void end(std::uint64_t number, ShmParts parts, Time now);
  [[nodiscard]] bool accept_one(Time now);
  void make_room(const Caller& caller);
  void pause_accepting(Time now);
  [[nodiscard]] bool unlimited(uid_t user) const { return user == 0 || user == own_user_; }
  [[nodiscard]] bool permitted(const Caller& caller) const;
  [[nodiscard]] Progress serve(Caller& caller, Time now);
  [[nodiscard]] Progress read_hello(Caller& caller);
  [[nodiscard]] Progress answer(Caller& caller, Time now);
  [[nodiscard]] std::size_t count_bridges(ShmPurpose purpose, std::uint64_t cookie, uid_t user) const;
  [[nodiscard]] UserLimits::Verdict reserve(const Caller& caller, std::size_t bytes);
  [[nodiscard]] bool acceptable(Caller& caller);
  [[nodiscard]] Progress reserve_and_set_up(Caller& caller, Time now);
  [[nodiscard]] Result<Made> make(std::size_t local_bytes, std::size_t window_bytes) const;
  void hand_over(Caller& caller, Made made, std::size_t reserved, Time now);
  void refuse(Caller& caller, ShmSetupStatus status, std::uint64_t& counter);
  void close_later(os::UniqueFd socket) { closing_.push_back(std::move(socket)); }

  ShmListenOptions options_;
  uid_t own_user_ = geteuid();
  SystemRandom random_;
  os::UnixListener socket_;
  os::UniqueFd events_;
  UserLimits limits_;
  PrefaultQueue prefaults_;
  std::shared_ptr<Returns> returns_;
  std::deque<Caller> setting_up_;  // oldest first
  std::deque<ShmAccepted> accepted_;
  std::unordered_map<std::uint64_t, Held> bridges_;  // by a number that is never used again
  std::uint64_t next_number_;
  std::uint64_t hang_ups_ = 0;
  std::size_t ending_soon_ = 0;                      // bridges with Held::ends_soon
  std::deque<std::pair<Time, std::uint64_t>> ends_;  // given back while the host was there; when they end anyway
  std::vector<os::UniqueFd> closing_;
  Time accept_again_ = kNever;  // while paused
  Time close_again_ = kNever;   // while no thread could be started
  ShmListenerCounters counters_;
  std::string last_error_;
};

}  // namespace splitnic::fabric
