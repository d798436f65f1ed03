// What a process has of the fabric, and the list of devices.
#include <endian.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "fabric/endnode/fabric_directory.h"
#include "fabric/rdmacm/objects.h"
#include "fabric/threads/per_process.h"

namespace splitnic::rdmacm {
namespace {

std::unique_ptr<Library> refuse_library(const std::string& why) {
  std::fprintf(stderr, "librdmacm (splitnic): %s\n", why.c_str());
  errno = ENODEV;
  return nullptr;
}

std::unique_ptr<Library> open_library() {
  auto library = std::make_unique<Library>();
  const auto folders = fabric::chosen_fabric_folders();
  if (!folders) return refuse_library(folders.error().message);
  auto bindings = Bindings::open(folders->meeting);
  if (!bindings) return refuse_library(bindings.error().message);
  library->bindings = std::move(*bindings);
  ibv_device** devices = ibv_get_device_list(nullptr);
  if (devices == nullptr) return nullptr;
  library->device = devices[0] != nullptr ? ibv_open_device(devices[0]) : nullptr;
  ibv_free_device_list(devices);
  if (library->device == nullptr) return refuse_library("the device can't be opened");
  library->pd = ibv_alloc_pd(library->device);
  ibv_port_attr port{};
  if (library->pd == nullptr || ibv_query_device(library->device, &library->limits) != 0 ||
      ibv_query_port(library->device, kPort, &port) != 0 ||
      ibv_query_gid(library->device, kPort, 0, &library->gid) != 0) {
    return refuse_library("the device can't be used");
  }
  library->local_id = port.lid;
  return library;
}

}  // namespace

Library* Library::get() {
  struct Opened {
    std::mutex mutex;
    std::unique_ptr<Library> library;
  };
  static constinit fabric::PerProcess<Opened> of_process;
  Opened& opened = of_process.get();
  const os::Uncancelled whole;
  const std::lock_guard guard(opened.mutex);
  if (!opened.library) opened.library = open_library();
  return opened.library.get();
}

extern "C" {

ibv_context** rdma_get_devices(int* count) {
  Library* library = Library::get();
  if (library == nullptr) return nullptr;
  auto** list = static_cast<ibv_context**>(std::calloc(2, sizeof(ibv_context*)));
  if (list == nullptr) return nullptr;
  list[0] = library->device;
  if (count != nullptr) *count = 1;
  return list;
}

void rdma_free_devices(ibv_context** list) { std::free(list); }

}  // extern "C"

}  // namespace splitnic::rdmacm
