#pragma once

#include <infiniband/sa.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "common/os/peer_socket.h"
#include "common/os/uncancelled.h"
#include "common/os/unique_fd.h"
#include "common/random.h"
#include "common/time.h"
#include "fabric/rdmacm/bindings.h"
#include "fabric/rdmacm/calls.h"
#include "fabric/rdmacm/record.h"
#include "fabric/rdmacm/rendezvous.h"

/// The objects behind the handles of the C interface. Each derives from the struct that programs know. Programs create
/// and destroy them. Thread: any; everything beyond the programs' structs is under Library::lock.
namespace splitnic::rdmacm {

inline constexpr std::uint8_t kPort = 1;
inline constexpr std::uint16_t kPartitionKey = 0xffff;

struct Channel;
struct Identifier;

/// A mutex whose holder is not cancelled: the program's threads wait outside, where they may be.
class UncancelledMutex {
 public:
  void lock() {
    int before = PTHREAD_CANCEL_ENABLE;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    mutex_.lock();
    before_ = before;
  }
  void unlock() {
    const int before = before_;
    mutex_.unlock();
    pthread_setcancelstate(before, nullptr);
  }

 private:
  std::mutex mutex_;
  int before_ = PTHREAD_CANCEL_ENABLE;  ///< what holds for the holder outside; under mutex_
};

/// What this process has of the fabric: one opened device for all identifiers, and the bindings. It is made when a
/// program first needs it and lives as long as the process; a forked child gets one of its own.
struct Library {
  /// Null with errno (ENODEV), after a line on standard error: the fabric can't be used.
  [[nodiscard]] static Library* get();

  const pid_t process = ::getpid();
  UncancelledMutex lock;
  std::condition_variable_any acknowledged;  ///< the program has acknowledged an event
  ibv_context* device = nullptr;
  ibv_pd* pd = nullptr;      ///< for queue pairs whose program names none
  ibv_xrcd* xrcd = nullptr;  ///< the same; null until it is needed
  ibv_device_attr limits{};
  ibv_gid gid{};
  std::uint16_t local_id = 0;
  std::unique_ptr<Bindings> bindings;
  SystemRandom random;
  std::array<std::unique_ptr<Channel>, 64> ended;  ///< the last ones; see Channel::end()
  std::size_t ended_count = 0;
};

struct Event : rdma_cm_event {
  Identifier* owner = nullptr;   ///< whose destruction waits until the program has acknowledged the event
  std::uint32_t membership = 0;  ///< of a join: which one
  std::array<std::byte, 256> bytes{};
};

/// Of an identifier in a multicast group.
struct Membership {
  std::uint32_t number = 0;  ///< of this identifier's, from 1
  Address address{};
  ibv_gid group{};
  void* context = nullptr;
  bool sends_only = false;
  bool attached = false;  ///< the queue pair is, by this membership
  bool leaving = false;
  std::uint32_t events_reported = 0;
  std::uint32_t events_acknowledged = 0;
};
inline constexpr std::size_t kMaxMemberships = 256;  ///< of an identifier

/// The group that a multicast address stands for. of_manager: the group that the connection manager has for it, not the
/// one of IP over InfiniBand.
[[nodiscard]] ibv_gid group_of(const Address& address, bool of_manager);

/// A caller of a listener whose request has not arrived.
struct Caller {
  Line line;
  std::uint64_t watch = 0;
};

/// An event channel. Its descriptor is an epoll set of all that can become an event: sockets, processes at other ends,
/// a timer, and a descriptor that is readable while events wait. So no thread is needed, and it works with poll(2) and
/// O_NONBLOCK. rdma_get_cm_event() turns what is ready into events.
struct Channel : rdma_event_channel {
  /// Null with errno: no descriptors.
  [[nodiscard]] static std::unique_ptr<Channel> open(Library& library);
  explicit Channel(Library& of) : rdma_event_channel{}, library(of) {}
  ~Channel() = default;
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;
  static Channel& of(rdma_event_channel* channel) { return static_cast<Channel&>(*channel); }

  void push(std::unique_ptr<Event> event);
  /// The next event, after a look at what is ready. Null with errno: EAGAIN, or no descriptors for a caller.
  [[nodiscard]] std::unique_ptr<Event> take();
  /// Takes the events that keep() refuses out of the queue.
  template <class Keep>
  [[nodiscard]] std::deque<std::unique_ptr<Event>> remove_unless(Keep keep);
  /// caller: null, or one of the identifier's.
  [[nodiscard]] std::uint64_t watch(int descriptor, Identifier& identifier, Caller* caller = nullptr);
  void unwatch(std::uint64_t number, int descriptor);
  /// A caller that is watched by this number has sent no request yet. Without effect if it is not watched any more.
  void await_request(std::uint64_t number);
  /// In how many milliseconds the request of such a caller comes at the latest, or `give_up` is; 0: none is expected.
  [[nodiscard]] int request_within(Time give_up) const;
  /// Closes the descriptors. The object stays as long as identifiers name it: a program is to destroy them first, and
  /// some do not. Then it stays until some more channels have ended, because a thread of the program may still be on
  /// its way to rdma_get_cm_event(), or in it.
  static void end(std::unique_ptr<Channel> channel);
  /// An identifier names the channel from now on; not any more.
  void add_identifier() { ++identifiers_; }
  void remove_identifier();
  [[nodiscard]] bool ended() const { return !set_; }

  /// The identifier wants Identifier::on_time(); kNever: not any more. When it wanted it before; kNever: it did not.
  Time set_deadline(Identifier& identifier, Time deadline);

  Library& library;
  int trouble = 0;  ///< errno of a listener that can't accept: rdma_get_cm_event() answers it once

 private:
  struct Watched {
    Identifier* identifier = nullptr;
    Caller* caller = nullptr;
  };
  static void retire(std::unique_ptr<Channel> channel);
  /// What the kernel names, as far as there is room.
  [[nodiscard]] std::span<const epoll_event> ready_now(std::span<epoll_event> room) const;
  /// Lets identifiers, all listeners or all others, act on what is ready and watched since last_number or longer.
  /// Whether there was any.
  bool serve(std::span<const epoll_event> ready, bool listeners, std::uint64_t last_number);
  void look();
  void take_time();
  void settle_wake();

  os::UniqueFd set_;
  os::UniqueFd wake_;   // readable while events wait
  os::UniqueFd timer_;  // at the earliest deadline
  std::deque<std::unique_ptr<Event>> waiting_;
  std::map<std::uint64_t, Watched> watched_;
  std::set<std::uint64_t> silent_callers_;  // those whose requests have not arrived
  Time silent_until_{};                     // the latest of them is awaited no longer than this
  std::map<Identifier*, Time> deadlines_;
  std::uint64_t last_number_ = 0;
  std::size_t identifiers_ = 0;
};

struct Identifier : rdma_cm_id {
  Identifier(Library& library, Channel& channel, rdma_port_space space, ibv_qp_type type);
  ~Identifier();
  Identifier(const Identifier&) = delete;
  Identifier& operator=(const Identifier&) = delete;
  static Identifier& of(rdma_cm_id* id) { return static_cast<Identifier&>(*id); }

  [[nodiscard]] Channel& events() const { return Channel::of(channel); }
  [[nodiscard]] bool datagrams() const { return qp_type == IBV_QPT_UD; }
  /// The device, the port, and the addresses of the InfiniBand kind.
  void use_device();
  /// 0 or an errno.
  [[nodiscard]] int bind(Binding wanted);
  void describe_path();
  /// Begins to serve the binding. 0 or an errno.
  [[nodiscard]] int serve();
  /// Sends the request, or has it sent later. Ends in an event, unless this is an errno (no descriptors).
  [[nodiscard]] int begin_call();

  // What the channel saw.
  void on_ready(Caller* caller);
  void on_time(Time now);

  void report(rdma_cm_event_type type, int status = 0, const Record* record = nullptr);
  /// Reports that there is no connection, as its kind of service does.
  void report_rejection(std::uint16_t reason, const Record* record = nullptr);
  /// Watches the line from now on; no descriptor is left: false.
  [[nodiscard]] bool follow_line();
  void hang_up();
  /// To another channel, with its events and the identifiers of requests that nobody has got. `synchronous` is what it
  /// will be there.
  void move_to(Channel& to);
  /// Ends everything but the queue pair and the events that it has reported.
  void stop();

  /// The program gets the event of a join: the queue pair is attached now. Failure becomes the event's.
  void finish_join(Event& news);
  void acknowledge_join(std::uint32_t membership);
  /// The queue pair leaves the groups to which finish_join() has attached it. The memberships stay.
  void detach_from_groups();
  /// Sets only_ip6, also of a binding to all addresses. 0; EADDRINUSE: others have bound what it would add.
  [[nodiscard]] int use_only_ip6(bool only);

  // Of a conversation.
  void await_ready();
  /// Both ends are ready; reply: of the other end, for the one that has called.
  void establish(const Record* reply = nullptr);
  void send_ready();
  void disconnect();
  void end(State to);

  // Of the queue pair; 0 or an errno.
  [[nodiscard]] int describe_queue_pair(ibv_qp_attr& attributes, int& mask) const;
  [[nodiscard]] int move_queue_pair(ibv_qp_state to);
  [[nodiscard]] int initialize_queue_pair();
  [[nodiscard]] int connect_queue_pair();
  void fail_queue_pair();

  Library& library;
  State state = State::idle;
  bool synchronous = false;  ///< its channel is its own, and its calls wait
  std::optional<Binding> binding{};
  Address source{};
  Address destination{};
  bool only_ip6 = false;
  std::uint8_t acknowledge_timeout = 0;  ///< 0: as usual

  // Of a listener.
  os::PeerSocket listener;
  std::uint64_t listener_watch = 0;
  std::string listener_path;
  std::list<Caller> callers;

  // Of a conversation.
  Line line;
  std::array<std::uint64_t, 2> line_watches{};
  std::uint32_t starting_psn;       ///< of this end's packets: a program may move its queue pair before it answers
  Record own{};                     ///< the request or the reply of this end
  Record peer{};                    ///< that of the other end
  Time deadline = kNever;           ///< of the answer, or of what follows it
  Time listener_deadline = kNever;  ///< of a listener that is not there
  std::uint8_t responder_resources = 0;
  std::uint8_t initiator_depth = 0;
  bool ready_is_due = false;  ///< the other end has not said yet that it is ready

  std::list<Membership> memberships;
  std::uint32_t last_membership = 0;
  std::uint32_t events_reported = 0;
  std::uint32_t events_acknowledged = 0;
  ibv_sa_path_rec path{};
  ibv_ece local_ece{};
  std::vector<std::byte> connect_data;                  ///< of rdma_create_ep()
  std::unique_ptr<ibv_qp_init_attr> queue_pair_wanted;  ///< of rdma_create_ep() for a listener: for its requests
  ibv_pd* wanted_pd = nullptr;

 private:
  void take_callers();
  void take_request(std::list<Caller>::iterator caller);
  void drop_caller(std::list<Caller>::iterator caller);
  [[nodiscard]] std::uint16_t refusal_of(const Record& request) const;
  void make_child(Line with, const Record& request);
  void move_child(Identifier& child);
  void end_service();
  void unfollow_line();
  [[nodiscard]] int try_call(Time now);
  void take_record(const Record& record);
  void take_reply(const Record& record);
  void on_ended();
};

template <class Keep>
std::deque<std::unique_ptr<Event>> Channel::remove_unless(Keep keep) {
  std::deque<std::unique_ptr<Event>> kept;
  std::deque<std::unique_ptr<Event>> removed;
  for (auto& event : waiting_) (keep(*event) ? kept : removed).push_back(std::move(event));
  waiting_ = std::move(kept);
  settle_wake();
  return removed;
}

/// Sets errno; -1.
inline int refuse(int error) {
  errno = error;
  return -1;
}
inline int answer(int error) { return error == 0 ? 0 : refuse(error); }

/// Runs a function of the C interface that answers -1 in errors; memory that is not there becomes ENOMEM. Nothing else
/// is caught: a thread that is cancelled unwinds through here.
template <class Run>
int guarded(Run&& run) {
  try {
    return run();
  } catch (const std::bad_alloc&) {
    return refuse(ENOMEM);
  }
}

/// Of a synchronous identifier: waits for the event that its call ends in, and keeps it. 0, or -1 with the event's
/// error. Not under the lock.
int await_completion(rdma_cm_id* id);
/// As rdma_create_id(), with a type of queue pair that the port space does not imply.
int create_identifier(rdma_event_channel* channel, rdma_cm_id** id, void* context, rdma_port_space space,
                      ibv_qp_type type);
/// Events that the program has not got; an identifier that such an event would have given it ends, too. Under the lock.
void discard(std::deque<std::unique_ptr<Event>> events);
/// As rdma_get_cm_event().
int get_event(rdma_event_channel* channel, rdma_cm_event** event);

}  // namespace splitnic::rdmacm
