#pragma once

#include <cstddef>
#include <cstring>
#include <span>

#include "fabric/adapter/queue_pair.h"
#include "fabric/memory/store_habit.h"

/// What the sources of Express share.
namespace splitnic::fabric::express_parts {

[[nodiscard]] inline bool is_plain(const QueuePairAttributes& options) {
  return options.acknowledged && !options.datagram && options.xrc == XrcRole::none;
}

/// False: the process does not have this memory any more.
[[nodiscard]] inline bool fill(std::span<std::byte> to, const std::byte* from, StoreHabit& stores) {
  return to.empty() || stores.store(to.data(), from, to.size());
}

template <class Header>
std::byte* append(std::byte* to, const Header& header) {
  std::memcpy(to, &header, sizeof header);
  return to + sizeof header;
}

template <class Header>
[[nodiscard]] Header header_at(std::span<const std::byte> extension, std::size_t offset) {
  Header header;
  std::memcpy(&header, extension.subspan(offset, sizeof header).data(), sizeof header);
  return header;
}

}  // namespace splitnic::fabric::express_parts
