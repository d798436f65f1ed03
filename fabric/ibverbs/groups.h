#pragma once

#include <boost/describe/class.hpp>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "common/result.h"
#include "fabric/endnode/group_watch.h"
#include "fabric/endnode/local_ids.h"
#include "fabric/ibverbs/peers.h"
#include "fabric/threads/shared_adapter.h"

namespace splitnic::ibverbs {

class Groups;

/// Something that sends to a group, such as an address handle: as long as one lives, and until the datagrams that it
/// has posted have left, the adapter has a path to each of the group's members. Ends before the device. Thread: any.
class GroupUse {
 public:
  GroupUse() = default;
  GroupUse(GroupUse&& other) noexcept { *this = std::move(other); }
  GroupUse& operator=(GroupUse&& other) noexcept {
    std::swap(groups_, other.groups_);
    std::swap(gid_, other.gid_);
    return *this;
  }
  GroupUse(const GroupUse&) = delete;
  GroupUse& operator=(const GroupUse&) = delete;
  ~GroupUse();

 private:
  friend class Groups;
  GroupUse(Groups& groups, const fabric::Gid& gid) : groups_(&groups), gid_(gid) {}

  Groups* groups_ = nullptr;
  fabric::Gid gid_{};
};

struct GroupCounters {
  std::uint64_t looks = 0;              ///< at the members of a group that the program sends to
  std::uint64_t refused_members = 0;    ///< in all looks: memberships of a local ID that their process does not hold
  std::uint64_t unreached_members = 0;  ///< in all looks: members to which no path is left
};
BOOST_DESCRIBE_STRUCT(GroupCounters, (), (looks, refused_members, unreached_members))

/// The multicast groups of an opened device. The endnode is a member of a group while a queue pair is attached to it;
/// the fabric's folder says so to everybody (fabric::LocalIds). While the program has address handles to a group, the
/// progress thread follows the group's members. Thread: any; locked before Peers and the adapter.
class Groups {
 public:
  static constexpr std::size_t kMaxGroups = 256;    ///< attached to, or sent to
  static constexpr std::size_t kMaxAttached = 256;  ///< queue pairs, to one group

  /// adapter, peers: lent. Errors: the fabric's folder can't be used.
  [[nodiscard]] static Result<std::unique_ptr<Groups>> open(fabric::SharedAdapter& adapter, Peers& peers);
  ~Groups();
  Groups(const Groups&) = delete;
  Groups& operator=(const Groups&) = delete;

  /// 0, also the second time; EINVAL: no datagram queue pair, or not a group; ENOMEM: a limit; EADDRINUSE: another
  /// process claims to be this endnode in the group.
  [[nodiscard]] int attach(fabric::QpNumber queue_pair, const fabric::Gid& gid);
  /// 0; EINVAL: it is not attached.
  [[nodiscard]] int detach(fabric::QpNumber queue_pair, const fabric::Gid& gid);
  /// Whether the queue pair is attached to any group.
  [[nodiscard]] bool holds(fabric::QpNumber queue_pair) const;
  /// A queue pair has been destroyed, and with it the datagrams that waited in it.
  void queue_pair_ended();
  /// nullopt: there are kMaxGroups, or no descriptors.
  [[nodiscard]] std::optional<GroupUse> use(const fabric::Gid& gid);
  [[nodiscard]] GroupCounters counters() const;

 private:
  friend class GroupUse;
  struct Group {
    std::set<fabric::QpNumber> attached{};
    std::size_t users = 0;
    std::map<std::uint16_t, PathUse> members{};  ///< while it has users, or datagrams of former ones wait
  };
  using Known = std::map<std::array<std::uint8_t, 16>, Group>;

  Groups(fabric::SharedAdapter& adapter, Peers& peers, std::shared_ptr<fabric::LocalIds> ids)
      : adapter_(adapter), peers_(peers), ids_(std::move(ids)) {}
  void end_use(const fabric::Gid& gid);
  [[nodiscard]] bool watch();
  void look_at_all();
  // Under lock_:
  [[nodiscard]] Known::iterator find_or_add(const fabric::Gid& gid);
  void drop_if_unused(Known::iterator group);
  /// Lets the members of groups go that have no users and for which no datagram waits any more.
  void release_members();
  void look_at(const fabric::Gid& gid, Group& group);
  void end_member(const fabric::Gid& gid, const PathUse& path);
  void leave(const fabric::Gid& gid);

  fabric::SharedAdapter& adapter_;
  Peers& peers_;
  std::shared_ptr<fabric::LocalIds> ids_;
  mutable std::mutex lock_;
  Known groups_;
  GroupCounters counters_;
  std::optional<fabric::GroupWatch> news_;
  fabric::WatchNumber news_watch_{};
};

}  // namespace splitnic::ibverbs
