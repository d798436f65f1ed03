#include "fabric/verbs/memory.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "common/range.h"
#include "fabric/verbs/objects.h"

namespace splitnic::verbs {
namespace {

using detail::RegionOrigin;

constexpr std::uint64_t kMaxKeyBytes = std::numeric_limits<std::uint32_t>::max();

bool consistent(const RegionOptions& options) {
  return detail::consistent(options.rights) && detail::known(options.touch);
}

Expected<MemoryRegion> register_in(const std::shared_ptr<detail::DomainObject>& domain,
                                   const fabric::RegionMemory& memory, const RegionOptions& options,
                                   RegionOrigin origin) {
  fabric::EntryOptions with;
  with.rights = options.rights;
  with.touch = options.touch;
  with.invalidatable = options.invalidatable;
  with.base = options.base;
  const auto tag = domain->context->adapter.table().register_region(domain->number, memory, with);
  if (!tag) return tl::unexpected(detail::status_of(tag.error()));
  return MemoryRegion(std::make_shared<detail::RegionObject>(domain, *tag, origin));
}

/// Segment lengths have 32 bits. A greater length becomes the maximum, which the table refuses.
std::uint32_t segment_bytes(std::size_t bytes) {
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(bytes, kMaxKeyBytes));
}

/// For load() and store(), if [offset, offset + bytes) is inside the range that the region opens: access(memory, where
/// that begins). Programs poll memory so: the entry is looked up again only when it has changed.
template <class Access>
Status access(detail::RegionObject* region, std::size_t offset, std::size_t bytes, Access&& access) {
  if (region == nullptr) return Status::bad_argument;
  const fabric::ProtectionEntry* entry = region->accessed.current();
  if (entry == nullptr) [[unlikely]] {
    entry = region->entry();
    if (entry == nullptr || !entry->valid) return Status::bad_tag;
    region->accessed = fabric::RememberedEntry(*entry);
  }
  if (!within(entry->length, {offset, bytes})) return Status::bad_length;
  return access(entry->memory, entry->offset + offset) ? Status::ok : Status::bad_argument;
}

RemoteKey key_of(const detail::Opening& opening) {
  return {opening.base, opening.tag, static_cast<std::uint32_t>(std::min(opening.bytes, kMaxKeyBytes))};
}

}  // namespace

// ---- protection domains

Expected<MemoryRegion> ProtectionDomain::register_memory(std::span<std::byte> memory, const RegionOptions& options) {
  if (!object_ || !consistent(options)) return tl::unexpected(Status::bad_argument);
  if (memory.empty()) return tl::unexpected(Status::bad_length);
  if (!detail::accessible(*object_->context, memory, options.rights, true)) {
    return tl::unexpected(Status::bad_argument);
  }
  auto region = register_in(object_, fabric::RegionMemory::of_process(memory), options, RegionOrigin::process);
  if (region) region->object()->memory = memory;
  return region;
}

Expected<MemoryRegion> ProtectionDomain::register_memory(std::span<std::byte> memory, Rights rights) {
  RegionOptions options;
  options.rights = rights;
  return register_memory(memory, options);
}

Expected<MemoryRegion> ProtectionDomain::register_pages(const PageList& pages, const RegionOptions& options) {
  if (!object_ || !consistent(options)) return tl::unexpected(Status::bad_argument);
  if (pages.pages.size() > kMaxPages) return tl::unexpected(Status::bad_length);
  const bool usable = fabric::well_formed(pages) && detail::accessible(*object_->context, pages, options.rights, true);
  const auto memory = usable ? fabric::RegionMemory::of_pages(pages) : std::nullopt;
  if (!memory) return tl::unexpected(Status::bad_argument);
  return register_in(object_, *memory, options, RegionOrigin::pages);
}

Expected<MemoryRegion> ProtectionDomain::register_shared(const MemoryRegion& other, const RegionOptions& options) {
  if (!object_ || !other || !consistent(options)) return tl::unexpected(Status::bad_argument);
  detail::RegionObject& shares = *other.object();
  if (shares.domain->context != object_->context) return tl::unexpected(Status::bad_argument);
  const bool settled = shares.origin == RegionOrigin::process || shares.origin == RegionOrigin::pages;
  if (!settled) return tl::unexpected(Status::not_permitted);
  const fabric::ProtectionEntry* entry = shares.entry();
  if (entry == nullptr || !entry->valid) return tl::unexpected(Status::bad_tag);
  // What the process may do there was looked at when `other` was registered. Writing needs what was granted then.
  const bool usable = !options.rights.has(Right::local_write) || entry->rights.has(Right::local_write);
  if (!usable) return tl::unexpected(Status::bad_argument);
  auto region = register_in(object_, entry->memory, options, shares.origin);
  if (region) region->object()->memory = shares.memory;
  return region;
}

Expected<MemoryRegion> ProtectionDomain::register_bridge_memory(const Path& path, std::size_t offset, std::size_t bytes,
                                                                Rights rights, BridgeAccess access) {
  const bool fits = object_ && path && path.object()->context == object_->context && detail::consistent(rights) &&
                    access <= BridgeAccess::direct;
  if (!fits) return tl::unexpected(Status::bad_argument);
  if (!path.up()) return tl::unexpected(Status::link_down);
  if (bytes == 0 || !within(path.bridge_bytes(), {offset, bytes})) return tl::unexpected(Status::bad_length);
  fabric::ChannelAdapter& adapter = object_->context->adapter;
  fabric::MemoryRange range;
  range.offset = path.object()->link->direct()->buffers.offset + offset;
  range.bytes = bytes;
  if (adapter.in_quarantine(range, path.number())) return tl::unexpected(Status::in_use);
  const bool placeable = access == BridgeAccess::direct;
  const auto tag = adapter.register_bridge_memory(object_->number, range, rights, placeable, path.number());
  if (!tag) return tl::unexpected(Status::no_resources);
  return MemoryRegion(std::make_shared<detail::RegionObject>(object_, *tag, RegionOrigin::bridge));
}

Expected<MemoryRegion> ProtectionDomain::allocate_region(std::size_t max_pages) {
  if (!object_) return tl::unexpected(Status::bad_argument);
  if (max_pages == 0 || max_pages > kMaxPages) return tl::unexpected(Status::bad_length);
  const auto tag = object_->context->adapter.table().allocate_region(object_->number, max_pages);
  if (!tag) return tl::unexpected(detail::status_of(tag.error()));
  return MemoryRegion(std::make_shared<detail::RegionObject>(object_, *tag, RegionOrigin::through_send_queue));
}

Expected<std::vector<MemoryWindow>> ProtectionDomain::allocate_windows(WindowType type, std::size_t count) {
  if (!object_ || type > WindowType::type_2) return tl::unexpected(Status::bad_argument);
  if (count == 0) return tl::unexpected(Status::bad_length);
  fabric::ChannelAdapter& adapter = object_->context->adapter;
  if (count > adapter.limits().tags) return tl::unexpected(Status::no_resources);
  const auto kind = type == WindowType::type_1 ? fabric::EntryKind::window_type_1 : fabric::EntryKind::window_type_2;
  std::vector<Stag> tags(count);
  const auto made = adapter.table().allocate_windows(object_->number, kind, tags);
  if (!made) return tl::unexpected(detail::status_of(made.error()));
  std::vector<MemoryWindow> windows;
  windows.reserve(count);
  for (const Stag tag : tags) windows.emplace_back(std::make_shared<detail::WindowObject>(object_, tag, type));
  return windows;
}

Expected<MemoryWindow> ProtectionDomain::allocate_window(WindowType type) {
  auto one = allocate_windows(type, 1);
  if (!one) return tl::unexpected(one.error());
  return std::move(one->front());
}

Expected<SharedReceiveQueue> ProtectionDomain::create_shared_receive_queue(std::size_t depth) {
  if (!object_) return tl::unexpected(Status::bad_argument);
  fabric::ChannelAdapter& adapter = object_->context->adapter;
  if (depth == 0 || depth > adapter.limits().queue_depth) return tl::unexpected(Status::bad_length);
  const auto number = adapter.create_shared_receive_queue(object_->number, depth);
  if (!number) return tl::unexpected(Status::no_resources);
  return SharedReceiveQueue(std::make_shared<detail::SharedReceiveQueueObject>(object_, *number));
}

// ---- regions

bool MemoryRegion::valid() const { return object_ && object_->valid(); }

std::size_t MemoryRegion::size() const { return object_ ? object_->expected().bytes : 0; }

Stag MemoryRegion::tag() const { return object_ ? object_->expected().tag : Stag{}; }

LocalSegment MemoryRegion::segment(std::size_t offset, std::size_t bytes) const {
  if (!object_) return LocalSegment{nullptr, segment_bytes(bytes), Stag{}};
  const detail::Opening opening = object_->expected();
  if (object_->origin != RegionOrigin::process) {
    return LocalSegment::at(opening.base + offset, segment_bytes(bytes), opening.tag);
  }
  // An address beyond the memory becomes null, which the post refuses like any address out of bounds.
  std::byte* address = offset <= object_->memory.size() ? object_->memory.data() + offset : nullptr;
  return LocalSegment{address, segment_bytes(bytes), opening.tag};
}

RemoteKey MemoryRegion::remote_key() const { return object_ ? key_of(object_->expected()) : RemoteKey{}; }

Expected<RemoteKey> MemoryRegion::remote_key(std::size_t offset, std::size_t bytes) const {
  if (!object_) return tl::unexpected(Status::bad_argument);
  const detail::Opening opening = object_->expected();
  if (opening.tag == Stag{}) return tl::unexpected(Status::bad_tag);
  const bool fits = bytes <= kMaxKeyBytes && within(opening.bytes, {offset, bytes});
  if (!fits) return tl::unexpected(Status::bad_length);
  return key_of({opening.tag, opening.base + offset, bytes});
}

Status MemoryRegion::load(std::size_t offset, std::span<std::byte> to) const {
  const auto copy = [to](const fabric::RegionMemory& memory, std::uint64_t from) { return memory.load(from, to); };
  return access(object_.get(), offset, to.size(), copy);
}

Status MemoryRegion::store(std::size_t offset, std::span<const std::byte> from) {
  const auto copy = [from](const fabric::RegionMemory& memory, std::uint64_t to) { return memory.store(to, from); };
  return access(object_.get(), offset, from.size(), copy);
}

Status MemoryRegion::reregister(const Reregistration& change) {
  if (!object_) return Status::bad_argument;
  detail::RegionObject& region = *object_;
  if (region.origin != RegionOrigin::process) return Status::not_permitted;
  std::shared_ptr<detail::DomainObject> domain = region.domain;
  if (change.domain != nullptr) {
    domain = change.domain->object();
    if (!domain || domain->context != region.domain->context) return Status::bad_argument;
  }
  const fabric::ProtectionEntry* entry = region.entry();
  if (entry == nullptr || !entry->valid) return Status::bad_tag;
  const Rights rights = change.rights.value_or(entry->rights);
  const std::span<std::byte> memory = change.memory.empty() ? region.memory : change.memory;
  const bool usable = detail::consistent(rights) && detail::accessible(region.context(), memory, rights, true);
  if (!usable) return Status::bad_argument;
  fabric::Reregister with;
  if (change.domain != nullptr) with.domain = domain->number;
  if (!change.memory.empty()) with.memory = fabric::RegionMemory::of_process(memory);
  with.rights = change.rights;
  const auto renewed = region.context().adapter.table().reregister(region.current(*entry), with);
  if (!renewed) return detail::status_of(renewed.error());
  region.renamed();
  region.domain = std::move(domain);
  region.memory = memory;
  return Status::ok;
}

Status MemoryRegion::deregister() {
  if (!object_) return Status::bad_argument;
  const fabric::ProtectionEntry* entry = object_->entry();
  if (entry != nullptr && entry->bound != 0) return Status::in_use;
  object_.reset();
  return Status::ok;
}

// ---- windows

bool MemoryWindow::valid() const { return object_ && object_->valid(); }

WindowType MemoryWindow::type() const { return object_ ? object_->type : WindowType::type_1; }

Stag MemoryWindow::tag() const { return object_ ? object_->expected().tag : Stag{}; }

RemoteKey MemoryWindow::remote_key() const { return object_ ? key_of(object_->expected()) : RemoteKey{}; }

LocalSegment MemoryWindow::segment(std::size_t offset, std::size_t bytes) const {
  if (!object_) return LocalSegment{nullptr, segment_bytes(bytes), Stag{}};
  const detail::Opening opening = object_->expected();
  return LocalSegment::at(opening.base + offset, segment_bytes(bytes), opening.tag);
}

}  // namespace splitnic::verbs
