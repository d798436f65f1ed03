#include "messaging/epoch_context.h"

#include <algorithm>
#include <new>
#include <utility>

#include "common/check.h"
#include "common/range.h"
#include "messaging/wire/encode.h"

namespace splitnic::messaging {

namespace {

constexpr std::uint32_t kControlReceiveDepth = 64;
constexpr std::uint32_t kListEntries = 128;
// Large enough for each request and answer; the longest is a filter with every VLAN.
constexpr std::uint32_t kLeastMessageBytes = 8320;

}  // namespace

void PeerDoorbell::count_frame(std::uint32_t bytes) {
  ++entries_;
  bytes_ += bytes;
  requested_ = true;
}

void PeerDoorbell::ring(Time now) {
  if (!requested_) return;
  const bool postponed = !at_once_ && moderated() && now < due_ &&
                         (moderation_.entries == 0 || entries_ < moderation_.entries) &&
                         (moderation_.bytes == 0 || bytes_ < moderation_.bytes);
  if (postponed) {
    if (due_ == kNever) due_ = now + moderation_.time;
    link_.postpone();
    return;
  }
  link_.notify();
  start_anew();
}

void PeerDoorbell::note_announced() {
  if (due_ != kNever && link_.announced()) start_anew();
}

void PeerDoorbell::start_anew() {
  requested_ = at_once_ = false;
  entries_ = bytes_ = 0;
  due_ = kNever;
}

EpochContext::EpochContext(SessionOptions& of_session, SessionCounters& counts, SessionEvents& driver,
                           RandomSource& randomness, fabric::FabricLink& on, Time at)
    : options(of_session),
      counters(counts),
      events(driver),
      random(randomness),
      link(on),
      adapter(on, fabric::AdapterOptions{.max_message_bytes = wire::kMaxMessageBytes}, randomness),
      domain(adapter.allocate_domain()),
      doorbell(on),
      now(at) {}

void EpochContext::fail(std::string reason) {
  if (fault.empty()) fault = std::move(reason);
}

void EpochContext::move_to(SessionState next) {
  SPLITNIC_CHECK(session_move(state, next).legal);
  state = next;
  state_since = now;
}

wire::ChannelTerms EpochContext::own_terms() const {
  const std::uint32_t frame = std::min(options.max_mtu + kFrameOverheadBytes, wire::kMaxFrameBytes);
  return {.max_message_bytes = round_up(
              std::max<std::uint32_t>(kLeastMessageBytes, frame + static_cast<std::uint32_t>(wire::kSendDataHeadBytes)),
              64),
          .max_list_entries = kListEntries,
          .max_frame_bytes = frame,
          .cell_bytes = options.cell_bytes,
          .receive_depth = kControlReceiveDepth,
          .data_channel = {}};
}

std::uint64_t EpochContext::own_features(wire::Mode in) const {
  if (!options.offloads || in != wire::Mode::rdma || !options.data_channel) return 0;
  const std::uint64_t pool_bytes =
      std::uint64_t{options.pool_elements} * round_up(own_terms().max_frame_bytes, wire::kElementGrain);
  if (pool_bytes < 2 * wire::kMaxFrameBytes) return 0;
  return wire::kFeatureOffloads | (options.udp_segments ? wire::kFeatureUdpSegments : 0);
}

void EpochContext::agree_on(std::uint64_t features) {
  offloads = (features & wire::kFeatureOffloads) != 0;
  udp_segments = offloads && (features & wire::kFeatureUdpSegments) != 0;
}

std::uint32_t EpochContext::data_message_bytes() const {
  const auto list = static_cast<std::uint32_t>(wire::list_message_bytes<wire::Indication>(kListEntries));
  const std::uint32_t header = options.offloads ? wire::kOffloadHeaderBytes : 0;
  return round_up(std::max(list, own_terms().max_frame_bytes + header), 64);
}

std::unique_ptr<Channel> EpochContext::open_channel(fabric::QpNumber number, bool acknowledged,
                                                    fabric::VirtualLane lane, std::size_t writes) {
  // Before the hello, this end's own terms limit what the peer may send.
  try {
    return Channel::open(
        adapter, domain,
        {.number = number,
         .acknowledged = acknowledged,
         .lane = lane,
         .send_buffers = writes > 0 ? std::size_t{64} : std::size_t{32},
         .receive_buffers = own_terms().receive_depth * (writes > 0 ? 4U : 1U),
         .message_bytes = lane == fabric::VirtualLane::data ? data_message_bytes() : own_terms().max_message_bytes,
         .writes = writes});
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

}  // namespace splitnic::messaging
