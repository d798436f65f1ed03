// Address handles and multicast groups.
#include <endian.h>

#include <cstring>

#include "fabric/ibverbs/objects.h"

namespace splitnic::ibverbs {
namespace {

using fabric::ChannelAdapter;

fabric::Gid gid_of(const ibv_gid& raw) {
  fabric::Gid gid;
  std::memcpy(gid.bytes.data(), raw.raw, gid.bytes.size());
  return gid;
}

/// nullopt: no endnode or group can have this address. path: to the endnode.
std::optional<fabric::AddressHandleOptions> options_of(Context& context, const ibv_ah_attr& address, PathUse& path) {
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
  const std::uint16_t local_id = address.dlid == 0 && address.is_global != 0 ? local_id_of(gid) : address.dlid;
  path = context.peers->path_to(local_id);
  options.path = path.path();
  return options.path.value == 0 ? std::nullopt : std::optional(options);
}

int group_change(ibv_qp* qp, const ibv_gid* gid, bool joins) {
  const fabric::Gid group = gid_of(*gid);
  if (!group.is_group() || qp->qp_type != IBV_QPT_UD) return EINVAL;
  const fabric::QpNumber number = QueuePair::of(qp).number;
  Groups& groups = *Context::of(qp->context).groups;
  return joins ? groups.attach(number, group) : groups.detach(number, group);
}

}  // namespace

extern "C" {

ibv_ah* ibv_create_ah(ibv_pd* pd, ibv_ah_attr* address) {
  return creating([&]() -> ibv_ah* {
    Context& context = Context::of(pd->context);
    auto handle = std::make_unique<AddressHandle>();
    const auto options = options_of(context, *address, handle->path);
    if (!options) return refuse<ibv_ah>(EINVAL);
    if (options->group.is_group()) {
      auto group = context.groups->use(options->group);
      if (!group) return refuse<ibv_ah>(ENOMEM);
      handle->group = std::move(*group);
    }
    const auto made =
        context.adapter->use([&](ChannelAdapter& adapter) { return adapter.create_address_handle(*options); });
    if (!made) return refuse<ibv_ah>(ENOMEM);
    handle->number = *made;
    handle->ah = {pd->context, pd, context.next_handle()};
    handle->of_domain = UseOf(Domain::of(pd).users);
    return &handle.release()->ah;
  });
}

int ibv_destroy_ah(ibv_ah* ah) {
  AddressHandle& handle = AddressHandle::of(ah);
  const auto gone = Context::of(ah->context).adapter->use([&](ChannelAdapter& adapter) {
    return adapter.destroy_address_handle(handle.number);
  });
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
