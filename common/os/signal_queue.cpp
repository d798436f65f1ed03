#include "common/os/signal_queue.h"

#include <pthread.h>
#include <sys/signalfd.h>
#include <sys/types.h>

#include <utility>

#include "common/os/errno_text.h"
#include "common/os/message_io.h"
#include "common/result.h"

namespace splitnic::os {

SignalQueue::SignalQueue(std::span<const int> numbers) {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : numbers) sigaddset(&signals, number);
  queue_.reset(::signalfd(-1, &signals, SFD_NONBLOCK | SFD_CLOEXEC));
  if (!queue_) throw StartupError{fmt::format("reading signals: {}", errno_text())};
  pthread_sigmask(SIG_BLOCK, &signals, &before_);
}

int SignalQueue::take() {
  signalfd_siginfo next{};
  if (stopped_ || read_some(queue_.get(), std::as_writable_bytes(std::span(&next, 1))) != sizeof next) return 0;
  return static_cast<int>(next.ssi_signo);
}

void SignalQueue::stop() {
  if (!std::exchange(stopped_, true)) pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

}  // namespace splitnic::os
