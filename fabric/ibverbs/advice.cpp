// Advice about memory that is registered on demand.
#include <sys/mman.h>

#include "common/range.h"
#include "fabric/ibverbs/objects.h"

namespace splitnic::ibverbs {
namespace {

constexpr std::uintptr_t kPageMask = 4095;

/// The memory that advice is about.
struct Advised {
  std::uintptr_t at = 0;
  std::size_t bytes = 0;
};

/// An error number, or 0 and the memory in `advised`. Source: ibv_advise_mr(3).
int find_advised(Context& context, const Domain& domain, const ibv_sge& part, bool to_write, Advised& advised) {
  const std::lock_guard guard(context.lock);
  const auto found = context.objects.regions.find(fabric::Stag{part.lkey}.index());
  if (found == context.objects.regions.end() || found->second->mr.lkey != part.lkey) return ENOENT;
  const Region& region = *found->second;
  if (Domain::of(region.mr.pd).number != domain.number) return EPERM;
  if ((region.access & IBV_ACCESS_ON_DEMAND) == 0) return EINVAL;
  if (!ByteRange{region.base, region.mr.length}.contains({part.addr, part.length})) return EFAULT;
  if (to_write && (region.access & IBV_ACCESS_LOCAL_WRITE) == 0) return EPERM;
  advised = {reinterpret_cast<std::uintptr_t>(region.mr.addr) + (part.addr - region.base), part.length};
  return 0;
}

/// Fetches the pages. EFAULT: some of them are not the process's.
int fetch(Context& context, const Advised& advised, bool to_write) {
  const std::uintptr_t first = advised.at & ~kPageMask;
  const std::size_t bytes = (advised.at - first + advised.bytes + kPageMask) & ~kPageMask;
  // NOLINTBEGIN(performance-no-int-to-ptr): keys name memory by numbers
  const int advice = to_write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
  if (madvise(reinterpret_cast<void*>(first), bytes, advice) == 0) return 0;
  if (errno != EINVAL) return EFAULT;
  // The kernel does not know this advice.
  const std::lock_guard guard(context.lock);
  const auto access = to_write ? fabric::LocalAccess::write : fabric::LocalAccess::read;
  const bool there = context.protection.accessible(reinterpret_cast<const void*>(advised.at), advised.bytes, access);
  // NOLINTEND(performance-no-int-to-ptr)
  return there ? 0 : EFAULT;
}

int advise(ibv_pd* pd, ibv_advise_mr_advice advice, std::span<const ibv_sge> list) {
  Context& context = Context::of(pd->context);
  const bool to_write = advice == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE;
  for (const ibv_sge& part : list) {
    Advised advised;
    if (const int refused = find_advised(context, Domain::of(pd), part, to_write, advised); refused != 0) {
      return refused;
    }
    // Without faults only what is there would be made known to the device, which looks for itself.
    if (advised.bytes == 0 || advice == IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT) continue;
    if (const int refused = fetch(context, advised, to_write); refused != 0) return refused;
  }
  return 0;
}

int advise_mr(ibv_pd* pd, ibv_advise_mr_advice advice, std::uint32_t flags, ibv_sge* list,
              std::uint32_t count) noexcept {
  if (advice > IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT) return EOPNOTSUPP;
  if ((flags & ~static_cast<std::uint32_t>(IBV_ADVISE_MR_FLAG_FLUSH)) != 0) return EINVAL;
  return answering([&] { return advise(pd, advice, std::span(list, count)); });
}

}  // namespace

void set_advice_verbs(Context& context) { context.verbs.advise_mr = advise_mr; }

}  // namespace splitnic::ibverbs
