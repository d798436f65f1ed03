// Stream sockets: how connections are made, and how they end.
#include "fabric/rdmacm/stream.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "fabric/rdmacm/listener_service.h"
#include "fabric/rdmacm/objects.h"

namespace splitnic::rdmacm {
namespace {

void make_nonblocking(int descriptor) { ::fcntl(descriptor, F_SETFL, O_NONBLOCK); }

std::span<const std::byte> private_data(const rdma_cm_event& event) {
  const auto& about = event.param.conn;
  if (about.private_data == nullptr) return {};
  return {static_cast<const std::byte*>(about.private_data), about.private_data_len};
}

constexpr int kAllDescriptors = std::numeric_limits<int>::max();
/// What a connection takes after its socket: three of its event channel, and one of its completion channel.
constexpr std::size_t kFurtherDescriptors = 4;

/// Connections that wait in a backlog leave a quarter of the descriptors to their program: their numbers are below.
int descriptors_for_waiting() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return kAllDescriptors;
  return static_cast<int>(std::min<rlim_t>(limit.rlim_cur, kAllDescriptors) / 4 * 3);
}

/// Whether the next descriptors of a connection have numbers below. Its first one says too little: raccept() leaves the
/// number of each connection free that it gives another one.
bool has_descriptors_below(int numbers, int socket) {
  if (numbers == kAllDescriptors) return true;
  std::array<os::UniqueFd, kFurtherDescriptors> next;
  for (os::UniqueFd& one : next) one = os::UniqueFd(::fcntl(socket, F_DUPFD_CLOEXEC, 0));
  return next.back() && next.back().get() < numbers;
}

void reject_and_destroy(rdma_cm_id* id) {
  rdma_reject(id, nullptr, 0);
  rdma_destroy_id(id);
}

}  // namespace

Stream::~Stream() { close(); }

int Stream::create_channel() {
  channel_ = rdma_create_event_channel();
  if (channel_ == nullptr) return errno;
  make_nonblocking(channel_->fd);
  return watch(channel_->fd) ? 0 : ENOMEM;
}

int Stream::create_identifier() {
  if (id_ != nullptr) return 0;
  if (const int error_number = create_channel()) return error_number;
  if (rdma_create_id(channel_, &id_, nullptr, RDMA_PS_TCP) != 0) return errno;
  int only_ip6 = options.only_ip6 ? 1 : 0;
  if (family == AF_INET6) rdma_set_option(id_, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &only_ip6, sizeof only_ip6);
  return 0;
}

int Stream::bind(const Address& address) {
  if (phase_ != Phase::idle) return EINVAL;
  if (const int error_number = create_identifier()) return error_number;
  sockaddr_storage system{};
  put_address(address, system);
  if (rdma_bind_addr(id_, generic(system)) != 0) return errno;
  phase_ = Phase::bound;
  return 0;
}

int Stream::listen(int backlog) {
  constexpr int kMaxBacklog = 1024;
  backlog_ = static_cast<std::size_t>(std::clamp(backlog, 1, kMaxBacklog));
  if (phase_ == Phase::listening) {
    watch_for_callers();  // there may be room now
    return 0;
  }
  if (phase_ != Phase::idle && phase_ != Phase::bound) return EINVAL;
  if (const int error_number = create_identifier()) return error_number;
  if (!served_) {
    if (const int error_number = ListenerService::get().watch(channel_->fd, descriptor())) return error_number;
    served_ = watched_ = true;
  }
  if (rdma_listen(id_, backlog) != 0) return errno;
  phase_ = Phase::listening;
  return 0;
}

int Stream::connect(const Address& to) {
  if (phase_ == Phase::connecting) {
    // Nothing but calls moves a connection on, and some programs repeat this one. One whose wait a signal has ended
    // waits again.
    progress();
    return phase_ == Phase::connecting && options.nonblocking ? EALREADY : 0;
  }
  if (phase_ == Phase::accepting || phase_ == Phase::open) return EISCONN;
  if (phase_ == Phase::ended && pending_error_ != 0) return take_error();
  if (phase_ != Phase::idle && phase_ != Phase::bound) return EINVAL;
  if (const int error_number = create_identifier()) return error_number;
  sockaddr_storage system{};
  put_address(to, system);
  if (rdma_resolve_addr(id_, nullptr, generic(system), 0) != 0) return errno;
  phase_ = Phase::connecting;
  // Up to the request. As with TCP, a socket that does not block learns in a later call how quick the listener was.
  while (phase_ == Phase::connecting && id_->qp == nullptr && take_next_event()) {
  }
  return 0;
}

int Stream::connected() {
  if (phase_ == Phase::connecting) return EINPROGRESS;
  if (phase_ == Phase::ended) return pending_error_ != 0 ? take_error() : 0;
  return 0;
}

rdma_conn_param Stream::parameters(const StreamSetUpBytes& set_up) const {
  constexpr std::uint8_t kRetries = 7;
  rdma_conn_param made{};
  made.private_data = &set_up;
  made.private_data_len = sizeof set_up;
  made.retry_count = made.rnr_retry_count = kRetries;
  made.flow_control = 1;
  return made;
}

/// The addresses are resolved: asks the other end.
int Stream::request() {
  if (const int error_number = create_queue_pair()) return error_number;
  const StreamSetUpBytes set_up = encode(own_set_up());
  rdma_conn_param about = parameters(set_up);
  return rdma_connect(id_, &about) == 0 ? 0 : errno;
}

Outcome<std::shared_ptr<Rsocket>> Stream::accept() {
  if (phase_ != Phase::listening) return error(EINVAL);
  progress();
  // The program asks for this one, so it may have the descriptors that are kept for the program.
  if (waiting_.empty() && !callers_.empty()) {
    shortage_ = 0;
    while (waiting_.empty() && answer_oldest_caller(kAllDescriptors)) {
    }
  }
  if (waiting_.empty()) return error(shortage_ != 0 ? shortage_ : EAGAIN);
  // As with TCP, a descriptor's number is chosen now. librspreload.so names the connection to its program by a number
  // that it has taken just before, and its select() finds only connections with a higher one.
  if (!waiting_.front()->renumber()) return error(errno);
  auto oldest = std::move(waiting_.front());
  waiting_.pop_front();
  watch_for_callers();
  return oldest;
}

bool Stream::serve_callers() {
  watched_ = false;
  retried_ = true;
  progress();
  watch_for_callers();
  retried_ = shortage_ != 0;
  return !retried_;
}

/// A full backlog leaves its callers' events in the channel, so the thread would be called again and again.
void Stream::watch_for_callers() {
  if (watched_ || shortage_ != 0 || !has_room_for_callers()) return;
  ListenerService::get().watch_again(channel_->fd, descriptor());
  watched_ = true;
}

/// Of a listener. One caller after the other, so that those for whom there are no descriptors stay outside.
bool Stream::take_callers() {
  shortage_ = 0;
  const int numbers = descriptors_for_waiting();
  bool news = false;
  while (answer_oldest_caller(numbers) || (shortage_ == 0 && has_room_for_callers() && take_next_event())) news = true;
  // The listener's thread may not hear of it: nothing is left in the channel of a caller that was taken out.
  if (shortage_ != 0 && !retried_) retried_ = ListenerService::get().serve_later(descriptor());
  return news;
}

/// As with TCP, the connection is made before the program accepts it, and takes what its caller sends. numbers: the
/// connection's descriptors are below, or there is a shortage.
bool Stream::answer_oldest_caller(int numbers) {
  if (callers_.empty()) return false;
  const auto made = Rsocket::create(family, type);
  int error_number = made ? 0 : errno;
  if (made && !has_descriptors_below(numbers, made->descriptor())) {
    error_number = EMFILE;
  } else if (made) {
    auto& child = static_cast<Stream&>(*made);
    child.options = options;
    child.options.nonblocking = false;
    error_number = child.answer(callers_.front(), *this);
  }
  if (error_number == EMFILE || error_number == ENFILE || error_number == ENOMEM) {
    shortage_ = error_number;
    return false;
  }
  if (error_number == 0) {
    waiting_.push_back(made);
  } else {
    reject_and_destroy(callers_.front().id);  // it has gone meanwhile, which does not concern the program
  }
  callers_.pop_front();
  return true;
}

int Stream::answer(const Caller& caller, const Stream& listener) {
  int error_number = create_channel();
  if (error_number == 0 && rdma_migrate_id(caller.id, channel_) != 0) error_number = errno;
  if (error_number != 0) return error_number;
  id_ = caller.id;
  error_number = create_queue_pair();
  if (error_number == 0) {
    use_peer(caller.set_up);
    const StreamSetUpBytes set_up = encode(own_set_up());
    rdma_conn_param about = parameters(set_up);
    if (rdma_accept(id_, &about) != 0) error_number = errno;
  }
  if (error_number == 0) {
    phase_ = Phase::accepting;
    return 0;
  }
  destroy_queue_pair();
  rdma_migrate_id(std::exchange(id_, nullptr), listener.channel_);
  return error_number;
}

bool Stream::take_manager_events() {
  if (phase_ == Phase::listening) return take_callers();
  bool news = false;
  while (channel_ != nullptr && take_next_event()) news = true;
  return news;
}

bool Stream::take_next_event() {
  rdma_cm_event* event = nullptr;
  if (rdma_get_cm_event(channel_, &event) != 0) {
    if (phase_ == Phase::listening && errno != EAGAIN) shortage_ = errno;
    return false;
  }
  take_manager_event(*event);
  rdma_cm_id* const gone = event->event == RDMA_CM_EVENT_CONNECT_REQUEST || event->id == id_ ? nullptr : event->id;
  rdma_ack_cm_event(event);
  if (gone != nullptr) rdma_destroy_id(gone);
  return true;
}

void Stream::take_manager_event(const rdma_cm_event& event) {
  switch (event.event) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
      if (rdma_resolve_route(id_, 0) != 0) fail(errno);
      return;
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
      if (const int error_number = request()) fail(error_number);
      return;
    case RDMA_CM_EVENT_ADDR_ERROR:
    case RDMA_CM_EVENT_ROUTE_ERROR:
      return fail(ENETUNREACH);
    case RDMA_CM_EVENT_CONNECT_REQUEST:
      return take_caller(event);
    case RDMA_CM_EVENT_ESTABLISHED:
      return take_reply(event);
    case RDMA_CM_EVENT_CONNECT_ERROR:
    case RDMA_CM_EVENT_UNREACHABLE:
    case RDMA_CM_EVENT_REJECTED:
      if (phase_ == Phase::listening) return forget_caller(event.id);
      if (phase_ != Phase::connecting) return end(ECONNRESET);
      return fail(event.status == -ETIMEDOUT ? ETIMEDOUT : ECONNREFUSED);
    case RDMA_CM_EVENT_DISCONNECTED:
      take_the_rest();
      return end(0);
    default:
      return;
  }
}

void Stream::take_caller(const rdma_cm_event& event) {
  const auto set_up = decode_set_up(private_data(event));
  if (!set_up) return reject_and_destroy(event.id);
  callers_.push_back({event.id, *set_up});
}

/// The caller does not wait any more: its identifier ends with the event that says so.
void Stream::forget_caller(const rdma_cm_id* id) {
  std::erase_if(callers_, [id](const Caller& caller) { return caller.id == id; });
}

void Stream::take_reply(const rdma_cm_event& event) {
  if (phase_ == Phase::connecting) {
    const auto set_up = decode_set_up(private_data(event));
    if (!set_up) return fail(EPROTO);
    use_peer(*set_up);
  }
  if (phase_ == Phase::connecting || phase_ == Phase::accepting) phase_ = Phase::open;
}

/// There is no connection.
void Stream::fail(int error_number) {
  pending_error_ = error_number;
  phase_ = Phase::ended;
  peer_ended_ = true;
}

void Stream::end(int error_number) {
  if (phase_ == Phase::ended || phase_ == Phase::connecting) {
    if (phase_ == Phase::connecting) fail(error_number != 0 ? error_number : ECONNREFUSED);
    return;
  }
  if (error_number == 0 && data_lost_) error_number = ECONNRESET;
  pending_error_ = error_number;
  phase_ = Phase::ended;
  peer_ended_ = true;
  rdma_disconnect(id_);
  // What this has flushed tells whether bytes are lost: the call that learns of the end says so.
  while (poll_completions()) {
  }
}

int Stream::shut_down(int how) {
  if (how != SHUT_RD && how != SHUT_WR && how != SHUT_RDWR) return EINVAL;
  if (phase_ == Phase::listening && how != SHUT_WR) {
    close();
    phase_ = Phase::ended;
    pending_error_ = EINVAL;
    return 0;
  }
  if (phase_ != Phase::accepting && phase_ != Phase::open && phase_ != Phase::ended) return ENOTCONN;
  if (how != SHUT_WR) receives_shut_ = true;
  if (how != SHUT_RD) sends_shut_ = true;
  progress();
  return 0;
}

bool Stream::drained() const {
  if (phase_ != Phase::open && phase_ != Phase::accepting) return true;
  return posted_.empty() && (!sends_shut_ || end_sent_);
}

void Stream::close() {
  for (const Caller& caller : callers_) reject_and_destroy(caller.id);
  callers_.clear();
  waiting_.clear();
  if (served_) ListenerService::get().unwatch(channel_->fd);
  served_ = watched_ = false;
  if (phase_ == Phase::open || phase_ == Phase::accepting) rdma_disconnect(id_);
  destroy_queue_pair();
  if (id_ != nullptr) rdma_destroy_id(id_);
  if (channel_ != nullptr) rdma_destroy_event_channel(channel_);
  id_ = nullptr;
  channel_ = nullptr;
  phase_ = Phase::ended;
}

std::optional<Address> Stream::own_address() const {
  return id_ != nullptr ? address_of(rdma_get_local_addr(id_)) : std::nullopt;
}

std::optional<Address> Stream::peer_address() const {
  const bool has_peer = peer_.messages != 0;
  return id_ != nullptr && has_peer ? address_of(rdma_get_peer_addr(id_)) : std::nullopt;
}

short Stream::ready(short wanted) const {
  if (wanted == kDrained) return drained() ? kDrained : short{0};
  if (wanted == kRequestRoom) return phase_ != Phase::open || may_post() ? kRequestRoom : short{0};
  int found = 0;
  if (phase_ == Phase::listening) {
    found = !waiting_.empty() || shortage_ != 0 ? POLLIN | POLLRDNORM : 0;
  } else if (phase_ == Phase::open || phase_ == Phase::accepting || phase_ == Phase::ended) {
    if (ring_.waiting() != 0 || peer_ended_ || receives_shut_) found |= POLLIN | POLLRDNORM;
    if (peer_ended_) found |= POLLRDHUP;
    if (phase_ == Phase::ended || sends_shut_ || (phase_ == Phase::open && send_room() != 0))
      found |= POLLOUT | POLLWRNORM;
  }
  found &= wanted;
  if (pending_error_ != 0) found |= POLLERR;
  // As with TCP, an end that the other one has left hangs up only when it has nothing to send itself, or has failed.
  const bool never_connected = phase_ == Phase::ended && peer_.messages == 0;
  if (phase_ == Phase::idle || phase_ == Phase::bound || never_connected || (peer_ended_ && sends_shut_) ||
      (phase_ == Phase::ended && pending_error_ != 0)) {
    found |= POLLHUP;
  }
  return static_cast<short>(found);
}

}  // namespace splitnic::rdmacm
