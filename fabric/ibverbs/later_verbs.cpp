// Verbs that came after the headers of rdma-core 44: regions with attributes, and memory that the library allocates.
#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "fabric/ibverbs/objects.h"

namespace splitnic::ibverbs {

/// What programs know as an opaque struct ibv_buf.
struct Buffer {
  Buffer(ibv_pd* of, std::size_t size)
      : pd(of),
        bytes(size),
        address(::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {}
  ~Buffer() {
    if (address != MAP_FAILED) ::munmap(address, bytes);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  [[nodiscard]] bool contains(const void* from, std::size_t size) const {
    const auto offset = reinterpret_cast<std::uintptr_t>(from) - reinterpret_cast<std::uintptr_t>(address);
    return offset <= bytes && size <= bytes - offset;
  }

  ibv_pd* const pd;
  const std::size_t bytes;
  void* const address;
};

/// The struct ibv_mr_init_attr of rdma-core 64. That of 59 to 63 ends before `buffer`, and its programs do not set
/// kHasBuffer.
struct RegionAttributes {
  std::size_t length;
  int access;
  std::uint64_t flags;
  std::uint64_t iova;
  void* address;
  int descriptor;
  std::uint64_t descriptor_offset;
  void* dma_handle;
  const Buffer* buffer;
};
static_assert(offsetof(RegionAttributes, buffer) == 64 && sizeof(RegionAttributes) == 72);

namespace {

constexpr std::uint64_t kHasIova = 1 << 0;
constexpr std::uint64_t kHasAddress = 1 << 1;
constexpr std::uint64_t kHasBuffer = 1 << 5;

constexpr std::uint64_t kPortSpeed = 1000;  // in 100 Mb/s: the nominal rate of ibv_query_port()

}  // namespace

// Functions with the C names, by which later headers declare them with types of their own.
ibv_mr* register_with_attributes(ibv_pd* pd, const RegionAttributes* attributes) __asm__("ibv_reg_mr_ex");
void* allocate_buffer(ibv_pd* pd, std::size_t bytes, Buffer** buffer) __asm__("ibv_alloc_buf");
void free_buffer(Buffer* buffer) __asm__("ibv_free_buf");
ibv_mr* register_buffer(ibv_pd* pd, const Buffer* buffer, void* address, std::size_t bytes,
                        int access) __asm__("ibv_reg_buf_mr");
int query_port_speed(ibv_context* context, std::uint32_t port, std::uint64_t* speed) __asm__("ibv_query_port_speed");

/// Errors: EOPNOTSUPP for memory that has no address in this process; EINVAL for what is not in the buffer, or a buffer
/// of another domain; those of ibv_reg_mr().
ibv_mr* register_with_attributes(ibv_pd* pd, const RegionAttributes* attributes) {
  const std::uint64_t flags = attributes->flags;
  if ((flags & ~(kHasIova | kHasAddress | kHasBuffer)) != 0) return refuse<ibv_mr>(EOPNOTSUPP);
  if ((flags & kHasAddress) == 0) return refuse<ibv_mr>(EINVAL);
  if ((flags & kHasBuffer) != 0 &&
      (attributes->buffer->pd != pd || !attributes->buffer->contains(attributes->address, attributes->length))) {
    return refuse<ibv_mr>(EINVAL);
  }
  const std::uint64_t iova =
      (flags & kHasIova) != 0 ? attributes->iova : reinterpret_cast<std::uintptr_t>(attributes->address);
  return ibv_reg_mr_iova2(pd, attributes->address, attributes->length, iova, static_cast<unsigned>(attributes->access));
}

/// Zeros, from the beginning of a page on, until free_buffer(). Errors: EINVAL for no bytes; ENOMEM.
void* allocate_buffer(ibv_pd* pd, std::size_t bytes, Buffer** buffer) {
  if (bytes == 0) return refuse<void>(EINVAL);
  return creating([&]() -> void* {
    auto made = std::make_unique<Buffer>(pd, bytes);
    if (made->address == MAP_FAILED) return refuse<void>(ENOMEM);
    *buffer = made.release();
    return (*buffer)->address;
  });
}

void free_buffer(Buffer* buffer) { delete buffer; }

ibv_mr* register_buffer(ibv_pd* pd, const Buffer* buffer, void* address, std::size_t bytes, int access) {
  const RegionAttributes attributes{bytes, access, kHasAddress | kHasBuffer, 0, address, -1, 0, nullptr, buffer};
  return register_with_attributes(pd, &attributes);
}

int query_port_speed(ibv_context*, std::uint32_t port, std::uint64_t* speed) {
  if (port != kPort) return EINVAL;
  *speed = kPortSpeed;
  return 0;
}

}  // namespace splitnic::ibverbs
