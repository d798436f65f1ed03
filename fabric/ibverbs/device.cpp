// The device list, and opening and closing the device.
#include <fmt/format.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "fabric/ibverbs/counters.h"
#include "fabric/ibverbs/faults.h"
#include "fabric/ibverbs/names.h"
#include "fabric/ibverbs/objects.h"
#include "fabric/ibverbs/own_devices.h"

namespace splitnic::ibverbs {
namespace {

/// Programs that link providers look behind the struct for the provider's: there they find none.
struct Device {
  ibv_device device{};
  std::array<std::byte, 256> provider{};
};

/// Behind the field's text so far; its rest is zero.
template <std::size_t bytes>
constexpr void append(char (&field)[bytes], std::string_view text) {
  const std::size_t used = std::string_view(field).size();
  for (std::size_t i = 0; i < text.size(); ++i) field[used + i] = text[i];
}

constexpr Device make_device() {
  Device made;
  made.device.node_type = IBV_NODE_CA;
  made.device.transport_type = IBV_TRANSPORT_IB;
  append(made.device.name, kDeviceName);
  append(made.device.dev_name, kDeviceFile);
  append(made.device.dev_path, "/sys/class/infiniband_verbs/");
  append(made.device.dev_path, kDeviceFile);
  append(made.device.ibdev_path, "/sys/class/infiniband/");
  append(made.device.ibdev_path, kDeviceName);
  return made;
}

/// The one device there is, the same for every list. It is there from the start: a child that is forked while another
/// thread makes it would wait for that thread.
constinit Device the_device = make_device();

fabric::AdapterOptions adapter_options() {
  fabric::AdapterOptions options;
  options.cell_payload_bytes = fabric::kDefaultCellPayload;  // see kMaxMessageBytes
  options.max_message_bytes = kMaxMessageBytes;
  options.max_datagram_bytes = kPathMtuBytes;
  options.max_paths = Peers::kMaxPaths;
  options.max_queue_pairs = 4080;
  options.max_regions = 16384;
  // A queue pair of the connection manager has two queues with a channel each (rdma_create_qp).
  options.max_completion_queues = 2 * options.max_queue_pairs;
  options.max_shared_receive_queues = 1024;
  options.max_completion_channels = 2 * options.max_queue_pairs;
  options.max_address_handles = 16384;
  options.max_groups = Groups::kMaxGroups;
  options.max_events = 4096;
  // Of datagrams: how long one waits for room at a peer that other programs keep from its processor, and is lost then.
  // One that delays those to other peers waits less.
  // Connected queue pairs have their own (IBV_QP_TIMEOUT).
  options.ack_timeout = std::chrono::seconds(1);
  return options;
}

/// Which memory of peers is reached past the fabric, as the environment says.
Result<fabric::PlacementReach> placement_reach() {
  const char* text = secure_getenv("SPLITNIC_PLACEMENT");
  const std::string_view wanted = text == nullptr ? "" : text;
  if (wanted.empty() || wanted == "shared") return fabric::PlacementReach::shared;
  if (wanted == "none") return fabric::PlacementReach::none;
  if (wanted == "process") return fabric::PlacementReach::process;
  return fail("SPLITNIC_PLACEMENT is none, shared or process, not {}", wanted);
}

void set_verbs(Context& context) {
  context.verbs.sz = sizeof context.verbs;
  context.verbs.context.abi_compat = __VERBS_ABI_IS_EXTENDED;
  pthread_mutex_init(&context.verbs.context.mutex, nullptr);
  context.verbs.context.num_comp_vectors = 1;
  set_completion_verbs(context);
  set_queue_pair_verbs(context);
  set_post_verbs(context);
  set_memory_verbs(context);
  set_device_memory_verbs(context);
  set_advice_verbs(context);
  set_window_verbs(context);
  set_shared_receive_verbs(context);
  set_xrc_verbs(context);
  set_attribute_verbs(context);
}

ibv_context* refuse_to_open(const std::string& why) {
  std::fprintf(stderr, "libibverbs (splitnic): %s\n", why.c_str());
  return refuse<ibv_context>(ENODEV);
}

ibv_context* open_device(ibv_device* device) {
  static std::atomic<unsigned> devices{0};
  auto context = std::make_unique<Context>();
  context->ordinal = ++devices;
  auto faults = faults_of_environment(context->ordinal, [&opened = *context](fabric::PathNumber path) {
    return opened.peers->kill(path);  // there are no queue pairs before there are peers
  });
  if (!faults) return refuse_to_open(faults.error().message);
  context->faults = std::move(*faults);
  fabric::AdapterOptions options = adapter_options();
  options.faults = context->faults.get();
  auto reach = placement_reach();
  if (!reach) return refuse_to_open(reach.error().message);
  context->placements = std::make_unique<fabric::LocalPlacements>(*reach);
  if (*reach != fabric::PlacementReach::none) options.placements = context->placements.get();
  auto adapter = fabric::SharedAdapter::create(options, context->random);
  if (!adapter) return refuse_to_open(adapter.error().message);
  context->adapter = std::move(*adapter);
  context->limits = context->adapter->use([](fabric::ChannelAdapter& made) { return made.limits(); });
  context->events = std::make_unique<Events>();
  context->command = os::UniqueFd(eventfd(0, EFD_CLOEXEC));  // programs pass it to poll(2) and close nothing
  context->verbs.context.device = device;
  context->verbs.context.cmd_fd = context->command.get();
  context->verbs.context.async_fd = context->events->descriptor();
  if (!context->command || context->events->descriptor() < 0) return refuse_to_open("no descriptors are left");
  auto peers = Peers::open(*context->adapter, context->random, *context->placements);
  if (!peers) return refuse_to_open(peers.error().message);
  context->peers = std::move(*peers);
  auto groups = Groups::open(*context->adapter, *context->peers);
  if (!groups) return refuse_to_open(groups.error().message);
  context->groups = std::move(*groups);
  OwnDevices::of_process().opened(context->peers->local_id(), context->peers->ids());
  Context& opened = *context;
  auto watched = opened.adapter->watch(opened.adapter->event_descriptor(), [&opened] { take_adapter_events(opened); });
  if (!watched) return refuse_to_open(watched.error().message);
  context->event_watch = *watched;
  set_verbs(opened);
  auto counters = Counters::open(opened);
  if (!counters) {  // everything else works
    std::fprintf(stderr, "libibverbs (splitnic): no counters: %s\n", counters.error().message.c_str());
  } else {
    opened.counters = std::move(*counters);
  }
  return &context.release()->verbs.context;
}

}  // namespace

Context::Context() = default;

Context::~Context() {
  counters.reset();
  if (event_watch.value != 0) static_cast<void>(adapter->unwatch(event_watch));
  // A program may have left queue pairs, which the progress thread still serves; their faults must not reach for peers.
  if (faults != nullptr && adapter != nullptr) adapter->use([this](fabric::ChannelAdapter&) { faults->end(); });
  if (peers != nullptr) OwnDevices::of_process().closed(peers->local_id());
  groups.reset();
  peers.reset();
  if (placements != nullptr) placements->stop();
  adapter.reset();
}

extern "C" {

ibv_device** ibv_get_device_list(int* count) {
  auto** list = static_cast<ibv_device**>(std::calloc(2, sizeof(ibv_device*)));
  if (list == nullptr) return refuse<ibv_device*>(ENOMEM);
  list[0] = &the_device.device;
  if (count != nullptr) *count = 1;
  return list;
}

void ibv_free_device_list(ibv_device** list) { std::free(list); }

const char* ibv_get_device_name(ibv_device* device) { return device->name; }

int ibv_get_device_index(ibv_device*) { return 0; }

__be64 ibv_get_device_guid(ibv_device*) { return node_guid(); }

ibv_context* ibv_open_device(ibv_device* device) {
  return creating([&] { return open_device(device); });
}

/// A forked child shares its parent's descriptors and sockets, and has none of its threads: there nothing is ended.
int ibv_close_device(ibv_context* context) {
  Context& opened = Context::of(context);
  const os::Uncancelled whole;
  if (!opened.adapter->forked()) delete &opened;
  return 0;
}

int ibv_fork_init() { return 0; }  // no memory is pinned; a child must not use what its parent opened

ibv_fork_status ibv_is_fork_initialized() { return IBV_FORK_UNNEEDED; }

int ibv_dontfork_range(void*, size_t) { return 0; }

int ibv_dofork_range(void*, size_t) { return 0; }

}  // extern "C"

}  // namespace splitnic::ibverbs
