// Stream sockets: the queue pair, what is sent and what arrives.
#include <fcntl.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "fabric/rdmacm/objects.h"
#include "fabric/rdmacm/stream.h"

namespace splitnic::rdmacm {
namespace {

/// A socket that is looked at again and again asks the connection manager every so many times: that is a system call.
constexpr unsigned kLooksMax = 256;
constexpr std::uint64_t kReceive = std::uint64_t{1} << 32U;

ibv_sge segment(const void* from, std::size_t bytes, const ibv_mr* region) {
  return {number_of(from), static_cast<std::uint32_t>(bytes), region != nullptr ? region->lkey : 0};
}

/// The bytes of a list, in order.
class Reader {
 public:
  explicit Reader(std::span<const iovec> parts) : parts_(parts) {}
  void copy_to(std::byte* to, std::size_t bytes) {
    while (bytes != 0) {
      const iovec& part = parts_.front();
      const std::size_t some = std::min(bytes, part.iov_len - used_);
      if (some != 0) std::memcpy(to, static_cast<const std::byte*>(part.iov_base) + used_, some);
      to += some;
      bytes -= some;
      used_ += some;
      if (used_ == part.iov_len) {
        parts_ = parts_.subspan(1);
        used_ = 0;
      }
    }
  }

 private:
  std::span<const iovec> parts_;
  std::size_t used_ = 0;
};

}  // namespace

int Stream::create_regions() {
  Library& library = *Library::get();
  const auto ring_bytes =
      std::clamp<std::size_t>(static_cast<std::size_t>(options.receive_bytes), kMinRingBytes, kMaxRingBytes);
  regions_.send_bytes =
      std::clamp<std::size_t>(static_cast<std::size_t>(options.send_bytes), kMinRingBytes, kMaxRingBytes);
  regions_.receives = std::clamp(static_cast<std::uint32_t>(options.receive_requests), kMinMessages, kMaxMessages);
  regions_.io_maps = static_cast<std::uint32_t>(std::clamp<int>(options.io_maps, 0, kMaxIoMaps));
  regions_.ring = std::make_unique_for_overwrite<std::byte[]>(ring_bytes);
  regions_.sends = std::make_unique_for_overwrite<std::byte[]>(regions_.send_bytes);
  regions_.controls = std::make_unique<StreamControlBytes[]>(regions_.receives);
  regions_.ring_region = register_memory(library.pd, regions_.ring.get(), ring_bytes, kWrittenByPeer);
  regions_.sends_region = register_memory(library.pd, regions_.sends.get(), regions_.send_bytes, 0);
  regions_.controls_region = register_memory(library.pd, regions_.controls.get(),
                                             regions_.receives * sizeof(StreamControlBytes), IBV_ACCESS_LOCAL_WRITE);
  const bool made =
      regions_.ring_region != nullptr && regions_.sends_region != nullptr && regions_.controls_region != nullptr;
  if (!made) return ENOMEM;
  ring_ = ReceiveRing({regions_.ring.get(), ring_bytes}, regions_.receives);
  return 0;
}

int Stream::create_queue_pair() {
  constexpr int kMinSends = 16;
  constexpr int kMaxSends = 8192;
  constexpr int kMaxInline = 1024;
  Library& library = *Library::get();
  if (const int error_number = create_regions()) return error_number;
  send_depth_ = static_cast<std::size_t>(std::clamp(options.send_requests, kMinSends, kMaxSends));
  completions_ = ibv_create_comp_channel(library.device);
  if (completions_ == nullptr) return errno;
  ::fcntl(completions_->fd, F_SETFL, O_NONBLOCK);
  receives_ = ibv_create_cq(library.device, static_cast<int>(regions_.receives), nullptr, completions_, 0);
  sends_ = ibv_create_cq(library.device, static_cast<int>(send_depth_), nullptr, completions_, 0);
  if (receives_ == nullptr || sends_ == nullptr || !watch(completions_->fd)) return ENOMEM;
  ibv_qp_init_attr wanted{};
  wanted.send_cq = sends_;
  wanted.recv_cq = receives_;
  wanted.qp_type = IBV_QPT_RC;
  wanted.sq_sig_all = 1;
  wanted.cap.max_send_wr = static_cast<std::uint32_t>(send_depth_);
  wanted.cap.max_recv_wr = regions_.receives;
  wanted.cap.max_send_sge = wanted.cap.max_recv_sge = 1;
  inline_bytes_ = static_cast<std::size_t>(std::clamp(options.inline_bytes, 0, kMaxInline));
  wanted.cap.max_inline_data = static_cast<std::uint32_t>(std::max(inline_bytes_, sizeof(StreamControlBytes)));
  if (rdma_create_qp(id_, library.pd, &wanted) != 0) return errno;
  for (std::uint32_t index = 0; index < regions_.receives; ++index) {
    if (const int error_number = post_receive(index)) return error_number;
  }
  return 0;
}

void Stream::destroy_queue_pair() {
  if (id_ != nullptr && id_->qp != nullptr) rdma_destroy_qp(id_);
  if (receives_ != nullptr) ibv_destroy_cq(receives_);
  if (sends_ != nullptr) ibv_destroy_cq(sends_);
  if (completions_ != nullptr) ibv_destroy_comp_channel(completions_);
  for (const auto& [buffer, map] : own_maps_) ibv_dereg_mr(map.region);
  for (ibv_mr* region : {regions_.ring_region, regions_.sends_region, regions_.controls_region}) {
    if (region != nullptr) ibv_dereg_mr(region);
  }
  own_maps_.clear();
  receives_ = sends_ = nullptr;
  completions_ = nullptr;
  regions_.ring_region = regions_.sends_region = regions_.controls_region = nullptr;
}

StreamSetUp Stream::own_set_up() const {
  const auto ring_bytes = static_cast<std::uint32_t>(regions_.ring_region->length);
  return {number_of(regions_.ring.get()), regions_.ring_region->rkey, ring_bytes, regions_.receives, regions_.io_maps};
}

void Stream::use_peer(const StreamSetUp& set_up) {
  peer_ = set_up;
  credits_ = SendCredits(set_up.ring_bytes, set_up.messages);
}

int Stream::post_receive(std::uint32_t index) {
  ibv_sge into = segment(&regions_.controls[index], sizeof(StreamControlBytes), regions_.controls_region);
  ibv_recv_wr request{};
  request.wr_id = kReceive | index;
  request.sg_list = &into;
  request.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  return ibv_post_recv(id_->qp, &request, &bad);
}

// --- What arrives.

void Stream::progress() {
  bool news = false;
  while (poll_completions()) news = true;
  // An end that has left may have closed its socket: what is sent then would be lost.
  const bool rarely = phase_ == Phase::open && !peer_ended_;
  const bool asks_manager = rarely ? ++idle_looks_ >= kLooksMax : phase_ != Phase::ended;
  if (asks_manager) {
    idle_looks_ = 0;
    news = take_manager_events() || news;
  }
  if (receives_shut_) ring_.consume(ring_.waiting());
  send_due();
  if (news) wake_sleepers();
}

/// Control messages that wait for room, or for the other end to be ready.
void Stream::send_due() {
  while (!untold_maps_.empty() && send_control(untold_maps_.front())) untold_maps_.pop_front();
  send_credits_if_due();
  // The end comes behind everything else.
  if (untold_maps_.empty() && sends_shut_ && !end_sent_) end_sent_ = send_control({.kind = ControlKind::end});
}

void Stream::wake() {
  if (take_manager_events()) wake_sleepers();
  progress();
}

void Stream::arm() {
  if (sends_ != nullptr) {
    ibv_cq* from = nullptr;
    void* context = nullptr;
    while (ibv_get_cq_event(completions_, &from, &context) == 0) ibv_ack_cq_events(from, 1);
    ibv_req_notify_cq(receives_, 0);
    // Most requests end while nobody waits for it.
    if (!may_post() || sends_shut_) ibv_req_notify_cq(sends_, 0);
  }
  if (take_manager_events()) wake_sleepers();
}

bool Stream::poll_completions() {
  if (sends_ == nullptr) return false;
  const bool received = poll(receives_);
  return poll(sends_) || received;
}

/// A process that has died may have left bytes that the adapter has not received yet. Its thread perhaps waits for a
/// processor, and one poll leaves them to it; so many polls in vain receive them themselves.
void Stream::take_the_rest() {
  constexpr int kLooksInVain = 16;
  for (int in_vain = 0; in_vain != kLooksInVain;) in_vain = poll_completions() ? 0 : in_vain + 1;
}

bool Stream::poll(ibv_cq* queue) {
  std::array<ibv_wc, 32> some{};
  const int count = ibv_poll_cq(queue, static_cast<int>(some.size()), some.data());
  for (int index = 0; index < count; ++index) take_completion(some[static_cast<std::size_t>(index)]);
  return count > 0;
}

void Stream::take_completion(const ibv_wc& completion) {
  if (completion.status != IBV_WC_SUCCESS) return take_failure(completion);
  if ((completion.wr_id & kReceive) == 0) {
    sends_from_ += posted_.front().ring_bytes;
    posted_.pop_front();
    return;
  }
  // What arrives says that the other end is ready, too.
  if (phase_ == Phase::accepting) {
    rdma_notify(id_, IBV_EVENT_COMM_EST);
    phase_ = Phase::open;
  }
  const auto index = static_cast<std::uint32_t>(completion.wr_id);
  // What has arrived before the connection ended may be polled behind a request that has failed.
  const bool behind_the_end = peer_ended_ && phase_ != Phase::ended;
  if (completion.opcode != IBV_WC_RECV_RDMA_WITH_IMM) {
    take_control(index, completion.byte_len);
  } else if (behind_the_end || !ring_.arrived(ntohl(completion.imm_data))) {
    return end(EPROTO);
  }
  if (phase_ == Phase::ended) return;
  if (post_receive(index) != 0) return end(ECONNRESET);
  ring_.posted_again(1);
}

/// The queue pair has failed: the other end has closed it, has died, or has been refused.
void Stream::take_failure(const ibv_wc& completion) {
  if ((completion.wr_id & kReceive) == 0 && !posted_.empty()) {
    data_lost_ = data_lost_ || posted_.front().data;
    sends_from_ += posted_.front().ring_bytes;
    posted_.pop_front();
    // The connection may have ended before its requests were flushed.
    if (phase_ == Phase::ended && data_lost_ && pending_error_ == 0 && !sends_shut_) pending_error_ = ECONNRESET;
  }
  end(0);
}

void Stream::take_control(std::uint32_t index, std::uint32_t bytes) {
  const StreamControlBytes copy = regions_.controls[index];
  const auto control =
      decode_control(std::as_bytes(std::span(&copy, 1)).first(std::min<std::size_t>(bytes, sizeof copy)));
  if (!control || (peer_ended_ && control->kind == ControlKind::end)) return end(EPROTO);
  if (!credits_.consumed(control->consumed_bytes, control->consumed_messages)) return end(EPROTO);
  if (control->kind == ControlKind::end) peer_ended_ = true;
  if (control->kind == ControlKind::map && !keep_map(*control)) end(EPROTO);
}

// --- What is sent.

bool Stream::post(ibv_send_wr& request, Posted what) {
  ibv_send_wr* bad = nullptr;
  if (const int error_number = ibv_post_send(id_->qp, &request, &bad)) {
    end(error_number == ENOMEM ? ENOBUFS : ECONNRESET);
    return false;
  }
  posted_.push_back(what);
  sends_to_ += what.ring_bytes;
  return true;
}

/// false: there is no room, or the connection is over.
bool Stream::send_control(StreamControl control) {
  if (phase_ != Phase::open || !may_post() || !credits_.may_send_control()) return false;
  control.consumed_bytes = ring_.consumed();
  control.consumed_messages = ring_.posted();
  const StreamControlBytes bytes = encode(control);
  ibv_sge from = segment(&bytes, sizeof bytes, nullptr);
  ibv_send_wr request{};
  request.opcode = IBV_WR_SEND;
  request.send_flags = IBV_SEND_INLINE;
  request.sg_list = &from;
  request.num_sge = 1;
  if (!post(request, {})) return false;
  credits_.sent_control();
  ring_.told();
  return true;
}

void Stream::send_credits_if_due() {
  if (phase_ == Phase::open && ring_.credits_due()) static_cast<void>(send_control({}));
}

std::span<std::byte> Stream::free_sends() const {
  const auto used = static_cast<std::size_t>(sends_to_ - sends_from_);
  const auto place = static_cast<std::size_t>(sends_to_ % regions_.send_bytes);
  return {regions_.sends.get() + place, std::min(regions_.send_bytes - used, regions_.send_bytes - place)};
}

/// How many bytes the next write may have.
std::size_t Stream::send_room() const {
  if (!may_post() || !untold_maps_.empty()) return 0;
  return std::min({credits_.room(), free_sends().size(), kMaxWriteBytes});
}

bool Stream::post_bytes(std::size_t bytes, ibv_send_wr& request) {
  const bool is_inline = bytes <= inline_bytes_;
  ibv_sge from = segment(free_sends().data(), bytes, regions_.sends_region);
  if (is_inline) request.send_flags = IBV_SEND_INLINE;
  request.sg_list = &from;
  request.num_sge = 1;
  // An inline one, too, passes the end of the send ring: otherwise all that follow would be as short as what is left.
  return post(request, {bytes, true});
}

/// 0, EAGAIN, or why nothing can be sent.
int Stream::refusal_of_send(bool continues) {
  progress();
  if (sends_shut_) return EPIPE;
  if (phase_ == Phase::ended) {
    if (pending_error_ != 0) return answered_error(continues);
    sends_shut_ = true;  // the program knows
    return EPIPE;
  }
  if (phase_ == Phase::connecting || phase_ == Phase::accepting || !untold_maps_.empty()) return EAGAIN;
  return phase_ == Phase::open ? 0 : ENOTCONN;
}

Outcome<std::size_t> Stream::send(Transfer& what) {
  if (const int refusal = refusal_of_send(what.continues)) return error(refusal);
  const std::size_t all = bytes_of(what.parts);
  std::size_t sent = 0;
  Reader reader(what.parts);
  while (sent != all) {
    const std::size_t some = std::min(send_room(), all - sent);
    if (some == 0) break;
    ibv_send_wr request{};
    request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    request.imm_data = htonl(static_cast<std::uint32_t>(some));
    request.wr.rdma.remote_addr = peer_.ring_address + credits_.place();
    request.wr.rdma.rkey = peer_.ring_key;
    reader.copy_to(free_sends().data(), some);
    if (!post_bytes(some, request)) break;
    credits_.sent_bytes(some);
    sent += some;
  }
  if (sent == 0 && all != 0) return error(phase_ == Phase::ended ? EPIPE : EAGAIN);
  return sent;
}

Outcome<std::size_t> Stream::receive(Transfer& what) {
  if (phase_ == Phase::idle || phase_ == Phase::bound || phase_ == Phase::listening) return error(ENOTCONN);
  progress();
  const bool peeks = (what.flags & MSG_PEEK) != 0;
  std::size_t received = 0;
  for (const iovec& part : what.parts) {
    const std::size_t some =
        ring_.copy_to({static_cast<std::byte*>(part.iov_base), part.iov_len}, peeks ? received : 0);
    if (!peeks) ring_.consume(some);
    received += some;
  }
  send_credits_if_due();
  if (received != 0 || bytes_of(what.parts) == 0) return received;
  if (phase_ == Phase::ended && pending_error_ != 0) return error(answered_error(what.continues));
  if (phase_ == Phase::ended && peer_.messages == 0) return error(ENOTCONN);
  if (peer_ended_ || receives_shut_) return 0;
  return error(EAGAIN);
}

int Stream::segment_bytes() const { return static_cast<int>(kMaxWriteBytes); }

}  // namespace splitnic::rdmacm
