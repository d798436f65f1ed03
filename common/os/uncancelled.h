#pragma once

#include <pthread.h>

namespace splitnic::os {

/// While it lives, pthread_cancel() does not end the thread: it waits until a later cancellation point. Programs cancel
/// their threads, also those that are in a library's function. A system call that is a cancellation point would unwind
/// the function half way; from one that lets no exception out, it would end the process. Where a program waits for
/// others, there is none, so that it can be cancelled there.
class Uncancelled {
 public:
  Uncancelled() { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~Uncancelled() { pthread_setcancelstate(before_, nullptr); }
  Uncancelled(const Uncancelled&) = delete;
  Uncancelled& operator=(const Uncancelled&) = delete;

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

}  // namespace splitnic::os
