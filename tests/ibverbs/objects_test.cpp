// Attributes, events, shared receive queues, windows and regions.
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/ibverbs/device.h"

namespace splitnic::ibverbs::testing::objects_test {
namespace {

TEST_CASE("the device, its port and its tables say what they are", "[ibverbs]") {
  Device device;
  ibv_device_attr about{};
  REQUIRE(ibv_query_device(device.context, &about) == 0);
  CHECK(about.phys_port_cnt == 1);
  CHECK(about.max_qp > 0);
  CHECK(about.max_sge >= 4);
  CHECK(about.node_guid == ibv_get_device_guid(device.context->device));
  ibv_device_attr_ex more{};
  REQUIRE(ibv_query_device_ex(device.context, nullptr, &more) == 0);
  CHECK(more.orig_attr.max_qp == about.max_qp);
  ibv_port_attr port{};
  REQUIRE(ibv_query_port(device.context, 1, &port) == 0);
  CHECK(port.state == IBV_PORT_ACTIVE);
  CHECK(port.link_layer == IBV_LINK_LAYER_INFINIBAND);
  CHECK(port.lid != 0);
  CHECK(ibv_query_port(device.context, 2, &port) == EINVAL);
  ibv_gid gid{};
  REQUIRE(ibv_query_gid(device.context, 1, 0, &gid) == 0);
  CHECK(gid.raw[0] == 0xfe);
  CHECK(gid.raw[15] == (port.lid & 0xff));
  CHECK(ibv_query_gid(device.context, 1, port.gid_tbl_len, &gid) == -1);
  ibv_gid_entry entry{};
  CHECK(ibv_query_gid_ex(device.context, 1, 0, &entry, 0) == 0);
  CHECK(ibv_query_gid_ex(device.context, 1, 1, &entry, 0) == ENODATA);
  CHECK(ibv_query_gid_table(device.context, &entry, 1, 0) == 1);
  __be16 key = 0;
  CHECK(ibv_query_pkey(device.context, 1, 0, &key) == 0);
  CHECK(key == 0xffff);
  CHECK(ibv_get_pkey_index(device.context, 1, key) == 0);
  CHECK(ibv_query_pkey(device.context, 1, 1, &key) == -1);
}

/// destroy() must wait until acknowledge() has been called.
void expect_to_wait(const std::function<int()>& destroy, const std::function<void()>& acknowledge) {
  std::atomic<pid_t> thread{0};
  std::atomic<bool> acknowledged{false};
  std::atomic<bool> ended{false};
  bool waited = false;
  int destroyed = -1;
  std::thread destroyer([&] {
    thread = gettid();
    destroyed = destroy();
    waited = acknowledged;
    ended = true;
  });
  wait_until([&] { return ended || sleeps(thread); });
  acknowledged = true;
  if (!ended) acknowledge();
  destroyer.join();
  CHECK(destroyed == 0);
  CHECK(waited);
}

TEST_CASE("a completion channel's descriptor wakes one who waits, and the queue waits to be acknowledged",
          "[ibverbs]") {
  Device one;
  Device other;
  Connected ends(one, other);
  ibv_cq* cq = nullptr;
  void* user = nullptr;
  REQUIRE(fcntl(other.channel->fd, F_SETFL, fcntl(other.channel->fd, F_GETFL) | O_NONBLOCK) == 0);
  CHECK(ibv_get_cq_event(other.channel, &cq, &user) == -1);
  CHECK(errno == EAGAIN);
  REQUIRE(ibv_req_notify_cq(other.cq, 0) == 0);
  REQUIRE(ends.second.receive(1, 0, 8) == 0);
  REQUIRE(ends.first.send(2, 0, 8) == 0);
  pollfd readable{other.channel->fd, POLLIN, 0};
  REQUIRE(poll(&readable, 1, 10000) == 1);
  REQUIRE(ibv_get_cq_event(other.channel, &cq, &user) == 0);
  CHECK(cq == other.cq);
  CHECK(user == &other);
  other.expect(1);
  one.expect(2);
  REQUIRE(ibv_destroy_qp(ends.second.qp) == 0);
  ends.second.qp = nullptr;
  expect_to_wait([cq] { return ibv_destroy_cq(cq); }, [cq] { ibv_ack_cq_events(cq, 1); });
  other.cq = nullptr;
}

TEST_CASE("each of two thousand queue pairs may have two completion queues with a channel each", "[ibverbs]") {
  constexpr std::size_t kQueues = 4000;
  rlimit limit{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  if (limit.rlim_max < kQueues + 200) {
    WARN("skipped: a process may have " << limit.rlim_max << " descriptors");
    return;
  }
  const rlimit before = std::exchange(limit, {limit.rlim_max, limit.rlim_max});
  REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
  const Device device;
  std::vector<ibv_cq*> queues;
  std::vector<ibv_comp_channel*> channels;
  for (std::size_t i = 0; i < kQueues; ++i) {
    channels.push_back(ibv_create_comp_channel(device.context));
    if (channels.back() == nullptr) break;
    queues.push_back(ibv_create_cq(device.context, 1, nullptr, channels.back(), 0));
    if (queues.back() == nullptr) break;
  }
  REQUIRE(queues.size() == kQueues);
  CHECK(queues.back() != nullptr);
  for (ibv_cq* queue : queues) CHECK(ibv_destroy_cq(queue) == 0);
  for (ibv_comp_channel* channel : channels) CHECK(ibv_destroy_comp_channel(channel) == 0);
  CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
}

TEST_CASE("a completion queue that is destroyed takes back its event, which nobody has got", "[ibverbs]") {
  Device device;
  const auto readable = [&] {
    pollfd one{device.channel->fd, POLLIN, 0};
    return poll(&one, 1, 0) == 1;
  };
  // The device's own queue has a completion and an event first, or none.
  const bool others = GENERATE(false, true);
  ibv_cq* const own = device.cq;
  for (const bool of_own : {true, false}) {
    if (of_own && !others) continue;
    ibv_cq* const queue = of_own ? own : ibv_create_cq(device.context, 4, nullptr, device.channel, 0);
    REQUIRE(queue != nullptr);
    device.cq = queue;
    {
      Queue ended(device, {});
      ibv_qp_attr error{};
      error.qp_state = IBV_QPS_ERR;
      REQUIRE(ibv_modify_qp(ended.qp, &error, IBV_QP_STATE) == 0);
      REQUIRE(ibv_req_notify_cq(queue, 0) == 0);
      REQUIRE(ended.receive(1, 0, 8) == 0);  // flushed at once
      CHECK(readable());
    }
    device.cq = own;
    if (!of_own) REQUIRE(ibv_destroy_cq(queue) == 0);
  }
  CHECK(readable() == others);
  if (!others) return;
  ibv_cq* notified = nullptr;
  void* user = nullptr;
  REQUIRE(ibv_get_cq_event(device.channel, &notified, &user) == 0);
  CHECK(notified == own);
  ibv_ack_cq_events(own, 1);
  CHECK_FALSE(readable());
}

TEST_CASE("a queue pair and a shared receive queue wait until their events are acknowledged", "[ibverbs]") {
  Device one;
  Device other;
  SharedReceives receives(other, 2);
  Shape shared;
  shared.srq = receives.srq;
  Connected ends(one, other, Shape{}, shared);
  receives.post(1);
  receives.post(2);
  ibv_srq_attr limit{};
  limit.srq_limit = 2;
  REQUIRE(ibv_modify_srq(receives.srq, &limit, IBV_SRQ_LIMIT) == 0);
  REQUIRE(ends.first.send(3, 0, 8) == 0);
  other.expect(1);
  ibv_async_event of_receives{};
  REQUIRE(ibv_get_async_event(other.context, &of_receives) == 0);
  REQUIRE(of_receives.event_type == IBV_EVENT_SRQ_LIMIT_REACHED);
  ibv_qp_attr error{};
  error.qp_state = IBV_QPS_ERR;
  REQUIRE(ibv_modify_qp(ends.second.qp, &error, IBV_QP_STATE) == 0);
  ibv_async_event of_queue_pair{};
  REQUIRE(ibv_get_async_event(other.context, &of_queue_pair) == 0);
  REQUIRE(of_queue_pair.event_type == IBV_EVENT_QP_LAST_WQE_REACHED);
  expect_to_wait([&] { return ibv_destroy_qp(ends.second.qp); }, [&] { ibv_ack_async_event(&of_queue_pair); });
  ends.second.qp = nullptr;
  expect_to_wait([&] { return ibv_destroy_srq(receives.srq); }, [&] { ibv_ack_async_event(&of_receives); });
  receives.srq = nullptr;
}

TEST_CASE("events of one type about one object wait as one", "[ibverbs]") {
  Device device;
  REQUIRE(fcntl(device.context->async_fd, F_SETFL, O_NONBLOCK) == 0);
  const SharedReceives receives(device, 1);
  {
    Shape shared;
    shared.srq = receives.srq;
    Queue queue(device, shared);
    Queue another(device, shared);
    ibv_qp_attr change{};
    for (int round = 0; round < 3; ++round) {
      for (const auto state : {IBV_QPS_ERR, IBV_QPS_RESET}) {
        change.qp_state = state;
        REQUIRE(ibv_modify_qp(queue.qp, &change, IBV_QP_STATE) == 0);
      }
    }
    change.qp_state = IBV_QPS_ERR;
    REQUIRE(ibv_modify_qp(another.qp, &change, IBV_QP_STATE) == 0);
    for (const Queue* from : {&queue, &another}) {
      ibv_async_event event{};
      REQUIRE(ibv_get_async_event(device.context, &event) == 0);
      CHECK(event.event_type == IBV_EVENT_QP_LAST_WQE_REACHED);
      CHECK(event.element.qp == from->qp);
      ibv_ack_async_event(&event);
    }
    ibv_async_event none{};
    CHECK(ibv_get_async_event(device.context, &none) == -1);
    CHECK(errno == EAGAIN);
  }
}

TEST_CASE("a queue pair is made of objects of its own device, with one protection domain", "[ibverbs]") {
  Device one;
  Device other;
  ibv_pd* another = ibv_alloc_pd(one.context);
  REQUIRE(another != nullptr);
  std::optional<SharedReceives> of_another;
  of_another.emplace(one, another, 1);
  const SharedReceives of_other(other, 1);
  ibv_qp_init_attr right{};
  right.send_cq = right.recv_cq = one.cq;
  right.qp_type = IBV_QPT_RC;
  const auto refused = [&one](const ibv_qp_init_attr& wanted, ibv_pd* pd) {
    ibv_qp_init_attr_ex all{};
    std::memcpy(static_cast<void*>(&all), &wanted, sizeof wanted);
    all.comp_mask = IBV_QP_INIT_ATTR_PD;
    all.pd = pd;
    errno = 0;
    return ibv_create_qp_ex(one.context, &all) == nullptr && errno == EINVAL;
  };
  CHECK(refused(right, other.pd));
  ibv_qp_init_attr wrong = right;
  wrong.send_cq = other.cq;
  CHECK(refused(wrong, one.pd));
  wrong = right;
  wrong.recv_cq = other.cq;
  CHECK(refused(wrong, one.pd));
  for (ibv_srq* srq : {of_another->srq, of_other.srq}) {
    wrong = right;
    wrong.srq = srq;
    CHECK(refused(wrong, one.pd));
  }
  of_another.reset();
  CHECK(ibv_dealloc_pd(another) == 0);
}

TEST_CASE("a blocking wait ends with the completion of a solicited send", "[ibverbs]") {
  Device one;
  Device other;
  Connected ends(one, other);
  REQUIRE(ibv_req_notify_cq(other.cq, 1) == 0);
  REQUIRE(ends.second.receive(1, 0, 8) == 0);
  REQUIRE(ends.second.receive(2, 0, 8) == 0);
  REQUIRE(ends.first.send(3, 0, 8) == 0);
  other.expect(1);
  REQUIRE(ends.first.send(4, 0, 8, IBV_SEND_SOLICITED) == 0);
  ibv_cq* cq = nullptr;
  void* user = nullptr;
  REQUIRE(ibv_get_cq_event(other.channel, &cq, &user) == 0);
  ibv_ack_cq_events(cq, 1);
  other.expect(2);
}

TEST_CASE("a queue pair whose sends are drained takes what may change then, and an address of its own peer alone",
          "[ibverbs]") {
  const ibv_qp_type type = GENERATE(IBV_QPT_RC, IBV_QPT_UC);
  CAPTURE(type);
  Device one;
  Device other;
  const Device third;
  Connected ends(one, other, {.type = type});
  ibv_qp_attr change{};
  change.qp_state = IBV_QPS_SQD;
  REQUIRE(ibv_modify_qp(ends.first.qp, &change, IBV_QP_STATE) == 0);
  change.ah_attr.dlid = other.lid();
  change.ah_attr.port_num = 1;
  change.ah_attr.sl = 3;
  CHECK(ibv_modify_qp(ends.first.qp, &change, IBV_QP_STATE | IBV_QP_AV) == 0);
  ibv_qp_init_attr made_with{};
  ibv_qp_attr now{};
  REQUIRE(ibv_query_qp(ends.first.qp, &now, IBV_QP_AV, &made_with) == 0);
  CHECK(now.ah_attr.sl == 3);
  change.ah_attr.port_num = 2;
  CHECK(ibv_modify_qp(ends.first.qp, &change, IBV_QP_AV) == EINVAL);
  change.ah_attr.port_num = 1;
  change.ah_attr.dlid = third.lid();  // devices of one process are addressed as if they shared a port
  CHECK(ibv_modify_qp(ends.first.qp, &change, IBV_QP_AV) == 0);
  std::uint16_t nobody = 1;
  while (nobody == one.lid() || nobody == other.lid() || nobody == third.lid()) ++nobody;
  for (const std::uint16_t lid : {std::uint16_t{0}, nobody}) {
    change.ah_attr.dlid = lid;
    CHECK(ibv_modify_qp(ends.first.qp, &change, IBV_QP_AV) == EINVAL);
  }
  change.max_dest_rd_atomic = 2;
  change.port_num = 1;
  const int only_reliable = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_PORT;
  CHECK(ibv_modify_qp(ends.first.qp, &change, only_reliable) == (type == IBV_QPT_RC ? 0 : EINVAL));
  change.qp_state = IBV_QPS_RTS;
  REQUIRE(ibv_modify_qp(ends.first.qp, &change, IBV_QP_STATE) == 0);
  REQUIRE(ends.second.receive(2, 0, 8) == 0);
  REQUIRE(ends.first.send(1, 0, 8) == 0);
  one.expect(1);
  other.expect(2);
  change.ah_attr.dlid = other.lid();
  CHECK(ibv_modify_qp(ends.first.qp, &change, IBV_QP_AV) == EINVAL);  // only while they are drained
}

TEST_CASE("a shared receive queue feeds its queue pairs, reports its limit and the last receive", "[ibverbs]") {
  Device one;
  Device other;
  SharedReceives receives(other, 16, 2);
  ibv_srq* const srq = receives.srq;
  Shape shared;
  shared.srq = srq;
  {
    Connected ends(one, other, Shape{}, shared);
    for (std::uint64_t i = 0; i < 4; ++i) receives.post(i);
    ibv_srq_attr attributes{};
    attributes.srq_limit = 3;
    REQUIRE(ibv_modify_srq(srq, &attributes, IBV_SRQ_LIMIT) == 0);
    REQUIRE(ibv_query_srq(srq, &attributes) == 0);
    CHECK(attributes.srq_limit == 3);
    CHECK(ibv_destroy_srq(srq) == EBUSY);
    attributes.max_wr = 3;
    CHECK(ibv_modify_srq(srq, &attributes, IBV_SRQ_MAX_WR) == EINVAL);  // four are posted
    attributes.max_wr = 40;
    CHECK(ibv_modify_srq(srq, &attributes, IBV_SRQ_MAX_WR) == 0);
    REQUIRE(ibv_query_srq(srq, &attributes) == 0);
    CHECK(attributes.max_wr == 40);
    for (std::uint64_t i = 0; i < 2; ++i) {
      REQUIRE(ends.first.send(10 + i, 0, 8) == 0);
      other.expect(i);
      one.expect(10 + i);
    }
    ibv_async_event event{};
    REQUIRE(ibv_get_async_event(other.context, &event) == 0);
    CHECK(event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED);
    CHECK(event.element.srq == srq);
    ibv_ack_async_event(&event);
    ibv_qp_attr error{};
    error.qp_state = IBV_QPS_ERR;
    REQUIRE(ibv_modify_qp(ends.second.qp, &error, IBV_QP_STATE) == 0);
    REQUIRE(ibv_get_async_event(other.context, &event) == 0);
    CHECK(event.event_type == IBV_EVENT_QP_LAST_WQE_REACHED);
    ibv_ack_async_event(&event);
  }
}

extern "C" const char* ibv_get_sysfs_path();  // only the header for providers declares it

TEST_CASE("programs find a folder of the device where the library says that sysfs is", "[ibverbs]") {
  name_fabric();
  // An open device has files of its own there, and so makes the folder, too; programs look before they open one.
  std::filesystem::remove_all(std::string(std::getenv("XDG_RUNTIME_DIR")) + "/splitnic/fabric-default/sysfs");
  const std::filesystem::path sysfs = ibv_get_sysfs_path();
  CHECK(std::filesystem::is_directory(sysfs / "class/infiniband/splitnic0"));
  CHECK(sysfs != "/sys");
}

/// Writes 8 bytes through the key; the status of the completion.
ibv_wc_status write_through(Device& one, Queue& queue, std::uint32_t key, std::uint64_t address) {
  ibv_sge part = one.part(0, 8);
  ibv_send_wr request = queue.request(1, IBV_WR_RDMA_WRITE, part);
  request.wr.rdma.remote_addr = address;
  request.wr.rdma.rkey = key;
  REQUIRE(queue.post(request) == 0);
  return one.next().status;
}

TEST_CASE("two threads post to one queue pair and poll one queue", "[ibverbs]") {
  Device one;
  Device other;
  Shape shape;
  shape.depth = 64;
  Connected ends(one, other, shape);
  constexpr int kEach = 200;
  std::atomic<int> done{0};
  std::atomic<bool> failed{false};
  const auto limit = std::chrono::steady_clock::now() + kLimit;
  const auto post = [&] {
    ibv_sge part = one.part(0, 8);
    for (int i = 0; i < kEach && !failed;) {
      ibv_send_wr request = ends.first.request(1, IBV_WR_RDMA_WRITE, part);
      request.wr.rdma.remote_addr = other.address();
      request.wr.rdma.rkey = other.mr->rkey;
      if (ends.first.post(request) == 0) ++i;
      ibv_wc wc{};
      const int count = ibv_poll_cq(one.cq, 1, &wc);
      if (count < 0 || (count == 1 && wc.status != IBV_WC_SUCCESS) || std::chrono::steady_clock::now() > limit) {
        failed = true;
      }
      done += count;
    }
  };
  std::thread first(post);
  std::thread second(post);
  first.join();
  second.join();
  REQUIRE_FALSE(failed);
  for (; done < 2 * kEach; ++done) one.expect(1);
  one.expect_nothing();
}

TEST_CASE("a memory window of type 1 opens its range under a new key, and closes it", "[ibverbs]") {
  Device one;
  Device other;
  Connected ends(one, other);
  ibv_mw* window = ibv_alloc_mw(other.pd, IBV_MW_TYPE_1);
  REQUIRE(window != nullptr);
  const std::uint32_t before = window->rkey;
  ibv_mw_bind bind{};
  bind.wr_id = 5;
  bind.bind_info = {other.mr, other.address(64), 64, IBV_ACCESS_REMOTE_WRITE};
  REQUIRE(ibv_bind_mw(ends.second.qp, window, &bind) == 0);
  CHECK(window->rkey != before);
  CHECK(other.expect(5).opcode == IBV_WC_BIND_MW);
  one.memory[0] = 99;
  CHECK(write_through(one, ends.first, window->rkey, other.address(64)) == IBV_WC_SUCCESS);
  CHECK(other.memory[64] == 99);
  const std::uint32_t bound = window->rkey;
  bind.bind_info = {};
  REQUIRE(ibv_bind_mw(ends.second.qp, window, &bind) == 0);
  other.expect(5);
  CHECK(write_through(one, ends.first, bound, other.address(64)) == IBV_WC_REM_ACCESS_ERR);
  CHECK(ibv_dealloc_mw(window) == 0);
}

TEST_CASE("a memory window of type 1 whose binding was flushed is bound with the key that the program puts back",
          "[ibverbs]") {
  Device one;
  Device other;
  Connected ends(one, other);
  ibv_mw* window = ibv_alloc_mw(other.pd, IBV_MW_TYPE_1);
  REQUIRE(window != nullptr);
  const std::uint32_t before = window->rkey;
  ibv_mw_bind bind{};
  bind.bind_info = {other.mr, other.address(64), 64, IBV_ACCESS_REMOTE_WRITE};
  {
    Queue broken(other, {});
    ibv_qp_attr error{};
    error.qp_state = IBV_QPS_ERR;
    REQUIRE(ibv_modify_qp(broken.qp, &error, IBV_QP_STATE) == 0);
    REQUIRE(ibv_bind_mw(broken.qp, window, &bind) == 0);
    other.expect(0, IBV_WC_WR_FLUSH_ERR);
  }
  window->rkey = before;
  REQUIRE(ibv_bind_mw(ends.second.qp, window, &bind) == 0);
  other.expect(0);
  one.memory[0] = 97;
  CHECK(write_through(one, ends.first, window->rkey, other.address(64)) == IBV_WC_SUCCESS);
  CHECK(other.memory[64] == 97);
  CHECK(ibv_dealloc_mw(window) == 0);
}

TEST_CASE("a memory window of type 2 is bound by a post and ended by the peer's send", "[ibverbs]") {
  Device one;
  Device other;
  Connected ends(one, other);
  ibv_mw* window = ibv_alloc_mw(other.pd, IBV_MW_TYPE_2);
  REQUIRE(window != nullptr);
  ibv_send_wr bind{};
  bind.wr_id = 5;
  bind.opcode = IBV_WR_BIND_MW;
  bind.bind_mw.mw = window;
  const std::uint32_t before = window->rkey;
  const std::uint32_t key = ibv_inc_rkey(before);
  bind.bind_mw.rkey = key;
  bind.bind_mw.bind_info = {other.mr, other.address(128), 64, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_ZERO_BASED};
  REQUIRE(ends.second.post(bind) == 0);
  other.expect(5);
  CHECK(window->rkey == before);  // the program's to change, as with other devices
  one.memory[0] = 98;
  CHECK(write_through(one, ends.first, key, 0) == IBV_WC_SUCCESS);
  CHECK(other.memory[128] == 98);
  REQUIRE(ends.second.receive(6, 0, 8) == 0);
  ibv_sge part = one.part(0, 8);
  ibv_send_wr send = ends.first.request(7, IBV_WR_SEND_WITH_INV, part);
  send.invalidate_rkey = key;
  REQUIRE(ends.first.post(send) == 0);
  const ibv_wc got = other.expect(6);
  CHECK((got.wc_flags & IBV_WC_WITH_INV) != 0);
  CHECK(got.invalidated_rkey == key);
  one.expect(7);
  CHECK(write_through(one, ends.first, key, 0) == IBV_WC_REM_ACCESS_ERR);
  CHECK(ibv_dealloc_mw(window) == 0);
}

TEST_CASE("a memory window of type 2 is bound again whatever became of the bindings before", "[ibverbs]") {
  Device one;
  Device other;
  Shape shape;
  shape.extended = true;
  Connected ends(one, other, shape);
  ibv_mw* window = ibv_alloc_mw(other.pd, IBV_MW_TYPE_2);
  REQUIRE(window != nullptr);
  const ibv_mw_bind_info info{other.mr, other.address(128), 64, IBV_ACCESS_REMOTE_WRITE};
  const std::uint32_t first = ibv_inc_rkey(window->rkey);
  const std::uint32_t second = ibv_inc_rkey(first);
  std::array<ibv_send_wr, 3> list{};
  list[0].opcode = list[2].opcode = IBV_WR_BIND_MW;
  list[0].bind_mw = {window, first, info};
  list[1].opcode = IBV_WR_LOCAL_INV;
  list[1].invalidate_rkey = first;
  list[2].bind_mw = {window, second, info};
  SECTION("in one list") {
    list[0].next = &list[1];
    list[1].next = &list[2];
    REQUIRE(ends.second.post(list[0]) == 0);
    for (int i = 0; i < 3; ++i) other.expect(0);
  }
  SECTION("built and posted together") {
    ibv_qp_ex* qp = ibv_qp_to_qp_ex(ends.second.qp);
    ibv_wr_start(qp);
    ibv_wr_bind_mw(qp, window, first, &info);
    ibv_wr_local_inv(qp, first);
    ibv_wr_bind_mw(qp, window, second, &info);
    REQUIRE(ibv_wr_complete(qp) == 0);
    for (int i = 0; i < 3; ++i) other.expect(0);
  }
  SECTION("after one that was flushed") {
    Queue broken(other, {});
    ibv_qp_attr error{};
    error.qp_state = IBV_QPS_ERR;
    REQUIRE(ibv_modify_qp(broken.qp, &error, IBV_QP_STATE) == 0);
    REQUIRE(broken.post(list[0]) == 0);
    other.expect(0, IBV_WC_WR_FLUSH_ERR);
    REQUIRE(ends.second.post(list[2]) == 0);
    other.expect(0);
  }
  one.memory[0] = 96;
  CHECK(write_through(one, ends.first, second, other.address(128)) == IBV_WC_SUCCESS);
  CHECK(other.memory[128] == 96);
  CHECK(ibv_dealloc_mw(window) == 0);
}

TEST_CASE("a region with an address of its own is used by that address at both ends", "[ibverbs]") {
  Device one;
  Device other;
  Connected ends(one, other);
  constexpr std::uint64_t kAddress = 0x7000'0000'0040;
  ibv_mr* region = ibv_reg_mr_iova(other.pd, other.memory.data(), 4096, kAddress, kAllAccess);
  REQUIRE(region != nullptr);
  one.memory[0] = 42;
  CHECK(write_through(one, ends.first, region->rkey, kAddress + 100) == IBV_WC_SUCCESS);
  CHECK(other.memory[100] == 42);
  ibv_sge part{kAddress + 100, 8, region->lkey};
  REQUIRE(ends.first.receive(2, 1000, 8) == 0);
  REQUIRE(ends.second.post(ends.second.request(3, IBV_WR_SEND, part)) == 0);
  one.expect(2);
  CHECK(one.memory[1000] == 42);
  other.expect(3);
  CHECK(ibv_dereg_mr(region) == 0);
}

TEST_CASE("regions with impossible rights or memory are refused; a region that moves gets new keys", "[ibverbs]") {
  Device device;
  CHECK(ibv_reg_mr(device.pd, device.memory.data(), 64, IBV_ACCESS_REMOTE_WRITE) == nullptr);
  CHECK(errno == EINVAL);
  void* hole = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(hole != MAP_FAILED);
  CHECK(ibv_reg_mr(device.pd, hole, 4096, IBV_ACCESS_LOCAL_WRITE) == nullptr);
  CHECK(errno == EFAULT);
  munmap(hole, 4096);
  ibv_mr* region = ibv_reg_mr(device.pd, device.memory.data(), 64, IBV_ACCESS_LOCAL_WRITE);
  REQUIRE(region != nullptr);
  const std::uint32_t before = region->rkey;
  CHECK(ibv_rereg_mr(region, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, device.memory.data() + 64, 128, 0) == 0);
  CHECK(region->rkey != before);
  CHECK(region->addr == device.memory.data() + 64);
  CHECK(ibv_rereg_mr(region, 0, nullptr, nullptr, 0, 0) == IBV_REREG_MR_ERR_INPUT);
  CHECK(ibv_dereg_mr(region) == 0);
}

TEST_CASE("a region that moves keeps its rights, for which the new memory is tested, and its zero base", "[ibverbs]") {
  Device one;
  Device other;
  Connected ends(one, other);
  constexpr int kWritable = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  ibv_mr* region = ibv_reg_mr(other.pd, other.memory.data(), 64, kWritable | IBV_ACCESS_ZERO_BASED);
  REQUIRE(region != nullptr);
  void* readable = mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(readable != MAP_FAILED);
  errno = 0;
  CHECK(ibv_rereg_mr(region, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, readable, 4096, 0) == IBV_REREG_MR_ERR_INPUT);
  CHECK(errno == EFAULT);
  REQUIRE(ibv_rereg_mr(region, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, other.memory.data() + 64, 64, 0) == 0);
  one.memory[0] = 96;
  CHECK(write_through(one, ends.first, region->rkey, 0) == IBV_WC_SUCCESS);
  CHECK(other.memory[64] == 96);
  // Rights that the memory does not have are not given either.
  CHECK(ibv_dereg_mr(region) == 0);
  region = ibv_reg_mr(other.pd, readable, 4096, IBV_ACCESS_REMOTE_READ);
  REQUIRE(region != nullptr);
  CHECK(ibv_rereg_mr(region, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, kWritable) == IBV_REREG_MR_ERR_INPUT);
  CHECK(ibv_dereg_mr(region) == 0);
  munmap(readable, 4096);
}

}  // namespace
}  // namespace splitnic::ibverbs::testing::objects_test
