// Faults that the environment asks for; faults_test.py has those below whole programs.
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <set>

#include "tests/ibverbs/device.h"

namespace splitnic::ibverbs::testing::injected_faults_test {
namespace {

/// A device that was opened with these faults, without a log.
struct FaultyDevice {
  explicit FaultyDevice(const char* faults) {
    setenv("SPLITNIC_FAULTS_LOG", "/dev/null", 1);
    setenv("SPLITNIC_FAULTS", faults, 1);
    device = std::make_unique<Device>();
    unsetenv("SPLITNIC_FAULTS");
  }
  std::unique_ptr<Device> device;
};

void exchange(Connected& ends, Device& one, Device& other) {
  REQUIRE(ends.second.receive(1, 0, 8) == 0);
  REQUIRE(ends.first.send(2, 0, 8) == 0);
  other.expect(1);
  one.expect(2);
}

TEST_CASE("an injected death of the peer ends all queue pairs to it at both ends, and new ones reach it", "[ibverbs]") {
  const FaultyDevice faulty("1,kill-peer=2");
  Device& one = *faulty.device;
  Device other;
  Connected ends(one, other);
  Connected others(one, other);
  exchange(ends, one, other);
  REQUIRE(others.first.receive(5, 0, 8) == 0);
  REQUIRE(ends.second.receive(6, 0, 8) == 0);
  REQUIRE(ends.first.send(3, 0, 8) == 0);
  REQUIRE(ends.first.send(4, 0, 8) == 0);
  one.expect(3, IBV_WC_RETRY_EXC_ERR);
  std::set<std::uint64_t> flushed;
  for (int i = 0; i < 2; ++i) {
    const ibv_wc wc = one.next();
    CHECK(wc.status == IBV_WC_WR_FLUSH_ERR);
    flushed.insert(wc.wr_id);
  }
  CHECK(flushed == std::set<std::uint64_t>{4, 5});
  other.expect(6, IBV_WC_WR_FLUSH_ERR);
  for (Queue* queue : {&ends.first, &ends.second, &others.first, &others.second}) {
    wait_until([queue] { return queue->state() == IBV_QPS_ERR; });
  }
  one.expect_fatal_event();
  other.expect_fatal_event();
  Connected again(one, other);
  for (int i = 0; i < 3; ++i) exchange(again, one, other);  // it died once
}

TEST_CASE("an injected death of a peer on the same device ends the queue pair alone", "[ibverbs]") {
  const FaultyDevice faulty("1,kill-peer=2");
  Device& device = *faulty.device;
  Connected ends(device, device);
  Connected others(device, device);
  exchange(ends, device, device);
  REQUIRE(ends.first.send(3, 0, 8) == 0);
  device.expect(3, IBV_WC_RETRY_EXC_ERR);
  CHECK(ends.first.state() == IBV_QPS_ERR);
  exchange(others, device, device);
}

TEST_CASE("an injected completion error has the status that is named, and a queue pair made later meets it again",
          "[ibverbs]") {
  const FaultyDevice faulty("1,cq-error=loc-qp-op-err:1");
  Device& one = *faulty.device;
  Device other;
  for (int i = 0; i < 2; ++i) {
    Connected ends(one, other);
    REQUIRE(ends.second.receive(1, 0, 8) == 0);
    REQUIRE(ends.first.send(2, 0, 8) == 0);
    one.expect(2, IBV_WC_LOC_QP_OP_ERR);
    other.expect(1, IBV_WC_WR_FLUSH_ERR);
  }
}

TEST_CASE("a receiver that is made not ready ends the sender's request when it may not repeat it", "[ibverbs]") {
  const FaultyDevice faulty("1,rnr=1000");
  Device& receiver = *faulty.device;
  Device sender;
  Shape once;
  once.receiver_not_ready_retries = 0;
  Connected ends(sender, receiver, once);
  REQUIRE(ends.second.receive(1, 0, 8) == 0);
  REQUIRE(ends.first.send(2, 0, 8) == 0);
  sender.expect(2, IBV_WC_RNR_RETRY_EXC_ERR);
  receiver.expect_nothing();  // the receive is still there
  CHECK(ends.second.state() == IBV_QPS_RTS);
}

TEST_CASE("a device is not opened with faults that make no sense", "[ibverbs]") {
  name_fabric();
  ibv_device** list = ibv_get_device_list(nullptr);
  REQUIRE(list != nullptr);
  setenv("SPLITNIC_FAULTS", "1,drop=many", 1);
  CHECK(ibv_open_device(list[0]) == nullptr);
  CHECK(errno == ENODEV);
  unsetenv("SPLITNIC_FAULTS");
  ibv_free_device_list(list);
}

}  // namespace
}  // namespace splitnic::ibverbs::testing::injected_faults_test
