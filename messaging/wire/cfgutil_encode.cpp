#include <capnp/message.h>
#include <capnp/serialize.h>

#include <cstring>

#include "common/check.h"
#include "messaging/wire/cfgutil.capnp.h"
#include "messaging/wire/cfgutil.h"

namespace splitnic::messaging::wire {
namespace {

void fill(schema::ChannelTerms::Builder out, const ChannelTerms& terms) {
  out.setMaxMessageBytes(terms.max_message_bytes);
  out.setMaxListEntries(terms.max_list_entries);
  out.setMaxFrameBytes(terms.max_frame_bytes);
  out.setCellBytes(terms.cell_bytes);
  out.setReceiveDepth(terms.receive_depth);
  if (!terms.data_channel) return;
  out.setDataChannel(true);
  out.setDataQueuePair(terms.data_channel->queue_pair);
  out.setDataReceiveDepth(terms.data_channel->receive_depth);
  out.setInitialPsn(terms.data_channel->initial_psn);
}

void fill(capnp::List<std::uint64_t>::Builder out, const std::vector<MacAddress>& addresses) {
  for (unsigned i = 0; i < out.size(); ++i) out.set(i, addresses[i].as_number());
}

void build(capnp::MessageBuilder& message, const HelloRequest& hello) {
  SPLITNIC_CHECK(is_valid_name(hello.name));
  auto out = message.initRoot<schema::HelloRequest>();
  out.setLowestVersion(hello.lowest_version);
  out.setHighestVersion(hello.highest_version);
  out.setRole(static_cast<schema::Role>(hello.role));
  out.setMode(static_cast<schema::Mode>(hello.mode));
  out.setFeatures(hello.features);
  out.setName(hello.name.c_str());
  out.setRequestedMac(hello.requested_mac.as_number());
  fill(out.initTerms(), hello.terms);
}

void build(capnp::MessageBuilder& message, const HelloReply& hello) {
  SPLITNIC_CHECK(is_valid_name(hello.name));
  auto out = message.initRoot<schema::HelloReply>();
  out.setVersion(hello.version);
  out.setRole(static_cast<schema::Role>(hello.role));
  out.setMode(static_cast<schema::Mode>(hello.mode));
  out.setFeatures(hello.features);
  out.setName(hello.name.c_str());
  out.setAssignedMac(hello.assigned_mac.as_number());
  out.setMaxMtu(hello.max_mtu);
  out.setLinkUp(hello.link_up);
  out.setLinkSpeedMbps(hello.link_speed_mbps);
  fill(out.initTerms(), hello.terms);
}

void build(capnp::MessageBuilder& message, const SetMacAddress& body) {
  message.initRoot<schema::MacAddress>().setAddress(body.address.as_number());
}

void build(capnp::MessageBuilder& message, const MacAddressReply& body) {
  message.initRoot<schema::MacAddress>().setAddress(body.in_force.as_number());
}

void build(capnp::MessageBuilder& message, const SetMtu& body) { message.initRoot<schema::Mtu>().setBytes(body.bytes); }

void build(capnp::MessageBuilder& message, const MtuReply& body) {
  message.initRoot<schema::Mtu>().setBytes(body.in_force);
}

void build(capnp::MessageBuilder& message, const LinkState& body) {
  auto out = message.initRoot<schema::LinkState>();
  out.setUp(body.up);
  out.setSpeedMbps(body.speed_mbps);
  out.setMaxMtu(body.max_mtu);
}

void build(capnp::MessageBuilder& message, const ReceiveFilter& body) {
  SPLITNIC_CHECK_OP(body.unicast.size(), <=, kMaxUnicastFilters);
  SPLITNIC_CHECK_OP(body.multicast.size(), <=, kMaxMulticastFilters);
  auto out = message.initRoot<schema::ReceiveFilter>();
  fill(out.initUnicast(static_cast<unsigned>(body.unicast.size())), body.unicast);
  fill(out.initMulticast(static_cast<unsigned>(body.multicast.size())), body.multicast);
  out.setAllMulticast(body.all_multicast);
  out.setPromiscuous(body.promiscuous);
}

void build(capnp::MessageBuilder& message, const VlanFilter& body) {
  auto out = message.initRoot<schema::VlanFilter>();
  if (!body.only) return out.setAll();
  SPLITNIC_CHECK_OP(body.only->size(), <=, std::size_t{kMaxVlan});
  auto list = out.initOnly(static_cast<unsigned>(body.only->size()));
  for (unsigned i = 0; i < list.size(); ++i) list.set(i, (*body.only)[i]);
}

void build(capnp::MessageBuilder& message, const Moderation& body) {
  auto out = message.initRoot<schema::Moderation>();
  out.setEntries(body.entries);
  out.setBytes(body.bytes);
  out.setNanoseconds(static_cast<std::uint64_t>(body.time.count()));
}

void build(capnp::MessageBuilder& message, const StatisticsReport&) { message.initRoot<schema::Empty>(); }
void build(capnp::MessageBuilder& message, const StatisticsClear&) { message.initRoot<schema::Empty>(); }
void build(capnp::MessageBuilder& message, const Acknowledged&) { message.initRoot<schema::Empty>(); }

void build(schema::Flow::Builder out, const Flow& flow) {
  out.setFrames(flow.frames);
  out.setBytes(flow.bytes);
  out.setErrors(flow.errors);
  out.setDrops(flow.drops);
}

void build(capnp::MessageBuilder& message, const Statistics& body) {
  SPLITNIC_CHECK_OP(body.counters.size(), <=, kMaxCounters);
  auto out = message.initRoot<schema::Statistics>();
  out.setCountedForNs(static_cast<std::uint64_t>(body.counted_for.count()));
  build(out.initFromPeer(), body.from_peer);
  build(out.initToPeer(), body.to_peer);
  build(out.initFromInterface(), body.from_interface);
  build(out.initToInterface(), body.to_interface);
  auto list = out.initCounters(static_cast<unsigned>(body.counters.size()));
  for (unsigned i = 0; i < list.size(); ++i) {
    SPLITNIC_CHECK(is_valid_name(body.counters[i].name));
    list[i].setName(body.counters[i].name.c_str());
    list[i].setValue(body.counters[i].value);
  }
}

void build(capnp::MessageBuilder& message, const StatusReport& body) {
  SPLITNIC_CHECK(is_valid_text(body.text));
  auto out = message.initRoot<schema::StatusReport>();
  out.setCode(body.code);
  out.setText(body.text.c_str());
}

void build(capnp::MessageBuilder& message, const Heartbeat& body) {
  auto out = message.initRoot<schema::HeartbeatRequest>();
  out.setSequence(body.sequence);
  out.setNextMs(static_cast<std::uint32_t>(body.next.count()));
}

void build(capnp::MessageBuilder& message, const HeartbeatReply& body) {
  message.initRoot<schema::HeartbeatReply>().setEcho(body.echo);
}

void build(capnp::MessageBuilder& message, const Reset& body) {
  SPLITNIC_CHECK(is_valid_text(body.text));
  auto out = message.initRoot<schema::Reset>();
  out.setCode(body.code);
  out.setText(body.text.c_str());
}

std::vector<std::byte> bytes_of(capnp::MessageBuilder& message) {
  const auto words = capnp::messageToFlatArray(message);
  const auto raw = words.asBytes();
  std::vector<std::byte> bytes(raw.size());
  std::memcpy(bytes.data(), raw.begin(), raw.size());
  return bytes;
}

template <class Variant>
std::vector<std::byte> encode_any(const Variant& body) {
  capnp::MallocMessageBuilder message;
  std::visit([&](const auto& value) { build(message, value); }, body);
  return bytes_of(message);
}

}  // namespace

std::vector<std::byte> encode(const RequestBody& body) { return encode_any(body); }
std::vector<std::byte> encode(const ReplyBody& body) { return encode_any(body); }

std::vector<std::byte> encode_refusal(const std::string& text) {
  std::string clean = text.substr(0, kMaxTextBytes);
  if (!is_valid_text(clean)) {
    for (char& c : clean) {
      if (c < ' ' || c > '~') c = '?';
    }
  }
  capnp::MallocMessageBuilder message;
  message.initRoot<schema::Refusal>().setText(clean.c_str());
  return bytes_of(message);
}

}  // namespace splitnic::messaging::wire
