// How requests fail, and what fails with them.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <fstream>
#include <memory>
#include <new>
#include <optional>
#include <vector>

#include "tests/ibverbs/device.h"

namespace splitnic::ibverbs::testing::failures_test {
namespace {

/// Writes 8 bytes with this key and address, which the peer must refuse; then both ends have failed, and what is posted
/// later is flushed.
void refused_write(Device& one, Device& other, Connected& ends, std::uint32_t key, std::uint64_t address) {
  ibv_sge part = one.part(0, 8);
  ibv_send_wr request = ends.first.request(1, IBV_WR_RDMA_WRITE, part);
  request.wr.rdma.remote_addr = address;
  request.wr.rdma.rkey = key;
  REQUIRE(ends.second.receive(5, 0, 8) == 0);
  REQUIRE(ends.first.post(request) == 0);
  one.expect(1, IBV_WC_REM_ACCESS_ERR);
  other.expect(5, IBV_WC_WR_FLUSH_ERR);
  CHECK(ends.first.state() == IBV_QPS_ERR);
  CHECK(ends.second.state() == IBV_QPS_ERR);
  ibv_async_event event{};
  REQUIRE(ibv_get_async_event(other.context, &event) == 0);
  CHECK(event.event_type == IBV_EVENT_QP_ACCESS_ERR);
  CHECK(event.element.qp == ends.second.qp);
  ibv_ack_async_event(&event);
}

TEST_CASE("a wrong key, a place out of bounds and a missing right are refused by the owner", "[ibverbs]") {
  Device one;
  Device other;
  SECTION("wrong key") {
    Connected ends(one, other);
    refused_write(one, other, ends, other.mr->rkey + 1, other.address());
  }
  SECTION("out of bounds") {
    Connected ends(one, other);
    refused_write(one, other, ends, other.mr->rkey, other.address(kBytes - 7));
  }
  SECTION("the region may only be read") {
    ibv_mr* readable = ibv_reg_mr(other.pd, other.memory.data(), kBytes, IBV_ACCESS_REMOTE_READ);
    REQUIRE(readable != nullptr);
    Connected ends(one, other);
    refused_write(one, other, ends, readable->rkey, other.address());
    CHECK(ibv_dereg_mr(readable) == 0);
  }
  SECTION("the queue pair lets nobody write") {
    Shape closed;
    closed.access = IBV_ACCESS_REMOTE_READ;
    Connected ends(one, other, Shape{}, closed);
    refused_write(one, other, ends, other.mr->rkey, other.address());
  }
}

TEST_CASE("a segment whose key is wrong ends its request, not the post", "[ibverbs]") {
  Device one;
  Device other;
  Connected ends(one, other);
  ibv_sge part = one.part(0, 8);
  part.lkey += 1;
  REQUIRE(ends.first.post(ends.first.request(1, IBV_WR_SEND, part)) == 0);
  one.expect(1, IBV_WC_LOC_PROT_ERR);
  CHECK(ends.first.state() == IBV_QPS_ERR);
}

TEST_CASE("a shared receive whose key is wrong is taken, and ends with an error in its turn", "[ibverbs]") {
  Device one;
  Device other;
  SharedReceives receives(other, 4);
  Shape shared;
  shared.srq = receives.srq;
  Connected ends(one, other, Shape{}, shared);
  ibv_sge part = other.part(0, 8);
  part.lkey += 1;
  REQUIRE(receives.post(7, part) == 0);
  REQUIRE(ends.first.send(1, 0, 8) == 0);
  other.expect(7, IBV_WC_LOC_PROT_ERR);
  one.expect(1, IBV_WC_REM_OP_ERR);
}

TEST_CASE("without a posted receive the sender gives up after its retries", "[ibverbs]") {
  Device one;
  Device other;
  Shape impatient;
  impatient.receiver_not_ready_retries = 0;
  Connected ends(one, other, impatient, Shape{});
  REQUIRE(ends.first.send(1, 0, 8) == 0);
  one.expect(1, IBV_WC_RNR_RETRY_EXC_ERR);
}

TEST_CASE("a sender with two retries waits twice as long as the receiver asks for, and then gives up", "[ibverbs]") {
  constexpr std::uint8_t kTimer = 20;
  constexpr auto kAskedFor = std::chrono::microseconds(10'240);  // IBTA volume 1, table 45
  Device one;
  Device other;
  Shape impatient;
  impatient.receiver_not_ready_retries = 2;
  Connected ends(one, other, impatient, Shape{});
  ibv_qp_attr slow{};
  slow.min_rnr_timer = kTimer;
  REQUIRE(ibv_modify_qp(ends.second.qp, &slow, IBV_QP_MIN_RNR_TIMER) == 0);
  const auto begin = std::chrono::steady_clock::now();
  REQUIRE(ends.first.send(1, 0, 8) == 0);
  REQUIRE(ends.first.send(2, 0, 8) == 0);
  one.expect(1, IBV_WC_RNR_RETRY_EXC_ERR);
  CHECK(std::chrono::steady_clock::now() - begin >= 2 * kAskedFor);
  one.expect(2, IBV_WC_WR_FLUSH_ERR);
  CHECK(ends.first.state() == IBV_QPS_ERR);
  REQUIRE(ends.second.receive(3, 0, 8) == 0);
  other.expect_nothing();
}

TEST_CASE("a sender with retries without end waits for the receive", "[ibverbs]") {
  Device one;
  Device other;
  Connected ends(one, other);
  REQUIRE(ends.first.send(1, 0, 8) == 0);
  for (int i = 0; i < 50; ++i) one.expect_nothing();  // many times the 10 us that the receiver asks for
  REQUIRE(ends.second.receive(2, 0, 8) == 0);
  other.expect(2);
  one.expect(1);
}

TEST_CASE("a message that is longer than its receive fails at both ends", "[ibverbs]") {
  Device one;
  Device other;
  Connected ends(one, other);
  REQUIRE(ends.second.receive(2, 0, 8) == 0);
  REQUIRE(ends.first.send(1, 0, 9) == 0);
  other.expect(2, IBV_WC_LOC_LEN_ERR);
  one.expect(1, IBV_WC_REM_INV_REQ_ERR);
}

TEST_CASE("posts and changes in a wrong state are refused", "[ibverbs]") {
  Device device;
  Queue queue(device, {});
  CHECK(queue.receive(1, 0, 8) == EINVAL);
  CHECK(queue.send(1, 0, 8) == EINVAL);
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  CHECK(ibv_modify_qp(queue.qp, &attributes, IBV_QP_STATE) == EINVAL);
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = 1;
  CHECK(ibv_modify_qp(queue.qp, &attributes, IBV_QP_STATE | IBV_QP_PORT) == EINVAL);  // incomplete
  attributes.port_num = 2;
  CHECK(ibv_modify_qp(queue.qp, &attributes, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS) ==
        EINVAL);
  CHECK(queue.state() == IBV_QPS_RESET);
  queue.initialize();
  CHECK(queue.receive(1, 0, 8) == 0);
  CHECK(queue.send(1, 0, 8) == EINVAL);
  CHECK(queue.state() == IBV_QPS_INIT);
}

/// Writes to memory that is unmapped, of a program that has installed a crash handler after it opened the device. The
/// status of a process that does that: 0 if the request has failed, and nothing else.
int end_with_late_handler(bool registers_afterwards) {
  name_fabric();
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    alarm(static_cast<unsigned>(kLimit.count()));  // if it hangs
    Device device;
    std::optional<Connected> ends;
    if (registers_afterwards) ends.emplace(device, device);
    constexpr std::size_t kGone = 65536;
    void* gone = mmap(nullptr, kGone, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const auto install = [] { std::signal(SIGSEGV, [](int) { _exit(3); }); };
    if (registers_afterwards) install();
    const ibv_mr* region = ibv_reg_mr(device.pd, gone, kGone, kAllAccess);
    if (!registers_afterwards) {
      install();
      ends.emplace(device, device);
    }
    munmap(gone, kGone);
    ibv_sge part = device.part(0, 5000);
    ibv_send_wr request = ends->first.request(1, IBV_WR_RDMA_WRITE, part);
    request.wr.rdma.remote_addr = reinterpret_cast<std::uintptr_t>(gone);
    request.wr.rdma.rkey = region->rkey;
    const bool posted = ends->first.post(request) == 0;
    _exit(posted && device.next().status == IBV_WC_REM_OP_ERR ? 0 : 1);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  return status;
}

TEST_CASE("memory that has gone fails a request, although the program has installed a crash handler late",
          "[ibverbs]") {
  SECTION("before it registers memory") { CHECK(end_with_late_handler(true) == 0); }
  SECTION("before it creates a queue pair") { CHECK(end_with_late_handler(false) == 0); }
}

TEST_CASE("a local ID that no endnode can have is no peer", "[ibverbs]") {
  Device device;
  Queue queue(device, {});
  queue.initialize();
  ibv_ah_attr address{};
  address.port_num = 1;
  for (const std::uint16_t lid : {std::uint16_t{0}, std::uint16_t{0xc000}, std::uint16_t{0xffff}}) {
    CAPTURE(lid);
    CHECK(queue.try_to_receive(lid, 0x1234) == EINVAL);
    address.dlid = lid;
    CHECK(ibv_create_ah(device.pd, &address) == nullptr);
    CHECK(errno == EINVAL);
  }
  CHECK(queue.try_to_receive(0xbfff, 0x1234) == 0);
}

TEST_CASE("an event of a destroyed queue is not reported for its successor", "[ibverbs]") {
  Device device;
  REQUIRE(fcntl(device.context->async_fd, F_SETFL, O_NONBLOCK) == 0);
  for (int round = 0; round < 50; ++round) {
    ibv_cq* small = ibv_create_cq(device.context, 1, nullptr, nullptr, 0);
    REQUIRE(small != nullptr);
    ibv_qp_init_attr wanted{};
    wanted.send_cq = wanted.recv_cq = small;
    wanted.cap = {1, 2, 1, 1, 0};
    wanted.qp_type = IBV_QPT_RC;
    ibv_qp* qp = ibv_create_qp(device.pd, &wanted);
    REQUIRE(qp != nullptr);
    ibv_qp_attr error{};
    error.qp_state = IBV_QPS_ERR;
    REQUIRE(ibv_modify_qp(qp, &error, IBV_QP_STATE) == 0);
    ibv_recv_wr second{};
    ibv_recv_wr first{0, &second, nullptr, 0};
    ibv_recv_wr* bad = nullptr;
    static_cast<void>(ibv_post_recv(qp, &first, &bad));  // two completions for one place
    REQUIRE(ibv_destroy_qp(qp) == 0);
    REQUIRE(ibv_destroy_cq(small) == 0);
    ibv_cq* next = ibv_create_cq(device.context, 1, nullptr, nullptr, 0);
    ibv_async_event event{};
    REQUIRE(ibv_get_async_event(device.context, &event) == -1);
    CHECK(errno == EAGAIN);
    REQUIRE(ibv_destroy_cq(next) == 0);
  }
}

TEST_CASE("a full send queue refuses the next request and names it", "[ibverbs]") {
  Device one;
  Device other;
  Shape shape;
  shape.depth = 4;
  Connected ends(one, other, shape);
  std::array<ibv_send_wr, 6> list{};
  ibv_sge part = one.part(0, 8);
  for (std::size_t i = 0; i < list.size(); ++i) {
    list[i] = ends.first.request(i, IBV_WR_SEND, part);
    list[i].next = i + 1 < list.size() ? &list[i + 1] : nullptr;
  }
  ibv_send_wr* bad = nullptr;
  CHECK(ibv_post_send(ends.first.qp, list.data(), &bad) == ENOMEM);
  CHECK(bad == &list[4]);
}

TEST_CASE("a send queue is full until the program takes completions", "[ibverbs]") {
  constexpr int kDepth = 4;
  constexpr int kReceives = 16;
  Device one(kDepth);
  Device other;
  Shape shape;
  shape.depth = kDepth;
  shape.type = GENERATE(IBV_QPT_RC, IBV_QPT_UD);
  shape.extended = GENERATE(false, true);
  Shape of_other = shape;
  of_other.depth = kReceives;
  Connected ends(one, other, shape, of_other);
  ibv_ah* const ah = handle_to(one, other.lid());
  REQUIRE(ah != nullptr);
  ibv_sge part = one.part(0, 8);
  const auto post = [&](std::uint64_t id) {
    if (!shape.extended) {
      ibv_send_wr request = ends.first.request(id, IBV_WR_SEND, part);
      if (shape.type == IBV_QPT_UD) request.wr.ud = {ah, ends.second.qp->qp_num, kQueueKey};
      return ends.first.post(request);
    }
    ibv_qp_ex* qp = ibv_qp_to_qp_ex(ends.first.qp);
    ibv_wr_start(qp);
    qp->wr_id = id;
    ibv_wr_send(qp);
    if (shape.type == IBV_QPT_UD) ibv_wr_set_ud_addr(qp, ah, ends.second.qp->qp_num, kQueueKey);
    ibv_wr_set_sge(qp, part.lkey, part.addr, part.length);
    return ibv_wr_complete(qp);
  };
  for (std::uint64_t i = 0; i < kReceives; ++i) REQUIRE(ends.second.receive(i, 0, 64) == 0);
  std::uint64_t posted = 0;
  for (int round = 0; round < 3; ++round) {
    REQUIRE(ibv_req_notify_cq(one.cq, 0) == 0);
    for (; posted < static_cast<std::uint64_t>(kDepth + round); ++posted) REQUIRE(post(posted) == 0);
    ibv_cq* notified = nullptr;
    void* user = nullptr;
    REQUIRE(ibv_get_cq_event(one.channel, &notified, &user) == 0);  // one has ended
    ibv_ack_cq_events(notified, 1);
    CHECK(post(99) == ENOMEM);
    one.expect(static_cast<std::uint64_t>(round));  // makes room for one more
  }
  CHECK(ends.first.state() == IBV_QPS_RTS);
  CHECK(ibv_destroy_ah(ah) == 0);
}

TEST_CASE("what is posted to a queue pair in error is flushed", "[ibverbs]") {
  Device one;
  Device other;
  Shape shape;
  shape.extended = true;
  Connected ends(one, other, shape);
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  REQUIRE(ibv_modify_qp(ends.first.qp, &attributes, IBV_QP_STATE) == 0);
  CHECK(ends.first.send(7, 0, 8) == 0);
  one.expect(7, IBV_WC_WR_FLUSH_ERR);
  CHECK(ends.first.receive(8, 0, 8) == 0);
  one.expect(8, IBV_WC_WR_FLUSH_ERR);
  ibv_qp_ex* qp = ibv_qp_to_qp_ex(ends.first.qp);
  ibv_wr_start(qp);
  qp->wr_id = 9;
  ibv_wr_send(qp);
  REQUIRE(ibv_wr_complete(qp) == 0);
  one.expect(9, IBV_WC_WR_FLUSH_ERR);
}

/// `good` receives of the first end have succeeded, and the one behind them was flushed.
struct FlushedLast {
  explicit FlushedLast(std::uint64_t good) {
    for (std::uint64_t i = 0; i <= good; ++i) REQUIRE(ends.first.receive(i, 0, 8) == 0);
    for (std::uint64_t i = 0; i < good; ++i) {
      REQUIRE(ends.second.send(i, 0, 8) == 0);
      other.expect(i);
    }
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_ERR;
    REQUIRE(ibv_modify_qp(ends.first.qp, &attributes, IBV_QP_STATE) == 0);
  }
  static Shape deep() {
    Shape shape;
    shape.depth = 32;
    return shape;
  }
  Device one;
  Device other;
  Connected ends{one, other, deep()};
};

TEST_CASE("flushed completions come in polls of their own", "[ibverbs]") {
  const int good = GENERATE(16, 17);  // a poll takes 16 at a time out of the queue
  FlushedLast ended(static_cast<std::uint64_t>(good));
  std::array<ibv_wc, 64> done{};
  REQUIRE(ibv_poll_cq(ended.one.cq, static_cast<int>(done.size()), done.data()) == good);
  for (std::size_t i = 0; i < static_cast<std::size_t>(good); ++i) CHECK(done.at(i).status == IBV_WC_SUCCESS);
  REQUIRE(ibv_poll_cq(ended.one.cq, static_cast<int>(done.size()), done.data()) == 1);
  CHECK(done[0].status == IBV_WC_WR_FLUSH_ERR);
}

TEST_CASE("of requests that are posted together, a bad one keeps all of them from being posted", "[ibverbs]") {
  Device one;
  Device other;
  Shape shape;
  shape.extended = true;
  Connected ends(one, other, shape);
  ibv_qp_ex* qp = ibv_qp_to_qp_ex(ends.first.qp);
  ibv_wr_start(qp);
  qp->wr_id = 1;
  ibv_wr_rdma_write(qp, other.mr->rkey, other.address());
  ibv_wr_set_sge(qp, one.mr->lkey, one.address(), 8);
  qp->wr_id = 2;
  ibv_wr_atomic_fetch_add(qp, other.mr->rkey, other.address(), 1);
  ibv_wr_set_sge(qp, one.mr->lkey, one.address(), 4);  // an atomic has 8 bytes
  CHECK(ibv_wr_complete(qp) == EINVAL);
  one.expect_nothing();
  REQUIRE(ends.second.receive(3, 0, 8) == 0);
  REQUIRE(ends.first.send(4, 0, 8) == 0);
  one.expect(4);  // nothing was before it
}

TEST_CASE("a completion queue without room for a completion fails, and its queue pair with it", "[ibverbs]") {
  Device one(2);
  Device other;
  Connected ends(one, other);
  for (std::uint64_t i = 0; i < 3; ++i) {
    CHECK(ends.second.receive(i, 0, 8) == 0);
    CHECK(ends.first.send(i, 0, 8) == 0);  // more than the queue has room for
  }
  ibv_async_event event{};
  REQUIRE(ibv_get_async_event(one.context, &event) == 0);
  CHECK(event.event_type == IBV_EVENT_CQ_ERR);
  CHECK(event.element.cq == one.cq);
  ibv_ack_async_event(&event);
  wait_until([&] { return ends.first.state() == IBV_QPS_ERR; });
  one.expect(0);
  one.expect(1);
  one.expect_nothing();
}

TEST_CASE("a completion queue changes its size", "[ibverbs]") {
  Device device(4);
  CHECK(ibv_resize_cq(device.cq, 16) == 0);
  CHECK(device.cq->cqe == 16);
  Queue queue(device, {});
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  REQUIRE(ibv_modify_qp(queue.qp, &attributes, IBV_QP_STATE) == 0);
  for (std::uint64_t i = 0; i < 10; ++i) CHECK(queue.receive(i, 0, 8) == 0);
  CHECK(ibv_resize_cq(device.cq, 9) == EINVAL);  // ten wait
  CHECK(device.cq->cqe == 16);
  for (std::uint64_t i = 0; i < 10; ++i) device.expect(i, IBV_WC_WR_FLUSH_ERR);
  CHECK(ibv_resize_cq(device.cq, 9) == 0);
}

/// As long as the object lives, the process finds no memory of more than kSmallChange in one piece.
class NoMoreMemory {
 public:
  NoMoreMemory() {
    REQUIRE(getrlimit(RLIMIT_AS, &before_) == 0);
    std::size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    rlimit now = before_;
    now.rlim_cur = pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + kSmallChange;
    taken_.reserve(4096);
    REQUIRE(setrlimit(RLIMIT_AS, &now) == 0);
    // What earlier tests have given back to the allocator.
    while (taken_.size() < taken_.capacity()) {
      taken_.emplace_back(new (std::nothrow) std::byte[kSmallChange]);
      if (taken_.back() == nullptr) return;
    }
  }
  ~NoMoreMemory() { setrlimit(RLIMIT_AS, &before_); }
  NoMoreMemory(const NoMoreMemory&) = delete;
  NoMoreMemory& operator=(const NoMoreMemory&) = delete;

 private:
  static constexpr std::size_t kSmallChange = 1U << 20U;
  rlimit before_{};
  std::vector<std::unique_ptr<std::byte[]>> taken_;
};

// A sanitizer's allocator ends the program instead.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_CASE("an object that finds no memory to grow stays as it is", "[ibverbs]") {
  Device device;
  const SharedReceives receives(device, 16);
  ibv_srq_attr larger{};
  larger.max_wr = 16384;
  int of_queue = 0;
  int of_receives = 0;
  {
    const NoMoreMemory limit;
    of_queue = ibv_resize_cq(device.cq, 262144);
    of_receives = ibv_modify_srq(receives.srq, &larger, IBV_SRQ_MAX_WR);
  }
  CHECK(of_queue == ENOMEM);
  CHECK(device.cq->cqe == 256);
  CHECK(of_receives == ENOMEM);
  CHECK(ibv_query_srq(receives.srq, &larger) == 0);
  CHECK(larger.max_wr == 16);
  CHECK(ibv_resize_cq(device.cq, 262144) == 0);
}
#endif

TEST_CASE("a parent domain stays until everything that was made on it is gone", "[ibverbs]") {
  Device device;
  ibv_td_init_attr of_thread{};
  ibv_td* thread = ibv_alloc_td(device.context, &of_thread);
  REQUIRE(thread != nullptr);
  ibv_parent_domain_init_attr of{};
  of.pd = device.pd;
  of.td = thread;
  ibv_pd* parent = ibv_alloc_parent_domain(device.context, &of);
  REQUIRE(parent != nullptr);
  CHECK(ibv_dealloc_td(thread) == EBUSY);
  ibv_mr* region = ibv_reg_mr(parent, device.memory.data(), 64, IBV_ACCESS_LOCAL_WRITE);
  CHECK(ibv_dealloc_pd(parent) == EBUSY);
  CHECK(ibv_rereg_mr(region, IBV_REREG_MR_CHANGE_PD, device.pd, nullptr, 0, 0) == 0);
  ibv_mw* window = ibv_alloc_mw(parent, IBV_MW_TYPE_1);
  CHECK(ibv_dealloc_pd(parent) == EBUSY);
  CHECK(ibv_dealloc_mw(window) == 0);
  ibv_srq_init_attr wanted{};
  wanted.attr.max_wr = 1;
  ibv_srq* srq = ibv_create_srq(parent, &wanted);
  CHECK(ibv_dealloc_pd(parent) == EBUSY);
  CHECK(ibv_destroy_srq(srq) == 0);
  ibv_qp_init_attr queue{};
  queue.send_cq = queue.recv_cq = device.cq;
  queue.qp_type = IBV_QPT_RC;
  ibv_qp* qp = ibv_create_qp(parent, &queue);
  CHECK(ibv_dealloc_pd(parent) == EBUSY);
  CHECK(ibv_destroy_qp(qp) == 0);
  ibv_ah_attr address{};
  address.dlid = device.lid();
  address.port_num = 1;
  ibv_ah* handle = ibv_create_ah(parent, &address);
  CHECK(ibv_dealloc_pd(parent) == EBUSY);
  CHECK(ibv_destroy_ah(handle) == 0);
  CHECK(ibv_dealloc_pd(parent) == 0);
  CHECK(ibv_dealloc_td(thread) == 0);
  CHECK(ibv_dereg_mr(region) == 0);
}

TEST_CASE("what is in use can't be destroyed", "[ibverbs]") {
  Device device;
  {
    Queue queue(device, {});
    CHECK(ibv_destroy_cq(device.cq) == EBUSY);
    CHECK(ibv_dealloc_pd(device.pd) == EBUSY);
    CHECK(ibv_destroy_comp_channel(device.channel) == EBUSY);
  }
  ibv_parent_domain_init_attr of{};
  of.pd = device.pd;
  ibv_pd* parent = ibv_alloc_parent_domain(device.context, &of);
  REQUIRE(parent != nullptr);
  CHECK(ibv_dereg_mr(device.mr) == 0);
  device.mr = nullptr;
  CHECK(ibv_dealloc_pd(device.pd) == EBUSY);
  CHECK(ibv_dealloc_pd(parent) == 0);
}

TEST_CASE("a peer that nobody is: the request fails after its timeouts", "[ibverbs]") {
  Device device;
  Shape brief;
  brief.timeout = 1;
  brief.retries = 0;
  Queue queue(device, brief);
  queue.connect(static_cast<std::uint16_t>(device.lid() == 77 ? 78 : 77), 0x1234);
  REQUIRE(queue.send(1, 0, 8) == 0);
  REQUIRE(queue.send(2, 0, 8) == 0);
  device.expect(1, IBV_WC_RETRY_EXC_ERR);
  device.expect(2, IBV_WC_WR_FLUSH_ERR);
}

TEST_CASE("a peer that closes its device ends what waits for it, with an event", "[ibverbs]") {
  Device one;
  auto other = std::make_unique<Device>();
  Queue mine(one, {});
  {
    Queue its(*other, {});
    mine.connect(other->lid(), its.qp->qp_num);
    its.connect(one.lid(), mine.qp->qp_num);
    REQUIRE(its.receive(1, 0, 8) == 0);
    REQUIRE(mine.send(2, 0, 8) == 0);
    other->expect(1);
    one.expect(2);
    REQUIRE(mine.send(3, 0, 8) == 0);  // finds no receive, and waits
    REQUIRE(mine.send(4, 0, 8) == 0);
    one.expect_nothing();
  }
  other.reset();
  one.expect(3, IBV_WC_RETRY_EXC_ERR);
  one.expect(4, IBV_WC_WR_FLUSH_ERR);
  one.expect_fatal_event();
}

}  // namespace
}  // namespace splitnic::ibverbs::testing::failures_test
