// Session, from control connected to up: hello, negotiation, the data channel, and "ready".
#include <algorithm>

#include "common/check.h"
#include "messaging/session.h"

namespace splitnic::messaging {

namespace {

constexpr fabric::QpNumber kControlUnacknowledgedQueuePair{2};
constexpr std::uint32_t kControlReceiveDepth = 64;
constexpr std::uint32_t kListEntries = 128;
// Large enough for the longest receive filter and the longest statistics.
constexpr std::uint32_t kLeastMessageBytes = 4096;
// Maximum unacknowledged RDMA writes: more than a pool's elements, so that the pools are the limit.
constexpr std::size_t kWritesInFlight = 512;

constexpr std::uint32_t round_up(std::uint32_t value, std::uint32_t to) { return (value + to - 1) / to * to; }

}  // namespace

wire::ChannelTerms Session::own_terms() const {
  const std::uint32_t frame = std::min(options_.max_mtu + kFrameOverheadBytes, wire::kMaxFrameBytes);
  return {.max_message_bytes = round_up(
              std::max<std::uint32_t>(kLeastMessageBytes, frame + static_cast<std::uint32_t>(wire::kSendDataHeadBytes)),
              64),
          .max_list_entries = kListEntries,
          .max_frame_bytes = frame,
          .cell_bytes = options_.cell_bytes,
          .receive_depth = kControlReceiveDepth,
          .data_channel = {}};
}

/// The size of each buffer of the data channel: for a frame, or the longest list of indications.
std::uint32_t Session::data_message_bytes() const {
  const auto list = static_cast<std::uint32_t>(wire::list_message_bytes<wire::Indication>(kListEntries));
  return round_up(std::max(list, own_terms().max_frame_bytes), 64);
}

void Session::send_hello() {
  wire::HelloRequest hello;
  hello.role = options_.role;
  hello.mode = options_.mode;
  hello.name = options_.name;
  hello.requested_mac = options_.mac;
  hello.terms = own_terms();
  if (options_.data_channel) {
    data_ = open_channel({}, options_.mode == wire::Mode::rdma, fabric::VirtualLane::data, kWritesInFlight);
    if (!data_) return fault("no room for the data channel");
    first_psn_ = random_.next32();
    hello.terms.data_channel = {
        {.queue_pair = data_->number().value, .receive_depth = kControlReceiveDepth * 4, .initial_psn = first_psn_}};
  }
  queue_request(wire::CfgRequest::hello, wire::encode(wire::RequestBody(hello)));
}

/// Settles on what both ends support: the smaller of each value.
void Session::settle(const wire::ChannelTerms& mine, const wire::ChannelTerms& theirs, wire::Mode mode) {
  limits_.message_bytes = std::min(mine.max_message_bytes, theirs.max_message_bytes);
  limits_.list_entries = std::min(mine.max_list_entries, theirs.max_list_entries);
  limits_.frame_bytes = std::min(mine.max_frame_bytes, theirs.max_frame_bytes);
  max_frame_bytes_ = limits_.frame_bytes;
  CHECK(adapter_->set_cell_payload(std::min(mine.cell_bytes, theirs.cell_bytes)) == fabric::Status::ok);
  mode_ = mode;
}

bool Session::connect_data(const wire::ChannelTerms& theirs) {
  return data_->connect({.number = fabric::QpNumber{theirs.data_channel->queue_pair},
                         .first_psn_to_send = first_psn_,
                         .first_psn_expected = theirs.data_channel->initial_psn}) == fabric::Status::ok;
}

Answer Session::answer_hello(const wire::HelloRequest& hello) {
  using Status = wire::CfgStatus;
  if (options_.role != wire::Role::io_unit || hello.role != wire::Role::host) {
    return tl::unexpected(Refusal{Status::invalid_parameter, "only a host sends a hello, and only to an I/O unit"});
  }
  if (state_ != SessionState::control_connected) {
    return tl::unexpected(Refusal{Status::invalid_parameter, "a second hello in one session"});
  }
  const auto version = wire::common_version(hello);
  CHECK(version.has_value());  // handle() answers a hello without a common version itself
  const auto grant = events_.on_hello(hello);
  if (!grant) return tl::unexpected(grant.error());

  const wire::Mode mode = options_.insist_on_mode ? options_.mode : hello.mode;
  // The grant may be smaller than max_mtu at the start of the epoch. The session then uses the grant, and a larger MTU
  // outgrows it.
  options_.max_mtu = std::min(options_.max_mtu, grant->max_mtu);
  auto terms = own_terms();
  settle(terms, hello.terms, mode);
  terms.max_message_bytes = limits_.message_bytes;
  terms.max_list_entries = limits_.list_entries;
  terms.max_frame_bytes = limits_.frame_bytes;
  terms.cell_bytes = std::min(terms.cell_bytes, hello.terms.cell_bytes);
  if (options_.data_channel && hello.terms.data_channel && mode == hello.mode) {
    data_ = open_channel({}, mode == wire::Mode::rdma, fabric::VirtualLane::data, kWritesInFlight);
    first_psn_ = random_.next32();
    if (!data_ || !connect_data(hello.terms)) return tl::unexpected(Refusal{Status::no_resources, "no data channel"});
    terms.data_channel = {
        {.queue_pair = data_->number().value, .receive_depth = kControlReceiveDepth * 4, .initial_psn = first_psn_}};
  }
  return wire::HelloReply{.version = *version,
                          .role = options_.role,
                          .mode = mode,
                          .features = 0,
                          .name = options_.name,
                          .assigned_mac = grant->mac,
                          .max_mtu = grant->max_mtu,
                          .link_up = grant->link_up,
                          .link_speed_mbps = 0,
                          .terms = terms};
}

void Session::accept_hello_reply(const wire::HelloReply& reply) {
  if (reply.role != wire::Role::io_unit) return fault("the peer is not an I/O unit");
  if (reply.mode != options_.mode) {
    // The unit overrides the mode. A data channel can't change between acknowledged and not: start again in the unit's
    // mode.
    options_.mode = reply.mode;
    return fault(reply.mode == wire::Mode::send ? "the I/O unit requires mode S" : "the I/O unit requires mode R");
  }
  settle(own_terms(), reply.terms, reply.mode);
  if (!reply.terms.data_channel) {
    data_.reset();
  } else if (!data_ || !connect_data(reply.terms)) {
    return fault("the data channel of the I/O unit's answer can't be connected");
  }
  hello_reply_ = reply;
  after_hello();
}

/// Runs at both ends after the answer to the hello.
void Session::after_hello() {
  if (mode_ == wire::Mode::send) {
    control_unacknowledged_ = open_channel(kControlUnacknowledgedQueuePair, false, fabric::VirtualLane::control, 0);
    if (!control_unacknowledged_ ||
        control_unacknowledged_->connect({.number = kControlUnacknowledgedQueuePair}) != fabric::Status::ok) {
      return fault("no room for the control channel");
    }
  }
  move_to(SessionState::negotiated);
  if (mode_ == wire::Mode::rdma && data_) {
    settle_pool_shape();
    if (!add_own_pool(slot_elements_)) return fault("no room for a buffer pool");
    advertise_pools();
  }
  advance();
}

/// Moves from negotiated to pools_exchanged to up, as far as the received messages allow.
void Session::advance() {
  if (state_ == SessionState::negotiated) {
    const bool pools = mode_ == wire::Mode::rdma && data_;
    if (!pools || (own_pools_[0].advertised && !peer_pools_.empty())) move_to(SessionState::pools_exchanged);
  }
  if (state_ != SessionState::pools_exchanged) return;
  const bool host = options_.role == wire::Role::host;
  if (host && !own_ready_sent_) {
    // The host's first LinkState means "ready"; so does the unit's answer to it.
    own_ready_sent_ =
        queue_request(wire::CfgRequest::link_state, wire::encode(wire::RequestBody(wire::LinkState{.up = true})));
  }
  if (!peer_ready_) return;
  tx_path_ = !data_ ? TxPath::send_data : mode_ == wire::Mode::send ? TxPath::data_send : TxPath::direct;
  move_to(SessionState::up);
  ++counters_.ups;
  next_heartbeat_ = now_ + std::chrono::seconds(1);
  if (options_.moderation != wire::Moderation{}) request(options_.moderation);
  events_.on_up(host ? &hello_reply_ : nullptr);
}

}  // namespace splitnic::messaging
