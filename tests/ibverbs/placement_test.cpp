// Writes and reads of each kind of memory that a peer may reach past the fabric: the same cases for all of them. In
// cells, by the owner, is one kind among them.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "common/time.h"
#include "fabric/adapter/placements.h"
#include "fabric/placement/board_layout.h"
#include "fabric/placement/local_placements.h"
#include "tests/ibverbs/device.h"
#include "tests/unit/common/os_temporary_directory.h"

namespace splitnic::ibverbs::testing::placement_test {
namespace {

enum class Kind { cells, process, memory_file, named_file, device_memory };
constexpr std::array kKinds{Kind::cells, Kind::process, Kind::memory_file, Kind::named_file, Kind::device_memory};
const char* name_of(Kind kind) {
  static constexpr std::array kNames{"by the owner", "process_vm", "a memfd", "a file with a name", "device memory"};
  return kNames[static_cast<std::size_t>(kind)];
}

constexpr std::size_t kRegionBytes = 20'000;
constexpr std::size_t kBefore = 100;  // the region begins so far behind the memory
constexpr unsigned kRemote = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

/// What devices that are opened meanwhile reach.
struct Reach {
  explicit Reach(Kind kind) {
    setenv("SPLITNIC_PLACEMENT", kind == Kind::cells ? "none" : kind == Kind::process ? "process" : "shared", 1);
  }
  ~Reach() { unsetenv("SPLITNIC_PLACEMENT"); }
  Reach(const Reach&) = delete;
  Reach& operator=(const Reach&) = delete;
};

/// A file in memory for files with a name: /tmp may be on a file system that peers do not map.
int open_file(Kind kind, std::string& path) {
  if (kind == Kind::memory_file) return memfd_create("placement_test", MFD_CLOEXEC);
  path = "/dev/shm/splitnic-placement-test-" + std::to_string(getpid());
  return open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
}

/// Memory of the owner with a region in it.
struct Target {
  Target(Device& on, Kind of, unsigned access = kRemote, std::size_t length = kRegionBytes)
      : owner(on), kind(of), region_bytes(length) {
    if (kind == Kind::device_memory) {
      ibv_alloc_dm_attr wanted{region_bytes + kBefore, 0, 0};
      dm = ibv_alloc_dm(owner.context, &wanted);
      REQUIRE(dm != nullptr);
    } else {
      bool shared = kind == Kind::memory_file || kind == Kind::named_file;
      std::string path;
      if (shared) {
        file = open_file(kind, path);
        REQUIRE(file >= 0);
        REQUIRE(ftruncate(file, static_cast<off_t>(region_bytes + kBefore)) == 0);
      }
      void* at = mmap(nullptr, region_bytes + kBefore, PROT_READ | PROT_WRITE,
                      shared ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, file, 0);
      REQUIRE(at != MAP_FAILED);
      memory = static_cast<std::uint8_t*>(at);
      if (kind == Kind::named_file) {
        register_in(owner.pd, access);  // the library finds the file by its name alone
        close(file);
        file = -1;
        unlink(path.c_str());
        return;
      }
    }
    register_in(owner.pd, access);
  }
  ~Target() {
    if (mr != nullptr) CHECK(ibv_dereg_mr(mr) == 0);
    if (dm != nullptr) CHECK(ibv_free_dm(dm) == 0);
    if (memory != nullptr) munmap(memory, region_bytes + kBefore);
    if (file >= 0) close(file);
  }
  Target(const Target&) = delete;
  Target& operator=(const Target&) = delete;

  void register_in(ibv_pd* pd, unsigned access) {
    mr = dm != nullptr ? ibv_reg_dm_mr(pd, dm, kBefore, region_bytes, access | IBV_ACCESS_ZERO_BASED)
                       : ibv_reg_mr(pd, memory + kBefore, region_bytes, static_cast<int>(access));
    REQUIRE(mr != nullptr);
    key = mr->rkey;
  }
  /// By which peers name a byte.
  [[nodiscard]] std::uint64_t address(std::size_t offset) const {
    return offset + (dm != nullptr ? 0 : reinterpret_cast<std::uintptr_t>(memory + kBefore));
  }
  [[nodiscard]] std::vector<std::uint8_t> bytes() const {
    std::vector<std::uint8_t> all(region_bytes + kBefore);
    if (dm != nullptr) {
      REQUIRE(ibv_memcpy_from_dm(all.data(), dm, 0, all.size()) == 0);
    } else {
      std::copy_n(memory, all.size(), all.begin());
    }
    return all;
  }
  [[nodiscard]] std::uint8_t at(std::size_t offset) const {
    if (dm == nullptr) return __atomic_load_n(memory + kBefore + offset, __ATOMIC_ACQUIRE);
    std::array<std::uint8_t, 4> word{};  // whole words alone are copied
    const std::size_t place = kBefore + offset;
    REQUIRE(ibv_memcpy_from_dm(word.data(), dm, place / 4 * 4, word.size()) == 0);
    return word[place % 4];
  }

  Device& owner;
  Kind kind;
  std::size_t region_bytes;
  int file = -1;
  std::uint8_t* memory = nullptr;
  ibv_dm* dm = nullptr;
  ibv_mr* mr = nullptr;
  std::uint32_t key = 0;
};

/// What the device has counted, as its files say.
std::uint64_t counted(Device& device, const std::string& name) {
  const std::string end = "/endnodes/" + std::to_string(device.lid()) + "/ports/1/hw_counters/" + name;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(std::getenv("XDG_RUNTIME_DIR"))) {
    if (!entry.path().string().ends_with(end)) continue;
    std::uint64_t value = 0;
    std::ifstream(entry.path()) >> value;
    return value;
  }
  return 0;
}

/// An initiator and an owner.
struct Devices {
  explicit Devices(Kind of) : kind(of), reach(of) {}

  Kind kind;
  Reach reach;
  Device initiator;
  Device owner;
};

/// Connected queue pairs of both, and memory of the owner.
struct Bench {
  explicit Bench(Devices& on, unsigned access = kRemote, const Shape& shape = {}, std::size_t length = kRegionBytes)
      : kind(on.kind),
        initiator(on.initiator),
        owner(on.owner),
        ends(initiator, owner, shape),
        target(owner, kind, access, length) {
    std::iota(initiator.memory.begin(), initiator.memory.end(), std::uint8_t{1});
  }

  ibv_wc_status run(ibv_wr_opcode opcode, ibv_sge part, std::uint64_t address, unsigned flags = 0) {
    ibv_send_wr request = ends.first.request(1, opcode, part);
    request.wr.rdma = {address, target.key};
    request.send_flags |= flags;
    REQUIRE(ends.first.post(request) == 0);
    return initiator.next().status;
  }
  ibv_wc_status write(std::size_t from, std::size_t bytes, std::size_t to, unsigned flags = 0) {
    return run(IBV_WR_RDMA_WRITE, initiator.part(from, bytes), target.address(to), flags);
  }
  ibv_wc_status read(std::size_t into, std::size_t bytes, std::size_t from) {
    return run(IBV_WR_RDMA_READ, initiator.part(into, bytes), target.address(from));
  }
  /// Repeats an access until the initiator makes it by itself, if it does with this kind: then it has ended when the
  /// post returns. A fast owner may look the same for a while; the first test case looks at the counters, too.
  void prepare(ibv_wr_opcode opcode = IBV_WR_RDMA_WRITE) {
    constexpr int kInARow = 16;
    int in_a_row = 0;
    wait_until([&] {
      ibv_sge part = initiator.part(0, 1);
      ibv_send_wr request = ends.first.request(1, opcode, part);
      request.wr.rdma = {target.address(0), target.key};
      REQUIRE(ends.first.post(request) == 0);
      ibv_wc ended{};
      const bool at_once = ibv_poll_cq(initiator.cq, 1, &ended) == 1;
      if (!at_once) ended = initiator.next();
      REQUIRE(ended.status == IBV_WC_SUCCESS);
      in_a_row = at_once ? in_a_row + 1 : 0;
      return kind == Kind::cells || in_a_row == kInARow;
    });
  }

  Kind kind;
  Device& initiator;
  Device& owner;
  Connected ends;
  Target target;
};

/// Two devices, and a bench whose initiator writes by itself where it does with this kind.
struct Prepared {
  explicit Prepared(Kind kind) : devices(kind), bench(devices) { bench.prepare(); }

  Devices devices;
  Bench bench;
};

TEST_CASE("writes and reads reach every kind of memory, and no byte beside them", "[ibverbs][placement]") {
  for (const Kind kind : kKinds) {
    INFO(name_of(kind));
    Prepared prepared(kind);
    Bench& bench = prepared.bench;
    std::vector<std::uint8_t> expected = bench.target.bytes();
    const auto write = [&](std::size_t from, std::size_t bytes, std::size_t to, unsigned flags = 0) {
      REQUIRE(bench.write(from, bytes, to, flags) == IBV_WC_SUCCESS);
      std::copy_n(&bench.initiator.memory[from], bytes, &expected[kBefore + to]);
      CHECK(bench.target.bytes() == expected);
    };
    for (const std::size_t bytes : {1UL, 7UL, 8UL, 9UL, 64UL, 1001UL, 9000UL}) write(bytes, bytes, 3 * bytes % 5000);
    write(50, 64, 1, IBV_SEND_INLINE);
    write(0, 1, 0);
    write(11, kRegionBytes, 0);
    bench.prepare(IBV_WR_RDMA_READ);
    REQUIRE(bench.read(30'000, kRegionBytes, 0) == IBV_WC_SUCCESS);
    CHECK(std::equal(expected.begin() + kBefore, expected.end(), bench.initiator.memory.begin() + 30'000));
    // Several pieces, in their order; and an empty list.
    std::array<ibv_sge, 3> parts{bench.initiator.part(5, 10), bench.initiator.part(100, 1),
                                 bench.initiator.part(3, 30)};
    ibv_send_wr request = bench.ends.first.request(2, IBV_WR_RDMA_WRITE, parts[0]);
    request.num_sge = 3;
    request.wr.rdma = {bench.target.address(500), bench.target.key};
    REQUIRE(bench.ends.first.post(request) == 0);
    bench.initiator.expect(2);
    std::size_t to = kBefore + 500;
    for (const ibv_sge& part : parts) {
      std::memcpy(&expected[to], reinterpret_cast<const void*>(part.addr), part.length);
      to += part.length;
    }
    CHECK(bench.target.bytes() == expected);
    // The files are written at intervals; what they show then stays.
    for (const char* name : {"placed_writes", "placed_reads"}) {
      INFO(name);
      if (kind == Kind::cells) {
        CHECK(counted(bench.initiator, name) == 0);
      } else {
        wait_until([&] { return counted(bench.initiator, name) != 0; });
      }
    }
  }
}

TEST_CASE("what a region, its domain or the queue pair does not allow is refused in every kind of memory",
          "[ibverbs][placement]") {
  struct Refusal {
    const char* what;
    std::function<ibv_wc_status(Bench&)> access;
    unsigned access_of_region = kRemote;
    ibv_wr_opcode prepared_by = IBV_WR_RDMA_WRITE;
  };
  constexpr unsigned kReadOnly = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;
  constexpr unsigned kWriteOnly = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  const std::array refusals{
      Refusal{"a byte behind the end", [](Bench& bench) { return bench.write(0, 2, kRegionBytes - 1); }},
      Refusal{"a byte before the beginning",
              [](Bench& bench) {
                return bench.run(IBV_WR_RDMA_WRITE, bench.initiator.part(0, 2), bench.target.address(0) - 1);
              }},
      Refusal{"another key",
              [](Bench& bench) {
                ++bench.target.key;
                return bench.write(0, 8, 0);
              }},
      Refusal{"no right to write", [](Bench& bench) { return bench.write(0, 8, 0); }, kReadOnly, IBV_WR_RDMA_READ},
      Refusal{"no right to read", [](Bench& bench) { return bench.read(0, 8, 0); }, kWriteOnly},
      Refusal{"a queue pair that takes no writes any more",
              [](Bench& bench) {
                ibv_qp_attr less{};
                less.qp_access_flags = IBV_ACCESS_REMOTE_READ;
                REQUIRE(ibv_modify_qp(bench.ends.second.qp, &less, IBV_QP_ACCESS_FLAGS) == 0);
                return bench.write(0, 8, 0);
              }},
      Refusal{"a region that was deregistered",
              [](Bench& bench) {
                REQUIRE(ibv_dereg_mr(bench.target.mr) == 0);
                bench.target.mr = nullptr;
                return bench.write(0, 8, 0);
              }},
      Refusal{"a region of another domain",
              [](Bench& bench) {
                ibv_pd* other = ibv_alloc_pd(bench.owner.context);
                REQUIRE(ibv_dereg_mr(bench.target.mr) == 0);
                bench.target.register_in(other, kRemote);
                // Not once, and not again when it has been looked at.
                const ibv_wc_status ended = bench.write(0, 8, 0);
                REQUIRE(ibv_dereg_mr(bench.target.mr) == 0);
                bench.target.mr = nullptr;
                REQUIRE(ibv_dealloc_pd(other) == 0);
                return ended;
              }},
  };
  for (const Kind kind : kKinds) {
    Devices devices(kind);
    for (const Refusal& refusal : refusals) {
      INFO(name_of(kind) << ": " << refusal.what);
      Bench bench(devices, refusal.access_of_region);
      bench.prepare(refusal.prepared_by);
      const std::vector<std::uint8_t> before = bench.target.bytes();
      std::fill_n(bench.initiator.memory.begin(), 8, std::uint8_t{0xee});
      CHECK(std::string(ibv_wc_status_str(refusal.access(bench))) == ibv_wc_status_str(IBV_WC_REM_ACCESS_ERR));
      CHECK(bench.target.bytes() == before);
    }
  }
}

TEST_CASE("a change of a region holds for the next access", "[ibverbs][placement]") {
  for (const Kind kind : {Kind::cells, Kind::process, Kind::memory_file, Kind::named_file}) {
    INFO(name_of(kind));
    Prepared prepared(kind);
    Bench& bench = prepared.bench;
    REQUIRE(ibv_rereg_mr(bench.target.mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, bench.target.memory + kBefore, 1000,
                         0) == 0);
    bench.target.key = bench.target.mr->rkey;
    REQUIRE(bench.write(50, 1000, 0) == IBV_WC_SUCCESS);
    CHECK(bench.target.at(999) == bench.initiator.memory[1049]);
    CHECK(bench.target.at(1000) == 0);
    CHECK(bench.write(50, 1001, 0) == IBV_WC_REM_ACCESS_ERR);
    CHECK(bench.target.at(1000) == 0);
  }
}

TEST_CASE("nothing is placed through a queue pair that has failed", "[ibverbs][placement]") {
  for (const Kind kind : {Kind::cells, Kind::process, Kind::memory_file}) {
    INFO(name_of(kind));
    Devices devices(kind);
    Shape shape;
    shape.retries = 1;  // the owner's queue pair does not answer
    Bench bench(devices, kRemote, shape);
    bench.prepare();
    const std::vector<std::uint8_t> before = bench.target.bytes();
    ibv_qp_attr error{};
    error.qp_state = IBV_QPS_ERR;
    REQUIRE(ibv_modify_qp(bench.ends.second.qp, &error, IBV_QP_STATE) == 0);
    ibv_sge part = bench.initiator.part(100, 8);
    ibv_send_wr request = bench.ends.first.request(3, IBV_WR_RDMA_WRITE, part);
    request.wr.rdma = {bench.target.address(0), bench.target.key};
    REQUIRE(bench.ends.first.post(request) == 0);
    CHECK(bench.initiator.next().status != IBV_WC_SUCCESS);
    CHECK(bench.target.bytes() == before);
  }
}

TEST_CASE("a write that is placed comes after the writes before it that are not", "[ibverbs][placement]") {
  for (const Kind kind : kKinds) {
    INFO(name_of(kind));
    Prepared prepared(kind);
    Bench& bench = prepared.bench;
    // In cells, because an on-demand region's memory may move; a long one, and behind it a short and a long one.
    const unsigned on_demand = kRemote | IBV_ACCESS_ON_DEMAND;
    ibv_mr* cells = ibv_reg_mr(bench.owner.pd, bench.owner.memory.data(), kBytes, static_cast<int>(on_demand));
    REQUIRE(cells != nullptr);
    for (std::uint8_t round = 1; round < 8; ++round) {
      std::ranges::fill(bench.initiator.memory, round);
      ibv_sge all = bench.initiator.part(0, kBytes);
      ibv_sge flag = bench.initiator.part(0, round % 2 == 0 ? 8 : 8192);
      ibv_send_wr data = bench.ends.first.request(1, IBV_WR_RDMA_WRITE, all);
      data.wr.rdma = {bench.owner.address(), cells->rkey};
      ibv_send_wr after = bench.ends.first.request(2, IBV_WR_RDMA_WRITE, flag);
      after.wr.rdma = {bench.target.address(0), bench.target.key};
      REQUIRE(bench.ends.first.post(data) == 0);
      REQUIRE(bench.ends.first.post(after) == 0);
      // Nobody polls: the progress threads carry on.
      wait_until([&] { return bench.target.at(flag.length - 1) == round; });
      CHECK(std::ranges::count(bench.owner.memory, round) == kBytes);
      bench.initiator.expect(1);
      bench.initiator.expect(2);
    }
    REQUIRE(ibv_dereg_mr(cells) == 0);
  }
}

TEST_CASE("memory that is gone ends the request, not the initiator", "[ibverbs][placement]") {
  SECTION("a file that was cut off") {
    Prepared prepared(Kind::memory_file);
    Bench& bench = prepared.bench;
    REQUIRE(ftruncate(bench.target.file, 0) == 0);
    CHECK(bench.write(0, 64, 0) == IBV_WC_REM_OP_ERR);
  }
  SECTION("private memory that was unmapped") {
    Prepared prepared(Kind::process);
    Bench& bench = prepared.bench;
    REQUIRE(munmap(bench.target.memory, kRegionBytes + kBefore) == 0);
    bench.target.memory = nullptr;
    CHECK(bench.run(IBV_WR_RDMA_WRITE, bench.initiator.part(0, 64),
                    reinterpret_cast<std::uintptr_t>(bench.target.mr->addr)) == IBV_WC_REM_OP_ERR);
  }
}

/// Whether another process finds the file locked.
bool is_locked(int file) {
  const pid_t child = fork();
  if (child == 0) {
    struct flock lock {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    _exit(fcntl(file, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK ? 1 : 0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return WIFEXITED(status) && WEXITSTATUS(status) == 1;
}

TEST_CASE("the process keeps its record locks on a file whose memory it registers, and writes as a peer",
          "[ibverbs][placement]") {
  Prepared prepared(Kind::memory_file);
  Bench& bench = prepared.bench;
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  REQUIRE(fcntl(bench.target.file, F_SETLK, &lock) == 0);
  REQUIRE(is_locked(bench.target.file));
  REQUIRE(ibv_dereg_mr(bench.target.mr) == 0);
  CHECK(is_locked(bench.target.file));
  bench.target.register_in(bench.owner.pd, kRemote);
  bench.prepare();  // maps the file
  CHECK(is_locked(bench.target.file));
}

TEST_CASE("the end of a region waits for a peer that is in the middle of a copy", "[ibverbs][placement]") {
  constexpr std::size_t kLong = fabric::Placements::kAtOnceBytes;
  for (const Kind kind : {Kind::process, Kind::memory_file, Kind::device_memory}) {
    INFO(name_of(kind));
    Devices devices(kind);
    Bench bench(devices, kRemote, {}, kLong);
    std::vector<std::uint8_t> source(kLong);
    constexpr int kLocal = IBV_ACCESS_LOCAL_WRITE;
    ibv_mr* from = ibv_reg_mr(bench.initiator.pd, source.data(), kLong, kLocal);
    REQUIRE(from != nullptr);
    bench.prepare();
    for (std::uint8_t round = 2; round < 6; ++round) {
      std::ranges::fill(source, round);
      ibv_sge all{reinterpret_cast<std::uintptr_t>(source.data()), static_cast<std::uint32_t>(kLong), from->lkey};
      ibv_send_wr request = bench.ends.first.request(round, IBV_WR_RDMA_WRITE, all);
      request.wr.rdma = {bench.target.address(0), bench.target.key};
      std::thread initiator([&] {
        ibv_send_wr* bad = nullptr;
        if (ibv_post_send(bench.ends.first.qp, &request, &bad) != 0) std::abort();
      });
      wait_until([&] { return bench.target.at(0) == round; });
      REQUIRE(ibv_dereg_mr(bench.target.mr) == 0);
      CHECK(bench.target.at(kLong - 1) == round);
      initiator.join();
      bench.initiator.expect(round);
      bench.target.register_in(bench.owner.pd, kRemote);
      bench.prepare();
    }
    REQUIRE(ibv_dereg_mr(from) == 0);
  }
}

/// The board of a device, as its owner writes it.
class OwnBoard {
 public:
  explicit OwnBoard(const Device& of) {
    std::ifstream maps("/proc/self/maps");
    const std::string name = "/memfd:splitnic-board-" + std::to_string(of.lid()) + " ";
    for (std::string line; std::getline(maps, line);) {
      if (line.find(" rw-s ") == std::string::npos || line.find(name) == std::string::npos) continue;
      at_ = std::stoull(line, nullptr, 16);
    }
    REQUIRE(at_ != 0);
  }
  [[nodiscard]] std::uint64_t& word(std::size_t offset) const {
    return *reinterpret_cast<std::uint64_t*>(at_ + offset);  // NOLINT(performance-no-int-to-ptr): of the kernel's list
  }
  void set(std::size_t offset, std::uint64_t value) const { __atomic_store_n(&word(offset), value, __ATOMIC_SEQ_CST); }
  [[nodiscard]] std::uint64_t get(std::size_t offset) const { return __atomic_load_n(&word(offset), __ATOMIC_SEQ_CST); }

 private:
  std::uintptr_t at_ = 0;
};

/// A peer of the device that is in the middle of a copy into its memory until the object ends. The peer makes no other
/// request meanwhile.
class Stopped {
 public:
  Stopped(const Device& peer, const Device& owner) : board(peer) { board.set(kBusy, owner.lid()); }
  ~Stopped() { go_on(); }
  Stopped(const Stopped&) = delete;
  Stopped& operator=(const Stopped&) = delete;
  void go_on() { board.set(kBusy, 0); }
  void begin_the_next() { board.set(kEnded, board.get(kEnded) + 1); }

  OwnBoard board;

 private:
  static constexpr std::size_t kBusy = offsetof(fabric::BoardHeader, busy);
  static constexpr std::size_t kEnded = offsetof(fabric::BoardHeader, ended);
};

TEST_CASE("what no peer could reach ends at once, although a peer is stopped in the middle of a copy",
          "[ibverbs][placement]") {
  Prepared prepared(Kind::memory_file);
  Device& initiator = prepared.devices.initiator;
  Device& owner = prepared.devices.owner;
  Queue next(owner, Shape{});  // ends when the peer has gone on
  const Stopped peer(initiator, owner);
  const Time before = monotonic_now();
  std::vector<std::uint8_t> memory(4096);
  ibv_mr* local = ibv_reg_mr(owner.pd, memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE);
  REQUIRE(local != nullptr);
  CHECK(ibv_dereg_mr(local) == 0);
  {
    Queue never_connected(owner, Shape{});
    never_connected.initialize();
  }
  next.connect(initiator.lid(), prepared.bench.ends.first.qp->qp_num);
  { const Connected of_other_peers(owner, owner); }
  CHECK(monotonic_now() - before < fabric::LocalPlacements::kQuietWithin);
}

TEST_CASE("a region whose end a stopped peer has outlasted has not ended, however often that is asked for",
          "[ibverbs][placement]") {
  Prepared prepared(Kind::memory_file);
  Stopped peer(prepared.devices.initiator, prepared.devices.owner);
  CHECK(ibv_dereg_mr(prepared.bench.target.mr) == EBUSY);
  CHECK(ibv_dereg_mr(prepared.bench.target.mr) == EBUSY);
  peer.go_on();
  CHECK(ibv_dereg_mr(prepared.bench.target.mr) == 0);
  prepared.bench.target.mr = nullptr;
}

TEST_CASE("a peer that goes on and on copying does not hold up the end of a region", "[ibverbs][placement]") {
  Prepared prepared(Kind::memory_file);
  Stopped peer(prepared.devices.initiator, prepared.devices.owner);
  std::atomic<bool> ended{false};
  int result = -1;
  std::thread owner([&] {
    result = ibv_dereg_mr(prepared.bench.target.mr);
    ended = true;
  });
  while (!ended) peer.begin_the_next();  // always busy, as far as one look can tell
  owner.join();
  CHECK(result == 0);
  if (result == 0) prepared.bench.target.mr = nullptr;
}

TEST_CASE("the end of a queue pair waits for a peer that is in the middle of a copy, and other verbs do not",
          "[ibverbs][placement]") {
  Prepared prepared(Kind::memory_file);
  Device& owner = prepared.devices.owner;
  Stopped peer(prepared.devices.initiator, owner);
  const OwnBoard board(owner);
  ibv_qp* qp = prepared.bench.ends.second.qp;
  const std::size_t place = fabric::board_queue_pair_at(fabric::QpNumber{qp->qp_num});
  REQUIRE(board.get(place) != 0);
  std::atomic<bool> ended{false};
  std::thread ends([&] {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_ERR;
    if (ibv_modify_qp(qp, &attributes, IBV_QP_STATE) != 0) std::abort();
    ended = true;
  });
  wait_until([&] { return board.get(place) == 0; });
  std::vector<std::uint8_t> memory(4096);
  ibv_mr* local = ibv_reg_mr(owner.pd, memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE);
  REQUIRE(local != nullptr);
  CHECK(ibv_dereg_mr(local) == 0);
  CHECK_FALSE(ended);
  peer.go_on();
  ends.join();
}

TEST_CASE("a device is not opened with a reach that does not exist", "[ibverbs][placement]") {
  name_fabric();
  setenv("SPLITNIC_PLACEMENT", "everything", 1);
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  CHECK(ibv_open_device(list[0]) == nullptr);
  unsetenv("SPLITNIC_PLACEMENT");
  ibv_free_device_list(list);
}

}  // namespace
}  // namespace splitnic::ibverbs::testing::placement_test
