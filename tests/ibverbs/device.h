#pragma once

#include <infiniband/verbs.h>
#include <sys/types.h>

#include <array>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <vector>

/// Fixtures for tests of the C interface: opened devices with what most tests need, and queue pairs between them. All
/// devices of the program are on a fabric of its own.
namespace splitnic::ibverbs::testing {

inline constexpr int kAllAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                                  IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;
inline constexpr std::size_t kBytes = 65536;
inline constexpr std::uint32_t kQueueKey = 0x1234;
inline constexpr auto kLimit = std::chrono::seconds(20);

/// Names the fabric of the program, so that children that it forks afterwards are on it. Opening a device does, too.
void name_fabric();

/// Calls step() until it answers true; fails the test when that takes too long.
void wait_until(const std::function<bool()>& step);
/// Whether the thread of this process sleeps in the kernel.
[[nodiscard]] bool sleeps(pid_t thread);

/// An opened device with a protection domain, a completion queue, and registered memory.
struct Device {
  explicit Device(int entries = 256, unsigned access = kAllAccess);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  [[nodiscard]] std::uint16_t lid() const;
  /// Bytes [offset, offset + bytes) of the memory.
  [[nodiscard]] ibv_sge part(std::size_t offset, std::size_t bytes) const;
  [[nodiscard]] std::uint64_t address(std::size_t offset = 0) const {
    return reinterpret_cast<std::uintptr_t>(memory.data() + offset);
  }
  /// The next completion, of any kind.
  ibv_wc next();
  /// The next completion, which must be this.
  ibv_wc expect(std::uint64_t id, ibv_wc_status status = IBV_WC_SUCCESS);
  /// Nothing is in the completion queue, after a few polls.
  void expect_nothing();
  /// The next asynchronous event, which must be the end of a queue pair.
  void expect_fatal_event();

  std::vector<std::uint8_t> memory = std::vector<std::uint8_t>(kBytes);
  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_comp_channel* channel = nullptr;
  ibv_cq* cq = nullptr;
  ibv_mr* mr = nullptr;
};

/// A shared receive queue of a device.
struct SharedReceives {
  explicit SharedReceives(Device& on, std::uint32_t depth, std::uint32_t segments = 1)
      : SharedReceives(on, on.pd, depth, segments) {}
  SharedReceives(Device& on, ibv_pd* pd, std::uint32_t depth, std::uint32_t segments = 1);
  ~SharedReceives();
  SharedReceives(const SharedReceives&) = delete;
  SharedReceives& operator=(const SharedReceives&) = delete;

  /// The device's first 8 bytes as a receive.
  void post(std::uint64_t id);
  int post(std::uint64_t id, ibv_sge part);

  Device& device;
  ibv_srq* srq = nullptr;
};

/// How queue pairs are made and connected; the defaults suit most tests.
struct Shape {
  ibv_qp_type type = IBV_QPT_RC;
  ibv_srq* srq = nullptr;
  std::uint32_t depth = 16;
  std::uint32_t segments = 4;  ///< of a request
  int all_signalled = 1;
  unsigned access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  std::uint8_t timeout = 14;
  std::uint8_t retries = 7;
  std::uint8_t receiver_not_ready_retries = 7;
  bool extended = false;
};

/// The attributes that move a queue pair of any type to RTR: its peer is the queue pair with this number at this LID.
[[nodiscard]] ibv_qp_attr attributes_to_receive(std::uint16_t lid, std::uint32_t peer);

struct Queue {
  Queue(Device& on, const Shape& with);
  ~Queue();
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  void initialize();
  /// What ibv_modify_qp() answers.
  [[nodiscard]] int try_to_receive(std::uint16_t lid, std::uint32_t peer);
  void ready_to_receive(std::uint16_t lid, std::uint32_t peer);
  void ready_to_send();
  /// All three steps.
  void connect(std::uint16_t lid, std::uint32_t peer);

  int send(std::uint64_t id, std::size_t offset, std::size_t bytes, unsigned flags = 0);
  int receive(std::uint64_t id, std::size_t offset, std::size_t bytes);
  /// A request with one segment, ready to be changed and posted.
  [[nodiscard]] ibv_send_wr request(std::uint64_t id, ibv_wr_opcode opcode, ibv_sge& part);
  int post(ibv_send_wr request);
  [[nodiscard]] ibv_qp_state state();

  Device& device;
  Shape shape;
  ibv_qp* qp = nullptr;
};

/// Two queue pairs, of one device or of two, connected to each other.
struct Connected {
  Connected(Device& one, Device& other, const Shape& shape = {}) : Connected(one, other, shape, shape) {}
  Connected(Device& one, Device& other, const Shape& of_one, const Shape& of_other);

  Queue first;
  Queue second;
};

/// An address handle of this device to the endnode with this LID. Null: none can be made.
[[nodiscard]] ibv_ah* handle_to(const Device& from, std::uint16_t lid);

/// Two datagram queue pairs, ready, and a handle from the first one's device to the second one's.
struct DatagramEnds {
  DatagramEnds(Device& one, Device& other, Shape shape = {});
  ~DatagramEnds();
  DatagramEnds(const DatagramEnds&) = delete;
  DatagramEnds& operator=(const DatagramEnds&) = delete;

  Queue first;
  Queue second;
  ibv_ah* handle;
};

}  // namespace splitnic::ibverbs::testing
