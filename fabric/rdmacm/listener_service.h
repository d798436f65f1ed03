#pragma once

#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "common/os/unique_fd.h"

namespace splitnic::rdmacm {

/// The thread that takes connections for the listening stream sockets of this process while their program does
/// something else. All of them have the one thread. The first rlisten() starts it, and it runs as long as the process;
/// it sleeps until somebody calls. A forked child has none until it listens itself. Thread: any.
class ListenerService {
 public:
  [[nodiscard]] static ListenerService& get();

  /// Once the thread runs, it calls Stream::serve_callers() of `socket` when `descriptor` is readable, under the lock
  /// of the socket, and not again before watch_again(). descriptor: lent until unwatch(). socket: its number in the
  /// table of sockets. 0 or an errno: there is no thread to be had, or no memory; nothing is watched then.
  [[nodiscard]] int watch(int descriptor, int socket);
  void watch_again(int descriptor, int socket) const;
  /// The thread calls Stream::serve_callers() until it answers true, also if no descriptor is readable. true: it will.
  bool serve_later(int socket);
  /// Before the descriptor is closed: a forked child may hold a copy of it, and then closing does not end the watch.
  /// The thread may be on its way to the socket: it finds there that the socket does not listen any more.
  void unwatch(int descriptor) const;

 private:
  [[nodiscard]] int start();
  void run();
  void take_late(std::set<int>& unserved);

  std::mutex mutex_;   // of start() and of late_
  os::UniqueFd set_;   // made with the thread
  os::UniqueFd wake_;  // readable while there are any in late_
  std::vector<int> late_;
  std::thread thread_;  // runs to the end of the process: this object is never deleted
};

}  // namespace splitnic::rdmacm
