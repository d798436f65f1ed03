// Memory that the device lends to programs: for this device, pages of the process.
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "common/range.h"
#include "fabric/ibverbs/objects.h"
#include "fabric/ibverbs/regions.h"

namespace splitnic::ibverbs {
namespace {

constexpr std::size_t kPageBytes = 4096;
constexpr std::uint32_t kPageBits = 12;
constexpr std::uint64_t kCopyBytes = 4;  // the granularity that programs of hardware know

std::size_t whole_pages(std::size_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

/// The bytes [offset, offset + length); null: not all of them are there.
std::byte* bytes_at(ibv_dm* dm, std::uint64_t offset, std::size_t length) {
  const std::span<std::byte> all = DeviceMemory::of(dm).bytes;
  return within(all.size(), {offset, length}) ? all.data() + offset : nullptr;
}

bool is_granular(std::uint64_t offset, std::size_t length) { return (offset | length) % kCopyBytes == 0; }

int copy_in(ibv_dm* dm, std::uint64_t offset, const void* from, std::size_t length) noexcept {
  std::byte* to = bytes_at(dm, offset, length);
  if (to == nullptr) return EFAULT;
  if (!is_granular(offset, length)) return EINVAL;
  if (length != 0) std::memcpy(to, from, length);
  return 0;
}

int copy_out(void* to, ibv_dm* dm, std::uint64_t offset, std::size_t length) noexcept {
  const std::byte* from = bytes_at(dm, offset, length);
  if (from == nullptr) return EFAULT;
  if (!is_granular(offset, length)) return EINVAL;
  if (length != 0) std::memcpy(to, from, length);
  return 0;
}

/// EINVAL: the attributes make no sense; ENOMEM: the device has no such memory left.
ibv_dm* allocate(ibv_context* device, const ibv_alloc_dm_attr& wanted) {
  Context& context = Context::of(device);
  if (wanted.comp_mask != 0 || wanted.length == 0 || wanted.log_align_req > kPageBits) return refuse<ibv_dm>(EINVAL);
  if (wanted.length > kDeviceMemoryBytes) return refuse<ibv_dm>(ENOMEM);
  auto memory = std::make_unique<DeviceMemory>();
  memory->mapped_bytes = whole_pages(wanted.length);
  const std::lock_guard guard(context.lock);
  if (memory->mapped_bytes > kDeviceMemoryBytes - context.device_memory_used) return refuse<ibv_dm>(ENOMEM);
  // A file, so that peers may place bytes in it (fabric/placement).
  memory->file = os::UniqueFd(memfd_create("splitnic-device-memory", MFD_CLOEXEC));
  if (!memory->file || ftruncate(memory->file.get(), static_cast<off_t>(memory->mapped_bytes)) != 0) {
    return refuse<ibv_dm>(ENOMEM);
  }
  void* pages = mmap(nullptr, memory->mapped_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory->file.get(),
                     /*offset=*/0);
  if (pages == MAP_FAILED) return refuse<ibv_dm>(ENOMEM);
  context.device_memory_used += memory->mapped_bytes;
  memory->bytes = {static_cast<std::byte*>(pages), wanted.length};
  memory->dm = {device, copy_in, copy_out, IBV_DM_MASK_HANDLE, context.next_handle()};
  return &memory.release()->dm;
}

ibv_dm* alloc_dm(ibv_context* context, ibv_alloc_dm_attr* attributes) noexcept {
  return creating([&] { return allocate(context, *attributes); });
}

int free_dm(ibv_dm* dm) noexcept {
  const os::Uncancelled whole;
  DeviceMemory& memory = DeviceMemory::of(dm);
  Context& context = Context::of(dm->context);
  const std::lock_guard guard(context.lock);
  if (memory.users != 0) return EBUSY;
  munmap(memory.bytes.data(), memory.mapped_bytes);
  context.device_memory_used -= memory.mapped_bytes;
  delete &memory;
  return 0;
}

/// The region has no address: its bytes are named by their offset in it. Source: ibv_alloc_dm(3).
ibv_mr* reg_dm_mr(ibv_pd* pd, ibv_dm* dm, std::uint64_t offset, std::size_t length, unsigned access) noexcept {
  return creating([&]() -> ibv_mr* {
    std::byte* at = bytes_at(dm, offset, length);
    const bool by_offset = (access & IBV_ACCESS_ZERO_BASED) != 0 && (access & IBV_ACCESS_ON_DEMAND) == 0;
    if (pd->context != dm->context || at == nullptr || !by_offset) return refuse<ibv_mr>(EINVAL);
    auto region = make_region(pd, {at, length}, /*base=*/0, access);
    if (region == nullptr) return nullptr;
    region->of_device_memory = UseOf(DeviceMemory::of(dm).users);
    region->mr.addr = nullptr;
    return &region.release()->mr;
  });
}

}  // namespace

void set_device_memory_verbs(Context& context) {
  context.verbs.alloc_dm = alloc_dm;
  context.verbs.free_dm = free_dm;
  context.verbs.reg_dm_mr = reg_dm_mr;
}

}  // namespace splitnic::ibverbs
