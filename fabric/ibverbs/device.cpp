// The device list, and opening and closing the device.
#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>

#include "fabric/ibverbs/objects.h"

namespace splitnic::ibverbs {
namespace {

constexpr const char* kSysfs = "/sys";

/// Programs that link providers look behind the struct for the provider's: there they find none.
struct Device {
  ibv_device device{};
  std::array<std::byte, 256> provider{};
};

/// The one device there is, the same for every list.
Device& the_device() {
  static Device device = [] {
    Device made;
    made.device.node_type = IBV_NODE_CA;
    made.device.transport_type = IBV_TRANSPORT_IB;
    std::strcpy(made.device.name, "splitnic0");
    std::strcpy(made.device.dev_name, "uverbs_splitnic0");
    std::strcpy(made.device.dev_path, "/sys/class/infiniband_verbs/uverbs_splitnic0");
    std::strcpy(made.device.ibdev_path, "/sys/class/infiniband/splitnic0");
    return made;
  }();
  return device;
}

fabric::AdapterOptions adapter_options() {
  fabric::AdapterOptions options;
  options.cell_payload_bytes = fabric::kMaxCellPayload;
  options.max_message_bytes = kMaxMessageBytes;
  options.max_paths = Peers::kMaxPaths;
  options.max_queue_pairs = 4080;
  options.max_regions = 16384;
  options.max_completion_queues = 4096;
  options.max_shared_receive_queues = 1024;
  options.max_completion_channels = 1024;
  options.max_address_handles = 16384;
  options.max_groups = 256;
  options.max_events = 4096;
  return options;
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
  set_window_verbs(context);
  set_shared_receive_verbs(context);
  set_attribute_verbs(context);
}

ibv_context* refuse_to_open(const std::string& why) {
  std::fprintf(stderr, "libibverbs (splitnic): %s\n", why.c_str());
  return refuse<ibv_context>(ENODEV);
}

ibv_context* open_device(ibv_device* device) {
  auto context = std::make_unique<Context>();
  auto adapter = fabric::SharedAdapter::create(adapter_options(), context->random);
  if (!adapter) return refuse_to_open(adapter.error().message);
  context->adapter = std::move(*adapter);
  context->limits = context->adapter->use([](fabric::ChannelAdapter& made) { return made.limits(); });
  context->events = std::make_unique<Events>();
  const int command = eventfd(0, EFD_CLOEXEC);  // programs pass it to poll(2) and close nothing
  context->verbs.context.device = device;
  context->verbs.context.cmd_fd = command;
  context->verbs.context.async_fd = context->events->descriptor();
  if (command < 0 || context->events->descriptor() < 0) return refuse_to_open("no descriptors are left");
  auto peers = Peers::open(*context->adapter, context->random);
  if (!peers) return refuse_to_open(peers.error().message);
  context->peers = std::move(*peers);
  Context& opened = *context;
  auto watched = opened.adapter->watch(opened.adapter->event_descriptor(), [&opened] { take_adapter_events(opened); });
  if (!watched) return refuse_to_open(watched.error().message);
  context->event_watch = *watched;
  set_verbs(opened);
  return &context.release()->verbs.context;
}

int read_text_file(const std::string& path, char* text, std::size_t bytes) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0 || bytes == 0) return -1;
  const ssize_t got = read(file, text, bytes);
  close(file);
  if (got <= 0) return -1;
  const auto end = static_cast<std::size_t>(got);
  if (text[end - 1] == '\n') {
    text[end - 1] = 0;
    return static_cast<int>(got - 1);
  }
  if (end < bytes) text[end] = 0;
  return static_cast<int>(got);
}

}  // namespace

Context::~Context() {
  if (event_watch.value != 0) static_cast<void>(adapter->unwatch(event_watch));
  if (verbs.context.cmd_fd > 0) close(verbs.context.cmd_fd);
  peers.reset();
  adapter.reset();
}

extern "C" {

ibv_device** ibv_get_device_list(int* count) {
  auto** list = static_cast<ibv_device**>(std::calloc(2, sizeof(ibv_device*)));
  if (list == nullptr) return refuse<ibv_device*>(ENOMEM);
  list[0] = &the_device().device;
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

int ibv_close_device(ibv_context* context) {
  delete &Context::of(context);
  return 0;
}

int ibv_fork_init() { return 0; }  // no memory is pinned; a child must not use what its parent opened

ibv_fork_status ibv_is_fork_initialized() { return IBV_FORK_UNNEEDED; }

int ibv_dontfork_range(void*, size_t) { return 0; }

int ibv_dofork_range(void*, size_t) { return 0; }

const char* ibv_get_sysfs_path() { return kSysfs; }

int ibv_read_sysfs_file(const char* directory, const char* file, char* text, size_t bytes) {
  return read_text_file(std::string(directory) + "/" + file, text, bytes);
}

}  // extern "C"

}  // namespace splitnic::ibverbs
