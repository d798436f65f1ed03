// SessionEpoch, from control connected to up: hello, negotiation, the data channel, and "ready".
#include <algorithm>
#include <string>

#include "common/check.h"
#include "messaging/session_epoch.h"

namespace splitnic::messaging {

void SessionEpoch::send_hello() {
  wire::HelloRequest hello;
  hello.role = context_.options.role;
  hello.mode = context_.options.mode;
  hello.features = context_.own_features(hello.mode);
  hello.name = context_.options.name;
  hello.requested_mac = context_.options.mac;
  hello.terms = context_.own_terms();
  if (context_.options.data_channel) {
    hello.terms.data_channel = frames_.open(context_.options.mode);
    if (!hello.terms.data_channel) return context_.fail("no room for the data channel");
  }
  static_cast<void>(control_.request(wire::CfgRequest::hello, wire::encode(wire::RequestBody(hello))));
}

/// Settles on what both ends support: the smaller of each value.
void SessionEpoch::settle(const wire::ChannelTerms& mine, const wire::ChannelTerms& theirs, wire::Mode mode) {
  context_.limits.message_bytes = std::min(mine.max_message_bytes, theirs.max_message_bytes);
  context_.limits.list_entries = std::min(mine.max_list_entries, theirs.max_list_entries);
  context_.limits.frame_bytes = std::min(mine.max_frame_bytes, theirs.max_frame_bytes);
  context_.max_frame_bytes = context_.limits.frame_bytes;
  SPLITNIC_CHECK(context_.adapter.set_cell_payload(std::min(mine.cell_bytes, theirs.cell_bytes)) == fabric::Status::ok);
  context_.mode = mode;
}

Answer SessionEpoch::answer_hello(const wire::HelloRequest& hello) {
  using Status = wire::CfgStatus;
  if (context_.options.role != wire::Role::io_unit || hello.role != wire::Role::host) {
    return tl::unexpected(Refusal{Status::invalid_parameter, "only a host sends a hello, and only to an I/O unit"});
  }
  if (context_.state != SessionState::control_connected) {
    return tl::unexpected(Refusal{Status::invalid_parameter, "a second hello in one session"});
  }
  const auto version = wire::common_version(hello);
  SPLITNIC_CHECK(version.has_value());  // handle() answers a hello without a common version itself
  const auto grant = context_.events.on_hello(hello);
  if (!grant) return tl::unexpected(grant.error());

  const wire::Mode mode = context_.options.insist_on_mode ? context_.options.mode : hello.mode;
  // The grant may be smaller than max_mtu at the start of the epoch. The session then uses the grant, and a larger MTU
  // outgrows it.
  context_.options.max_mtu = std::min(context_.options.max_mtu, grant->max_mtu);
  auto terms = context_.own_terms();
  settle(terms, hello.terms, mode);
  terms.max_message_bytes = context_.limits.message_bytes;
  terms.max_list_entries = context_.limits.list_entries;
  terms.max_frame_bytes = context_.limits.frame_bytes;
  terms.cell_bytes = std::min(terms.cell_bytes, hello.terms.cell_bytes);
  if (context_.options.data_channel && hello.terms.data_channel && mode == hello.mode) {
    terms.data_channel = frames_.open(mode);
    if (!terms.data_channel || !frames_.connect(hello.terms)) {
      return tl::unexpected(Refusal{Status::no_resources, "no data channel"});
    }
  }
  const std::uint64_t features = terms.data_channel ? hello.features & context_.own_features(mode) : 0;
  context_.agree_on(features);
  return wire::HelloReply{.version = *version,
                          .role = context_.options.role,
                          .mode = mode,
                          .features = features,
                          .name = context_.options.name,
                          .assigned_mac = grant->mac,
                          .max_mtu = grant->max_mtu,
                          .link_up = grant->link_up,
                          .link_speed_mbps = 0,
                          .terms = terms};
}

void SessionEpoch::accept_hello_reply(const wire::HelloReply& reply) {
  if (reply.role != wire::Role::io_unit) return context_.fail("the peer is not an I/O unit");
  if (reply.version < wire::kLowestVersion || reply.version > wire::kHighestVersion) {
    return context_.fail("the I/O unit answers in version " + std::to_string(reply.version) +
                         ", which was not offered");
  }
  if (reply.mode != context_.options.mode) {
    // The unit overrides the mode. A data channel can't change between acknowledged and not: start again in the unit's
    // mode.
    context_.options.mode = reply.mode;
    return context_.fail(reply.mode == wire::Mode::send ? "the I/O unit requires mode S"
                                                        : "the I/O unit requires mode R");
  }
  settle(context_.own_terms(), reply.terms, reply.mode);
  if (!reply.terms.data_channel) {
    frames_.close();
  } else if (!frames_.connect(reply.terms)) {
    return context_.fail("the data channel of the I/O unit's answer can't be connected");
  }
  if ((reply.features & ~context_.own_features(reply.mode)) != 0 ||
      (reply.features != 0 && !reply.terms.data_channel)) {
    return context_.fail("the I/O unit's answer has features that this end did not offer");
  }
  context_.agree_on(reply.features);
  hello_reply_ = reply;
  after_hello();
}

/// Runs at both ends after the answer to the hello.
void SessionEpoch::after_hello() {
  if (context_.mode == wire::Mode::send && !control_.open_unacknowledged()) {
    return context_.fail("no room for the control channel");
  }
  context_.move_to(SessionState::negotiated);
  if (frames_.uses_pools() && !frames_.start_pools()) return context_.fail("no room for a buffer pool");
  advance();
}

/// Moves from negotiated to pools_exchanged to up, as far as the received messages allow.
void SessionEpoch::advance() {
  if (context_.state == SessionState::negotiated && frames_.pools_exchanged()) {
    context_.move_to(SessionState::pools_exchanged);
  }
  if (context_.state != SessionState::pools_exchanged) return;
  const bool host = context_.options.role == wire::Role::host;
  if (host && !own_ready_sent_) {
    // The host's first LinkState means "ready"; so does the unit's answer to it.
    own_ready_sent_ =
        control_.request(wire::CfgRequest::link_state, wire::encode(wire::RequestBody(wire::LinkState{.up = true})));
  }
  if (!peer_ready_) return;
  frames_.start();
  context_.move_to(SessionState::up);
  ++context_.counters.ups;
  put_heartbeat_off();
  // A host that is to wait for longer than usual hears it now.
  if (!host && context_.options.heartbeat_interval > std::chrono::seconds(1)) ask_for_heartbeat();
  if (context_.options.moderation != wire::Moderation{}) request(context_.options.moderation);
  context_.events.on_up(host ? &hello_reply_ : nullptr);
}

}  // namespace splitnic::messaging
