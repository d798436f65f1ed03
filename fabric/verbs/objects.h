#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "common/os/wait_set.h"
#include "common/random.h"
#include "fabric/adapter/channel_adapter.h"
#include "fabric/bridge/link.h"
#include "fabric/connect/connection_manager.h"
#include "fabric/link/cell_link.h"
#include "fabric/memory/local_protection.h"
#include "fabric/memory/protection_table.h"
#include "fabric/memory/remembered.h"
#include "fabric/verbs/address_handle.h"
#include "fabric/verbs/context.h"
#include "fabric/verbs/queue_pair.h"

/// The objects that handles own. An object holds the objects that it was made with, and frees its part of the adapter
/// when it is destroyed. So the adapter's own rule, that an object in use is not destroyed, never refuses it. Thread:
/// the context's owner.
namespace splitnic::verbs::detail {

class TagObject;

/// One descriptor for the doorbells of all paths.
class Doorbells {
 public:
  /// From now on these paths', unless they are known. False: the kernel has no memory or descriptors for it.
  [[nodiscard]] bool update(std::span<PathObject* const> paths);
  /// -1: no path has a doorbell.
  [[nodiscard]] int descriptor() const;
  /// The last update() had neither memory nor descriptors.
  [[nodiscard]] bool incomplete() const { return !known_; }
  /// A path that is up has no doorbell. As of the last update().
  [[nodiscard]] bool unwakeable() const { return unwakeable_; }
  /// A path has come or gone, or its link has come up or gone down.
  void forget() { known_ = false; }
  /// Has the adapter look at the paths whose doorbells have rung.
  void attend_rung(fabric::ChannelAdapter& adapter);

 private:
  struct OfPath {
    int descriptor;
    PathNumber path;
  };

  std::vector<int> descriptors_{};       // of the paths, each once
  std::vector<int> next_{};              // scratch
  std::optional<os::WaitSet> all_{};     // where there are several
  std::vector<OfPath> by_descriptor_{};  // in order
  bool unwakeable_ = false;
  bool known_ = false;
};

struct ContextObject {
  explicit ContextObject(const ContextOptions& options);
  /// With many paths: has the adapter look at those that have rung, at most once in 50 us.
  void hear_doorbells(Time now);

  SystemRandom system_random;
  RandomSource& random;
  PortAddress port;
  fabric::ChannelAdapter adapter;
  std::vector<PathObject*> paths{};
  fabric::ConnectionManager* connections = nullptr;  ///< of the open Connections
  Doorbells doorbells{};
  Time doorbells_next{};
  std::uint64_t epochs_seen = 0;  ///< ChannelAdapter::path_epochs(), when the paths were followed last
  fabric::LocalProtection mappings;
  /// The object that got the tag of an index last. A new epoch voids tags of the bridge's memory without their owners'
  /// knowledge, and then another object may get the index. Null: nobody has it. The indices of a context begin at
  /// first_tag, which depends on the other contexts of its node.
  std::vector<TagObject*> tag_owners;
  const std::uint32_t first_tag;
};

/// Only its handle owns it; others refer to it weakly.
struct PathObject {
  PathObject(std::shared_ptr<ContextObject> of, std::shared_ptr<fabric::CellLink> over, PathNumber with)
      : context(std::move(of)),
        link(std::move(over)),
        number(with),
        bridge_link_(dynamic_cast<const fabric::FabricLink*>(link.get())) {
    context->paths.push_back(this);
    context->doorbells.forget();
  }
  ~PathObject() {
    if (context->connections != nullptr) context->connections->path_down(number);
    static_cast<void>(context->adapter.detach(number));
    std::erase(context->paths, this);
    context->doorbells.forget();
  }
  PathObject(const PathObject&) = delete;
  PathObject& operator=(const PathObject&) = delete;

  /// -1: nobody can ring. The descriptor of a bridge whose peer has hung up stays readable for ever.
  [[nodiscard]] int descriptor() const {
    const bool hung_up = bridge_link_ != nullptr && bridge_link_->phase() == fabric::LinkPhase::down;
    return hung_up ? -1 : link->descriptor();
  }
  /// Tells the connections when an epoch is over. After polls of the link in which something happened.
  void follow();

  std::shared_ptr<ContextObject> context;
  std::shared_ptr<fabric::CellLink> link;
  PathNumber number;

 private:
  const fabric::FabricLink* bridge_link_;  // the link, if it is one
  std::uint64_t incarnation_ = 0;          // of the epoch that is open; 0: none
};

struct DomainObject {
  DomainObject(std::shared_ptr<ContextObject> of, fabric::ProtectionDomain with)
      : context(std::move(of)), number(with) {}
  ~DomainObject() { static_cast<void>(context->adapter.deallocate_domain(number)); }

  std::shared_ptr<ContextObject> context;
  fabric::ProtectionDomain number;
};

struct ChannelObject {
  ChannelObject(std::shared_ptr<ContextObject> of, fabric::ChannelNumber with) : context(std::move(of)), number(with) {}
  ~ChannelObject() { static_cast<void>(context->adapter.destroy_completion_channel(number)); }

  std::shared_ptr<ContextObject> context;
  fabric::ChannelNumber number;
};

struct CompletionQueueObject {
  CompletionQueueObject(std::shared_ptr<ContextObject> of, CqNumber with, std::shared_ptr<ChannelObject> reports_to)
      : context(std::move(of)),
        channel(std::move(reports_to)),
        number(with),
        adapter(context->adapter),
        own(*adapter.find(with)) {}
  ~CompletionQueueObject() { static_cast<void>(context->adapter.destroy_completion_queue(number)); }

  std::shared_ptr<ContextObject> context;
  std::shared_ptr<ChannelObject> channel;
  CqNumber number;
  fabric::ChannelAdapter& adapter;
  fabric::CompletionQueue& own;  ///< the adapter's
};

struct SharedReceiveQueueObject {
  SharedReceiveQueueObject(std::shared_ptr<DomainObject> of, SrqNumber with) : domain(std::move(of)), number(with) {}
  ~SharedReceiveQueueObject() { static_cast<void>(domain->context->adapter.destroy_shared_receive_queue(number)); }

  std::shared_ptr<DomainObject> domain;
  SrqNumber number;
};

struct AddressObject {
  /// way: null for a group.
  AddressObject(std::shared_ptr<DomainObject> of, const std::shared_ptr<PathObject>& way,
                fabric::AddressHandleNumber with)
      : domain(std::move(of)), path(way), number(with) {
    if (way == nullptr) return;
    port = way->link->peer_port_address();
    incarnation = way->link->incarnation();
  }
  ~AddressObject() { static_cast<void>(domain->context->adapter.destroy_address_handle(number)); }
  AddressObject(const AddressObject&) = delete;
  AddressObject& operator=(const AddressObject&) = delete;

  /// The path, in the life that the handle was made for; else null.
  [[nodiscard]] std::shared_ptr<PathObject> way() const {
    auto found = path.lock();
    const bool same = found != nullptr && found->link->up() && found->link->incarnation() == incarnation;
    return same ? found : nullptr;
  }

  std::shared_ptr<DomainObject> domain;
  std::weak_ptr<PathObject> path;
  PortAddress port{};
  std::uint64_t incarnation = 0;  ///< of the link
  fabric::AddressHandleNumber number;
};

struct QueuePairObject {
  QueuePairObject(std::shared_ptr<DomainObject> of, const QueuePairOptions& options, QpNumber with)
      : domain(std::move(of)),
        send_completions(options.send_completions->object()),
        receive_completions(options.receive_completions->object()),
        number(with),
        adapter(domain->context->adapter),
        own(*adapter.find(with)),
        first_psn(domain->context->random.next32()),
        reads_in(static_cast<std::uint16_t>(options.reads_in)),
        reads_out(static_cast<std::uint16_t>(options.reads_out)),
        acknowledged(options.acknowledged),
        memory_requests(options.memory_requests),
        datagram(options.datagram) {
    if (options.shared_receives != nullptr) shared_receives = options.shared_receives->object();
  }
  ~QueuePairObject();

  [[nodiscard]] ContextObject& context() const { return *domain->context; }
  [[nodiscard]] QueuePairState state() const { return context().adapter.state(number).value_or(QueuePairState::error); }

  std::shared_ptr<DomainObject> domain;
  std::shared_ptr<CompletionQueueObject> send_completions;
  std::shared_ptr<CompletionQueueObject> receive_completions;
  std::shared_ptr<SharedReceiveQueueObject> shared_receives;
  QpNumber number;
  fabric::ChannelAdapter& adapter;
  fabric::QueuePair& own;  ///< the adapter's
  std::uint32_t first_psn;
  std::uint16_t reads_in;
  std::uint16_t reads_out;
  bool acknowledged;
  bool memory_requests;
  bool datagram;
  std::uint64_t moves = 0;  ///< state changes that the caller made
};

/// The range that a tag opens, as peers address it.
struct Opening {
  Stag tag{};  ///< empty: void
  std::uint64_t base = 0;
  std::uint64_t bytes = 0;  ///< 0: opens nothing
};

/// A tag of the table, whatever its instance. Binds and registrations change the instance when they are carried out.
/// Requests posted after them use the new instance in advance.
class TagObject {
 public:
  TagObject(std::shared_ptr<DomainObject> of, Stag with);
  ~TagObject();
  TagObject(const TagObject&) = delete;
  TagObject& operator=(const TagObject&) = delete;

  [[nodiscard]] ContextObject& context() const { return *domain->context; }
  /// The tag's entry, valid until the table changes; null: void.
  [[nodiscard]] const fabric::ProtectionEntry* entry() const;
  /// The tag with the table's instance. own: the result of entry().
  [[nodiscard]] Stag current(const fabric::ProtectionEntry& own) const { return Stag::from(index_, own.instance); }
  [[nodiscard]] bool valid() const;
  /// What the tag will open once the posted requests have been carried out.
  [[nodiscard]] Opening expected() const;
  void expect(const Opening& opening, const std::shared_ptr<QueuePairObject>& poster);
  /// The table has changed the tag now: drops the expectation.
  void renamed() { poster_.reset(); }

  std::shared_ptr<DomainObject> domain;

 private:
  std::uint32_t index_;
  Opening expected_{};
  std::weak_ptr<QueuePairObject> poster_;
  std::uint64_t poster_moves_ = 0;
};

enum class RegionOrigin : std::uint8_t { process, pages, bridge, through_send_queue };

struct RegionObject : TagObject {
  RegionObject(std::shared_ptr<DomainObject> of, Stag with, RegionOrigin from)
      : TagObject(std::move(of), with), origin(from) {}
  ~RegionObject();
  RegionObject(const RegionObject&) = delete;
  RegionObject& operator=(const RegionObject&) = delete;

  RegionOrigin origin;
  std::span<std::byte> memory{};       ///< of RegionOrigin::process
  fabric::RememberedEntry accessed{};  ///< the entry, once it was found valid
};

struct WindowObject : TagObject {
  WindowObject(std::shared_ptr<DomainObject> of, Stag with, WindowType as) : TagObject(std::move(of), with), type(as) {}
  ~WindowObject();
  WindowObject(const WindowObject&) = delete;
  WindowObject& operator=(const WindowObject&) = delete;

  WindowType type;
};

/// Posts one after the other until one is refused.
template <class Request, class Post>
Status post_list(std::span<const Request> requests, std::size_t& posted, Post&& post) {
  posted = 0;
  for (const Request& request : requests) {
    if (const Status status = post(request); status != Status::ok) return status;
    ++posted;
  }
  return Status::ok;
}

[[nodiscard]] Status status_of(fabric::ProtectionError error);
[[nodiscard]] constexpr bool known(TouchControl touch) { return touch <= TouchControl::one_shot; }
/// No unknown bits.
[[nodiscard]] constexpr bool known(Rights rights) { return rights.bits < 64; }
/// Whether the rights let peers change the memory.
[[nodiscard]] constexpr bool changes_remotely(Rights rights) {
  return rights.has(Right::remote_write) || rights.has(Right::remote_atomic);
}
/// Whether a region may have the rights: all known, and peers may change the memory only if the process may. Source:
/// the verbs (ibv_reg_mr).
[[nodiscard]] constexpr bool consistent(Rights rights) {
  return known(rights) && (!changes_remotely(rights) || rights.has(Right::local_write));
}
/// Whether the process may access the memory as a region or window with these rights needs. fresh: always ask the
/// kernel; else ask it only where the record says no. The record then has what the kernel permitted.
[[nodiscard]] bool accessible(ContextObject& context, std::span<const std::byte> memory, Rights rights, bool fresh);
[[nodiscard]] bool accessible(ContextObject& context, const PageList& pages, Rights rights, bool fresh);

}  // namespace splitnic::verbs::detail
