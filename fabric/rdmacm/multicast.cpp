// The C interface of multicast groups: which group an address stands for, joining and leaving.
#include <endian.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "fabric/rdmacm/objects.h"

namespace splitnic::rdmacm {
namespace {

constexpr std::uint32_t kMulticastQueuePair = 0xffffff;
constexpr std::uint16_t kFirstMulticastId = 0xc000;
constexpr std::uint16_t kMulticastIds = 0xffff - kFirstMulticastId;

/// A number that programs print. Nothing is sent to it: copies go to the members.
std::uint16_t multicast_id(const ibv_gid& group) {
  std::uint32_t hash = 0x811c9dc5U;
  for (const std::uint8_t byte : group.raw) hash = (hash ^ byte) * 0x01000193U;
  return static_cast<std::uint16_t>(kFirstMulticastId + hash % kMulticastIds);
}

/// The event of a join. Its attributes make an address handle to the group.
std::unique_ptr<Event> joined(Identifier& identifier, const Membership& membership) {
  auto news = std::make_unique<Event>();
  news->id = news->owner = &identifier;
  news->event = RDMA_CM_EVENT_MULTICAST_JOIN;
  news->membership = membership.number;
  rdma_ud_param& about = news->param.ud;
  about.private_data = membership.context;
  about.ah_attr.grh.dgid = membership.group;
  about.ah_attr.is_global = 1;
  about.ah_attr.dlid = multicast_id(membership.group);
  about.ah_attr.port_num = kPort;
  about.qp_num = kMulticastQueuePair;
  about.qkey = RDMA_UDP_QKEY;
  return news;
}

int join(rdma_cm_id* id, const sockaddr* address, bool sends_only, void* context) {
  Identifier& identifier = Identifier::of(id);
  {
    const auto to = address_of(address);
    const std::lock_guard guard(identifier.library.lock);
    if (!permits(identifier.state, Act::join) || !identifier.datagrams() || id->verbs == nullptr) return refuse(EINVAL);
    if (!to) return refuse(address == nullptr ? EINVAL : EAFNOSUPPORT);
    if (!to->is_multicast()) return refuse(EINVAL);
    if (identifier.memberships.size() == kMaxMemberships) return refuse(ENOMEM);
    Membership membership;
    membership.number = ++identifier.last_membership;
    membership.address = *to;
    membership.group = group_of(*to, id->ps == RDMA_PS_UDP);
    membership.context = context;
    membership.sends_only = sends_only;
    auto news = joined(identifier, membership);
    identifier.memberships.push_back(membership);
    identifier.events().push(std::move(news));
  }
  return identifier.synchronous ? await_completion(id) : 0;
}

}  // namespace

/// Source: Linux, ip_ib_mc_map() and ipv6_ib_mc_map() (RFC 4391 section 4), and cma_set_mgid() for the signature of the
/// connection manager, which keeps these groups apart from those of IP over InfiniBand.
ibv_gid group_of(const Address& address, bool of_manager) {
  constexpr std::uint8_t kLinkLocalScope = 0x12;
  ibv_gid group{};
  const auto& bytes = address.bytes;
  if (!address.is_ip4() && bytes[0] == 0xff && (bytes[1] & 0xf0U) == 0x10 && bytes[2] == 0xa0 && bytes[3] == 0x1b) {
    std::ranges::copy(bytes, group.raw);  // it is one already
    return group;
  }
  group.raw[0] = 0xff;
  group.raw[1] = kLinkLocalScope;
  group.raw[2] = address.is_ip4() ? 0x40 : 0x60;
  group.raw[3] = of_manager ? 0x01 : 0x1b;
  group.raw[4] = kPartitionKey >> 8U;
  group.raw[5] = kPartitionKey & 0xffU;
  const std::size_t kept = address.is_ip4() ? 4 : 10;
  std::ranges::copy(bytes.end() - static_cast<std::ptrdiff_t>(kept), bytes.end(), group.raw + 16 - kept);
  if (address.is_ip4()) group.raw[12] &= 0x0fU;
  return group;
}

void Identifier::finish_join(Event& news) {
  const auto found = std::ranges::find(memberships, news.membership, &Membership::number);
  if (found == memberships.end()) return;
  ++found->events_reported;
  if (qp == nullptr || found->sends_only) return;
  if (const int error = ibv_attach_mcast(qp, &found->group, multicast_id(found->group)); error != 0) {
    news.event = RDMA_CM_EVENT_MULTICAST_ERROR;
    news.status = -error;
    return;
  }
  found->attached = true;
}

void Identifier::detach_from_groups() {
  for (Membership& membership : memberships) {
    // Two memberships may be of the same group: the first one of them detaches the queue pair.
    if (std::exchange(membership.attached, false) && qp != nullptr) {
      static_cast<void>(ibv_detach_mcast(qp, &membership.group, multicast_id(membership.group)));
    }
  }
}

void Identifier::acknowledge_join(std::uint32_t membership) {
  const auto found = std::ranges::find(memberships, membership, &Membership::number);
  if (found != memberships.end()) ++found->events_acknowledged;
}

extern "C" {

int rdma_join_multicast(rdma_cm_id* id, sockaddr* address, void* context) {
  if (id == nullptr) return refuse(EINVAL);
  return guarded([&] { return join(id, address, false, context); });
}

int rdma_join_multicast_ex(rdma_cm_id* id, rdma_cm_join_mc_attr_ex* wanted, void* context) {
  if (id == nullptr || wanted == nullptr) return refuse(EINVAL);
  if (wanted->comp_mask >= RDMA_CM_JOIN_MC_ATTR_RESERVED) return refuse(ENOTSUP);
  constexpr std::uint32_t kNeeded = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
  if ((wanted->comp_mask & kNeeded) != kNeeded || wanted->join_flags >= RDMA_MC_JOIN_FLAG_RESERVED) {
    return refuse(EINVAL);
  }
  const bool sends_only = wanted->join_flags == RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER;
  return guarded([&] { return join(id, wanted->addr, sends_only, context); });
}

int rdma_leave_multicast(rdma_cm_id* id, sockaddr* address) {
  if (id == nullptr) return refuse(EINVAL);
  return guarded([&] {
    Identifier& identifier = Identifier::of(id);
    const auto from = address_of(address);
    if (!from) return refuse(address == nullptr ? EINVAL : EAFNOSUPPORT);
    std::unique_lock lock(identifier.library.lock);
    auto& all = identifier.memberships;
    const auto found = std::ranges::find_if(
        all, [&](const Membership& membership) { return membership.address == *from && !membership.leaving; });
    if (found == all.end()) return refuse(EADDRNOTAVAIL);
    found->leaving = true;
    const std::uint32_t number = found->number;
    static_cast<void>(identifier.events().remove_unless(
        [&](const Event& event) { return event.owner != &identifier || event.membership != number; }));
    const auto attaches_too = [&](const Membership& other) {
      return other.number != number && other.attached && std::memcmp(&other.group, &found->group, sizeof(ibv_gid)) == 0;
    };
    if (found->attached && id->qp != nullptr && std::ranges::none_of(all, attaches_too)) {
      static_cast<void>(ibv_detach_mcast(id->qp, &found->group, multicast_id(found->group)));
    }
    found->attached = false;
    identifier.library.acknowledged.wait(lock, [&] { return found->events_acknowledged == found->events_reported; });
    all.erase(found);
    return 0;
  });
}

}  // extern "C"

}  // namespace splitnic::rdmacm
