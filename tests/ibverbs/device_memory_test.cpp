// Memory that the device lends: its limits, its offsets, and peers that reach it by them.
#include <array>
#include <cstring>
#include <numeric>

#include "tests/ibverbs/device.h"

namespace splitnic::ibverbs::testing::device_memory_test {
namespace {

constexpr unsigned kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                             IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_ZERO_BASED;
using Bytes = std::array<std::uint8_t, 100>;

Bytes numbers() {
  Bytes made{};
  std::iota(made.begin(), made.end(), std::uint8_t{1});
  return made;
}

ibv_dm* allocate(Device& device, std::size_t bytes, std::uint32_t align = 0, std::uint32_t mask = 0) {
  ibv_alloc_dm_attr wanted{bytes, align, mask};
  errno = 0;
  return ibv_alloc_dm(device.context, &wanted);
}

std::size_t most(Device& device) {
  ibv_device_attr_ex about{};
  REQUIRE(ibv_query_device_ex(device.context, nullptr, &about) == 0);
  return about.max_dm_size;
}

/// A piece of device memory with a region that leaves out its first kSkipped bytes.
struct Lent {
  static constexpr std::uint64_t kSkipped = 64;
  static constexpr std::size_t kBytes = 10'000;

  explicit Lent(Device& device) : dm(allocate(device, kBytes)) {
    REQUIRE(dm != nullptr);
    mr = ibv_reg_dm_mr(device.pd, dm, kSkipped, kBytes - kSkipped, kAccess);
    REQUIRE(mr != nullptr);
  }
  ~Lent() {
    CHECK(ibv_dereg_mr(mr) == 0);
    CHECK(ibv_free_dm(dm) == 0);
  }
  Lent(const Lent&) = delete;
  Lent& operator=(const Lent&) = delete;

  [[nodiscard]] ibv_sge part(std::uint64_t offset, std::uint32_t bytes) const { return {offset, bytes, mr->lkey}; }

  ibv_dm* dm;
  ibv_mr* mr = nullptr;
};

ibv_wc_status remotely(Device& device, Queue& from, ibv_wr_opcode opcode, ibv_sge part, std::uint32_t key,
                       std::uint64_t address) {
  ibv_send_wr request = from.request(1, opcode, part);
  request.wr.rdma = {address, key};
  REQUIRE(from.post(request) == 0);
  return device.next().status;
}

TEST_CASE("device memory is copied to and from by offset, and not beyond its end", "[ibverbs]") {
  Device device;
  ibv_dm* dm = allocate(device, 100);
  REQUIRE(dm != nullptr);
  Bytes read{};
  REQUIRE(ibv_memcpy_from_dm(read.data(), dm, 0, 100) == 0);
  CHECK(read == Bytes{});  // nothing that was in memory before
  const Bytes written = numbers();
  REQUIRE(ibv_memcpy_to_dm(dm, 12, written.data(), 88) == 0);
  REQUIRE(ibv_memcpy_from_dm(read.data(), dm, 12, 88) == 0);
  CHECK(std::memcmp(read.data(), written.data(), 88) == 0);
  CHECK(ibv_memcpy_to_dm(dm, 100, written.data(), 0) == 0);
  CHECK(ibv_memcpy_to_dm(dm, 16, written.data(), 88) == EFAULT);
  CHECK(ibv_memcpy_to_dm(dm, 3, written.data(), 4) == EINVAL);
  CHECK(ibv_memcpy_from_dm(read.data(), dm, 4, 3) == EINVAL);
  CHECK(ibv_memcpy_from_dm(read.data(), dm, ~std::uint64_t{0}, 2) == EFAULT);
  CHECK(ibv_free_dm(dm) == 0);
  // Copies end at multiples of four: only such memory could be passed by one byte.
  ibv_dm* odd = allocate(device, 99);
  REQUIRE(odd != nullptr);
  CHECK(ibv_memcpy_to_dm(odd, 0, written.data(), 100) == EFAULT);
  CHECK(ibv_memcpy_from_dm(read.data(), odd, 96, 4) == EFAULT);
  CHECK(ibv_free_dm(odd) == 0);
}

TEST_CASE("a device lends as much memory as it says, and gets it back", "[ibverbs]") {
  Device device;
  const std::size_t all = most(device);
  REQUIRE(all > 0);
  for (int round = 0; round < 2; ++round) {
    ibv_dm* half = allocate(device, all / 2);
    ibv_dm* rest = allocate(device, all / 2);
    REQUIRE(half != nullptr);
    REQUIRE(rest != nullptr);
    CHECK(allocate(device, 1) == nullptr);
    CHECK(errno == ENOMEM);
    CHECK(ibv_free_dm(half) == 0);
    CHECK(ibv_free_dm(rest) == 0);
  }
  CHECK(allocate(device, all + 1) == nullptr);
  CHECK(errno == ENOMEM);
  CHECK(allocate(device, ~std::size_t{0}) == nullptr);
  CHECK(errno == ENOMEM);
  for (const auto& [bytes, align, mask] : {std::array{0U, 0U, 0U}, std::array{1U, 13U, 0U}, std::array{1U, 0U, 1U}}) {
    CHECK(allocate(device, bytes, align, mask) == nullptr);
    CHECK(errno == EINVAL);
  }
  ibv_dm* aligned = allocate(device, 1, 12);
  REQUIRE(aligned != nullptr);
  CHECK(ibv_free_dm(aligned) == 0);
}

TEST_CASE("a peer and the program name bytes of device memory by their offset in the region", "[ibverbs]") {
  Device one;
  Device other;
  Connected ends(one, other);
  const Lent lent(other);
  const Bytes sent = numbers();
  std::memcpy(one.memory.data(), sent.data(), sent.size());
  CHECK(remotely(one, ends.first, IBV_WR_RDMA_WRITE, one.part(0, 100), lent.mr->rkey, 200) == IBV_WC_SUCCESS);
  Bytes landed{};
  REQUIRE(ibv_memcpy_from_dm(landed.data(), lent.dm, Lent::kSkipped + 200, 100) == 0);
  CHECK(landed == sent);
  CHECK(remotely(one, ends.first, IBV_WR_RDMA_READ, one.part(1000, 100), lent.mr->rkey, 200) == IBV_WC_SUCCESS);
  CHECK(std::memcmp(&one.memory[1000], sent.data(), 100) == 0);
  // As the source of a send, and as a receive.
  REQUIRE(ends.first.receive(2, 2000, 100) == 0);
  ibv_sge from = lent.part(200, 100);
  REQUIRE(ends.second.post(ends.second.request(3, IBV_WR_SEND, from)) == 0);
  one.expect(2);
  other.expect(3);
  CHECK(std::memcmp(&one.memory[2000], sent.data(), 100) == 0);
  ibv_sge into = lent.part(5000, 100);
  ibv_recv_wr receive{4, nullptr, &into, 1};
  ibv_recv_wr* bad = nullptr;
  REQUIRE(ibv_post_recv(ends.second.qp, &receive, &bad) == 0);
  REQUIRE(ends.first.send(5, 0, 100) == 0);
  other.expect(4);
  one.expect(5);
  landed = {};
  REQUIRE(ibv_memcpy_from_dm(landed.data(), lent.dm, Lent::kSkipped + 5000, 100) == 0);
  CHECK(landed == sent);
}

TEST_CASE("an atomic works on device memory, and nothing beyond the region is reached", "[ibverbs]") {
  Device one;
  Device other;
  Connected ends(one, other);
  const Lent lent(other);
  const std::uint64_t before = 40;
  REQUIRE(ibv_memcpy_to_dm(lent.dm, Lent::kSkipped + 16, &before, sizeof before) == 0);
  ibv_sge part = one.part(0, 8);
  ibv_send_wr add = ends.first.request(1, IBV_WR_ATOMIC_FETCH_AND_ADD, part);
  add.wr.atomic = {16, 2, 0, lent.mr->rkey};
  REQUIRE(ends.first.post(add) == 0);
  one.expect(1);
  std::uint64_t after = 0;
  REQUIRE(ibv_memcpy_from_dm(&after, lent.dm, Lent::kSkipped + 16, sizeof after) == 0);
  CHECK(after == 42);
  const std::uint64_t end = Lent::kBytes - Lent::kSkipped;
  CHECK(remotely(one, ends.first, IBV_WR_RDMA_WRITE, one.part(0, 8), lent.mr->rkey, end - 8) == IBV_WC_SUCCESS);
  CHECK(remotely(one, ends.first, IBV_WR_RDMA_WRITE, one.part(0, 8), lent.mr->rkey, end - 7) == IBV_WC_REM_ACCESS_ERR);
}

TEST_CASE("device memory is registered by offset alone, and is not freed before its regions", "[ibverbs]") {
  Device device;
  Device stranger;
  ibv_dm* dm = allocate(device, 4096);
  REQUIRE(dm != nullptr);
  const auto refused = [](ibv_pd* pd, ibv_dm* of, std::uint64_t offset, std::size_t bytes, unsigned access) {
    errno = 0;
    return ibv_reg_dm_mr(pd, of, offset, bytes, access) == nullptr && errno == EINVAL;
  };
  CHECK(refused(device.pd, dm, 0, 4096, kAccess & ~unsigned{IBV_ACCESS_ZERO_BASED}));
  CHECK(refused(device.pd, dm, 0, 4096, kAccess | IBV_ACCESS_ON_DEMAND));
  CHECK(refused(device.pd, dm, 0, 4096, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_ZERO_BASED));
  CHECK(refused(device.pd, dm, 1, 4096, kAccess));
  CHECK(refused(device.pd, dm, ~std::uint64_t{0}, 2, kAccess));
  CHECK(refused(stranger.pd, dm, 0, 4096, kAccess));
  ibv_mr* of_no_bytes = ibv_reg_dm_mr(device.pd, dm, 0, 0, kAccess);
  REQUIRE(of_no_bytes != nullptr);
  CHECK(ibv_dereg_mr(of_no_bytes) == 0);
  ibv_mr* mr = ibv_reg_dm_mr(device.pd, dm, 0, 4096, kAccess);
  REQUIRE(mr != nullptr);
  CHECK(mr->addr == nullptr);
  CHECK(mr->length == 4096);
  CHECK(ibv_free_dm(dm) == EBUSY);
  CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_LOCAL_WRITE) ==
        IBV_REREG_MR_ERR_INPUT);
  CHECK(ibv_dereg_mr(mr) == 0);
  CHECK(ibv_free_dm(dm) == 0);
}

}  // namespace
}  // namespace splitnic::ibverbs::testing::device_memory_test
