// Boost.JSON is used without its library; this is the file that holds its implementation.
#include <boost/json/src.hpp>

#include "common/os/daemon_status.h"
#include "common/os/printable.h"
#include "common/result.h"

namespace splitnic::os {
namespace {

namespace json = boost::json;

json::object counts(const std::vector<NamedCount>& named) {
  json::object object;
  for (const auto& [name, count] : named) object[printable(name)] = count;
  return object;
}

json::object peer_object(const PeerStatus& peer) {
  json::object object;
  object["name"] = printable(peer.name);
  object["state"] = printable(peer.state);
  object["mac"] = printable(peer.mac);
  object["tx_frames"] = peer.tx_frames;
  object["rx_frames"] = peer.rx_frames;
  object["tx_bytes"] = peer.tx_bytes;
  object["rx_bytes"] = peer.rx_bytes;
  object["drops"] = counts(peer.drops);
  object["messages"] = counts(peer.messages);
  return object;
}

}  // namespace

std::string to_json(const DaemonStatus& status) {
  json::object object;
  object["role"] = printable(status.role);
  object["name"] = printable(status.name);
  object["state"] = printable(status.state);
  object["epoch"] = fmt::format("{:016x}", status.epoch);  // 64 bits don't fit the numbers of most JSON readers
  object["mac"] = printable(status.mac);
  object["mtu"] = status.mtu;
  object["carrier"] = status.carrier;
  object["lan"] = printable(status.lan);
  object["mode"] = printable(status.mode);
  json::array peers;
  for (const auto& peer : status.peers) peers.push_back(peer_object(peer));
  object["peers"] = std::move(peers);
  object["drops"] = counts(status.drops);
  object["counts"] = counts(status.counts);
  object["pid"] = status.pid;
  object["version"] = printable(status.version);
  object["uptime_ms"] = status.uptime_ms;
  return json::serialize(object);
}

}  // namespace splitnic::os
