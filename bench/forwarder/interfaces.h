#pragma once

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <cstddef>
#include <initializer_list>
#include <string>

/// What the yardsticks of `splitnic-bench nic` have in common: their options, the TAP, the packet socket, and how they
/// end. None of it is the product's, so that a slow class there can't hide behind an equally slow yardstick.
namespace splitnic::bench::forwarder {

inline constexpr std::size_t kHeaderBytes = 10;        // of virtio-net
inline constexpr std::size_t kSnapBytes = 65536 + 64;  // the largest GSO frame with its headers
inline constexpr std::size_t kFrameBytesMax = kHeaderBytes + kSnapBytes;
inline constexpr int kCaptureBufferBytes = 32 << 20;  // what the kernel may hold while this process is away
inline constexpr int kBatchFrames = 256;              // one side may not starve the other for longer
// Not for ever: a signal between the test of stop_requested() and the sleep is noticed a second later.
inline constexpr int kSleepMilliseconds = 1000;

struct Options {
  std::string tap, lan, tap_netns, lan_netns;
  bool offloads = false;
};
/// The program but for its work: parses the command line, runs `run` and prints its errors. Returns the exit code; 2
/// for a usage error.
int run_program(int argc, char** argv, const char* name, int (*run)(const Options& options));

/// Throws std::system_error with errno.
[[noreturn]] void throw_errno(const std::string& what);

/// Runs open() inside the named network namespace and comes back; an empty name stays where it is.
template <typename Open>
auto opened_in(const std::string& netns, Open open_it) {
  if (netns.empty()) return open_it();
  const int home = ::open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
  const int there = ::open(("/run/netns/" + netns).c_str(), O_RDONLY | O_CLOEXEC);
  if (home < 0 || there < 0 || ::setns(there, CLONE_NEWNET) != 0) throw_errno("namespace " + netns);
  auto result = open_it();
  if (::setns(home, CLONE_NEWNET) != 0) throw_errno("leaving namespace " + netns);
  ::close(there);
  ::close(home);
  return result;
}

/// Does not block. offloads: frames have a virtio-net header, checksums are partial, and super-frames come.
int open_tap(const std::string& name, bool offloads);
/// Does not block. Frames have a virtio-net header; they are those that the interface receives.
int open_packet_socket(const std::string& name);

/// Whether a frame may come later: nothing is there now, or the interface is down, which somebody will end.
bool comes_later(int error);

/// These signals end system calls that wait, and make stop_requested() true.
void stop_on(std::initializer_list<int> signals);
bool stop_requested();

}  // namespace splitnic::bench::forwarder
