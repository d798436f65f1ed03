// Stream sockets: buffers of one end that the other one writes directly.
#include <algorithm>
#include <cstring>

#include "fabric/rdmacm/objects.h"
#include "fabric/rdmacm/stream.h"

namespace splitnic::rdmacm {

Outcome<std::uint64_t> Stream::map_buffer(void* buffer, std::size_t bytes, bool remote,
                                          std::optional<std::uint64_t> offset) {
  progress();
  if (phase_ != Phase::open && phase_ != Phase::accepting) return error(ENOTCONN);
  if (bytes == 0 || own_maps_.contains(buffer)) return error(EINVAL);
  const auto remote_maps = std::ranges::count_if(own_maps_, [](const auto& map) { return map.second.remote; });
  if (remote && static_cast<std::size_t>(remote_maps) >= peer_.io_maps) return error(ENOBUFS);
  const std::uint64_t at = offset.value_or(number_of(buffer));
  const auto overlaps = [&](const auto& map) {
    return map.second.remote && map.second.offset < at + bytes && at < map.second.offset + map.second.bytes;
  };
  if (at + bytes < at || (remote && std::ranges::any_of(own_maps_, overlaps))) return error(EINVAL);
  if (untold_maps_.size() > kMaxIoMaps) return error(ENOBUFS);
  const int access = remote ? kWrittenByPeer : 0;
  ibv_mr* region = register_memory(id_->pd, buffer, bytes, access);
  if (region == nullptr) return error(errno);
  own_maps_[buffer] = {region, bytes, at, remote};
  if (remote) {
    untold_maps_.push_back(
        {.kind = ControlKind::map, .key = region->rkey, .offset = at, .address = number_of(buffer), .bytes = bytes});
    send_due();
  }
  return at;
}

int Stream::unmap_buffer(const void* buffer, std::size_t bytes) {
  const auto found = own_maps_.find(buffer);
  if (found == own_maps_.end() || found->second.bytes != bytes) return EINVAL;
  const OwnMap map = found->second;
  own_maps_.erase(found);
  if (map.remote && phase_ != Phase::ended) {
    untold_maps_.push_back({.kind = ControlKind::map, .offset = map.offset});
    progress();
  }
  return ibv_dereg_mr(map.region);
}

/// false: more than this end allows, or buffers that overlap.
bool Stream::keep_map(const StreamControl& control) {
  if (control.bytes == 0) return peer_maps_.erase(control.offset) == 1;
  if (peer_maps_.size() >= regions_.io_maps) return false;
  const auto after = peer_maps_.lower_bound(control.offset);
  const bool free_behind = after == peer_maps_.end() || control.offset + control.bytes <= after->first;
  const bool free_before =
      after == peer_maps_.begin() || std::prev(after)->first + std::prev(after)->second.bytes <= control.offset;
  if (!free_behind || !free_before) return false;
  peer_maps_[control.offset] = {control.address, control.bytes, control.key};
  return true;
}

Outcome<std::size_t> Stream::write_at(std::span<const std::byte> from, std::uint64_t offset, bool continues) {
  if (const int refusal = refusal_of_send(continues)) return error(refusal);
  std::size_t sent = 0;
  while (sent != from.size()) {
    const auto after = peer_maps_.upper_bound(offset + sent);
    const auto at = after != peer_maps_.begin() ? std::prev(after) : peer_maps_.end();
    const bool mapped = at != peer_maps_.end() && offset + sent - at->first < at->second.bytes;
    if (!mapped && sent == 0) return error(EFAULT);
    if (!mapped) break;
    const auto& [begin, map] = *at;
    const std::uint64_t within = offset + sent - begin;
    const std::size_t room = may_post() ? std::min(free_sends().size(), kMaxWriteBytes) : std::size_t{0};
    const auto some =
        static_cast<std::size_t>(std::min<std::uint64_t>(map.bytes - within, std::min(room, from.size() - sent)));
    if (some == 0) break;
    ibv_send_wr request{};
    request.opcode = IBV_WR_RDMA_WRITE;
    request.wr.rdma.remote_addr = map.address + within;
    request.wr.rdma.rkey = map.key;
    std::memcpy(free_sends().data(), from.data() + sent, some);
    if (!post_bytes(some, request)) break;
    sent += some;
  }
  if (sent == 0 && !from.empty()) return error(phase_ == Phase::ended ? EPIPE : EAGAIN);
  return sent;
}

}  // namespace splitnic::rdmacm
