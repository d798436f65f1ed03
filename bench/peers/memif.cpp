// bench-peer-memif: DPDK's memif driver, one queue for each direction, in bursts. A message is a packet.
#include <rte_eal.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "bench/peers/harness.h"

namespace splitnic::bench::peers {

namespace {

constexpr std::uint16_t kDevice = 0;
constexpr std::uint16_t kRingEntries = 1024;
constexpr std::size_t kBurst = 32;
constexpr unsigned kBuffers = 8191;
constexpr auto kAnySocket = static_cast<unsigned>(SOCKET_ID_ANY);
constexpr auto kPatience = std::chrono::seconds(10);

void check(int status, const char* what) {
  if (status < 0) throw std::runtime_error(std::string(what) + ": " + rte_strerror(-status));
}

class Memif final : public Side {
 public:
  Memif(Role role, int channel, const std::string& socket) {
    // The server makes the socket, so it comes first.
    if (role == Role::client) exchange(channel, "", 1);
    start_environment(role, socket);
    start_device();
    if (role == Role::server) exchange(channel, "", 1);
    for (const auto give_up = std::chrono::steady_clock::now() + kPatience;;) {
      rte_eth_link link{};
      check(rte_eth_link_get_nowait(kDevice, &link), "the link");
      if (link.link_status == RTE_ETH_LINK_UP) break;
      if (std::chrono::steady_clock::now() > give_up) throw std::runtime_error("the link does not come up");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  void begin(const Task& task) override {
    if (task.bytes > RTE_MBUF_DEFAULT_DATAROOM) throw std::runtime_error("a packet is not that long");
    task_ = task;
  }

  std::size_t send(std::uint64_t first, std::size_t count) override {
    std::array<rte_mbuf*, kBurst> packets;
    count = std::min(count, kBurst);
    if (rte_pktmbuf_alloc_bulk(pool_, packets.data(), static_cast<unsigned>(count)) != 0) return 0;
    for (std::size_t i = 0; i < count; ++i) {
      char* data = rte_pktmbuf_append(packets[i], static_cast<std::uint16_t>(task_.bytes));
      const std::uint64_t stamp = first + i + 1;
      std::memcpy(data, &stamp, sizeof stamp);
    }
    const std::size_t sent = rte_eth_tx_burst(kDevice, 0, packets.data(), static_cast<std::uint16_t>(count));
    if (sent < count) rte_pktmbuf_free_bulk(packets.data() + sent, static_cast<unsigned>(count - sent));
    return sent;
  }

  std::size_t receive(std::uint64_t next) override {
    std::array<rte_mbuf*, kBurst> packets;
    const std::size_t count = rte_eth_rx_burst(kDevice, 0, packets.data(), kBurst);
    for (std::size_t i = 0; i < count; ++i) {
      std::uint64_t stamp = 0;
      std::memcpy(&stamp, rte_pktmbuf_mtod(packets[i], const void*), sizeof stamp);
      if (stamp != next + i + 1 || rte_pktmbuf_pkt_len(packets[i]) != task_.bytes) {
        throw std::runtime_error("another packet came");
      }
    }
    if (count > 0) rte_pktmbuf_free_bulk(packets.data(), static_cast<unsigned>(count));
    return count;
  }

 private:
  static void start_environment(Role role, const std::string& socket) {
    const std::string device = std::string("--vdev=net_memif0,role=") + (role == Role::server ? "server" : "client") +
                               ",socket-abstract=yes,socket=" + socket;
    std::vector<std::string> words{"bench-peer-memif", "--no-huge",         "-m",       "64",
                                   "--no-shconf",      "--no-pci",          "--lcores", "0@" + cores(),
                                   "--no-telemetry",   "--log-level=error", device};
    std::vector<char*> arguments;
    for (auto& word : words) arguments.push_back(word.data());
    if (rte_eal_init(static_cast<int>(arguments.size()), arguments.data()) < 0) {
      throw std::runtime_error(std::string("DPDK: ") + rte_strerror(rte_errno));
    }
  }
  /// DPDK moves the thread by itself; to where it is already.
  static std::string cores() { return std::to_string(::sched_getcpu()); }

  void start_device() {
    if (rte_eth_dev_count_avail() == 0) throw std::runtime_error("no memif device");
    pool_ = rte_pktmbuf_pool_create("packets", kBuffers, 256, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
    if (pool_ == nullptr) throw std::runtime_error(std::string("packets: ") + rte_strerror(rte_errno));
    const rte_eth_conf configuration{};
    check(rte_eth_dev_configure(kDevice, 1, 1, &configuration), "the device");
    check(rte_eth_rx_queue_setup(kDevice, 0, kRingEntries, kAnySocket, nullptr, pool_), "the receive queue");
    check(rte_eth_tx_queue_setup(kDevice, 0, kRingEntries, kAnySocket, nullptr), "the send queue");
    check(rte_eth_dev_start(kDevice), "starting the device");
  }

  Task task_;
  rte_mempool* pool_ = nullptr;
};

}  // namespace

}  // namespace splitnic::bench::peers

int main(int argc, char** argv) {
  using namespace splitnic::bench::peers;
  // An abstract socket: nothing is left in a file system.
  const std::string socket = "bench-peer-memif-" + std::to_string(::getpid());
  return run(argc, argv, {"bench-peer-memif", {"packet"}, [socket](Role role, int channel) -> std::unique_ptr<Side> {
                            return std::make_unique<Memif>(role, channel, socket);
                          }});
}
