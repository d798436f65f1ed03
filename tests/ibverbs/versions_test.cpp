// The versions of exported symbols: a made-up table of exports, and the private versions of rdma-core's releases.
#include <dlfcn.h>
#include <infiniband/verbs.h>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <string>

#include "tests/ibverbs/device.h"

namespace splitnic::ibverbs::testing::versions_test {
namespace {

struct Close {
  void operator()(void* library) const { dlclose(library); }
};
using Library = std::unique_ptr<void, Close>;

Library made_up() {
  Library library(dlopen(SPLITNIC_MADE_UP_VERSIONS, RTLD_NOW | RTLD_LOCAL));
  INFO((library ? "" : dlerror()));
  REQUIRE(library != nullptr);
  return library;
}

/// The function with this name and version; null: there is none.
template <typename Function>
Function* find(void* library, const std::string& symbol, const std::string& version) {
  return reinterpret_cast<Function*>(dlvsym(library, symbol.c_str(), version.c_str()));
}

TEST_CASE("versions: a table with renamed versions makes every symbol of the original in each of them", "[ibverbs]") {
  const Library library = made_up();
  const std::string number = GENERATE("7", "8", "12");
  const std::string version = "MADE_UP_PRIVATE_" + number;
  CAPTURE(version);
  using Sum = int(const int*, std::uint8_t, std::uint64_t, unsigned, const int*, std::int16_t);
  Sum* const sum = find<Sum>(library.get(), "made_up_sum", version);
  REQUIRE(sum != nullptr);
  const int hundred_thousands = 300000;
  const int thousands = -2000;
  CHECK(sum(&hundred_thousands, 1, 20, 40000, &thousands, -700) == 337321);
  auto* const register_driver = find<int()>(library.get(), "made_up_register_" + number, version);
  REQUIRE(register_driver != nullptr);
  CHECK(register_driver() == ENOSYS);
  auto* const name = find<void*()>(library.get(), "made_up_name", version);
  REQUIRE(name != nullptr);
  errno = 0;
  CHECK(name() == nullptr);
  CHECK(errno == ENOSYS);
  CHECK(dlvsym(library.get(), "made_up_flag", version.c_str()) != nullptr);
}

TEST_CASE("versions: a name with the number of its version is in no other version", "[ibverbs]") {
  const Library library = made_up();
  CHECK(find<int()>(library.get(), "made_up_register_7", "MADE_UP_PRIVATE_8") == nullptr);
  CHECK(find<int()>(library.get(), "made_up_register_8", "MADE_UP_PRIVATE_7") == nullptr);
  CHECK(find<int()>(library.get(), "made_up_sum", "MADE_UP_PRIVATE_9") == nullptr);
}

TEST_CASE("versions: a program that asks for no version gets the original, and public versions stay apart",
          "[ibverbs]") {
  const Library library = made_up();
  for (const char* symbol : {"made_up_sum", "made_up_name", "made_up_flag"}) {
    CAPTURE(symbol);
    CHECK(dlsym(library.get(), symbol) == dlvsym(library.get(), symbol, "MADE_UP_PRIVATE_7"));
  }
  CHECK(find<int()>(library.get(), "made_up_old", "MADE_UP_1.0")() == ENOSYS);
  CHECK(find<int()>(library.get(), "made_up_old", "MADE_UP_1.1")() == 11);
  errno = 0;
  CHECK(find<long()>(library.get(), "made_up_later", "MADE_UP_1.2")() == -1);
  CHECK(errno == EOPNOTSUPP);
  CHECK(dlsym(library.get(), "other_version_2") == nullptr);  // what stands behind the versions is not exported
}

TEST_CASE("versions: each private version of rdma-core reaches what is implemented", "[ibverbs]") {
  const std::string version = GENERATE("IBVERBS_PRIVATE_34", "IBVERBS_PRIVATE_57", "IBVERBS_PRIVATE_59",
                                       "IBVERBS_PRIVATE_64", "IBVERBS_PRIVATE_65");
  CAPTURE(version);
  const Device device;
  auto* const query =
      find<int(ibv_context*, std::uint8_t, unsigned, unsigned*)>(RTLD_DEFAULT, "ibv_query_gid_type", version);
  REQUIRE(query != nullptr);
  unsigned type = 7;
  CHECK(query(device.context, 1, 0, &type) == 0);
  CHECK(type == 0);
  errno = 0;
  CHECK(query(device.context, 2, 0, &type) == -1);
  CHECK(errno == EINVAL);
  auto* const name = find<const char*(int)>(RTLD_DEFAULT, "ibv_wr_opcode_str", version);
  REQUIRE(name != nullptr);
  CHECK(name(IBV_WR_RDMA_READ) == std::string("rdma-read"));
  CHECK(name(IBV_WR_DRIVER1) == std::string("driver1"));
  CHECK(name(-1) == std::string("unknown"));
  CHECK(name(1000) == std::string("unknown"));
}

TEST_CASE("the statuses of completions have the names that programs compare", "[ibverbs]") {
  CHECK(ibv_wc_status_str(IBV_WC_SUCCESS) == std::string("success"));
  CHECK(ibv_wc_status_str(IBV_WC_WR_FLUSH_ERR) == std::string("Work Request Flushed Error"));
  CHECK(ibv_wc_status_str(IBV_WC_MW_BIND_ERR) == std::string("memory management operation error"));
  CHECK(ibv_wc_status_str(IBV_WC_RETRY_EXC_ERR) == std::string("transport retry counter exceeded"));
}

}  // namespace
}  // namespace splitnic::ibverbs::testing::versions_test
