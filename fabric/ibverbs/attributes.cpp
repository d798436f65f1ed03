// What the device and its port say about themselves; GID and P_Key tables.
#include <endian.h>

#include <algorithm>
#include <cstring>
#include <ctime>

#include "fabric/ibverbs/objects.h"

#undef ibv_query_port

namespace splitnic::ibverbs {
namespace {

constexpr std::uint64_t kNodeGuid = 0x0253'4eff'fe00'0000;
constexpr std::uint32_t kVendor = 0x02534e;
constexpr std::uint64_t kNanosecondClockKilohertz = 1'000'000;

int clamped(std::size_t value) { return static_cast<int>(std::min<std::size_t>(value, 1U << 30U)); }

void describe_device(const Context& context, ibv_device_attr& about) {
  const fabric::AdapterLimits& limits = context.limits;
  about = {};
  std::strcpy(about.fw_ver, "splitnic");
  about.node_guid = about.sys_image_guid = node_guid();
  about.max_mr_size = ~std::uint64_t{0};
  about.page_size_cap = ~std::uint64_t{0} << 12U;
  about.vendor_id = kVendor;
  about.max_qp = clamped(limits.queue_pairs);
  about.max_qp_wr = std::min(kMaxQueueDepth, clamped(limits.queue_depth));
  about.device_cap_flags = IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_CURR_QP_STATE_MOD | IBV_DEVICE_MEM_WINDOW |
                           IBV_DEVICE_MEM_WINDOW_TYPE_2B | IBV_DEVICE_MEM_MGT_EXTENSIONS | IBV_DEVICE_SYS_IMAGE_GUID |
                           IBV_DEVICE_SRQ_RESIZE | IBV_DEVICE_XRC;
  about.max_sge = about.max_sge_rd = about.max_srq_sge = clamped(limits.segments);
  about.max_cq = clamped(limits.completion_queues);
  about.max_cqe = std::min(kMaxCompletions, clamped(limits.completion_depth));
  about.max_mr = about.max_mw = clamped(limits.tags);
  about.max_pd = clamped(limits.tags);
  about.max_qp_rd_atom = about.max_qp_init_rd_atom = kMaxReads;
  about.max_res_rd_atom = kMaxReads * about.max_qp;
  // The words are changed by processor instructions, so even IBV_ATOMIC_GLOB holds. UCX uses atomics only with this.
  about.atomic_cap = IBV_ATOMIC_HCA;
  about.max_mcast_grp = Groups::kMaxGroups;
  about.max_mcast_qp_attach = Groups::kMaxAttached;
  about.max_total_mcast_qp_attach = Groups::kMaxGroups * Groups::kMaxAttached;
  about.max_ah = 16384;
  about.max_srq = clamped(limits.shared_receive_queues);
  about.max_srq_wr = about.max_qp_wr;
  about.max_pkeys = 1;
  about.local_ca_ack_delay = 15;
  about.phys_port_cnt = 1;
}

/// As much of the struct as the program knows.
int query_device_ex(ibv_context* device, const ibv_query_device_ex_input* input, ibv_device_attr_ex* about,
                    size_t bytes) noexcept {
  if (bytes < sizeof about->orig_attr || (input != nullptr && input->comp_mask != 0)) return EINVAL;
  ibv_device_attr_ex all{};
  describe_device(Context::of(device), all.orig_attr);
  // Nothing is pinned: all memory is fetched when it is used.
  constexpr std::uint32_t kAll = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_WRITE |
                                 IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC | IBV_ODP_SUPPORT_SRQ_RECV;
  all.odp_caps.general_caps = IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT;
  all.odp_caps.per_transport_caps.rc_odp_caps = kAll;
  all.odp_caps.per_transport_caps.uc_odp_caps =
      IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_SRQ_RECV;
  all.odp_caps.per_transport_caps.ud_odp_caps = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_SRQ_RECV;
  all.xrc_odp_caps = kAll;
  all.completion_timestamp_mask = ~std::uint64_t{0};
  all.hca_core_clock = kNanosecondClockKilohertz;
  all.device_cap_flags_ex = all.orig_attr.device_cap_flags;
  all.max_dm_size = kDeviceMemoryBytes;
  all.phys_port_cnt_ex = 1;
  std::memset(about, 0, bytes);
  std::memcpy(about, &all, std::min(bytes, sizeof all));
  return 0;
}

int query_port(ibv_context* device, std::uint8_t port, ibv_port_attr* about, size_t bytes) noexcept {
  if (port != kPort) return EINVAL;
  ibv_port_attr all{};
  all.state = IBV_PORT_ACTIVE;
  all.max_mtu = all.active_mtu = IBV_MTU_4096;
  all.gid_tbl_len = kGidTableEntries;
  all.max_msg_sz = Context::of(device).limits.message_bytes;
  all.pkey_tbl_len = 1;
  all.lid = Context::of(device).peers->local_id();
  all.sm_lid = 0;
  all.max_vl_num = 1;
  all.active_width = 2;   // 4X
  all.active_speed = 32;  // EDR: a nominal rate, which programs turn into a number
  all.phys_state = 5;     // link up
  all.link_layer = IBV_LINK_LAYER_INFINIBAND;
  std::memset(about, 0, bytes);
  std::memcpy(about, &all, std::min(bytes, sizeof all));
  return 0;
}

/// The clock of completions' time stamps.
int query_rt_values(ibv_context*, ibv_values_ex* values) noexcept {
  const std::uint32_t asked = values->comp_mask;
  values->comp_mask = 0;
  if ((asked & IBV_VALUES_MASK_RAW_CLOCK) == 0) return 0;
  if (clock_gettime(CLOCK_MONOTONIC, &values->raw_clock) != 0) return errno;
  values->comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
  return 0;
}

/// False: the entry is empty, or there is none.
bool gid_at(Context& context, std::uint32_t port, std::uint32_t index, ibv_gid& gid) {
  if (port != kPort || index >= kGidTableEntries) return false;
  gid = {};
  if (index != 0) return true;
  const fabric::Gid own = fabric::port_gid(port_address_of(context.peers->local_id()));
  std::memcpy(gid.raw, own.bytes.data(), sizeof gid.raw);
  return true;
}

/// The fields of a table entry, as much as the program's struct has of them.
int put_entry(const ibv_gid& gid, ibv_gid_entry* entry, std::size_t bytes) {
  if (bytes < sizeof *entry) return EINVAL;
  std::memset(entry, 0, bytes);
  entry->gid = gid;
  entry->port_num = kPort;
  entry->gid_type = IBV_GID_TYPE_IB;
  return 0;
}

}  // namespace

__be64 node_guid() { return htobe64(kNodeGuid); }

void set_attribute_verbs(Context& context) {
  context.verbs.query_device_ex = query_device_ex;
  context.verbs.query_port = query_port;
  context.verbs.query_rt_values = query_rt_values;
}

extern "C" {

int ibv_query_device(ibv_context* device, ibv_device_attr* about) {
  describe_device(Context::of(device), *about);
  return 0;
}

/// For programs that were built before the struct grew.
int ibv_query_port(ibv_context* device, uint8_t port, _compat_ibv_port_attr* about) {
  return query_port(device, port, reinterpret_cast<ibv_port_attr*>(about), offsetof(ibv_port_attr, port_cap_flags2));
}

int ibv_query_gid(ibv_context* device, uint8_t port, int index, ibv_gid* gid) {
  if (index >= 0 && gid_at(Context::of(device), port, static_cast<std::uint32_t>(index), *gid)) return 0;
  errno = EINVAL;
  return -1;
}

int _ibv_query_gid_ex(ibv_context* device, uint32_t port, uint32_t index, ibv_gid_entry* entry, uint32_t flags,
                      size_t bytes) {
  ibv_gid gid;
  if (flags != 0 || !gid_at(Context::of(device), port, index, gid)) return EINVAL;
  return index == 0 ? put_entry(gid, entry, bytes) : ENODATA;
}

ssize_t _ibv_query_gid_table(ibv_context* device, ibv_gid_entry* entries, size_t most, uint32_t flags, size_t bytes) {
  ibv_gid gid;
  if (flags != 0 || most == 0 || !gid_at(Context::of(device), kPort, 0, gid)) return -EINVAL;
  const int failed = put_entry(gid, entries, bytes);
  return failed != 0 ? -failed : 1;
}

/// The type as the kernel's files name it: 0 for InfiniBand and for RoCE v1.
int ibv_query_gid_type(ibv_context*, uint8_t port, unsigned index, unsigned* type) {
  if (port != kPort || index >= kGidTableEntries) {
    errno = EINVAL;
    return -1;
  }
  *type = 0;
  return 0;
}

int ibv_query_pkey(ibv_context*, uint8_t port, int index, __be16* key) {
  if (port != kPort || index != 0) {
    errno = EINVAL;
    return -1;
  }
  *key = htobe16(kPartitionKey);
  return 0;
}

int ibv_get_pkey_index(ibv_context*, uint8_t port, __be16 key) {
  if (port == kPort && key == htobe16(kPartitionKey)) return 0;
  errno = EINVAL;
  return -1;
}

}  // extern "C"

}  // namespace splitnic::ibverbs
