#pragma once

#include <netinet/in.h>
#include <poll.h>
#include <sys/uio.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <tl/expected.hpp>
#include <utility>
#include <vector>

#include "common/os/unique_fd.h"
#include "common/time.h"
#include "fabric/rdmacm/address.h"

/// What sockets over RDMA ("rsockets") have in common. They use the connection manager and the verbs through their C
/// interfaces. Thread: any; everything of a socket is under its lock.
namespace splitnic::rdmacm {

/// A value, or an errno.
template <class T>
using Outcome = tl::expected<T, int>;
[[nodiscard]] inline tl::unexpected<int> error(int number) { return tl::unexpected(number); }

/// What a program can set. Sizes hold for connections that are made later.
struct RsocketOptions {
  bool nonblocking = false;
  int send_bytes = 1 << 18;
  int receive_bytes = 1 << 18;
  int send_requests = 384;
  int receive_requests = 384;
  int inline_bytes = 64;
  int io_maps = 0;
  bool only_ip6 = false;
  bool reuse_address = false;
  bool keep_alive = false;
  bool out_of_band_inline = false;
  bool no_delay = false;
  int keep_idle = 7200;
  int keep_interval = 75;
  int keep_count = 9;
  int segment_bytes = 0;  ///< 0: as it is
  bool lingers = false;
  int linger_seconds = 0;
  Duration receive_timeout{};  ///< 0: none
  Duration send_timeout{};

  /// The defaults, which files in /etc/rdma/rsocket may change.
  [[nodiscard]] static const RsocketOptions& defaults();
};

/// Where a datagram came from, or goes to; a stream ignores it.
struct Transfer {
  std::span<const iovec> parts;
  int flags = 0;
  bool has_address = false;  ///< a program has named one; or: the socket has told one
  Address address{};
  bool truncated = false;  ///< a datagram was longer than the parts
  /// Earlier bytes of the same call are done: it answers with them, and an error stays pending.
  bool continues = false;
  bool waits = false;  ///< the call repeats it after EAGAIN, when ready_for() says so
};

[[nodiscard]] inline std::size_t bytes_of(std::span<const iovec> parts) {
  std::size_t bytes = 0;
  for (const iovec& part : parts) bytes += part.iov_len;
  return bytes;
}

/// Of Rsocket::ready(), beside poll(2)'s events. If they are wanted, ready() answers no others.
inline constexpr short kRequestRoom = 0x0400;  ///< the send queue takes a request
inline constexpr short kDrained = 0x1000;      ///< everything that was sent has reached the other end, or never will
inline constexpr short kPollEvents = 0x23ff;   ///< those that programs may ask for

class Rsocket {
 public:
  /// family: AF_INET or AF_INET6. type: SOCK_STREAM or SOCK_DGRAM. Null with errno: no descriptors.
  [[nodiscard]] static std::shared_ptr<Rsocket> create(int family, int type);
  virtual ~Rsocket() = default;
  Rsocket(const Rsocket&) = delete;
  Rsocket& operator=(const Rsocket&) = delete;

  /// The number under which the program knows the socket. Readable when something has happened since arm().
  [[nodiscard]] int descriptor() const { return set_.get(); }

  /// Takes the lowest number that is free, before others know the socket. False with errno: there is none.
  [[nodiscard]] bool renumber();

  // All of these under `lock`. int: 0 or an errno.
  [[nodiscard]] virtual int bind(const Address& address) = 0;
  [[nodiscard]] virtual int listen(int backlog) = 0;
  /// Begins, or goes on; what becomes of it is seen in ready() and connected().
  [[nodiscard]] virtual int connect(const Address& to) = 0;
  /// EINPROGRESS, 0, or the errno of the attempt.
  [[nodiscard]] virtual int connected() = 0;
  [[nodiscard]] virtual Outcome<std::shared_ptr<Rsocket>> accept() = 0;
  /// EAGAIN: not now. Less than all, if there is no room for more.
  [[nodiscard]] virtual Outcome<std::size_t> send(Transfer& what) = 0;
  [[nodiscard]] virtual Outcome<std::size_t> receive(Transfer& what) = 0;
  [[nodiscard]] virtual int shut_down(int how) = 0;
  /// Takes what has arrived, and sends what is due.
  virtual void progress() = 0;
  /// As progress(), after a sleep.
  virtual void wake() = 0;
  /// From now on the descriptor becomes readable when something happens. The caller looks again before it sleeps.
  virtual void arm() = 0;
  /// Those of the wanted events that hold now; poll(2)'s errors and hang-ups always.
  [[nodiscard]] virtual short ready(short wanted) const = 0;
  /// The same for a call that has this transfer to do, and not for any.
  [[nodiscard]] virtual short ready_for(const Transfer& /*what*/, short wanted) const { return ready(wanted); }
  /// Ends everything; the object stays until the last thread has left it.
  virtual void close() = 0;
  /// The addresses of this end and of the other one; nullopt: none.
  [[nodiscard]] virtual std::optional<Address> own_address() const = 0;
  [[nodiscard]] virtual std::optional<Address> peer_address() const = 0;
  [[nodiscard]] virtual bool listens() const = 0;
  [[nodiscard]] virtual int segment_bytes() const = 0;

  /// The errno that SO_ERROR answers, once.
  [[nodiscard]] int take_error() { return std::exchange(pending_error_, 0); }

  // Threads that sleep: each has an event descriptor, and others tell it when they have taken news of the socket.
  void add_sleeper(int event) { sleepers_.push_back(event); }
  void remove_sleeper(int event) { std::erase(sleepers_, event); }
  void wake_sleepers() const;

  std::mutex lock;
  RsocketOptions options = RsocketOptions::defaults();
  const int family;
  const int type;
  bool closed = false;

 protected:
  Rsocket(int of_family, int of_type, os::UniqueFd set) : family(of_family), type(of_type), set_(std::move(set)) {}
  [[nodiscard]] bool watch(int descriptor) const;

  int pending_error_ = 0;

 private:
  os::UniqueFd set_;
  std::vector<int> sleepers_;
};

/// The sockets of this process by their descriptors. A forked child can only close those of its parent.
class RsocketTable {
 public:
  static RsocketTable& get();
  void insert(const std::shared_ptr<Rsocket>& socket);
  /// Null: no socket of this process.
  [[nodiscard]] std::shared_ptr<Rsocket> find(int descriptor);
  /// Takes it out. inherited: it is the parent's; the descriptor is closed.
  [[nodiscard]] std::shared_ptr<Rsocket> remove(int descriptor, bool& inherited);
  [[nodiscard]] std::vector<std::shared_ptr<Rsocket>> all();

 private:
  RsocketTable();
  struct Entry {
    std::shared_ptr<Rsocket> socket;
    std::uint32_t generation = 0;
  };
  std::mutex mutex_;
  std::vector<Entry> entries_;
  std::uint32_t generation_ = 0;  // grows in a forked child
};

/// What a thread waits for.
struct Interest {
  std::shared_ptr<Rsocket> socket;
  short wanted = 0;
  short found = 0;
  const Transfer* transfer = nullptr;  ///< of the call that waits; null: it waits for any
};
/// Waits until a socket or one of the plain descriptors is ready: spins for a while, and then sleeps. Returns how many
/// are ready; 0: the deadline has passed; an errno: EINTR, EBADF for a socket that was closed meanwhile.
[[nodiscard]] Outcome<int> await(std::span<Interest> sockets, std::span<pollfd> plain, Time deadline);

}  // namespace splitnic::rdmacm
