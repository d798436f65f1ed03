#include "fabric/verbs/objects.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "common/result.h"

namespace splitnic::verbs::detail {
namespace {

// A system call, while paths that are idle have their peers ring.
constexpr Duration kHearDoorbellsEvery = std::chrono::microseconds(50);

fabric::LocalAccess access_for(Rights rights) {
  const bool writes = rights.has(Right::local_write) || changes_remotely(rights);
  return writes ? fabric::LocalAccess::write : fabric::LocalAccess::read;
}

/// Unbinds the bound windows for whose entries `ends` returns true.
template <class Ends>
void unbind_windows(ContextObject& context, Ends&& ends) {
  fabric::ProtectionTable& table = context.adapter.table();
  for (std::uint32_t place = 0; place < context.tag_owners.size(); ++place) {
    TagObject* const owner = context.tag_owners[place];
    const std::uint32_t index = context.first_tag + place;
    const fabric::ProtectionEntry* entry = owner == nullptr ? nullptr : table.at(index);
    if (entry == nullptr || !is_window(entry->kind) || !entry->valid || !ends(*entry)) continue;
    fabric::Bind nothing;
    nothing.window = Stag::from(index, entry->instance);
    const bool rebinds = entry->kind == fabric::EntryKind::window_type_1 && owner->expected().tag != nothing.window;
    if (rebinds) {
      static_cast<void>(table.unbind_for_rebind(nothing.window));
      continue;
    }
    const auto tag = table.bind(nothing, {entry->domain, entry->queue_pair});
    if (tag) owner->renamed();
  }
}

}  // namespace

bool Doorbells::update(std::span<PathObject* const> paths) {
  if (known_) return true;
  by_descriptor_.clear();
  next_.clear();
  unwakeable_ = false;
  for (const PathObject* path : paths) {
    const int descriptor = path->descriptor();
    if (descriptor >= 0) by_descriptor_.push_back({descriptor, path->number});
    unwakeable_ = unwakeable_ || (descriptor < 0 && path->link->up());
  }
  std::ranges::stable_sort(by_descriptor_, {}, &OfPath::descriptor);
  for (const OfPath& each : by_descriptor_) {
    if (next_.empty() || next_.back() != each.descriptor) next_.push_back(each.descriptor);
  }
  descriptors_ = next_;
  if (descriptors_.size() > 1) {
    try {
      if (!all_) all_.emplace();
    } catch (const StartupError&) {
      return false;
    }
    all_->forget();
    if (!all_->update(descriptors_)) return false;
  }
  known_ = true;
  return true;
}

/// With few paths every poll looks at all of them.
void Doorbells::attend_rung(fabric::ChannelAdapter& adapter) {
  if (!known_ || by_descriptor_.size() <= fabric::ChannelAdapter::kAlwaysPolledPaths) return;
  if (descriptors_.size() == 1) {  // a socket of all peers: none of them stays armed, nor becomes idle
    for (const OfPath& each : by_descriptor_) adapter.attend(each.path);
    return;
  }
  std::array<int, 64> rung;
  const std::size_t count = all_->ready(rung);
  for (const int descriptor : std::span(rung).first(count)) {
    for (const OfPath& each : std::ranges::equal_range(by_descriptor_, descriptor, {}, &OfPath::descriptor)) {
      adapter.attend(each.path);
    }
  }
}

int Doorbells::descriptor() const {
  if (descriptors_.empty()) return -1;
  return descriptors_.size() == 1 ? descriptors_.front() : all_->descriptor();
}

void PathObject::follow() {
  const std::uint64_t incarnation = link->up() ? link->incarnation() : 0;
  if (incarnation == incarnation_) return;
  if (incarnation_ != 0 && context->connections != nullptr) context->connections->path_down(number);
  incarnation_ = incarnation;
}

ContextObject::ContextObject(const ContextOptions& options)
    : random(options.random != nullptr ? *options.random : system_random),
      port(options.port_address),
      adapter(options.adapter, random),
      first_tag(options.adapter.numbers ? options.adapter.numbers->tags().first : 0) {
  while (port.value == 0) port.value = random.next() >> 16U;
}

void ContextObject::hear_doorbells(Time now) {
  if (paths.size() <= fabric::ChannelAdapter::kAlwaysPolledPaths || now < doorbells_next) return;
  doorbells_next = now + kHearDoorbellsEvery;
  if (doorbells.update(paths)) doorbells.attend_rung(adapter);
}

QueuePairObject::~QueuePairObject() {
  // Else the next queue pair with this number would get its type 2 windows.
  if (!datagram) {
    unbind_windows(context(), [&](const fabric::ProtectionEntry& window) { return window.queue_pair == number; });
  }
  static_cast<void>(context().adapter.destroy_queue_pair(number));
}

TagObject::TagObject(std::shared_ptr<DomainObject> of, Stag with) : domain(std::move(of)), index_(with.index()) {
  auto& owners = context().tag_owners;
  const std::size_t place = index_ - context().first_tag;
  if (owners.size() <= place) owners.resize(place + 1);
  owners[place] = this;
}

TagObject::~TagObject() {
  TagObject*& owner = context().tag_owners[index_ - context().first_tag];
  if (owner == this) owner = nullptr;
}

const fabric::ProtectionEntry* TagObject::entry() const {
  return context().tag_owners[index_ - context().first_tag] == this ? context().adapter.entry_at(index_) : nullptr;
}

bool TagObject::valid() const {
  const fabric::ProtectionEntry* found = entry();
  return found != nullptr && found->valid;
}

Opening TagObject::expected() const {
  if (const auto poster = poster_.lock(); poster != nullptr && poster->moves == poster_moves_) {
    const QueuePairState state = poster->state();
    // In every other state the posted requests have been flushed, so the table's entry counts.
    if (state == QueuePairState::ready_to_send || state == QueuePairState::sq_drained) return expected_;
  }
  const fabric::ProtectionEntry* found = entry();
  if (found == nullptr) return {};
  return found->valid ? Opening{current(*found), found->base, found->length} : Opening{current(*found)};
}

void TagObject::expect(const Opening& opening, const std::shared_ptr<QueuePairObject>& poster) {
  expected_ = opening;
  poster_ = poster;
  poster_moves_ = poster->moves;
}

RegionObject::~RegionObject() {
  const fabric::ProtectionEntry* own = entry();
  if (own == nullptr) return;
  const Stag tag = current(*own);
  if (own->bound != 0) {
    // Bound windows would keep the region, although its owner destroys it.
    unbind_windows(context(), [&](const fabric::ProtectionEntry& window) { return window.bound == tag.index(); });
  }
  static_cast<void>(context().adapter.deregister(tag));
}

WindowObject::~WindowObject() {
  const fabric::ProtectionEntry* own = entry();
  if (own != nullptr) static_cast<void>(context().adapter.table().deallocate(current(*own)));
}

Status status_of(fabric::ProtectionError error) {
  using Error = fabric::ProtectionError;
  switch (error) {
    case Error::table_full:
      return Status::no_resources;
    case Error::windows_bound:
      return Status::in_use;
    case Error::options_conflict:
    case Error::bad_page_list:
    case Error::bad_range:
      return Status::bad_argument;
    case Error::binding_not_allowed:
    case Error::cannot_invalidate:
      return Status::not_permitted;
    default:
      return Status::bad_tag;
  }
}

bool accessible(ContextObject& context, std::span<const std::byte> memory, Rights rights, bool fresh) {
  const fabric::LocalAccess access = access_for(rights);
  if (!fresh && context.mappings.recorded(memory.data(), memory.size(), access)) return true;
  if (!context.mappings.accessible(memory.data(), memory.size(), access)) return false;
  context.mappings.record(memory.data(), memory.size(), access);  // for the binds of this memory
  return true;
}

bool accessible(ContextObject& context, const PageList& pages, Rights rights, bool fresh) {
  for (std::size_t i = 0; i < pages.pages.size(); ++i) {
    const std::uint64_t from = i == 0 ? pages.first_offset : 0;
    const std::uint64_t to = i + 1 == pages.pages.size() ? pages.end_offset : pages.page_bytes;
    if (!accessible(context, std::span(pages.pages[i] + from, to - from), rights, fresh)) return false;
  }
  return true;
}

}  // namespace splitnic::verbs::detail
