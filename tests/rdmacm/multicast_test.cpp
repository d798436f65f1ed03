// Joining and leaving multicast groups by address.
#include <arpa/inet.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/rdmacm/manager.h"

namespace splitnic::rdmacm::testing::multicast_test {
namespace {

sockaddr* generic(sockaddr_in& address) { return reinterpret_cast<sockaddr*>(&address); }
sockaddr* generic(sockaddr_in6& address) { return reinterpret_cast<sockaddr*>(&address); }

std::string text_of(const ibv_gid& gid) {
  char text[INET6_ADDRSTRLEN];
  return inet_ntop(AF_INET6, gid.raw, text, sizeof text);
}

/// An identifier that is bound, with a datagram queue pair.
struct Member {
  explicit Member(const char* group = "239.1.2.3") : to(at(0, group)), id(events, RDMA_PS_UDP) {
    REQUIRE(id.bind(at(0)) == 0);
    id.create_queue_pair();
  }
  Seen join() {
    REQUIRE(rdma_join_multicast(id.id, generic(to), this) == 0);
    return events.expect(RDMA_CM_EVENT_MULTICAST_JOIN);
  }
  /// Whether the queue pair was attached: only then it can be detached.
  bool detach(const ibv_gid& gid) const { return ibv_detach_mcast(id.id->qp, &gid, 0) == 0; }

  Channel events;
  sockaddr_in to;
  Id id;
};

TEST_CASE("the event of a join has what makes an address handle", "[rdmacm][multicast]") {
  Member member;
  REQUIRE(rdma_join_multicast(member.id.id, generic(member.to), &member) == 0);
  rdma_cm_event* event = nullptr;
  REQUIRE(member.events.readable());
  REQUIRE(rdma_get_cm_event(member.events.channel, &event) == 0);
  CHECK(event->event == RDMA_CM_EVENT_MULTICAST_JOIN);
  CHECK(event->status == 0);
  CHECK(event->id == member.id.id);
  const rdma_ud_param& about = event->param.ud;
  CHECK(about.private_data == &member);
  CHECK(about.private_data_len == 0);
  CHECK(about.qp_num == 0xffffff);
  CHECK(about.qkey == RDMA_UDP_QKEY);
  CHECK(about.ah_attr.is_global == 1);
  CHECK(about.ah_attr.port_num == 1);
  CHECK(about.ah_attr.dlid >= 0xc000);
  CHECK(text_of(about.ah_attr.grh.dgid) == "ff12:4001:ffff::f01:203");
  ibv_ah_attr attributes = about.ah_attr;
  ibv_ah* ah = ibv_create_ah(member.id.id->pd, &attributes);
  REQUIRE(ah != nullptr);
  CHECK(ibv_destroy_ah(ah) == 0);
  CHECK(member.detach(attributes.grh.dgid));
  REQUIRE(rdma_ack_cm_event(event) == 0);
  CHECK(rdma_leave_multicast(member.id.id, generic(member.to)) == 0);
}

TEST_CASE("an address stands for the group that Linux has for it", "[rdmacm][multicast]") {
  struct Row {
    rdma_port_space space;
    const char* address;
    const char* group;
  };
  for (const Row& row :
       {Row{RDMA_PS_UDP, "224.0.0.1", "ff12:4001:ffff::1"},
        Row{RDMA_PS_UDP, "239.255.255.255", "ff12:4001:ffff::fff:ffff"},
        Row{RDMA_PS_IPOIB, "224.0.0.1", "ff12:401b:ffff::1"}, Row{RDMA_PS_UDP, "ff02::1", "ff12:6001:ffff::1"},
        Row{RDMA_PS_IPOIB, "ff0e:1:2:3:4:5:6:7", "ff12:601b:ffff:3:4:5:6:7"},
        Row{RDMA_PS_UDP, "ff12:a01b:fe80::7", "ff12:a01b:fe80::7"}}) {
    INFO(row.address);
    Channel events;
    Id id(events, row.space);
    REQUIRE(id.bind(at(0)) == 0);
    sockaddr_in6 six{};
    six.sin6_family = AF_INET6;
    sockaddr_in four{};
    four.sin_family = AF_INET;
    const bool is_four = inet_pton(AF_INET, row.address, &four.sin_addr) == 1;
    if (!is_four) REQUIRE(inet_pton(AF_INET6, row.address, &six.sin6_addr) == 1);
    REQUIRE(rdma_join_multicast(id.id, is_four ? generic(four) : generic(six), nullptr) == 0);
    CHECK(text_of(events.expect(RDMA_CM_EVENT_MULTICAST_JOIN).datagrams.ah_attr.grh.dgid) == row.group);
  }
}

TEST_CASE("what is sent to a group that was joined by address arrives at its members", "[rdmacm][multicast]") {
  Member sender;
  Member receiver;
  std::vector<char> memory(4096);
  ibv_mr* sends = rdma_reg_msgs(sender.id.id, memory.data(), memory.size());
  ibv_mr* receives = rdma_reg_msgs(receiver.id.id, memory.data(), memory.size());
  REQUIRE((sends != nullptr && receives != nullptr));
  REQUIRE(rdma_post_recv(receiver.id.id, nullptr, memory.data(), 1024, receives) == 0);
  CHECK(receiver.join().datagrams.private_data == &receiver);
  // Only sending: its own queue pair is in no group.
  rdma_cm_join_mc_attr_ex wanted{};
  wanted.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
  wanted.join_flags = RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER;
  wanted.addr = generic(sender.to);
  REQUIRE(rdma_join_multicast_ex(sender.id.id, &wanted, nullptr) == 0);
  Seen joined = sender.events.expect(RDMA_CM_EVENT_MULTICAST_JOIN);
  CHECK_FALSE(sender.detach(joined.datagrams.ah_attr.grh.dgid));
  ibv_ah* ah = ibv_create_ah(sender.id.id->pd, &joined.datagrams.ah_attr);
  REQUIRE(ah != nullptr);
  std::strcpy(memory.data() + 2048, "to all");
  REQUIRE(rdma_post_ud_send(sender.id.id, nullptr, memory.data() + 2048, 7, sends, 0, ah, joined.datagrams.qp_num) ==
          0);
  ibv_wc completion{};
  REQUIRE(rdma_get_recv_comp(receiver.id.id, &completion) == 1);
  CHECK(completion.status == IBV_WC_SUCCESS);
  CHECK(completion.byte_len == 47);
  CHECK(std::string(memory.data() + 40) == "to all");
  CHECK(ibv_destroy_ah(ah) == 0);
  CHECK(rdma_leave_multicast(sender.id.id, generic(sender.to)) == 0);
  CHECK(rdma_leave_multicast(receiver.id.id, generic(receiver.to)) == 0);
  rdma_destroy_qp(sender.id.id);
  rdma_destroy_qp(receiver.id.id);
  CHECK(rdma_dereg_mr(sends) == 0);
  CHECK(rdma_dereg_mr(receives) == 0);
}

TEST_CASE("who leaves a group is detached, unless it has joined once more", "[rdmacm][multicast]") {
  Member member;
  const ibv_gid gid = member.join().datagrams.ah_attr.grh.dgid;
  member.join();
  REQUIRE(rdma_leave_multicast(member.id.id, generic(member.to)) == 0);
  CHECK(member.detach(gid));
  REQUIRE(ibv_attach_mcast(member.id.id->qp, &gid, 0) == 0);
  REQUIRE(rdma_leave_multicast(member.id.id, generic(member.to)) == 0);
  CHECK_FALSE(member.detach(gid));
  CHECK(rdma_leave_multicast(member.id.id, generic(member.to)) == -1);
  CHECK(errno == EADDRNOTAVAIL);
}

TEST_CASE("leaving waits until the join is acknowledged, and a join that nobody saw is taken back",
          "[rdmacm][multicast]") {
  Member member;
  REQUIRE(rdma_join_multicast(member.id.id, generic(member.to), nullptr) == 0);
  REQUIRE(rdma_leave_multicast(member.id.id, generic(member.to)) == 0);
  CHECK_FALSE(member.events.readable());
  REQUIRE(rdma_join_multicast(member.id.id, generic(member.to), nullptr) == 0);
  rdma_cm_event* event = nullptr;
  REQUIRE(rdma_get_cm_event(member.events.channel, &event) == 0);
  const ibv_gid gid = event->param.ud.ah_attr.grh.dgid;
  std::atomic<bool> has_left{false};
  int left = -1;
  std::thread other([&] {
    left = rdma_leave_multicast(member.id.id, generic(member.to));
    has_left = true;
  });
  // A call that does not wait is back before this.
  const auto limit = std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
  while (!has_left && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
  CHECK_FALSE(has_left);
  CHECK(rdma_ack_cm_event(event) == 0);
  other.join();
  CHECK(left == 0);
  CHECK_FALSE(member.detach(gid));
}

TEST_CASE("a queue pair that can't be attached is the join's error", "[rdmacm][multicast]") {
  constexpr int kGroups = 256;
  Member member;
  const auto group_with = [](int number) {
    ibv_gid gid{};
    gid.raw[0] = 0xff;
    gid.raw[14] = static_cast<std::uint8_t>(number);
    return gid;
  };
  for (int group = 0; group < kGroups; ++group) {
    const ibv_gid gid = group_with(group);
    REQUIRE(ibv_attach_mcast(member.id.id->qp, &gid, 0) == 0);
  }
  REQUIRE(rdma_join_multicast(member.id.id, generic(member.to), &member) == 0);
  CHECK(member.events.expect(RDMA_CM_EVENT_MULTICAST_ERROR, -ENOMEM).datagrams.private_data == &member);
  CHECK(rdma_leave_multicast(member.id.id, generic(member.to)) == 0);
  for (int group = 0; group < kGroups; ++group) CHECK(member.detach(group_with(group)));
}

TEST_CASE("the queue pair of an identifier that has joined groups is destroyed, and the identifier leaves them later",
          "[rdmacm][multicast]") {
  Channel events;
  Id id(events, RDMA_PS_UDP);
  REQUIRE(id.bind(at(0)) == 0);
  ibv_pd* const pd = ibv_alloc_pd(id.id->verbs);
  REQUIRE(pd != nullptr);
  ibv_qp_init_attr wanted{};
  wanted.cap = {1, 1, 1, 1, 0};
  wanted.qp_type = IBV_QPT_UD;
  REQUIRE(rdma_create_qp(id.id, pd, &wanted) == 0);
  sockaddr_in first = at(0, "239.1.2.3");
  sockaddr_in second = at(0, "239.1.2.4");
  for (sockaddr_in* group : {&first, &first, &second}) {
    REQUIRE(rdma_join_multicast(id.id, generic(*group), nullptr) == 0);
    events.expect(RDMA_CM_EVENT_MULTICAST_JOIN);
  }
  rdma_destroy_qp(id.id);
  CHECK(ibv_dealloc_pd(pd) == 0);  // EBUSY while there is a queue pair
  for (sockaddr_in* group : {&first, &first, &second}) CHECK(rdma_leave_multicast(id.id, generic(*group)) == 0);
}

TEST_CASE("an identifier without a channel waits until it has joined", "[rdmacm][multicast]") {
  static_cast<void>(fabric_folder());
  rdma_cm_id* raw = nullptr;
  REQUIRE(rdma_create_id(nullptr, &raw, nullptr, RDMA_PS_UDP) == 0);
  Id id(raw);
  sockaddr_in to = at(0, "239.1.2.3");
  REQUIRE(rdma_resolve_addr(raw, nullptr, generic(to), 1000) == 0);  // with a route or without
  id.create_queue_pair();
  REQUIRE(rdma_join_multicast(raw, generic(to), nullptr) == 0);
  CHECK(raw->event->event == RDMA_CM_EVENT_MULTICAST_JOIN);
  const ibv_gid gid = raw->event->param.ud.ah_attr.grh.dgid;
  CHECK(ibv_detach_mcast(raw->qp, &gid, 0) == 0);
}

TEST_CASE("joins that make no sense are refused", "[rdmacm][multicast]") {
  Channel events;
  sockaddr_in group = at(0, "239.1.2.3");
  sockaddr_in no_group = at(0, "10.1.2.3");
  sockaddr local{};
  local.sa_family = AF_UNIX;
  const auto refuses = [&](rdma_cm_id* id, sockaddr* address, int error) {
    errno = 0;
    CHECK(rdma_join_multicast(id, address, nullptr) == -1);
    CHECK(errno == error);
  };
  Id idle(events, RDMA_PS_UDP);
  refuses(idle.id, generic(group), EINVAL);
  sockaddr_in any{};
  any.sin_family = AF_INET;
  REQUIRE(idle.bind(any) == 0);  // to no device
  refuses(idle.id, generic(group), EINVAL);
  Id connected(events, RDMA_PS_TCP);
  REQUIRE(connected.bind(at(0)) == 0);
  refuses(connected.id, generic(group), EINVAL);
  Member member;
  refuses(member.id.id, generic(no_group), EINVAL);
  refuses(member.id.id, &local, EAFNOSUPPORT);
  refuses(member.id.id, nullptr, EINVAL);
  refuses(nullptr, generic(group), EINVAL);
  struct Row {
    std::uint32_t mask;
    std::uint32_t flags;
    int error;
  };
  for (const Row& row :
       {Row{0, 0, EINVAL}, Row{RDMA_CM_JOIN_MC_ATTR_ADDRESS, 0, EINVAL},
        Row{RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS, 0, EINVAL}, Row{RDMA_CM_JOIN_MC_ATTR_RESERVED | 3, 0, ENOTSUP},
        Row{3, RDMA_MC_JOIN_FLAG_RESERVED, EINVAL}}) {
    rdma_cm_join_mc_attr_ex wanted{row.mask, row.flags, generic(group)};
    errno = 0;
    CHECK(rdma_join_multicast_ex(member.id.id, &wanted, nullptr) == -1);
    CHECK(errno == row.error);
  }
  CHECK_FALSE(member.events.readable());
  for (int joins = 0; joins < 256; ++joins) REQUIRE(rdma_join_multicast(member.id.id, generic(group), nullptr) == 0);
  refuses(member.id.id, generic(group), ENOMEM);
}

}  // namespace
}  // namespace splitnic::rdmacm::testing::multicast_test
