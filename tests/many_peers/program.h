#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "fabric/bridge/shm_listener.h"
#include "fabric/link/udp_socket.h"
#include "peer.h"
#include "tests/unit/common/os_temporary_directory.h"

namespace splitnic::many_peers {

inline constexpr std::size_t kPeers = 64;

enum class Kind : std::uint8_t { bridge, udp, loopback };
/// A quarter of the peers are queue pairs of the program itself, which can't be killed.
[[nodiscard]] constexpr Kind kind_of(std::size_t peer) {
  return peer % 4 == 3 ? Kind::loopback : peer % 2 == 0 ? Kind::bridge : Kind::udp;
}

/// The program with 64 peers. It opens its private memory to them, and answers their messages. Thread: one.
class Program {
 public:
  explicit Program(std::string executable);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  /// Serves until each peer has had so many more answers since the call, and the time has come. Ends the process if a
  /// peer that nobody killed loses something, or if that takes longer than 60 s.
  void serve(std::uint64_t answers, Time until);
  /// kill -9, in the middle of its work; its successor starts at once. Not a loop-back peer.
  void kill(std::size_t peer);
  /// What must hold after peers were killed and came back: which paths went down, and whether the tag still opens all
  /// shares. killed: since the last call.
  void judge(std::size_t killed);
  [[nodiscard]] std::uint64_t answers() const { return answers_; }

 private:
  struct Seat {
    pid_t pid = 0;
    std::uint64_t lives = 0;
    bool killed = false;  ///< and no message of its successor has arrived yet
    bool reborn = false;  ///< the successor has connected
    verbs::Path path;
    std::optional<verbs::Connection> connection;
    verbs::QueuePair queue_pair;
    std::uint64_t word_first = 0;  // what the peer's word held when this life began
    std::uint64_t received = 0;    // in this life
    std::uint64_t goal = 0;
    std::optional<verbs::Path> near;  // loop-back: the peer's end
    std::unique_ptr<Peer> here;       // loop-back
  };
  struct Memory {
    alignas(8) std::array<std::byte, kPeers * kShare> shares{};
    std::array<std::array<Message, kReceives>, kPeers> incoming;
    std::array<Message, kPeers> outgoing;
  };

  void start(std::size_t peer);
  void begin_loopback(std::size_t peer);
  [[nodiscard]] verbs::QueuePair new_queue_pair();
  void new_life(std::size_t peer);
  void post_receive(std::size_t peer, std::uint64_t slot);
  std::size_t step(Time now);
  void take_bridges(Time now);
  void take_requests();
  void take_events();
  void take_ends() const;
  void take(const verbs::Completion& done);
  void answer(std::size_t peer, const Message& message);
  [[nodiscard]] std::optional<std::size_t> seat_of(verbs::PathNumber path) const;
  [[nodiscard]] std::uint64_t word_of(std::size_t peer) const;
  [[nodiscard]] verbs::RemoteKey key_of(std::size_t peer) const;
  [[nodiscard]] std::string ip_of(std::size_t number) const;

  std::string executable_;
  os::TemporaryDirectory directory_;
  SystemRandom random_;
  std::unique_ptr<fabric::ShmListener> listener_;
  std::unique_ptr<fabric::UdpSocket> socket_;
  verbs::Context context_;
  verbs::ProtectionDomain domain_;
  verbs::CompletionQueue completions_;
  std::unique_ptr<Memory> memory_ = std::make_unique<Memory>();
  verbs::MemoryRegion region_;
  verbs::Stag tag_;
  std::optional<verbs::Connections> connections_;
  std::optional<verbs::Listener> service_;
  std::array<Seat, kPeers> seats_;
  std::size_t paths_down_ = 0;
  std::uint64_t answers_ = 0;
};

}  // namespace splitnic::many_peers
