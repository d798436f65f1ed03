// Protection domains, parent domains, thread domains and memory regions.
#include <algorithm>
#include <limits>

#include "fabric/ibverbs/objects.h"
#include "fabric/ibverbs/regions.h"
#include "fabric/memory/protection_table.h"

#undef ibv_reg_mr
#undef ibv_reg_mr_iova

namespace splitnic::ibverbs {
namespace {

using fabric::ChannelAdapter;
using fabric::Right;
using fabric::Rights;

constexpr unsigned kRemoteWrites = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
constexpr unsigned kKnownAccess = IBV_ACCESS_LOCAL_WRITE | kRemoteWrites | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_MW_BIND |
                                  IBV_ACCESS_ZERO_BASED | IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB;

/// nullopt: flags that contradict each other, or that nobody knows. Source: ibv_reg_mr(3).
std::optional<Rights> rights_of(unsigned access) {
  if ((access & ~(kKnownAccess | static_cast<unsigned>(IBV_ACCESS_OPTIONAL_RANGE))) != 0) return std::nullopt;
  if ((access & kRemoteWrites) != 0 && (access & IBV_ACCESS_LOCAL_WRITE) == 0) return std::nullopt;
  Rights rights = Rights{} | Right::local_read;
  if ((access & IBV_ACCESS_LOCAL_WRITE) != 0) rights = rights | Right::local_write;
  if ((access & IBV_ACCESS_REMOTE_READ) != 0) rights = rights | Right::remote_read;
  if ((access & IBV_ACCESS_REMOTE_WRITE) != 0) rights = rights | Right::remote_write;
  if ((access & IBV_ACCESS_REMOTE_ATOMIC) != 0) rights = rights | Right::remote_atomic;
  if ((access & IBV_ACCESS_MW_BIND) != 0) rights = rights | Right::window_binding;
  return rights;
}

/// Memory that is registered on demand is looked at when it is used.
bool accessible(Context& context, const void* address, std::size_t bytes, unsigned access) {
  if ((access & IBV_ACCESS_ON_DEMAND) != 0 || bytes == 0) return true;
  const bool writes = (access & IBV_ACCESS_LOCAL_WRITE) != 0;
  const std::lock_guard guard(context.lock);
  return context.protection.accessible(address, bytes, writes ? fabric::LocalAccess::write : fabric::LocalAccess::read);
}

/// Whether the memory reaches beyond the end of the address space. What is below it may be registered as a whole: on
/// demand, with address 0 and length SIZE_MAX ("implicitly").
bool wraps(const void* address, std::size_t bytes) {
  return bytes > SIZE_MAX - reinterpret_cast<std::uintptr_t>(address);
}

int error_of(fabric::ProtectionError error) {
  switch (error) {
    case fabric::ProtectionError::table_full:
      return ENOMEM;
    case fabric::ProtectionError::windows_bound:
      return EBUSY;
    default:
      return EINVAL;
  }
}

ibv_mr* register_region(ibv_pd* pd, void* address, std::size_t bytes, std::uint64_t iova, unsigned access) {
  if (!rights_of(access) || wraps(address, bytes)) return refuse<ibv_mr>(EINVAL);
  fabric::enable_guarded_copy();  // the program may have installed a crash handler since it opened the device
  if (!accessible(Context::of(pd->context), address, bytes, access)) return refuse<ibv_mr>(EFAULT);
  const std::uint64_t base = (access & IBV_ACCESS_ZERO_BASED) != 0 ? 0 : iova;
  auto region = make_region(pd, {static_cast<std::byte*>(address), bytes}, base, access);
  return region == nullptr ? nullptr : &region.release()->mr;
}

/// Shows the region to peers that may place bytes in it.
void publish(const Region& region) {
  const bool on_demand = (region.access & IBV_ACCESS_ON_DEMAND) != 0;
  Context::of(region.mr.context)
      .placements->publish({region.tag, region.base, region.memory, Domain::of(region.mr.pd).number,
                            rights_of(region.access).value_or(Rights{}), /*may_move=*/on_demand});
}

/// Answers with an error number.
int change_region(Region& region, int flags, ibv_pd* pd, void* address, std::size_t bytes, unsigned access) {
  Context& context = Context::of(region.mr.context);
  fabric::Reregister change;
  change.keeps_tag = true;  // as devices do: programs give a key away once
  if ((flags & IBV_REREG_MR_CHANGE_PD) != 0) change.domain = Domain::of(pd).number;
  if (region.of_device_memory) return EINVAL;  // as with hardware
  const bool moves = (flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0;
  if ((flags & IBV_REREG_MR_CHANGE_ACCESS) != 0) {
    change.rights = rights_of(access);
    if (!change.rights) return EINVAL;
  } else {
    access = region.access;  // the argument says nothing
  }
  if (!moves) {
    address = region.mr.addr;
    bytes = region.mr.length;
  }
  if (moves && wraps(address, bytes)) return EINVAL;
  if ((moves || change.rights) && !accessible(context, address, bytes, access)) return EFAULT;
  if (moves) {
    change.memory = fabric::RegionMemory::of_process({static_cast<std::byte*>(address), bytes});
    change.base = (access & IBV_ACCESS_ZERO_BASED) != 0 ? 0 : reinterpret_cast<std::uintptr_t>(address);
  }
  const auto renewed =
      context.adapter->use([&](ChannelAdapter& adapter) { return adapter.table().reregister(region.tag, change); });
  if (!renewed) return error_of(renewed.error());
  const std::lock_guard guard(context.lock);
  region.tag = *renewed;
  if (change.base) region.base = *change.base;
  region.mr.lkey = region.mr.rkey = renewed->value;
  if (change.domain) {
    region.mr.pd = pd;
    region.of_domain = UseOf(Domain::of(pd).users);
  }
  region.access = access;
  if (change.memory) {
    region.mr.addr = address;
    region.mr.length = bytes;
    region.memory = {static_cast<std::byte*>(address), bytes};
  }
  return 0;
}

/// The same, between two times in which peers may place bytes in the region. EBUSY: one of them does not come to rest.
int change_quiet_region(Region& region, int flags, ibv_pd* pd, void* address, std::size_t bytes, unsigned access) {
  const bool quiet = Context::of(region.mr.context).placements->revoke(region.tag);
  const int failed = quiet ? change_region(region, flags, pd, address, bytes, access) : EBUSY;
  if (quiet) publish(region);
  return failed;
}

ibv_pd* alloc_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* attributes) noexcept {
  // Programs may hand over allocators; nothing is allocated that they could be for.
  constexpr std::uint32_t kKnown = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
  const bool here = attributes->pd != nullptr && attributes->pd->context == context &&
                    (attributes->td == nullptr || attributes->td->context == context);
  if (!here || (attributes->comp_mask & ~kKnown) != 0) return refuse<ibv_pd>(EINVAL);
  return creating([&] {
    auto domain = std::make_unique<Domain>();
    Domain& real = Domain::of(attributes->pd);
    domain->parent = real.parent != nullptr ? real.parent : &real;
    domain->number = real.number;
    domain->pd = {context, Context::of(context).next_handle()};
    domain->of_parent = UseOf(domain->parent->users);
    if (attributes->td != nullptr) domain->of_thread = UseOf(ThreadDomain::of(attributes->td).users);
    return &domain.release()->pd;
  });
}

ibv_td* alloc_td(ibv_context* context, ibv_td_init_attr* attributes) noexcept {
  if (attributes->comp_mask != 0) return refuse<ibv_td>(EINVAL);
  return creating([&] {
    auto domain = std::make_unique<ThreadDomain>();
    domain->td = {context};
    return &domain.release()->td;
  });
}

int dealloc_td(ibv_td* td) noexcept {
  ThreadDomain& domain = ThreadDomain::of(td);
  if (domain.users != 0) return EBUSY;
  delete &domain;
  return 0;
}

}  // namespace

std::unique_ptr<Region> make_region(ibv_pd* pd, std::span<std::byte> memory, std::uint64_t base, unsigned access) {
  const auto rights = rights_of(access);
  if (!rights) {
    errno = EINVAL;
    return nullptr;
  }
  auto region = std::make_unique<Region>();
  fabric::EntryOptions options;
  options.rights = *rights;
  options.base = base;
  options.named_by_base = true;
  const auto bytes = fabric::RegionMemory::of_process(memory);
  const auto tag = Context::of(pd->context).adapter->use([&](ChannelAdapter& adapter) {
    return adapter.table().register_region(Domain::of(pd).number, bytes, options);
  });
  if (!tag) {
    errno = error_of(tag.error());
    return nullptr;
  }
  region->tag = *tag;
  region->base = base;
  region->access = access;
  region->of_domain = UseOf(Domain::of(pd).users);
  const std::uint32_t handle = Context::of(pd->context).next_handle();
  region->memory = memory;
  region->mr = {pd->context, pd, memory.data(), memory.size(), handle, tag->value, tag->value};
  publish(*region);
  Context& context = Context::of(pd->context);
  const std::lock_guard guard(context.lock);
  context.objects.regions.emplace(tag->index(), region.get());
  return region;
}

void set_memory_verbs(Context& context) {
  context.verbs.alloc_parent_domain = alloc_parent_domain;
  context.verbs.alloc_td = alloc_td;
  context.verbs.dealloc_td = dealloc_td;
}

extern "C" {

ibv_pd* ibv_alloc_pd(ibv_context* context) {
  return creating([&] {
    auto domain = std::make_unique<Domain>();
    domain->number =
        Context::of(context).adapter->use([](ChannelAdapter& adapter) { return adapter.allocate_domain(); });
    domain->pd = {context, Context::of(context).next_handle()};
    return &domain.release()->pd;
  });
}

int ibv_dealloc_pd(ibv_pd* pd) {
  Domain& domain = Domain::of(pd);
  if (domain.users != 0) return EBUSY;
  if (domain.parent == nullptr) {
    const auto freed = Context::of(pd->context).adapter->use([&](ChannelAdapter& adapter) {
      return adapter.deallocate_domain(domain.number);
    });
    if (freed != fabric::Status::ok) return error_number(freed);
  }
  delete &domain;
  return 0;
}

ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* address, size_t bytes, uint64_t iova, unsigned access) {
  return creating([&] { return register_region(pd, address, bytes, iova, access); });
}

ibv_mr* ibv_reg_mr_iova(ibv_pd* pd, void* address, size_t bytes, uint64_t iova, int access) {
  return ibv_reg_mr_iova2(pd, address, bytes, iova, static_cast<unsigned>(access));
}

ibv_mr* ibv_reg_mr(ibv_pd* pd, void* address, size_t bytes, int access) {
  return ibv_reg_mr_iova(pd, address, bytes, reinterpret_cast<std::uintptr_t>(address), access);
}

int ibv_rereg_mr(ibv_mr* mr, int flags, ibv_pd* pd, void* address, size_t bytes, int access) {
  const bool moves = (flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0;
  const bool known = flags != 0 && (flags & ~static_cast<int>(IBV_REREG_MR_FLAGS_SUPPORTED)) == 0;
  const bool whole = (!moves || (address != nullptr && bytes != 0)) &&
                     ((flags & IBV_REREG_MR_CHANGE_PD) == 0 || (pd != nullptr && pd->context == mr->context));
  if (!known || !whole) {
    errno = EINVAL;
    return IBV_REREG_MR_ERR_INPUT;
  }
  const int failed = answering(
      [&] { return change_quiet_region(Region::of(mr), flags, pd, address, bytes, static_cast<unsigned>(access)); });
  if (failed == 0) return 0;
  errno = failed;
  return IBV_REREG_MR_ERR_INPUT;  // the region is as it was
}

int ibv_dereg_mr(ibv_mr* mr) {
  const os::Uncancelled whole;
  Region& region = Region::of(mr);
  Context& context = Context::of(mr->context);
  if (!context.placements->revoke(region.tag)) return EBUSY;
  {
    const std::lock_guard guard(context.lock);
    const auto gone = context.adapter->use([&](ChannelAdapter& adapter) { return adapter.deregister(region.tag); });
    if (gone != fabric::Status::ok) {
      publish(region);
      return error_number(gone);
    }
    context.objects.regions.erase(region.tag.index());
  }
  delete &region;
  return 0;
}

}  // extern "C"

}  // namespace splitnic::ibverbs
