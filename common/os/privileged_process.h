#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "common/os/unique_fd.h"
#include "common/result.h"
#include "common/time.h"

namespace splitnic::os {

/// What a request or an answer consists of: bytes, and descriptors that the kernel copies to the other process.
struct PrivilegedMessage {
  std::vector<std::byte> bytes{};
  std::vector<UniqueFd> descriptors{};
};
inline constexpr std::size_t kMaxPrivilegedBytes = 1024;
inline constexpr std::size_t kMaxPrivilegedDescriptors = 12;
/// What the process calls itself. The kernel keeps 15 bytes.
inline constexpr const char* kPrivilegedProcessName = "splitnic-rights";

/// Does what a request asks for. Runs in the privileged process. The request comes from a process that may have been
/// taken over, so the service checks every field and descriptor. Errors travel back to the requester.
using PrivilegedService = std::function<Result<PrivilegedMessage>(PrivilegedMessage request)>;

/// Answers requests one after the other until the other end of the packet socket is closed. Ignores datagrams that are
/// too long and answers them with an error. socket: lent.
void serve_privileged(int socket, const PrivilegedService& service);

/// What the privileged process does in its life.
struct PrivilegedWork {
  /// Runs first, while the process has one thread: gives up what the service does not need. Throws StartupError, which
  /// ends the process.
  std::function<void()> begin{};
  /// Runs next: confines all threads, because no other one begins later. start() returns after it. Throws as begin
  /// does.
  std::function<void()> confine{};
  PrivilegedService service;
  /// Runs when the requester has ended, in whatever way. If a request does not end (a disk that does not answer), it
  /// runs beside it, 2 s later, and the process then ends all the same.
  std::function<void()> end{};
  /// How long request() waits for an answer. Requests wait for the kernel's configuration lock, which busy machines
  /// hold for long.
  std::chrono::milliseconds patience{10'000};
};

/// A process that keeps the rights which this process gives up, and does fixed requests for this process alone. It ends
/// with this process; this process must end with it (see ended()). Any thread: one at a time asks, the others wait.
/// send() and answer() are for one thread.
class PrivilegedProcess {
 public:
  /// Forks. Call it before there are other threads, and after the thread has entered the namespaces that the service
  /// works in. The new process inherits stderr and no other descriptor; it ignores the signals that end daemons.
  /// Returns when work.begin and work.confine have run. Errors: no process, no descriptors; one of them has failed.
  [[nodiscard]] static Result<std::unique_ptr<PrivilegedProcess>> start(const PrivilegedWork& work);
  /// The same without waiting for them, so that both processes set themselves up at the same time. The caller
  /// must call wait_until_begun(). Errors: no process, no descriptors.
  [[nodiscard]] static Result<std::unique_ptr<PrivilegedProcess>> fork(const PrivilegedWork& work);
  /// Returns when both have run: until the process has given up its rights, nobody may rely on that. Errors: one of
  /// them has failed.
  [[nodiscard]] Result<void> wait_until_begun();
  /// Calls this once, when a request is not answered in time: no later one will be, so this process must end. What
  /// send() has sent may stay unanswered for any time until a request has to wait for it. On the thread that asked; the
  /// call must not use this object.
  void on_lost(std::function<void()> call);

  /// Sends a request and waits for its answer. descriptors: lent. Errors: the service's; the process has ended, or did
  /// not answer in time and then counts as ended; it is busy with what send() has sent: the first request waits up to a
  /// second for that, later ones fail at once, and from work.patience after send() on the process counts as ended.
  [[nodiscard]] Result<PrivilegedMessage> request(std::span<const std::byte> bytes, std::span<const int> descriptors);
  /// Sends a request whose answer is collected later, by answer(). One at a time. Errors: the process has ended.
  [[nodiscard]] Result<void> send(std::span<const std::byte> bytes, std::span<const int> descriptors);
  /// The answer to send(); nullopt: not yet. Waits for it for at most so many milliseconds.
  [[nodiscard]] std::optional<Result<PrivilegedMessage>> answer(int patience_ms = 0);
  /// Ends the process and waits until it has ended, for a limited time. Does not reap it: the caller of fork() does, or
  /// ignores SIGCHLD.
  void end();
  /// Whether the process has ended. Makes a system call.
  [[nodiscard]] bool ended();
  /// Becomes readable when the process ends, and while an answer waits.
  [[nodiscard]] int descriptor() const { return socket_.get(); }

 private:
  PrivilegedProcess(UniqueFd socket, UniqueFd process_end, std::chrono::milliseconds patience)
      : socket_(std::move(socket)),
        process_end_(std::move(process_end)),
        patience_ms_(static_cast<int>(patience.count())) {}

  [[nodiscard]] Result<PrivilegedMessage> receive();
  [[nodiscard]] Result<void> begin();
  [[nodiscard]] Result<void> wait_for_sent();
  tl::unexpected<Error> lose();

  std::mutex mutex_;  ///< protects the others
  UniqueFd socket_;
  UniqueFd process_end_;  ///< readable when the process has ended; empty where the kernel can't say so
  int patience_ms_;
  std::function<void()> on_lost_;
  bool begun_ = false;   ///< work.begin and work.confine have run
  bool broken_ = false;  ///< an answer may still come, and nobody could tell to which request
  bool sent_ = false;    ///< answer() has not returned the answer yet
  Time sent_at_{};
  bool waited_ = false;  ///< a request has waited for that answer
  /// The answer to send(), if request() had to receive it first.
  std::optional<Result<PrivilegedMessage>> early_;
};

}  // namespace splitnic::os
