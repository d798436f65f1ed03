// Address handles and multicast groups.
#include <endian.h>

#include <cstring>

#include "fabric/ibverbs/objects.h"
#include "fabric/ibverbs/own_devices.h"
#include "fabric/ibverbs/requests.h"

namespace splitnic::ibverbs {
namespace {

using fabric::ChannelAdapter;

fabric::Gid gid_of(const ibv_gid& raw) {
  fabric::Gid gid;
  std::memcpy(gid.bytes.data(), raw.raw, gid.bytes.size());
  return gid;
}

/// nullopt: no endnode or group can have this address. path: to the endnode local_id.
std::optional<fabric::AddressHandleOptions> options_of(Context& context, const ibv_ah_attr& address, PathUse& path,
                                                       std::uint16_t& local_id) {
  fabric::AddressHandleOptions options;
  options.service_level = address.sl;
  const fabric::Gid gid = gid_of(address.grh.dgid);
  if (address.is_global != 0) {
    options.traffic_class = address.grh.traffic_class;
    options.flow_label = address.grh.flow_label & fabric::kMaxFlowLabel;
    options.hop_limit = address.grh.hop_limit;
  }
  if (address.port_num != kPort) return std::nullopt;
  if (address.is_global != 0 && gid.is_group()) {
    options.group = gid;
    return options;
  }
  local_id = address.dlid == 0 && address.is_global != 0 ? local_id_of(gid) : address.dlid;
  path = context.peers->path_to(local_id);
  options.path = path.path();
  return options.path.value == 0 ? std::nullopt : std::optional(options);
}

/// Makes the adapter's handle. False: no more of them.
bool make(Context& context, const fabric::AddressHandleOptions& options, Way& way) {
  const auto made =
      context.adapter->use([&](ChannelAdapter& adapter) { return adapter.create_address_handle(options); });
  if (made) way.number = *made;
  return made.has_value();
}

fabric::Status destroy(Context& context, const Way& way) {
  return context.adapter->use([&](ChannelAdapter& adapter) { return adapter.destroy_address_handle(way.number); });
}

/// What AddressHandle::known_there is, if its endnode has the queue pair.
std::uint64_t known_as(const AddressHandle& handle, std::uint32_t queue_pair) {
  const std::uint64_t when = handle.own_device ? OwnDevices::of_process().changes() : 1;
  return when << 32U | queue_pair;
}

/// The handle leads to the queue pair, and led there the last time. Takes no lock.
bool leads_there(const AddressHandle& handle, std::uint32_t queue_pair) {
  return handle.endnode == 0 || handle.known_there.load(std::memory_order_relaxed) == known_as(handle, queue_pair);
}

/// The endnode that has the queue pair, if it is another one of the same process; else 0.
std::uint16_t other_device(AddressHandle& handle, std::uint32_t queue_pair) {
  if (leads_there(handle, queue_pair)) return 0;
  const std::uint64_t there = known_as(handle, queue_pair);
  std::uint16_t holder = handle.endnode;
  if (handle.own_device) {
    holder = OwnDevices::of_process().holder(handle.endnode, fabric::QpNumber{queue_pair});
  } else {
    const std::lock_guard guard(handle.lock);
    const auto known = handle.places.find(queue_pair);
    if (known == handle.places.end()) return 0;
    holder = known->second;
  }
  if (holder != handle.endnode) return holder;
  handle.known_there.store(there, std::memory_order_relaxed);
  return 0;
}

/// Of a process that has several endnodes: the queue pair's is asked for once.
void learn_place(AddressHandle& handle, std::uint32_t queue_pair) {
  constexpr std::size_t kPlacesMax = 4096;
  {
    const std::lock_guard guard(handle.lock);
    if (handle.own_device || handle.places.contains(queue_pair)) return;
  }
  const fabric::LocalIds& ids = *Context::of(handle.ah.context).peers->ids();
  const auto place = ids.place_of(fabric::QpNumber{queue_pair}, fabric::LocalId{handle.endnode});
  const std::lock_guard guard(handle.lock);
  if (handle.places.size() == kPlacesMax) handle.places.clear();
  handle.places.insert_or_assign(queue_pair, place.value);
}

int group_change(ibv_qp* qp, const ibv_gid* gid, bool joins) {
  const fabric::Gid group = gid_of(*gid);
  if (!group.is_group() || qp->qp_type != IBV_QPT_UD) return EINVAL;
  const fabric::QpNumber number = QueuePair::of(qp).number;
  Groups& groups = *Context::of(qp->context).groups;
  return joins ? groups.attach(number, group) : groups.detach(number, group);
}

void make_way_to(AddressHandle& handle, std::uint16_t other) {
  {
    const std::lock_guard guard(handle.lock);
    if (handle.others.contains(other)) return;
  }
  Context& context = Context::of(handle.ah.context);
  fabric::AddressHandleOptions options = handle.options;
  Way way;
  way.path = context.peers->path_to(other);
  options.path = way.path.path();
  if (options.path.value == 0 || !make(context, options, way)) return;
  {
    const std::lock_guard guard(handle.lock);
    if (handle.others.try_emplace(other, std::move(way)).second) return;
  }
  static_cast<void>(destroy(context, way));  // another thread was faster
}

}  // namespace

void make_way(ibv_ah* ah, std::uint32_t queue_pair) noexcept {
  AddressHandle& handle = AddressHandle::of(ah);
  if (leads_there(handle, queue_pair)) return;
  static_cast<void>(answering([&] {
    learn_place(handle, queue_pair);
    if (const std::uint16_t other = other_device(handle, queue_pair); other != 0) make_way_to(handle, other);
    return 0;
  }));
}

fabric::DatagramTarget target_of(ibv_ah* ah, std::uint32_t queue_pair, std::uint32_t queue_key) {
  AddressHandle& handle = AddressHandle::of(ah);
  fabric::AddressHandleNumber number = handle.way.number;
  if (const std::uint16_t other = other_device(handle, queue_pair); other != 0) {
    const std::lock_guard guard(handle.lock);
    if (const auto found = handle.others.find(other); found != handle.others.end()) number = found->second.number;
  }
  return {number, fabric::QpNumber{queue_pair}, queue_key};
}

extern "C" {

ibv_ah* ibv_create_ah(ibv_pd* pd, ibv_ah_attr* address) {
  return creating([&]() -> ibv_ah* {
    Context& context = Context::of(pd->context);
    auto handle = std::make_unique<AddressHandle>();
    std::uint16_t local_id = 0;
    const auto options = options_of(context, *address, handle->way.path, local_id);
    if (!options) return refuse<ibv_ah>(EINVAL);
    if (options->group.is_group()) {
      auto group = context.groups->use(options->group);
      if (!group) return refuse<ibv_ah>(ENOMEM);
      handle->group = std::move(*group);
    }
    if (!make(context, *options, handle->way)) return refuse<ibv_ah>(ENOMEM);
    handle->options = *options;
    handle->endnode = local_id;
    handle->own_device = OwnDevices::of_process().has(local_id);
    handle->ah = {pd->context, pd, context.next_handle()};
    handle->of_domain = UseOf(Domain::of(pd).users);
    return &handle.release()->ah;
  });
}

int ibv_destroy_ah(ibv_ah* ah) {
  const os::Uncancelled whole;
  AddressHandle& handle = AddressHandle::of(ah);
  Context& context = Context::of(ah->context);
  for (const auto& [other, way] : handle.others) static_cast<void>(destroy(context, way));
  const auto gone = destroy(context, handle.way);
  if (gone != fabric::Status::ok) return error_number(gone);
  delete &handle;
  return 0;
}

int ibv_init_ah_from_wc(ibv_context*, uint8_t port, ibv_wc* wc, ibv_grh* grh, ibv_ah_attr* address) {
  *address = {};
  address->dlid = wc->slid;
  address->sl = wc->sl;
  address->src_path_bits = wc->dlid_path_bits;
  address->port_num = port;
  if ((wc->wc_flags & IBV_WC_GRH) == 0) return 0;
  const std::uint32_t first = be32toh(grh->version_tclass_flow);
  address->is_global = 1;
  address->grh.dgid = grh->sgid;
  address->grh.sgid_index = 0;
  address->grh.hop_limit = 0xff;
  address->grh.flow_label = first & fabric::kMaxFlowLabel;
  address->grh.traffic_class = static_cast<std::uint8_t>(first >> 20U);
  return 0;
}

ibv_ah* ibv_create_ah_from_wc(ibv_pd* pd, ibv_wc* wc, ibv_grh* grh, uint8_t port) {
  ibv_ah_attr address;
  if (ibv_init_ah_from_wc(pd->context, port, wc, grh, &address) != 0) return refuse<ibv_ah>(EINVAL);
  return ibv_create_ah(pd, &address);
}

int ibv_attach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t) {
  return answering([&] { return group_change(qp, gid, true); });
}

int ibv_detach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t) {
  return answering([&] { return group_change(qp, gid, false); });
}

}  // extern "C"

}  // namespace splitnic::ibverbs
