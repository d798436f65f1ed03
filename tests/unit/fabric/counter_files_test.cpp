#include "fabric/endnode/counter_files.h"

#include <fcntl.h>
#include <sys/file.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "common/os/unique_fd.h"
#include "fabric/endnode/endnode.h"
#include "fabric/endnode/fabric_directory.h"
#include "tests/unit/common/os_temporary_directory.h"
#include "tests/unit/file_size_limit.h"

namespace splitnic::fabric::test::counter_files_test {
namespace {

constexpr const char* kSums = "sysfs/class/infiniband/splitnic0/ports/1";

PortCounts counts(std::uint64_t packets, std::uint64_t drops) {
  return {{{"port_xmit_packets", packets}}, {{"dropped", drops}, {"sent_pkts", packets}}};
}

struct CountedEndnode {
  explicit CountedEndnode(std::uint16_t number) : id{number} {
    ids = *LocalIds::open(directory);
    REQUIRE(ids->take(id));
    files.emplace(*CounterFiles::open(directory, id, "splitnic0", "pid 1\nprogram test\n"));
  }
  ~CountedEndnode() {
    files.reset();
    ids->give_back(id);
  }
  CountedEndnode(const CountedEndnode&) = delete;
  CountedEndnode& operator=(const CountedEndnode&) = delete;

  static inline std::string directory;  // of the test that runs
  LocalId id;
  std::shared_ptr<LocalIds> ids;
  std::optional<CounterFiles> files;
};

/// A fabric's folder for a test.
struct Folder {
  Folder() { CountedEndnode::directory = folder.path(); }
  std::string text(const std::string& name) const {
    std::ifstream file(folder.path(name));
    return {std::istreambuf_iterator<char>(file), {}};
  }
  bool has(const std::string& name) const { return std::filesystem::exists(folder.path(name)); }
  os::TemporaryDirectory folder;
};

}  // namespace

TEST_CASE("counts are files with a number each, and follow what is published", "[fabric][endnode]") {
  const Folder folder;
  CountedEndnode one(17);
  one.files->publish(counts(0, 0), "");
  CHECK(folder.text("endnodes/17/ports/1/counters/port_xmit_packets") == "0\n");
  CHECK(folder.text("endnodes/17/ports/1/hw_counters/dropped") == "0\n");
  CHECK(folder.text("endnodes/17/process") == "pid 1\nprogram test\n");
  one.files->publish(counts(9, 0), "5 RC RTS\n");
  one.files->publish(counts(12345678, 1), "5 RC RTS\n6 UD INIT\n");
  CHECK(folder.text("endnodes/17/ports/1/counters/port_xmit_packets") == "12345678\n");
  CHECK(folder.text("endnodes/17/ports/1/hw_counters/sent_pkts") == "12345678\n");
  CHECK(folder.text("endnodes/17/ports/1/hw_counters/dropped") == "1\n");
  CHECK(folder.text("endnodes/17/queue_pairs") == "5 RC RTS\n6 UD INIT\n");
}

TEST_CASE("a count's file is never empty, also where the disk is full", "[fabric][endnode]") {
  const Folder folder;
  CountedEndnode one(17);
  const auto exists = [&](const std::string& port) {
    return folder.has(port + "/counters/port_xmit_packets") || folder.has(port + "/hw_counters/dropped");
  };
  {
    const splitnic::testing::FileSizeLimit full(0);
    one.files->publish(counts(0, 0), "");
  }
  CHECK_FALSE(exists("endnodes/17/ports/1"));
  CHECK_FALSE(exists(kSums));
  one.files->publish(counts(9, 0), "");
  CHECK(folder.text("endnodes/17/ports/1/counters/port_xmit_packets") == "9\n");
  CHECK(folder.text(std::string(kSums) + "/counters/port_xmit_packets") == "9\n");
}

TEST_CASE("the device's counts are the sums of all endnodes, also of those that have ended", "[fabric][endnode]") {
  const Folder folder;
  const std::string packets = std::string(kSums) + "/counters/port_xmit_packets";
  CountedEndnode one(17);
  {
    CountedEndnode other(18);
    one.files->publish(counts(5, 0), "");
    other.files->publish(counts(7, 2), "");
    CHECK(folder.text(packets) == "12\n");
    other.files->publish(counts(10, 2), "", true);
  }
  CHECK(folder.text(packets) == "15\n");
  one.files->publish(counts(6, 0), "");
  CHECK(folder.text(packets) == "16\n");
  CHECK(folder.text(std::string(kSums) + "/hw_counters/dropped") == "2\n");
  CHECK(folder.has("endnodes/17"));
  CHECK_FALSE(folder.has("endnodes/18"));
}

TEST_CASE("a process that is stopped in the middle of adding delays the sums of others, and nothing else",
          "[fabric][endnode]") {
  const Folder folder;
  const std::string packets = std::string(kSums) + "/counters/port_xmit_packets";
  CountedEndnode one(17);
  one.files->publish(counts(1, 0), "");
  {
    const os::UniqueFd stopped(::open(folder.folder.path(kSums).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    REQUIRE(::flock(stopped.get(), LOCK_EX) == 0);
    one.files->publish(counts(3, 0), "");
    one.files->publish(counts(4, 0), "", true);
    CHECK(folder.text("endnodes/17/ports/1/counters/port_xmit_packets") == "4\n");
    CHECK(folder.text(packets) == "1\n");
  }
  one.files->publish(counts(4, 0), "");
  CHECK(folder.text(packets) == "4\n");
}

TEST_CASE("reports are those of endnodes whose IDs are held", "[fabric][endnode]") {
  const Folder folder;
  CountedEndnode one(17);
  CountedEndnode other(300);
  one.files->publish(counts(5, 0), "5 RC RTS\n");
  other.files->publish(counts(7, 0), "");
  std::filesystem::create_directories(folder.folder.path("endnodes/99"));
  std::ofstream(folder.folder.path("endnodes/99/process")) << "pid 3\n";
  const auto reports = read_endnodes(folder.folder.path(), *one.ids);
  REQUIRE(reports.size() == 2);
  CHECK(reports[0].id == one.id);
  CHECK(reports[0].process == std::vector<std::string>{"pid 1", "program test"});
  CHECK(reports[0].queue_pairs == std::vector<std::string>{"5 RC RTS"});
  CHECK(reports[0].counts == counts(5, 0));
  CHECK(reports[0].open_ms < 60'000);
  CHECK(reports[1].id == other.id);
}

TEST_CASE("an endnode that opens removes what killed ones have counted", "[fabric][endnode]") {
  const Folder folder;
  std::filesystem::create_directories(folder.folder.path("endnodes/99/ports/1/counters"));
  CountedEndnode one(17);
  SeededRandom random(1);
  const auto opened =
      Endnode::open({.directory = folder.folder.path(), .window_bytes = kShmMinBytes, .max_peers = 4}, random);
  REQUIRE(opened);
  CHECK_FALSE(folder.has("endnodes/99"));
  CHECK(folder.has("endnodes/17"));
}

TEST_CASE("fabrics that are found are this user's alone", "[fabric][endnode]") {
  const os::TemporaryDirectory folder;
  namespace fs = std::filesystem;
  for (const char* name : {"fabric-one", "fabric-two", "fabric-open", "control"}) {
    fs::create_directory(folder.path(name));
    fs::permissions(folder.path(name), fs::perms::owner_all);
  }
  fs::permissions(folder.path("fabric-open"), fs::perms::owner_all | fs::perms::others_read);
  fs::create_directory_symlink(folder.path("fabric-one"), folder.path("fabric-link"));
  std::ofstream(folder.path("fabric-file")) << "";
  const auto found = find_fabric_directories({folder.path(), folder.path("missing")});
  REQUIRE(found.size() == 2);
  CHECK(found[0].name == "one");
  CHECK(found[0].directory == folder.path("fabric-one"));
  CHECK(found[1].name == "two");
}

}  // namespace splitnic::fabric::test::counter_files_test
