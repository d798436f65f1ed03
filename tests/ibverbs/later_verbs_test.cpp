// Verbs that came after rdma-core 44, as programs that were built with later headers call them.
#include <dlfcn.h>
#include <infiniband/verbs.h>

#include <cerrno>
#include <cstdint>

#include "tests/ibverbs/device.h"

namespace splitnic::ibverbs::testing::later_verbs_test {
namespace {

/// As struct ibv_mr_init_attr of rdma-core 64.
struct Attributes {
  std::size_t length = 0;
  int access = kAllAccess;
  std::uint64_t mask = 0;
  std::uint64_t iova = 0;
  void* address = nullptr;
  int descriptor = -1;
  std::uint64_t descriptor_offset = 0;
  void* dma_handle = nullptr;
  void* buffer = nullptr;
};

template <typename Function>
Function* find(const char* symbol) {
  auto* const found = reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, symbol));
  REQUIRE(found != nullptr);
  return found;
}

ibv_mr* register_with(ibv_pd* pd, const Attributes& attributes) {
  errno = 0;
  return find<ibv_mr*(ibv_pd*, const Attributes*)>("ibv_reg_mr_ex")(pd, &attributes);
}

TEST_CASE("memory that the library allocated is registered, and a message arrives there", "[ibverbs]") {
  Device device;
  constexpr std::size_t kSize = 10000;
  void* buffer = nullptr;
  auto* const allocate = find<void*(ibv_pd*, std::size_t, void**)>("ibv_alloc_buf");
  auto* const memory = static_cast<std::uint8_t*>(allocate(device.pd, kSize, &buffer));
  REQUIRE(memory != nullptr);
  CHECK(reinterpret_cast<std::uintptr_t>(memory) % 4096 == 0);
  auto* const enroll = find<ibv_mr*(ibv_pd*, void*, void*, std::size_t, int)>("ibv_reg_buf_mr");
  ibv_mr* const region = enroll(device.pd, buffer, memory, kSize, kAllAccess);
  REQUIRE(region != nullptr);

  Connected ends(device, device);
  ibv_sge part{reinterpret_cast<std::uintptr_t>(memory) + kSize - 64, 64, region->lkey};
  ibv_recv_wr receive{};
  receive.wr_id = 1;
  receive.sg_list = &part;
  receive.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  REQUIRE(ibv_post_recv(ends.second.qp, &receive, &bad) == 0);
  device.memory[5] = 0xa5;
  REQUIRE(ends.first.send(2, 0, 64) == 0);
  for (int ended = 0; ended < 2; ++ended) CHECK(device.next().status == IBV_WC_SUCCESS);
  CHECK(memory[kSize - 64 + 5] == 0xa5);

  // Beyond either end, and in another domain.
  for (const auto& [offset, length] : {std::pair{0, 10001}, {9999, 2}, {10001, 0}, {-1, 2}}) {
    CAPTURE(offset, length);
    errno = 0;
    CHECK(enroll(device.pd, buffer, memory + offset, static_cast<std::size_t>(length), kAllAccess) == nullptr);
    CHECK(errno == EINVAL);
  }
  ibv_pd* const other = ibv_alloc_pd(device.context);
  errno = 0;
  CHECK(enroll(other, buffer, memory, kSize, kAllAccess) == nullptr);
  CHECK(errno == EINVAL);
  CHECK(ibv_dealloc_pd(other) == 0);
  CHECK(ibv_dereg_mr(region) == 0);
  find<void(void*)>("ibv_free_buf")(buffer);
  errno = 0;
  CHECK(allocate(device.pd, 0, &buffer) == nullptr);
  CHECK(errno == EINVAL);
  errno = 0;
  CHECK(allocate(device.pd, SIZE_MAX / 2, &buffer) == nullptr);
  CHECK(errno == ENOMEM);
}

TEST_CASE("a region that is registered with attributes has the address that they name", "[ibverbs]") {
  constexpr std::uint64_t kIova = 1;
  constexpr std::uint64_t kAddress = 2;
  Device device;
  Attributes attributes{.length = 4096, .mask = kAddress, .address = device.memory.data()};
  ibv_mr* region = register_with(device.pd, attributes);
  REQUIRE(region != nullptr);
  CHECK(region->addr == device.memory.data());
  CHECK(region->length == 4096);
  CHECK(ibv_dereg_mr(region) == 0);

  attributes.mask = kAddress | kIova;
  attributes.iova = 0x10000;
  region = register_with(device.pd, attributes);
  REQUIRE(region != nullptr);
  Connected ends(device, device);
  ibv_sge part = device.part(8192, 8);
  ibv_send_wr request = ends.first.request(7, IBV_WR_RDMA_WRITE, part);
  request.wr.rdma = {.remote_addr = 0x10000 + 16, .rkey = region->rkey};
  device.memory[8192] = 0x5a;
  REQUIRE(ends.first.post(request) == 0);
  device.expect(7);
  CHECK(device.memory[16] == 0x5a);
  CHECK(ibv_dereg_mr(region) == 0);

  const auto refused = [&](std::uint64_t mask, int error) {
    CAPTURE(mask);
    attributes.mask = mask;
    CHECK(register_with(device.pd, attributes) == nullptr);
    CHECK(errno == error);
  };
  refused(0, EINVAL);
  refused(kIova, EINVAL);
  for (const std::uint64_t unknown : {4, 8, 16, 64}) refused(kAddress | unknown, EOPNOTSUPP);
}

TEST_CASE("the speed of the port is that of its nominal rate", "[ibverbs]") {
  const Device device;
  auto* const query = find<int(ibv_context*, std::uint32_t, std::uint64_t*)>("ibv_query_port_speed");
  std::uint64_t speed = 0;
  CHECK(query(device.context, 1, &speed) == 0);
  CHECK(speed == 1000);
  CHECK(query(device.context, 2, &speed) == EINVAL);
}

}  // namespace
}  // namespace splitnic::ibverbs::testing::later_verbs_test
