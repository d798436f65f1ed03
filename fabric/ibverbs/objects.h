#pragma once

#include <infiniband/verbs.h>
#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/os/uncancelled.h"
#include "common/os/unique_fd.h"
#include "common/random.h"
#include "fabric/faults/fault_plan.h"
#include "fabric/ibverbs/events.h"
#include "fabric/ibverbs/groups.h"
#include "fabric/ibverbs/peers.h"
#include "fabric/memory/local_protection.h"
#include "fabric/placement/local_placements.h"
#include "fabric/threads/biased_lock.h"
#include "fabric/threads/shared_adapter.h"
#include "fabric/wire/cell.h"

/// The objects behind the handles of the C interface. Each begins with the struct that programs know, so that a pointer
/// to one is a pointer to the other. Programs create and destroy them; a destroyed one is freed. Thread: any.
namespace splitnic::ibverbs {

/// What the device offers beyond the adapter's own limits.
inline constexpr int kMaxQueueDepth = 16384;
inline constexpr int kMaxCompletions = 262144;
/// What as many cells carry as a packet may have: a little less than 1 GiB.
inline constexpr std::uint32_t kMaxMessageBytes = 0xffffU * fabric::kDefaultCellPayload;
inline constexpr std::uint32_t kPathMtuBytes = 4096;
inline constexpr int kGidTableEntries = 16;
inline constexpr std::uint8_t kPort = 1;
inline constexpr std::uint16_t kPartitionKey = 0xffff;
inline constexpr std::uint8_t kMaxReads = 16;
inline constexpr std::size_t kDeviceMemoryBytes = std::size_t{16} << 20U;  ///< of an opened device, in whole pages
/// Of the locks of extended posts and polls: there are many, and each has few threads.
inline constexpr fabric::BiasPolicy kBiasOfExtended{.most_threads = 4};

class Counters;
struct CompletionQueue;
struct QueuePair;
struct Region;
struct SharedReceives;

/// Numbers of the adapter to objects. Under Context::lock.
struct ObjectMaps {
  std::unordered_map<std::uint32_t, CompletionQueue*> completion_queues;
  std::unordered_map<std::uint32_t, QueuePair*> queue_pairs;
  std::unordered_map<std::uint32_t, SharedReceives*> shared_receives;
  std::unordered_map<std::uint32_t, Region*> regions;  ///< by the index of their tags, which no change alters
};

/// A file that names an XRC domain: its device and number.
using FileIdentity = std::pair<dev_t, ino_t>;

/// An opened device: one adapter, one endnode. The progress thread of the adapter serves it.
struct Context {
  verbs_context verbs{};  ///< first: programs see its last member
  unsigned ordinal = 0;   ///< 1, 2, ... in the order in which the process opens its devices
  SystemRandom random;    ///< drawn from under the adapter's lock
  os::UniqueFd command;
  fabric::AdapterLimits limits{};
  std::unique_ptr<fabric::FaultPlan> faults;  ///< null: none are injected; under the adapter's lock
  std::unique_ptr<fabric::LocalPlacements> placements;
  std::unique_ptr<fabric::SharedAdapter> adapter;
  std::unique_ptr<Peers> peers;
  std::unique_ptr<Groups> groups;
  std::unique_ptr<Events> events;
  std::mutex lock;  ///< taken before the adapter's
  ObjectMaps objects;
  fabric::LocalProtection protection;  ///< under `lock`
  std::atomic<std::uint32_t> handles{0};
  std::size_t device_memory_used = 0;  ///< bytes, under `lock`
  std::uint32_t xrc_domains_made = 0;  ///< under `lock`, as is the next
  std::map<FileIdentity, std::weak_ptr<const fabric::XrcDomain>> xrc_files;
  fabric::WatchNumber event_watch{};
  std::unique_ptr<Counters> counters;  ///< null: they have no files

  Context();
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  static Context& of(ibv_context* context);
  [[nodiscard]] std::uint32_t next_handle() { return ++handles; }
};

/// How many objects name one, which can't be destroyed before them.
using Users = std::atomic<std::size_t>;

/// One of the users, as long as it lives.
class UseOf {
 public:
  UseOf() = default;
  explicit UseOf(Users& users) : users_(&users) { ++users; }
  UseOf(UseOf&& other) noexcept : users_(std::exchange(other.users_, nullptr)) {}
  UseOf& operator=(UseOf&& other) noexcept {
    std::swap(users_, other.users_);
    return *this;
  }
  UseOf(const UseOf&) = delete;
  UseOf& operator=(const UseOf&) = delete;
  ~UseOf() {
    if (users_ != nullptr) --*users_;
  }
  /// Whether it is a use of anything.
  explicit operator bool() const { return users_ != nullptr; }

 private:
  Users* users_ = nullptr;
};

struct ThreadDomain {
  ibv_td td{};
  Users users{0};  ///< parent domains

  static ThreadDomain& of(ibv_td* td) { return *reinterpret_cast<ThreadDomain*>(td); }
};

/// A protection domain of the adapter, or a parent domain, which stands for one.
struct Domain {
  ibv_pd pd{};
  fabric::ProtectionDomain number{};
  Users users{0};            ///< everything that was made on it
  Domain* parent = nullptr;  ///< of a parent domain: what it stands for
  UseOf of_parent{};
  UseOf of_thread{};

  static Domain& of(ibv_pd* pd) { return *reinterpret_cast<Domain*>(pd); }
};

/// Memory that the device lends. Peers and the program name its bytes by their offset.
struct DeviceMemory {
  ibv_dm dm{};
  std::span<std::byte> bytes{};  ///< as many as the program asked for
  std::size_t mapped_bytes = 0;  ///< in whole pages
  os::UniqueFd file{};           ///< by which peers find the pages
  Users users{0};                ///< regions

  static DeviceMemory& of(ibv_dm* dm) { return *reinterpret_cast<DeviceMemory*>(dm); }
};

struct Region {
  ibv_mr mr{};
  std::span<std::byte> memory{};
  fabric::Stag tag{};
  std::uint64_t base = 0;  ///< by which keys name the first byte
  unsigned access = 0;     ///< flags that it was registered with, as changed since
  UseOf of_domain{};
  UseOf of_device_memory{};

  static Region& of(ibv_mr* mr) { return *reinterpret_cast<Region*>(mr); }
};

struct Window {
  /// Its key. Type 1: of the last binding that was posted, unless the program has put back the one before it. Type 2:
  /// as it was made, unless the program has changed it; nothing reads it.
  ibv_mw mw{};
  std::uint32_t index = 0;
  UseOf of_domain{};

  static Window& of(ibv_mw* mw) { return *reinterpret_cast<Window*>(mw); }
  /// Type 1: what the next binding replaces.
  [[nodiscard]] fabric::Stag tag() const { return fabric::Stag::from(index, fabric::Stag{mw.rkey}.instance()); }
  /// Type 1: a binding that makes this key was posted.
  void rename(std::uint32_t key) { mw.rkey = fabric::Stag::from(index, fabric::Stag{key}.instance()).value; }
};

struct Channel {
  ibv_comp_channel channel{};
  fabric::ChannelNumber number{};

  static Channel& of(ibv_comp_channel* channel) { return *reinterpret_cast<Channel*>(channel); }
};

struct CompletionQueue {
  ibv_cq_ex cq{};
  fabric::CqNumber number{};
  std::uint32_t completions_reported = 0;         ///< events that the program has got; under Context::lock
  std::uint32_t events_reported = 0;              ///< likewise, asynchronous ones
  std::optional<fabric::BiasedLock> poll_lock{};  ///< extended polling: from start_poll() to end_poll()
  fabric::Completion current{};                   ///< the completion at which extended polling stands
  ibv_wc current_wc{};

  static CompletionQueue& of(ibv_cq* cq) { return *reinterpret_cast<CompletionQueue*>(cq); }
  static CompletionQueue& of(ibv_cq_ex* cq) { return *reinterpret_cast<CompletionQueue*>(cq); }
  [[nodiscard]] ibv_cq* base() { return ibv_cq_ex_to_cq(&cq); }
};

/// The handles of one XRC domain share its number.
struct XrcDomain {
  ibv_xrcd xrcd{};
  std::shared_ptr<const fabric::XrcDomain> number{};
  bool of_file = false;
  Users users{0};  ///< shared receive queues and queue pairs

  static XrcDomain& of(ibv_xrcd* xrcd) { return *reinterpret_cast<XrcDomain*>(xrcd); }
};

struct SharedReceives {
  ibv_srq srq{};
  fabric::SrqNumber number{};
  ibv_srq_attr attributes{};
  std::uint32_t events_reported = 0;
  UseOf of_domain{};
  UseOf of_xrc_domain{};

  static SharedReceives& of(ibv_srq* srq) { return *reinterpret_cast<SharedReceives*>(srq); }
};

/// The adapter's handle for a path.
struct Way {
  fabric::AddressHandleNumber number{};
  PathUse path{};
};

struct AddressHandle {
  ibv_ah ah{};
  fabric::AddressHandleOptions options{};
  Way way{};         ///< to an endnode, or without a path to a group
  GroupUse group{};  ///< to a group
  UseOf of_domain{};
  std::uint16_t endnode = 0;  ///< to which it leads; 0: to a group
  bool own_device = false;    ///< the endnode is a device of this process
  /// A queue pair of that endnode (32 bits), and before it the OwnDevices::changes() at which that was known; for
  /// endnodes of other processes 1.
  std::atomic<std::uint64_t> known_there{0};
  std::mutex lock;                      ///< of these; the last one taken
  std::map<std::uint16_t, Way> others;  ///< to the other devices of the endnode's process
  /// Of another process: which of its endnodes has the queue pair.
  std::map<std::uint32_t, std::uint16_t> places;

  static AddressHandle& of(ibv_ah* ah) { return *reinterpret_cast<AddressHandle*>(ah); }
};

/// A request that is being built with ibv_wr_*.
struct BuiltRequest {
  fabric::WorkRequest request{};
  std::optional<fabric::MemoryRequest> memory{};
  std::vector<std::byte> inline_data{};

  /// Starts over; segments keep what they were.
  void clear() {
    request.start_over();
    memory.reset();
    inline_data.clear();
  }
};

/// Requests of a list on their way to the adapter. Under the adapter's lock.
struct SendBatch {
  std::array<fabric::WorkRequest, 8> requests{};
  std::array<fabric::MemoryRequest, 8> memory{};  ///< of those that bind windows

  /// The request at this place, as new; its segments keep what they were.
  [[nodiscard]] fabric::WorkRequest& blank(std::size_t place) {
    requests[place].start_over();
    return requests[place];
  }
};

struct QueuePair;

/// What the handles of one queue pair share. Only an XRC target has more than one. Under Context::lock.
struct Connection {
  ibv_qp_attr attributes{};     ///< as modified last
  bool death_reported = false;  ///< a request ended because its peer died; those after it are flushed
  PathUse path{};               ///< to its peer
  std::vector<QueuePair*> handles{};
  fabric::XrcDomain xrc_domain{};  ///< of a target
};

struct QueuePair {
  ibv_qp_ex qp{};
  fabric::QpNumber number{};
  ibv_qp_cap capabilities{};
  bool all_signalled = false;
  std::shared_ptr<Connection> connection{};
  std::uint32_t events_reported = 0;
  std::unique_ptr<SendBatch> batch = std::make_unique<SendBatch>();
  /// From wr_start() to wr_complete() or wr_abort().
  fabric::BiasedLock build_lock{/*single_threaded=*/false, kBiasOfExtended};
  std::vector<BuiltRequest> built;  ///< the first built_count; the others keep their memory for later ones
  std::size_t built_count = 0;
  int build_error = 0;
  UseOf of_domain{};
  UseOf of_xrc_domain{};

  static QueuePair& of(ibv_qp* qp) { return *reinterpret_cast<QueuePair*>(qp); }
  static QueuePair& of(ibv_qp_ex* qp) { return *reinterpret_cast<QueuePair*>(qp); }
  [[nodiscard]] ibv_qp* base() { return &qp.qp_base; }
};

inline Context& Context::of(ibv_context* context) { return *reinterpret_cast<Context*>(verbs_get_ctx(context)); }

/// The error number of a status that is not ok.
[[nodiscard]] int error_number(fabric::Status status);
/// The same, 0 for ok.
[[nodiscard]] inline int code_of(fabric::Status status) {
  return status == fabric::Status::ok ? 0 : error_number(status);
}
/// Sets errno and returns null.
template <class T = void>
T* refuse(int error) {
  errno = error;
  return nullptr;
}

/// Runs make(), which creates an object; memory that is not there becomes ENOMEM, as everywhere in this library. The
/// thread is not cancelled meanwhile: a caught cancellation ends the process.
template <class Make>
auto creating(Make&& make) noexcept -> decltype(make()) {
  const os::Uncancelled whole;
  try {
    return make();
  } catch (...) {
    return refuse<std::remove_pointer_t<decltype(make())>>(ENOMEM);
  }
}

/// Runs verb(), which answers with an error number; likewise.
template <class Verb>
int answering(Verb&& verb) noexcept {
  const os::Uncancelled whole;
  try {
    return verb();
  } catch (...) {
    return ENOMEM;
  }
}

/// Of the device, the same on every endnode; an endnode's GID has its local ID.
[[nodiscard]] __be64 node_guid();

/// What an opened device has in its tables of functions.
void set_completion_verbs(Context& context);
void set_queue_pair_verbs(Context& context);
void set_post_verbs(Context& context);
void set_memory_verbs(Context& context);
void set_device_memory_verbs(Context& context);
void set_advice_verbs(Context& context);
void set_window_verbs(Context& context);
void set_shared_receive_verbs(Context& context);
void set_xrc_verbs(Context& context);
void set_attribute_verbs(Context& context);
/// The functions of an extended queue pair.
void set_extended_posts(QueuePair& queue_pair);
/// The functions of an extended completion queue.
void set_extended_polling(CompletionQueue& queue, std::uint64_t fields, bool single_threaded);

/// A completion queue, queue pair or shared receive queue has just been destroyed. Its events that have come in are
/// translated first, so that none of them is taken for one of its successor with the same number. Under Context::lock.
template <class Objects>
void forget_destroyed(Context& context, Objects& objects, std::uint32_t number, const void* object) {
  take_adapter_events_locked(context);
  objects.erase(number);
  context.events->forget(object);
}

/// A completion in the form of the C interface.
void describe(Context& context, const fabric::Completion& completion, ibv_wc& wc);

/// Destroying an object waits until the program has acknowledged every event about it that it got.
template <class Object>
void await_acknowledgement(Object& object, const std::uint32_t& acknowledged, std::uint32_t reported) {
  pthread_mutex_lock(&object.mutex);
  while (acknowledged != reported) pthread_cond_wait(&object.cond, &object.mutex);
  pthread_mutex_unlock(&object.mutex);
}

}  // namespace splitnic::ibverbs
