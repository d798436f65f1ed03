#include "fabric/verbs/path.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "fabric/bridge/link.h"
#include "fabric/bridge/shm_bridge.h"
#include "fabric/link/loopback.h"
#include "fabric/verbs/objects.h"

namespace splitnic::verbs {
namespace {

bool possible(const fabric::LinkOptions& link) {
  using Link = fabric::LinkOptions;
  const auto ring = [](std::size_t most) {
    return [most](std::size_t bytes) {
      return std::has_single_bit(bytes) && bytes >= Link::kMinRingBytes && bytes <= most;
    };
  };
  const bool rings = std::ranges::all_of(link.slot_bytes, ring(Link::kMaxSlotBytes)) &&
                     std::ranges::all_of(link.payload_bytes, ring(Link::kMaxPayloadBytes));
  return rings && link.mpt_entries != 0 && link.mpt_entries <= ContextOptions::kMaxMptEntries;
}

/// The options with the context's port address; nullopt: impossible ones.
std::optional<fabric::LinkOptions> link_of(const detail::ContextObject& context, fabric::LinkOptions link) {
  if (link.port_address.value == 0) link.port_address = context.port;
  if (link.port_address != context.port || !possible(link)) return std::nullopt;
  return link;
}

/// A bridge with its link.
struct BridgeLink {
  BridgeLink(std::shared_ptr<fabric::Bridge> on, const fabric::LinkOptions& options, RandomSource& random)
      : bridge(std::move(on)), link(*bridge, options, random) {
    link.restart();
  }

  std::shared_ptr<fabric::Bridge> bridge;
  fabric::FabricLink link;
};

}  // namespace

Expected<Path> Context::add_path(std::shared_ptr<fabric::CellLink> link) {
  const bool fits = object_ && link != nullptr && link->port_address() == object_->port;
  if (!fits) return tl::unexpected(Status::bad_argument);
  const auto number = object_->adapter.attach(*link);
  if (!number) return tl::unexpected(Status::no_resources);
  return Path(std::make_shared<detail::PathObject>(object_, std::move(link), *number));
}

Expected<Path> Context::add_path(std::shared_ptr<fabric::Bridge> bridge, const fabric::LinkOptions& options) {
  const auto with = object_ && bridge != nullptr ? link_of(*object_, options) : std::nullopt;
  if (!with) return tl::unexpected(Status::bad_argument);
  const auto made = std::make_shared<BridgeLink>(std::move(bridge), *with, object_->random);
  return add_path(std::shared_ptr<fabric::CellLink>(made, &made->link));
}

Expected<std::array<Path, 2>> Context::add_loopback(const fabric::LinkOptions& options) {
  const auto with = object_ ? link_of(*object_, options) : std::nullopt;
  if (!with) return tl::unexpected(Status::bad_argument);
  auto made = fabric::Loopback::create({*with, *with}, {&object_->random, &object_->random});
  if (!made) return tl::unexpected(Status::no_resources);
  const std::shared_ptr<fabric::Loopback> loopback = std::move(*made);
  std::array<Path, 2> ends;
  for (std::size_t i = 0; i < ends.size(); ++i) {
    auto end = add_path(std::shared_ptr<fabric::CellLink>(loopback, &loopback->end(i)));
    if (!end) return tl::unexpected(end.error());
    ends[i] = std::move(*end);
  }
  return ends;
}

Expected<std::array<Path, 2>> Context::add_loopback(Context& other, const fabric::LinkOptions& options) {
  if (!object_ || !other || object_ == other.object() || options.port_address.value != 0) {
    return tl::unexpected(Status::bad_argument);
  }
  auto ends = fabric::shm_pair(fabric::Loopback::kDefaultBytes, fabric::Loopback::kDefaultBytes);
  if (!ends) return tl::unexpected(Status::no_resources);
  auto own = add_path(std::move(ends->first), options);
  if (!own) return tl::unexpected(own.error());
  auto others = other.add_path(std::move(ends->second), options);
  if (!others) return tl::unexpected(others.error());
  return std::array<Path, 2>{std::move(*own), std::move(*others)};
}

PathNumber Path::number() const { return object_ ? object_->number : PathNumber{}; }

bool Path::up() const { return object_ && object_->link->up(); }

PortAddress Path::peer_port() const { return up() ? object_->link->peer_port_address() : PortAddress{}; }

std::size_t Path::bridge_bytes() const {
  const fabric::DirectAccess* direct = up() ? object_->link->direct() : nullptr;
  return direct == nullptr ? 0 : direct->buffers.bytes;
}

}  // namespace splitnic::verbs
