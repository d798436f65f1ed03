#include "fabric/rdmacm/datagram_socket.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <utility>

#include "fabric/rdmacm/datagram_record.h"
#include "fabric/rdmacm/objects.h"
#include "fabric/rdmacm/stream.h"

namespace splitnic::rdmacm {
namespace {

constexpr std::size_t kHeader = sizeof(DatagramHeaderBytes);
constexpr std::size_t kPathBytes = 4096;
constexpr std::size_t kMaxDatagramBytes = kPathBytes - kHeader;
constexpr std::size_t kRouteHeader = 40;  // in front of each datagram that is received
constexpr std::size_t kBufferBytes = kRouteHeader + kPathBytes + 24;
constexpr std::uint32_t kSends = 64;
constexpr std::uint32_t kMinReceives = 64;
constexpr std::uint32_t kMaxReceives = 2048;
constexpr std::size_t kMaxRoutes = 1024;
/// Another socket may have the address by now, so one that says nothing is asked again.
constexpr Duration kRouteAge = std::chrono::seconds(2);
constexpr unsigned kDatagramLooksMax = 64;
constexpr std::uint64_t kDatagramReceive = std::uint64_t{1} << 32U;

}  // namespace

DatagramSocket::~DatagramSocket() { close(); }

std::byte* DatagramSocket::buffer(std::uint32_t index) const { return memory_.get() + index * kBufferBytes; }

int DatagramSocket::open(const Address& address) {
  channel_ = rdma_create_event_channel();
  if (channel_ == nullptr) return errno;
  ::fcntl(channel_->fd, F_SETFL, O_NONBLOCK);
  if (!watch(channel_->fd)) return ENOMEM;
  if (rdma_create_id(channel_, &id_, nullptr, RDMA_PS_UDP) != 0) return errno;
  int only_ip6 = options.only_ip6 ? 1 : 0;
  if (family == AF_INET6) rdma_set_option(id_, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &only_ip6, sizeof only_ip6);
  sockaddr_storage system{};
  put_address(address, system);
  if (rdma_bind_addr(id_, generic(system)) != 0) return errno;
  if (const int error_number = create_queue_pair()) return error_number;
  return rdma_listen(id_, 0) == 0 ? 0 : errno;
}

int DatagramSocket::bind(const Address& address) {
  if (id_ != nullptr) return EINVAL;
  const int error_number = open(address);
  if (error_number != 0) close();
  return error_number;
}

int DatagramSocket::connect(const Address& to) {
  if (id_ == nullptr) {
    // Others answer to this address, so it has to be one.
    auto from = source_towards(to);
    if (!from) return errno;
    if (const int error_number = bind(*from)) return error_number;
  }
  peer_ = to;
  return 0;
}

int DatagramSocket::create_buffers() {
  const auto wanted = static_cast<std::size_t>(options.receive_bytes) / kPathBytes;
  receive_count_ = static_cast<std::uint32_t>(std::clamp<std::size_t>(wanted, kMinReceives, kMaxReceives));
  const std::size_t bytes = (receive_count_ + kSends) * kBufferBytes;
  memory_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
  region_ = register_memory(Library::get()->pd, memory_.get(), bytes, IBV_ACCESS_LOCAL_WRITE);
  for (std::uint32_t index = 0; index < kSends; ++index) free_sends_.push_back(receive_count_ + index);
  return region_ != nullptr ? 0 : ENOMEM;
}

int DatagramSocket::create_queue_pair() {
  Library& library = *Library::get();
  if (const int error_number = create_buffers()) return error_number;
  completions_ = ibv_create_comp_channel(library.device);
  if (completions_ == nullptr) return errno;
  ::fcntl(completions_->fd, F_SETFL, O_NONBLOCK);
  receives_ = ibv_create_cq(library.device, static_cast<int>(receive_count_), nullptr, completions_, 0);
  sends_ = ibv_create_cq(library.device, kSends, nullptr, completions_, 0);
  if (receives_ == nullptr || sends_ == nullptr || !watch(completions_->fd)) return ENOMEM;
  ibv_qp_init_attr wanted{};
  wanted.send_cq = sends_;
  wanted.recv_cq = receives_;
  wanted.qp_type = IBV_QPT_UD;
  wanted.sq_sig_all = 1;
  wanted.cap.max_send_wr = kSends;
  wanted.cap.max_recv_wr = receive_count_;
  wanted.cap.max_send_sge = wanted.cap.max_recv_sge = 1;
  queue_pair_ = ibv_create_qp(library.pd, &wanted);
  if (queue_pair_ == nullptr) return errno;
  ibv_qp_attr to{};
  to.qp_state = IBV_QPS_INIT;
  to.port_num = kPort;
  to.qkey = RDMA_UDP_QKEY;
  int error_number = ibv_modify_qp(queue_pair_, &to, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
  for (std::uint32_t index = 0; index < receive_count_ && error_number == 0; ++index)
    error_number = post_receive(index);
  to.qp_state = IBV_QPS_RTR;
  if (error_number == 0) error_number = ibv_modify_qp(queue_pair_, &to, IBV_QP_STATE);
  to.qp_state = IBV_QPS_RTS;
  return error_number == 0 ? ibv_modify_qp(queue_pair_, &to, IBV_QP_STATE | IBV_QP_SQ_PSN) : error_number;
}

int DatagramSocket::post_receive(std::uint32_t index) {
  ibv_sge into{number_of(buffer(index)), kRouteHeader + kPathBytes, region_->lkey};
  ibv_recv_wr request{};
  request.wr_id = kDatagramReceive | index;
  request.sg_list = &into;
  request.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  return ibv_post_recv(queue_pair_, &request, &bad);
}

void DatagramSocket::close() {
  while (!routes_.empty()) forget(routes_.begin());
  if (queue_pair_ != nullptr) ibv_destroy_qp(queue_pair_);
  if (receives_ != nullptr) ibv_destroy_cq(receives_);
  if (sends_ != nullptr) ibv_destroy_cq(sends_);
  if (completions_ != nullptr) ibv_destroy_comp_channel(completions_);
  if (region_ != nullptr) ibv_dereg_mr(region_);
  if (id_ != nullptr) rdma_destroy_id(id_);
  if (channel_ != nullptr) rdma_destroy_event_channel(channel_);
  queue_pair_ = nullptr;
  receives_ = sends_ = nullptr;
  completions_ = nullptr;
  region_ = nullptr;
  id_ = nullptr;
  channel_ = nullptr;
  free_sends_.clear();  // the next binding makes other buffers
}

// --- The ways to other sockets.

DatagramSocket::Route* DatagramSocket::find(const Address& to) {
  const auto found = std::ranges::find(routes_, to, &Route::to);
  if (found == routes_.end()) return nullptr;
  routes_.splice(routes_.begin(), routes_, found);
  return &routes_.front();
}

DatagramSocket::Route& DatagramSocket::add_route(const Address& to) {
  if (routes_.size() == kMaxRoutes) forget(std::prev(routes_.end()));
  routes_.push_front({});
  routes_.front().to = to;
  return routes_.front();
}

void DatagramSocket::forget(std::list<Route>::iterator route) {
  if (route->asks != nullptr) rdma_destroy_id(route->asks);
  if (route->handle != nullptr) ibv_destroy_ah(route->handle);
  routes_.erase(route);
}

int DatagramSocket::ask(Route& route) {
  sockaddr_storage system{};
  put_address(route.to, system);
  if (rdma_create_id(channel_, &route.asks, nullptr, RDMA_PS_UDP) != 0) return errno;
  return rdma_resolve_addr(route.asks, nullptr, generic(system), 0) == 0 ? 0 : errno;
}

int DatagramSocket::route_to(const Address& to, Route*& route) {
  route = find(to);
  if (route == nullptr) {
    route = &add_route(to);
    const int error_number = ask(*route);
    if (error_number != 0) forget(routes_.begin());
    if (error_number != 0) return error_number;
    route->awaited = true;  // what fails at once is for this call
    take_manager_events();
    route->awaited = false;
  } else if (route->handle != nullptr && route->asks == nullptr && monotonic_now() - route->confirmed > kRouteAge) {
    // The old way serves meanwhile: the other end may only be slow to answer. Without descriptors it serves on.
    if (ask(*route) != 0 && route->asks != nullptr) rdma_destroy_id(std::exchange(route->asks, nullptr));
  }
  if (route->handle != nullptr) return 0;
  if (!route->refused) return EAGAIN;
  forget(routes_.begin());
  return ECONNREFUSED;
}

bool DatagramSocket::take_manager_events() {
  bool news = false;
  rdma_cm_event* event = nullptr;
  while (channel_ != nullptr && rdma_get_cm_event(channel_, &event) == 0) {
    news = true;
    rdma_cm_id* const id = event->id;
    const bool done = take_manager_event(*event);
    rdma_ack_cm_event(event);
    if (done) rdma_destroy_id(id);
  }
  return news;
}

bool DatagramSocket::take_manager_event(const rdma_cm_event& event) {
  if (event.event == RDMA_CM_EVENT_CONNECT_REQUEST) {
    rdma_conn_param answer{};
    answer.qp_num = queue_pair_->qp_num;
    rdma_accept(event.id, &answer);
    return true;
  }
  const auto route = std::ranges::find(routes_, event.id, &Route::asks);
  if (route == routes_.end()) return event.id != id_;
  rdma_conn_param request{};
  request.qp_num = queue_pair_->qp_num;
  if (event.event == RDMA_CM_EVENT_ADDR_RESOLVED && rdma_resolve_route(event.id, 0) == 0) return false;
  if (event.event == RDMA_CM_EVENT_ROUTE_RESOLVED && rdma_connect(event.id, &request) == 0) return false;
  route->asks = nullptr;
  if (event.event == RDMA_CM_EVENT_ESTABLISHED) {
    use_answer(*route, event);
  } else if (route->handle == nullptr || event.status != -ETIMEDOUT) {
    // A peer whose way is known and that only says nothing is there: its way stays, and is asked for again.
    refuse_route(route);
  }
  return true;
}

void DatagramSocket::use_answer(Route& route, const rdma_cm_event& event) {
  const rdma_ud_param& about = event.param.ud;
  if (!use_place(route, about.ah_attr, about.qp_num, about.qkey)) route.refused = route.handle == nullptr;
}

bool DatagramSocket::use_place(Route& route, ibv_ah_attr attributes, std::uint32_t queue_pair,
                               std::uint32_t queue_key) {
  ibv_ah* const handle = ibv_create_ah(Library::get()->pd, &attributes);
  if (handle == nullptr) return false;
  if (route.asks != nullptr) rdma_destroy_id(std::exchange(route.asks, nullptr));
  if (route.handle != nullptr) ibv_destroy_ah(route.handle);
  const Place place{attributes.dlid, queue_pair};
  const bool elsewhere = route.handle == nullptr || route.place != place;
  route.handle = handle;
  route.place = place;
  route.queue_key = queue_key;
  route.awaited = route.refused = false;
  route.confirmed = monotonic_now();
  if (auto kept = std::exchange(route.kept, std::nullopt); kept && elsewhere && !free_sends_.empty()) {
    const std::array parts{iovec{kept->data(), kept->size()}};
    static_cast<void>(post(route, parts));
  }
  return true;
}

void DatagramSocket::refuse_route(std::list<Route>::iterator route) {
  route->refused = route->awaited;
  if (route->refused) return;
  // As with UDP, a connected socket learns it from its next call.
  if (peer_ == route->to) pending_error_ = ECONNREFUSED;
  forget(route);
}

// --- Datagrams.

void DatagramSocket::progress() {
  if (queue_pair_ == nullptr) return;
  bool news = false;
  while (poll(receives_)) news = true;
  while (poll(sends_)) news = true;
  const auto unknown = [](const Route& route) { return route.asks != nullptr && route.handle == nullptr; };
  if (std::ranges::any_of(routes_, unknown) || ++idle_looks_ >= kDatagramLooksMax) {
    idle_looks_ = 0;
    news = take_manager_events() || news;
  }
  if (news) wake_sleepers();
}

void DatagramSocket::wake() {
  if (take_manager_events()) wake_sleepers();
  progress();
}

void DatagramSocket::arm() {
  if (queue_pair_ == nullptr) return;
  ibv_cq* from = nullptr;
  void* context = nullptr;
  while (ibv_get_cq_event(completions_, &from, &context) == 0) ibv_ack_cq_events(from, 1);
  ibv_req_notify_cq(receives_, 0);
  if (sends_under_way_ != 0) ibv_req_notify_cq(sends_, 0);
  if (take_manager_events()) wake_sleepers();
}

bool DatagramSocket::poll(ibv_cq* queue) {
  std::array<ibv_wc, 32> some{};
  const int count = ibv_poll_cq(queue, static_cast<int>(some.size()), some.data());
  for (int index = 0; index < count; ++index) {
    const ibv_wc& completion = some[static_cast<std::size_t>(index)];
    if ((completion.wr_id & kDatagramReceive) == 0) {
      free_sends_.push_back(static_cast<std::uint32_t>(completion.wr_id));
      --sends_under_way_;
    } else if (completion.status == IBV_WC_SUCCESS) {
      take_datagram(completion);
    }
  }
  return count > 0;
}

/// A datagram that no datagram socket sends is dropped, and its buffer posted again.
void DatagramSocket::take_datagram(const ibv_wc& completion) {
  const auto index = static_cast<std::uint32_t>(completion.wr_id);
  const std::size_t bytes = completion.byte_len - std::min<std::size_t>(completion.byte_len, kRouteHeader);
  const auto from = decode_source({buffer(index) + kRouteHeader, bytes});
  if (!from || (peer_ && *peer_ != *from)) {
    static_cast<void>(post_receive(index));
    return;
  }
  arrived_.push_back({index, static_cast<std::uint32_t>(bytes - kHeader), *from});
  Route* known = find(*from);
  const Place place{completion.slid, completion.src_qp};
  if (known != nullptr && known->handle != nullptr && known->place == place) {
    known->confirmed = monotonic_now();
    return;
  }
  // The sender's queue pair is known by its datagram: the answer needs no question.
  ibv_ah_attr attributes{};
  attributes.dlid = completion.slid;
  attributes.port_num = kPort;
  Route& route = known != nullptr ? *known : add_route(*from);
  if (!use_place(route, attributes, completion.src_qp, RDMA_UDP_QKEY) && known == nullptr) forget(routes_.begin());
}

Outcome<std::size_t> DatagramSocket::send(Transfer& what) {
  if (!what.has_address && !peer_) return error(EDESTADDRREQ);
  const Address to = what.has_address ? what.address : *peer_;
  const std::size_t bytes = bytes_of(what.parts);
  if (bytes > kMaxDatagramBytes) return error(EMSGSIZE);
  if (to.is_multicast()) return error(ENETUNREACH);
  if (id_ == nullptr) {
    const auto from = source_towards(to);
    if (!from) return error(errno);
    if (const int error_number = bind(*from)) return error(error_number);
  }
  progress();
  if (pending_error_ != 0) return error(take_error());
  if (free_sends_.empty()) return error(EAGAIN);
  Route* route = nullptr;
  const int no_way = route_to(to, route);
  if (no_way == EAGAIN && what.waits) {
    route->awaited = true;
    return error(EAGAIN);
  }
  // As with UDP, only a connected socket learns that nobody is there.
  if (no_way == ECONNREFUSED && !peer_) return bytes;
  if (no_way != 0 && no_way != EAGAIN) return error(no_way);
  // A peer that does not answer must not hold up the datagrams to others, so this call is done.
  if (route->asks != nullptr) keep(*route, what.parts);
  if (no_way == EAGAIN) return bytes;
  if (const int error_number = post(*route, what.parts)) return error(error_number);
  return bytes;
}

/// In place of the one that was kept before.
void DatagramSocket::keep(Route& route, std::span<const iovec> parts) {
  if (!route.kept) route.kept.emplace();
  route.kept->clear();
  for (const iovec& part : parts) {
    const auto* const from = static_cast<const std::byte*>(part.iov_base);
    route.kept->insert(route.kept->end(), from, from + part.iov_len);
  }
}

/// Posts a datagram. There is a free buffer for it. 0 or an errno.
int DatagramSocket::post(const Route& route, std::span<const iovec> parts) {
  const std::uint32_t index = free_sends_.back();
  auto source = own_address();
  if (source && source->is_any()) {
    const auto from = source_towards(route.to);
    if (!from) return errno;
    source = Address{from->bytes, source->number, from->scope};
  }
  const DatagramHeaderBytes header = encode_source(source.value_or(Address{}));
  std::memcpy(buffer(index), &header, sizeof header);
  std::size_t filled = sizeof header;
  for (const iovec& part : parts) {
    if (part.iov_len != 0) std::memcpy(buffer(index) + filled, part.iov_base, part.iov_len);
    filled += part.iov_len;
  }
  ibv_sge from{number_of(buffer(index)), static_cast<std::uint32_t>(filled), region_->lkey};
  ibv_send_wr request{};
  request.wr_id = index;
  request.opcode = IBV_WR_SEND;
  request.sg_list = &from;
  request.num_sge = 1;
  request.wr.ud.ah = route.handle;
  request.wr.ud.remote_qpn = route.place.queue_pair;
  request.wr.ud.remote_qkey = route.queue_key;
  ibv_send_wr* bad = nullptr;
  if (ibv_post_send(queue_pair_, &request, &bad) != 0) return ENOBUFS;
  free_sends_.pop_back();
  ++sends_under_way_;
  return 0;
}

Outcome<std::size_t> DatagramSocket::receive(Transfer& what) {
  if (id_ == nullptr) return error(ENOTCONN);
  progress();
  if (pending_error_ != 0) return error(take_error());
  if (arrived_.empty()) return error(EAGAIN);
  const Arrived one = arrived_.front();
  const std::byte* from = buffer(one.buffer) + kRouteHeader + kHeader;
  std::size_t left = one.bytes;
  for (const iovec& part : what.parts) {
    const std::size_t some = std::min(left, part.iov_len);
    if (some != 0) std::memcpy(part.iov_base, from, some);
    from += some;
    left -= some;
  }
  what.truncated = left != 0;
  what.has_address = true;
  what.address = one.from;
  if ((what.flags & MSG_PEEK) == 0) {
    arrived_.pop_front();
    static_cast<void>(post_receive(one.buffer));
  }
  return one.bytes - left;
}

int DatagramSocket::shut_down(int) { return peer_ ? 0 : ENOTCONN; }

short DatagramSocket::ready(short wanted) const {
  if (wanted == kDrained) return sends_under_way_ == 0 ? kDrained : short{0};
  int found = !arrived_.empty() ? POLLIN | POLLRDNORM : 0;
  if (queue_pair_ == nullptr || !free_sends_.empty()) found |= POLLOUT | POLLWRNORM;
  found &= wanted;
  if (pending_error_ != 0) found |= POLLERR;
  return static_cast<short>(found);
}

/// A call that waits for the way to its address does so alone.
short DatagramSocket::ready_for(const Transfer& what, short wanted) const {
  const Address to = what.has_address ? what.address : peer_.value_or(Address{});
  const auto asked = [&to](const Route& route) {
    return route.to == to && route.handle == nullptr && route.asks != nullptr;
  };
  if (std::ranges::any_of(routes_, asked)) wanted = static_cast<short>(wanted & ~(POLLOUT | POLLWRNORM));
  return ready(wanted);
}

std::optional<Address> DatagramSocket::own_address() const {
  return id_ != nullptr ? address_of(rdma_get_local_addr(id_)) : std::nullopt;
}

int DatagramSocket::segment_bytes() const { return static_cast<int>(kMaxDatagramBytes); }

}  // namespace splitnic::rdmacm
