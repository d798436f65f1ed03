#include "common/os/control_protocol.h"

#include <capnp/message.h>
#include <capnp/serialize.h>

#include <cstring>
#include <string>

#include "common/os/control.capnp.h"
#include "common/os/printable.h"

namespace splitnic::os {
namespace {

// A message may be read through a few times over, not more: pointers in it may overlap to make it look larger.
constexpr capnp::ReaderOptions kReaderOptions{.traversalLimitInWords = 4 * kMaxControlBytes / sizeof(capnp::word),
                                              .nestingLimit = 8};
static_assert(sizeof(ControlMessage::value_type) == sizeof(capnp::word));

ControlMessage flatten(capnp::MessageBuilder& builder) {
  const auto words = capnp::messageToFlatArray(builder);
  ControlMessage message(words.size());
  std::memcpy(message.data(), words.begin(), words.asBytes().size());
  return message;
}

template <class Read>
auto read_message(const ControlMessage& message, Read read) -> decltype(read(std::declval<capnp::MessageReader&>())) {
  // Cap'n Proto reports malformed messages by exceptions; they go no further than this.
  try {
    const kj::ArrayPtr<const capnp::word> words(reinterpret_cast<const capnp::word*>(message.data()), message.size());
    capnp::FlatArrayMessageReader reader(words, kReaderOptions);
    return read(reader);
  } catch (const kj::Exception& error) {
    return fail("malformed message: {}", error.getDescription().cStr());
  }
}

void encode_counts(capnp::List<control::NamedCount>::Builder builder, const std::vector<NamedCount>& counts) {
  for (unsigned at = 0; at < builder.size(); ++at) {
    builder[at].setName(counts[at].name);
    builder[at].setCount(counts[at].count);
  }
}

std::string text_of(capnp::Text::Reader text) { return {text.begin(), text.size()}; }

std::vector<NamedCount> decode_counts(capnp::List<control::NamedCount>::Reader reader) {
  std::vector<NamedCount> counts;
  for (const auto entry : reader) counts.push_back({text_of(entry.getName()), entry.getCount()});
  return counts;
}

void encode_peer(control::Peer::Builder builder, const PeerStatus& peer) {
  builder.setName(peer.name);
  builder.setState(peer.state);
  builder.setMac(peer.mac);
  builder.setTxFrames(peer.tx_frames);
  builder.setRxFrames(peer.rx_frames);
  builder.setTxBytes(peer.tx_bytes);
  builder.setRxBytes(peer.rx_bytes);
  encode_counts(builder.initDrops(static_cast<unsigned>(peer.drops.size())), peer.drops);
  encode_counts(builder.initMessages(static_cast<unsigned>(peer.messages.size())), peer.messages);
}

PeerStatus decode_peer(control::Peer::Reader reader) {
  PeerStatus peer;
  peer.name = text_of(reader.getName());
  peer.state = text_of(reader.getState());
  peer.mac = text_of(reader.getMac());
  peer.tx_frames = reader.getTxFrames();
  peer.rx_frames = reader.getRxFrames();
  peer.tx_bytes = reader.getTxBytes();
  peer.rx_bytes = reader.getRxBytes();
  peer.drops = decode_counts(reader.getDrops());
  peer.messages = decode_counts(reader.getMessages());
  return peer;
}

DaemonStatus decode_status(control::DaemonStatus::Reader reader) {
  DaemonStatus status;
  status.role = text_of(reader.getRole());
  status.name = text_of(reader.getName());
  status.state = text_of(reader.getState());
  status.epoch = reader.getEpoch();
  status.mac = text_of(reader.getMac());
  status.mtu = reader.getMtu();
  status.carrier = reader.getCarrier();
  status.lan = text_of(reader.getLan());
  status.mode = text_of(reader.getMode());
  for (const auto peer : reader.getPeers()) status.peers.push_back(decode_peer(peer));
  status.drops = decode_counts(reader.getDrops());
  status.counts = decode_counts(reader.getCounts());
  status.pid = reader.getPid();
  status.version = text_of(reader.getVersion());
  status.uptime_ms = reader.getUptimeMs();
  return status;
}

}  // namespace

ControlMessage encode_request(ControlRequest request) {
  capnp::MallocMessageBuilder builder;
  const bool clear = request == ControlRequest::clear;
  builder.initRoot<control::Request>().setWhat(clear ? control::Request::What::CLEAR : control::Request::What::STATUS);
  return flatten(builder);
}

Result<ControlRequest> decode_request(const ControlMessage& message) {
  return read_message(message, [](capnp::MessageReader& reader) -> Result<ControlRequest> {
    const auto what = reader.getRoot<control::Request>().getWhat();
    switch (what) {
      case control::Request::What::STATUS:
        return ControlRequest::status;
      case control::Request::What::CLEAR:
        return ControlRequest::clear;
    }
    return fail("unknown request {}", static_cast<unsigned>(what));
  });
}

ControlMessage encode_reply(const DaemonStatus& status) {
  capnp::MallocMessageBuilder builder;
  auto root = builder.initRoot<control::Reply>().initStatus();
  root.setRole(status.role);
  root.setName(status.name);
  root.setState(status.state);
  root.setEpoch(status.epoch);
  root.setMac(status.mac);
  root.setMtu(status.mtu);
  root.setCarrier(status.carrier);
  root.setLan(status.lan);
  root.setMode(status.mode);
  auto peers = root.initPeers(static_cast<unsigned>(status.peers.size()));
  for (unsigned at = 0; at < peers.size(); ++at) encode_peer(peers[at], status.peers[at]);
  encode_counts(root.initDrops(static_cast<unsigned>(status.drops.size())), status.drops);
  encode_counts(root.initCounts(static_cast<unsigned>(status.counts.size())), status.counts);
  root.setPid(status.pid);
  root.setVersion(status.version);
  root.setUptimeMs(status.uptime_ms);
  return flatten(builder);
}

ControlMessage encode_error_reply(const std::string& error) {
  capnp::MallocMessageBuilder builder;
  builder.initRoot<control::Reply>().setError(error);
  return flatten(builder);
}

Result<DaemonStatus> decode_reply(const ControlMessage& message) {
  return read_message(message, [](capnp::MessageReader& reader) -> Result<DaemonStatus> {
    const auto root = reader.getRoot<control::Reply>();
    switch (root.which()) {
      case control::Reply::ERROR:
        return fail("{}", printable(text_of(root.getError())));
      case control::Reply::STATUS:
        return decode_status(root.getStatus());
    }
    return fail("unknown reply {}", static_cast<unsigned>(root.which()));
  });
}

}  // namespace splitnic::os
