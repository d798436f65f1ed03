#pragma once

#include <atomic>
#include <cstddef>
#include <mutex>
#include <vector>

namespace splitnic::fabric {

/// One of several that the same thread may poll in turn.
class Companion {
 public:
  /// The calling thread waits for another companion, and finds nothing there. Must not block.
  virtual void serve_while_another_waits() = 0;

 protected:
  ~Companion() = default;
};

/// The shared adapters of a process. A thread that polls two of them in turn polls only one while it waits there, and
/// what it waits for may need the other one. Thread: any.
class Companions {
 public:
  /// Lent until remove().
  void add(Companion& one);
  /// When it returns, nobody is in its serve_while_another_waits(). Not from within it.
  void remove(Companion& one);
  /// The calling thread has polled this one in vain. Serves the others, unless another thread does so or the list
  /// changes at present. No allocation and no system call.
  void serve_others(const Companion& than);

 private:
  std::atomic<std::size_t> count_{0};  // of all_; changes under the mutex
  std::mutex mutex_;
  std::vector<Companion*> all_;
};

}  // namespace splitnic::fabric
