#include "fabric/ibverbs/groups.h"

#include <algorithm>
#include <cerrno>

#include "fabric/endnode/fabric_directory.h"
#include "fabric/ibverbs/objects.h"

namespace splitnic::ibverbs {
namespace {

using fabric::ChannelAdapter;
using fabric::Status;

}  // namespace

GroupUse::~GroupUse() {
  if (groups_ != nullptr) groups_->end_use(gid_);
}

Result<std::unique_ptr<Groups>> Groups::open(fabric::SharedAdapter& adapter, Peers& peers) {
  auto folders = fabric::chosen_fabric_folders();
  if (!folders) return tl::unexpected(folders.error());
  auto ids = fabric::LocalIds::open(folders->meeting);
  if (!ids) return tl::unexpected(ids.error());
  return std::unique_ptr<Groups>(new Groups(adapter, peers, std::move(*ids)));
}

Groups::~Groups() {
  if (news_watch_.value != 0) static_cast<void>(adapter_.unwatch(news_watch_));
  const std::lock_guard guard(lock_);
  for (auto& [gid, group] : groups_) {
    if (!group.attached.empty()) leave({gid});
  }
}

void Groups::leave(const fabric::Gid& gid) { ids_->leave(gid, fabric::LocalId{peers_.local_id()}); }

Groups::Known::iterator Groups::find_or_add(const fabric::Gid& gid) {
  release_members();
  const auto known = groups_.find(gid.bytes);
  if (known != groups_.end() || groups_.size() == kMaxGroups) return known;
  return groups_.emplace(gid.bytes, Group{}).first;
}

void Groups::drop_if_unused(Known::iterator group) {
  const Group& known = group->second;
  if (known.attached.empty() && known.users == 0 && known.members.empty()) groups_.erase(group);
}

void Groups::release_members() {
  for (auto next = groups_.begin(); next != groups_.end();) {
    const auto known = next++;
    const fabric::Gid gid{known->first};
    Group& group = known->second;
    if (group.users != 0 || group.members.empty()) continue;
    if (adapter_.use([&](ChannelAdapter& adapter) { return adapter.datagrams_outlive_handle(gid); })) continue;
    for (const auto& [local_id, path] : group.members) end_member(gid, path);
    group.members.clear();
    drop_if_unused(known);
  }
}

int Groups::attach(fabric::QpNumber queue_pair, const fabric::Gid& gid) {
  const std::lock_guard guard(lock_);
  const auto known = find_or_add(gid);
  if (known == groups_.end()) return ENOMEM;
  Group& group = known->second;
  int error = group.attached.size() == kMaxAttached && !group.attached.contains(queue_pair) ? ENOMEM : 0;
  // The adapter first: whoever learns that this endnode is a member may send at once.
  if (error == 0) {
    const Status attached =
        adapter_.use([&](ChannelAdapter& adapter) { return adapter.attach_to_group(queue_pair, gid); });
    if (attached == Status::in_use) return 0;
    error = code_of(attached);
  }
  if (error == 0 && group.attached.empty()) {
    const auto joined = ids_->join(gid, fabric::LocalId{peers_.local_id()});
    if (joined != fabric::LocalIds::Joined::yes) {
      static_cast<void>(
          adapter_.use([&](ChannelAdapter& adapter) { return adapter.detach_from_group(queue_pair, gid); }));
      error = joined == fabric::LocalIds::Joined::full ? ENOMEM : EADDRINUSE;
    }
  }
  if (error == 0) {
    group.attached.insert(queue_pair);
    if (group.users != 0) look_at(gid, group);
  }
  drop_if_unused(known);
  return error;
}

int Groups::detach(fabric::QpNumber queue_pair, const fabric::Gid& gid) {
  const std::lock_guard guard(lock_);
  const auto known = groups_.find(gid.bytes);
  if (known == groups_.end() || known->second.attached.erase(queue_pair) == 0) return EINVAL;
  if (known->second.attached.empty()) leave(gid);
  const Status detached =
      adapter_.use([&](ChannelAdapter& adapter) { return adapter.detach_from_group(queue_pair, gid); });
  if (known->second.users != 0) look_at(gid, known->second);
  drop_if_unused(known);
  return code_of(detached);
}

bool Groups::holds(fabric::QpNumber queue_pair) const {
  const std::lock_guard guard(lock_);
  return std::ranges::any_of(groups_, [&](const auto& known) { return known.second.attached.contains(queue_pair); });
}

void Groups::queue_pair_ended() {
  const std::lock_guard guard(lock_);
  release_members();
}

std::optional<GroupUse> Groups::use(const fabric::Gid& gid) {
  const std::lock_guard guard(lock_);
  if (!news_ && !watch()) return std::nullopt;
  const auto known = find_or_add(gid);
  if (known == groups_.end()) return std::nullopt;
  if (known->second.users++ == 0) look_at(gid, known->second);
  return GroupUse(*this, gid);
}

void Groups::end_use(const fabric::Gid& gid) {
  const std::lock_guard guard(lock_);
  const auto known = groups_.find(gid.bytes);
  if (--known->second.users != 0) return;
  drop_if_unused(known);
  release_members();
}

/// Until the device is closed: the call that ends the last use must not wait for the progress thread.
bool Groups::watch() {
  const auto folders = fabric::chosen_fabric_folders();
  if (!folders) return false;
  auto news = fabric::GroupWatch::open(folders->meeting);
  if (!news) return false;
  news_.emplace(std::move(*news));
  auto watched = adapter_.watch(news_->descriptor(), [this] { look_at_all(); });
  if (watched) {
    news_watch_ = *watched;
  } else {
    news_.reset();
  }
  return watched.has_value();
}

void Groups::look_at_all() {
  {
    const std::lock_guard guard(lock_);
    news_->clear();
    for (auto& [gid, group] : groups_) {
      if (group.users != 0 || !group.members.empty()) look_at({gid}, group);
    }
    release_members();
  }
  // A datagram may wait for a member that is none any more.
  static_cast<void>(adapter_.progress());
}

void Groups::look_at(const fabric::Gid& gid, Group& group) {
  const fabric::LocalIds::Members now = ids_->members(gid);
  ++counters_.looks;
  counters_.refused_members += now.refused;
  std::erase_if(group.members, [&](const auto& member) {
    if (std::ranges::binary_search(now.ids, fabric::LocalId{member.first})) return false;
    end_member(gid, member.second);
    return true;
  });
  for (const fabric::LocalId id : now.ids) {
    if (group.members.contains(id.value)) continue;
    PathUse path = peers_.path_to(id.value);
    const Status added = adapter_.use([&](ChannelAdapter& adapter) {
      return path.path().value == 0 ? Status::no_resources : adapter.add_group_member(gid, path.path());
    });
    if (added == Status::ok) {
      group.members.emplace(id.value, std::move(path));
    } else {
      ++counters_.unreached_members;
    }
  }
}

void Groups::end_member(const fabric::Gid& gid, const PathUse& path) {
  static_cast<void>(
      adapter_.use([&](ChannelAdapter& adapter) { return adapter.remove_group_member(gid, path.path()); }));
}

GroupCounters Groups::counters() const {
  const std::lock_guard guard(lock_);
  return counters_;
}

}  // namespace splitnic::ibverbs
