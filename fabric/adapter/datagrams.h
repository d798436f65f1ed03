#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "fabric/adapter/adapter_options.h"
#include "fabric/adapter/work.h"
#include "fabric/ids.h"
#include "fabric/wire/datagram.h"

namespace splitnic::fabric {

struct AdapterContext;
struct QueuePair;

struct AddressHandle {
  AddressHandleOptions options{};
  std::uint32_t generation = 0;  ///< 16 bits
  bool used = false;
  bool ending = false;      ///< destroyed, and kept for datagrams that were posted with it and have not left
  bool waited_for = false;  ///< used by DatagramTables::end_where_none_wait()
  void retire() {
    used = ending = false;
    generation = (generation + 1) & 0xffffU;
  }
  [[nodiscard]] bool is_free() const { return !used && !ending; }
  [[nodiscard]] bool to_group() const { return options.group.is_group(); }
};

/// An adapter's address handles and groups. A posted datagram goes where its handle said when it was posted, so a
/// handle that is destroyed stays until the last of them has left. Source: the verbs (hardware takes the address with
/// the request). Thread: the adapter's owner.
class DatagramTables {
 public:
  using QueuePairs = std::span<QueuePair* const>;  ///< all of the adapter's

  struct Group {
    Gid gid{};
    std::vector<QpNumber> attached{};   ///< queue pairs here
    std::vector<PathNumber> members{};  ///< where copies go; 0: nowhere, a member has left
  };

  [[nodiscard]] std::optional<AddressHandleNumber> create(const AddressHandleOptions& options, std::size_t most,
                                                          QueuePairs queue_pairs);
  /// False: there is none.
  bool destroy(AddressHandleNumber number, QueuePairs queue_pairs);
  /// Null: there is none.
  [[nodiscard]] const AddressHandle* find(AddressHandleNumber number) const {
    const AddressHandle* handle = find_posted(number);
    return handle != nullptr && handle->used ? handle : nullptr;
  }
  /// The handle of a datagram that is posted, also if it was destroyed since. Null: its path is gone.
  [[nodiscard]] const AddressHandle* find_posted(AddressHandleNumber number) const {
    const std::size_t index = number.value & kMostHandles;
    if (index == 0 || index > handles_.size()) return nullptr;
    const AddressHandle& handle = handles_[index - 1];
    return !handle.is_free() && handle.generation == number.value >> kIndexBits ? &handle : nullptr;
  }
  /// Whether datagrams wait that were posted with a handle to this path, or to this group, that was destroyed since.
  [[nodiscard]] bool outlive_handle(PathNumber path, QueuePairs queue_pairs);
  [[nodiscard]] bool outlive_handle(const Gid& group, QueuePairs queue_pairs);
  [[nodiscard]] const Group* find(const Gid& group) const;
  Status attach(QpNumber queue_pair, const Gid& group, std::size_t most_groups);
  Status add(PathNumber path, const Gid& group, std::size_t most_groups);
  Status remove(QpNumber queue_pair, const Gid& group);
  Status remove(PathNumber path, const Gid& group);
  /// The path is gone, and with it the handles that name it; its number may become another's.
  void forget(PathNumber path);
  void forget(QpNumber queue_pair);

 private:
  // A number is a generation and a place, so that what was posted with a handle never goes where the next one says.
  static constexpr unsigned kIndexBits = 16;
  static constexpr std::size_t kMostHandles = (std::size_t{1} << kIndexBits) - 1;

  [[nodiscard]] Group* find_or_make(const Gid& group, std::size_t most);
  static bool remove_member(Group& group, PathNumber path);
  void drop_empty_groups();
  void end(AddressHandle& handle);
  /// Of those that are destroyed.
  void end_where_none_wait(QueuePairs queue_pairs);

  std::vector<AddressHandle> handles_;  // by number - 1
  std::size_t ending_ = 0;              // handles
  std::vector<Group> groups_;
};

/// The key that a datagram carries: its own, or for the highest bit the queue pair's.
[[nodiscard]] inline std::uint32_t queue_key_of(const QueuePairAttributes& sender, const DatagramTarget& to) {
  constexpr std::uint32_t kOwnQueueKey = 0x8000'0000;
  return (to.queue_key & kOwnQueueKey) != 0 ? sender.queue_key : to.queue_key;
}

/// What a datagram queue pair's request may not be. total: bytes of the message.
[[nodiscard]] Status check_datagram(const AdapterContext& context, const WorkRequest& request, std::uint64_t total);

}  // namespace splitnic::fabric
