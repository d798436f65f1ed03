// An endnode of the fabric that announces another endnode's port address.
#include <chrono>
#include <memory>

#include "common/random.h"
#include "common/time.h"
#include "fabric/bridge/link.h"
#include "fabric/endnode/endnode.h"
#include "fabric/endnode/fabric_directory.h"
#include "tests/ibverbs/device.h"

namespace splitnic::ibverbs::testing::peer_addresses_test {
namespace {

constexpr std::uint64_t kPortAddressBase = 0x0253'4e00'0000;

/// An endnode with a link to the first peer that makes a bridge to it.
struct Peer {
  void step() {
    const Time now = monotonic_now();
    while (auto change = endnode->poll(now)) {
      if (change->bridge == nullptr || link != nullptr) continue;
      bridge = change->bridge;
      link = std::make_unique<fabric::FabricLink>(*bridge, options, random);
      link->restart();
    }
    if (link == nullptr) return;
    link->poll(now);
    arrived = arrived || (link->up() && link->front(fabric::VirtualLane::data) != nullptr);
  }
  SystemRandom random;
  fabric::LinkOptions options;
  std::unique_ptr<fabric::Endnode> endnode;
  std::shared_ptr<fabric::Bridge> bridge;
  std::unique_ptr<fabric::FabricLink> link;
  bool arrived = false;  // a cell
};

TEST_CASE("a peer that announces another endnode's port address is not reached", "[ibverbs][hostile]") {
  const bool honest = GENERATE(true, false);
  Device device;
  const auto folders = fabric::chosen_fabric_folders();
  REQUIRE(folders.has_value());
  Peer peer;
  auto endnode = fabric::Endnode::open({.directory = folders->meeting, .own_directory = folders->own}, peer.random);
  REQUIRE(endnode.has_value());
  peer.endnode = std::move(*endnode);
  const std::uint16_t lid = peer.endnode->local_id().value;
  peer.options.port_address = fabric::PortAddress{kPortAddressBase | (honest ? lid : device.lid())};

  Queue queue(device, {.type = IBV_QPT_UD});
  queue.connect(0, 0);
  ibv_ah* handle = handle_to(device, lid);
  REQUIRE(handle != nullptr);
  ibv_sge part = device.part(0, 8);
  ibv_send_wr request = queue.request(1, IBV_WR_SEND, part);
  request.wr.ud.ah = handle;
  request.wr.ud.remote_qpn = 1;
  request.wr.ud.remote_qkey = kQueueKey;
  REQUIRE(queue.post(request) == 0);
  bool left = false;  // sent, or dropped
  wait_until([&] {
    peer.step();
    ibv_wc completion{};
    left = left || ibv_poll_cq(device.cq, 1, &completion) == 1;
    return left && (peer.arrived || !honest);
  });
  // What was sent, and not dropped, arrives soon.
  const Time until = monotonic_now() + std::chrono::milliseconds(200);
  while (!peer.arrived && monotonic_now() < until) peer.step();
  CHECK(peer.link != nullptr);
  CHECK(peer.arrived == honest);
  CHECK(ibv_destroy_ah(handle) == 0);
}

}  // namespace
}  // namespace splitnic::ibverbs::testing::peer_addresses_test
