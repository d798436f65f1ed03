#include "fabric/link/loopback.h"

#include <utility>

#include "fabric/bridge/shm_bridge.h"

namespace splitnic::fabric {

Result<std::unique_ptr<Loopback>> Loopback::create(const std::array<LinkOptions, 2>& options,
                                                   const std::array<RandomSource*, 2>& random, std::size_t bytes) {
  auto pair = shm_pair(bytes, bytes);
  if (!pair) return tl::unexpected(pair.error());
  auto made = std::unique_ptr<Loopback>(new Loopback());
  made->bridges_ = {std::move(pair->first), std::move(pair->second)};
  for (std::size_t i = 0; i < made->links_.size(); ++i) {
    LinkOptions own = options[i];
    own.store_clock = nullptr;
    made->links_[i] = std::make_unique<FabricLink>(*made->bridges_[i], own, *random[i]);
    made->links_[i]->restart();
  }
  return made;
}

}  // namespace splitnic::fabric
