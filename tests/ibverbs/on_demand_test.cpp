// Memory that is registered on demand: the whole address space as one region, and advice.
#include <sys/mman.h>

#include <array>
#include <cstring>
#include <vector>

#include "tests/ibverbs/device.h"

namespace splitnic::ibverbs::testing::on_demand_test {
namespace {

constexpr std::size_t kPage = 4096;
constexpr int kOnDemand = kAllAccess | IBV_ACCESS_ON_DEMAND;

/// Everything that the process has, at any time.
struct WholeSpace {
  explicit WholeSpace(Device& device, int access = kOnDemand) : mr(ibv_reg_mr(device.pd, nullptr, SIZE_MAX, access)) {
    REQUIRE(mr != nullptr);
  }
  ~WholeSpace() { CHECK(ibv_dereg_mr(mr) == 0); }
  WholeSpace(const WholeSpace&) = delete;
  WholeSpace& operator=(const WholeSpace&) = delete;

  [[nodiscard]] ibv_sge part(const void* at, std::size_t bytes) const {
    return {reinterpret_cast<std::uintptr_t>(at), static_cast<std::uint32_t>(bytes), mr->lkey};
  }

  ibv_mr* mr;
};

/// Pages that are mapped after the region was made.
struct Pages {
  explicit Pages(std::size_t count, int protection = PROT_READ | PROT_WRITE)
      : bytes(count * kPage), at(mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    REQUIRE(at != MAP_FAILED);
  }
  ~Pages() { unmap(); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  void unmap() { munmap(at, bytes); }
  /// How many are in memory.
  [[nodiscard]] std::size_t present() const {
    std::vector<unsigned char> pages(bytes / kPage);
    REQUIRE(mincore(at, bytes, pages.data()) == 0);
    std::size_t count = 0;
    for (const unsigned char page : pages) count += page & 1U;
    return count;
  }

  std::size_t bytes;
  void* at;
};

int advise(Device& device, ibv_advise_mr_advice advice, ibv_sge part, std::uint32_t flags = 0) {
  return ibv_advise_mr(device.pd, advice, flags, &part, 1);
}

TEST_CASE("one region is the whole address space: keys name bytes by their addresses, also of later memory",
          "[ibverbs]") {
  Device one;
  Device other;
  Connected ends(one, other);
  const WholeSpace here(one);
  const WholeSpace there(other);
  Pages pages(2);
  std::array<std::uint64_t, 4> local{7, 8, 9, 0};
  ibv_sge part = here.part(local.data(), 24);
  ibv_send_wr write = ends.first.request(1, IBV_WR_RDMA_WRITE, part);
  write.wr.rdma = {reinterpret_cast<std::uintptr_t>(pages.at), there.mr->rkey};
  REQUIRE(ends.first.post(write) == 0);
  one.expect(1);
  CHECK(std::memcmp(pages.at, local.data(), 24) == 0);
  ibv_sge into = there.part(static_cast<std::byte*>(pages.at) + kPage, 24);
  ibv_recv_wr receive{2, nullptr, &into, 1};
  ibv_recv_wr* bad = nullptr;
  REQUIRE(ibv_post_recv(ends.second.qp, &receive, &bad) == 0);
  REQUIRE(ends.first.post(ends.first.request(3, IBV_WR_SEND, part)) == 0);
  one.expect(3);
  other.expect(2);
  CHECK(std::memcmp(static_cast<std::byte*>(pages.at) + kPage, local.data(), 24) == 0);
  ibv_sge result = here.part(&local[3], 8);
  ibv_send_wr add = ends.first.request(4, IBV_WR_ATOMIC_FETCH_AND_ADD, result);
  add.wr.atomic = {reinterpret_cast<std::uintptr_t>(pages.at), 100, 0, there.mr->rkey};
  REQUIRE(ends.first.post(add) == 0);
  one.expect(4);
  CHECK(local[3] == 7);
  CHECK(*static_cast<std::uint64_t*>(pages.at) == 107);
}

TEST_CASE("of the whole address space, what the process does not have is refused when it is used", "[ibverbs]") {
  Device one;
  Device other;
  Connected ends(one, other);
  const WholeSpace there(other);
  const std::uint64_t nowhere = GENERATE(0U, 0x10U, 0xffff'8000'0000'0000U, ~std::uint64_t{0} - 8, ~std::uint64_t{0});
  ibv_sge part = one.part(0, 8);
  ibv_send_wr write = ends.first.request(1, IBV_WR_RDMA_WRITE, part);
  write.wr.rdma = {nowhere, there.mr->rkey};
  REQUIRE(ends.first.post(write) == 0);
  CHECK(one.next().status != IBV_WC_SUCCESS);
  CHECK(ends.second.state() == IBV_QPS_ERR);
}

TEST_CASE("only on demand is the whole address space a region, and only from its start", "[ibverbs]") {
  Device device;
  ibv_device_attr_ex about{};
  REQUIRE(ibv_query_device_ex(device.context, nullptr, &about) == 0);
  CHECK((about.odp_caps.general_caps & IBV_ODP_SUPPORT_IMPLICIT) != 0);
  CHECK(ibv_reg_mr(device.pd, nullptr, SIZE_MAX, kAllAccess) == nullptr);
  CHECK(errno == EFAULT);
  CHECK(ibv_reg_mr(device.pd, device.memory.data(), SIZE_MAX, kOnDemand) == nullptr);
  CHECK(errno == EINVAL);
  CHECK(ibv_reg_mr_iova(device.pd, nullptr, SIZE_MAX, kPage, kOnDemand) == nullptr);
  CHECK(errno == EINVAL);
}

TEST_CASE("advice fetches the pages that it names", "[ibverbs]") {
  Device device;
  const WholeSpace all(device);
  const auto advice = GENERATE(IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT);
  const Pages pages(8);
  ibv_sge middle = all.part(static_cast<std::byte*>(pages.at) + 3 * kPage + 1, 2 * kPage);
  REQUIRE(pages.present() == 0);
  CHECK(advise(device, advice, middle, IBV_ADVISE_MR_FLAG_FLUSH) == 0);
  CHECK(pages.present() == (advice == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE ? 3 : 0));
  CHECK(advise(device, IBV_ADVISE_MR_ADVICE_PREFETCH, middle) == 0);
}

TEST_CASE("advice is refused that the region or the process does not bear out", "[ibverbs]") {
  constexpr auto kPrefetch = IBV_ADVISE_MR_ADVICE_PREFETCH;
  Device device;
  const WholeSpace all(device);
  const WholeSpace readable(device, IBV_ACCESS_ON_DEMAND);
  Pages pages(1);
  const ibv_sge part = all.part(pages.at, kPage);
  CHECK(advise(device, kPrefetch, part, 2) == EINVAL);
  CHECK(advise(device, static_cast<ibv_advise_mr_advice>(3), part) == EOPNOTSUPP);
  CHECK(advise(device, kPrefetch, {part.addr, part.length, part.lkey + 1}) == ENOENT);
  CHECK(advise(device, kPrefetch, device.part(0, 8)) == EINVAL);  // not on demand
  CHECK(advise(device, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, readable.part(pages.at, kPage)) == EPERM);
  ibv_pd* another = ibv_alloc_pd(device.context);
  REQUIRE(another != nullptr);
  ibv_sge foreign = part;
  CHECK(ibv_advise_mr(another, kPrefetch, 0, &foreign, 1) == EPERM);
  CHECK(ibv_dealloc_pd(another) == 0);
  ibv_mr* small = ibv_reg_mr(device.pd, pages.at, 100, kOnDemand);
  REQUIRE(small != nullptr);
  CHECK(advise(device, kPrefetch, {part.addr, 100, small->lkey}) == 0);
  CHECK(advise(device, kPrefetch, {part.addr, 101, small->lkey}) == EFAULT);
  CHECK(ibv_dereg_mr(small) == 0);
  pages.unmap();
  CHECK(advise(device, kPrefetch, part) == EFAULT);
}

}  // namespace
}  // namespace splitnic::ibverbs::testing::on_demand_test
