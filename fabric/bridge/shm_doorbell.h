#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <utility>

#include "common/os/unique_fd.h"
#include "common/result.h"
#include "fabric/threads/fork_mark.h"

namespace splitnic::fabric {

/// One end's doorbells of a shared-memory bridge: how it rings the other end, and hears it. Neither ringing nor hearing
/// ever waits for the other end. Thread: the end's owner.
///
/// Between an I/O unit and its hosts the two directions differ, because the unit does not trust its hosts. A host
/// could attach descriptors to the datagrams of a socket, and their last close would run in the unit's thread for as
/// long as the host likes. A pipe would not help: a host that reads or writes it through a page that is slow to arrive
/// holds the pipe's lock. So the unit reads an eventfd, and sends on a socket whose receiving side it shut before the
/// host got the other end.
///
/// The end of such a doorbell hangs up even while a forked child of its maker holds a copy of the socket; the end of a
/// child's copy does not. Source: design, "The bridge", shm.
class ShmDoorbell {
 public:
  virtual ~ShmDoorbell() = default;
  virtual void ring() = 0;
  /// Takes what is pending; true if the other end has rung. Notices a hang-up.
  virtual bool take() = 0;
  /// Readable when the other end has rung or hung up.
  [[nodiscard]] virtual int descriptor() const = 0;
  [[nodiscard]] virtual bool hung_up() const = 0;
};

/// A pair of packet sockets, one for each end: both ends belong to one program, or to processes that it forks. Such a
/// process may drop the end that another one uses, so the last copy that is closed hangs up.
class PacketDoorbell : public ShmDoorbell {
 public:
  /// socket: one end of a SOCK_SEQPACKET pair; only the other end of the bridge holds the other one.
  explicit PacketDoorbell(os::UniqueFd socket) : socket_(std::move(socket)) {}
  void ring() override;
  bool take() override;
  [[nodiscard]] int descriptor() const override { return socket_.get(); }
  [[nodiscard]] bool hung_up() const override { return hung_up_; }

 protected:
  void set_hung_up() { hung_up_ = true; }
  [[nodiscard]] os::UniqueFd take_socket() { return std::move(socket_); }

 private:
  os::UniqueFd socket_;
  bool hung_up_ = false;
};

/// The host's end: hears packets, rings by an eventfd. A packet to which the unit has attached descriptors counts as a
/// hang-up and stays in the socket.
class HostDoorbell final : public PacketDoorbell {
 public:
  struct Options {
    bool shuts_down = true;         ///< as in ShmConnectOptions
    bool refuses = false;           ///< the socket refuses descriptors from now on; there may be some in it already
    bool closes_elsewhere = false;  ///< as in ShmConnectOptions
  };
  /// event: non-blocking.
  HostDoorbell(os::UniqueFd socket, os::UniqueFd event, Options options);
  ~HostDoorbell() override;
  HostDoorbell(const HostDoorbell&) = delete;
  HostDoorbell& operator=(const HostDoorbell&) = delete;
  void ring() override;
  bool take() override;

 private:
  os::UniqueFd event_;
  std::optional<ForkMark> mark_;
  bool refuses_;
  bool looks_first_;  // the socket may hold descriptors, and they are to be closed elsewhere
};

/// The unit's end: hears an eventfd, rings by packets.
class UnitDoorbell final : public ShmDoorbell {
 public:
  /// socket: nothing can be received on it (shutdown(SHUT_RD)). event: shared with the host. Errors: no descriptors, no
  /// watches.
  [[nodiscard]] static Result<std::unique_ptr<UnitDoorbell>> make(os::UniqueFd socket, os::UniqueFd event);
  ~UnitDoorbell() override;
  UnitDoorbell(const UnitDoorbell&) = delete;
  UnitDoorbell& operator=(const UnitDoorbell&) = delete;
  void ring() override;
  bool take() override;
  [[nodiscard]] int descriptor() const override { return both_.get(); }
  [[nodiscard]] bool hung_up() const override { return hung_up_->load(std::memory_order_relaxed); }

  /// Lent: valid while this object lives.
  [[nodiscard]] int socket() const { return socket_.get(); }
  [[nodiscard]] int event() const { return event_.get(); }
  /// The thread that sees the hang-up first sets it. It orders nothing.
  [[nodiscard]] std::shared_ptr<std::atomic<bool>> hang_up_flag() const { return hung_up_; }

 private:
  UnitDoorbell(os::UniqueFd socket, os::UniqueFd event, os::UniqueFd both);

  os::UniqueFd socket_;
  os::UniqueFd event_;
  os::UniqueFd both_;  // an epoll: rung, or hung up
  std::shared_ptr<std::atomic<bool>> hung_up_;
  std::optional<ForkMark> mark_;
};

}  // namespace splitnic::fabric
