#include "fabric/bridge/shm_bridge.h"

#include <sched.h>
#include <sys/socket.h>

#include <utility>

#include "common/os/errno_text.h"
#include "fabric/bridge/full_fence.h"

namespace splitnic::fabric {

ShmBridge::ShmBridge(ShmParts parts, std::optional<BridgePeer> process, std::function<void(ShmParts)> release,
                     BridgeGroup group)
    : parts_(std::move(parts)),
      local_memory_(parts_.local->local()),
      peer_window_(parts_.peer->window()),
      scratchpads_in_(parts_.local->local_scratchpads()),
      scratchpads_out_(parts_.peer->window_scratchpads()),
      process_(process),
      release_(std::move(release)),
      group_(group) {}

ShmBridge::~ShmBridge() {
  if (release_) release_(std::move(parts_));
}

std::uint32_t ShmBridge::read_scratchpad(std::size_t index) {
  SPLITNIC_CHECK(index < kScratchpads);
  return scratchpads_in_.watch<std::uint32_t>(index * sizeof(std::uint32_t));
}

void ShmBridge::write_scratchpad(std::size_t index, std::uint32_t value) {
  SPLITNIC_CHECK(index < kScratchpads);
  scratchpads_out_.write_word(index * sizeof(std::uint32_t), value);
}

void ShmBridge::publish() { store_fence(); }

void ShmBridge::fence() { full_fence(); }

void ShmBridge::before_doorbell() { full_fence(); }

void ShmBridge::flush() { full_fence(); }

std::uint32_t ShmBridge::core() const { return static_cast<std::uint32_t>(sched_getcpu() + 1); }

void ShmBridge::ring() { parts_.doorbell->ring(); }

bool ShmBridge::take_doorbells() { return parts_.doorbell->take(); }

Result<std::pair<std::unique_ptr<Bridge>, std::unique_ptr<Bridge>>> shm_pair(std::size_t first_bytes,
                                                                             std::size_t second_bytes) {
  auto first = ShmMemory::create(first_bytes);
  if (!first) return tl::unexpected(first.error());
  auto second = ShmMemory::create(second_bytes);
  if (!second) return tl::unexpected(second.error());
  int bells[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, bells) != 0) {
    return fail("cannot create doorbells: {}", os::errno_text());
  }
  auto first_bell = std::make_unique<PacketDoorbell>(os::UniqueFd(bells[0]));
  auto second_bell = std::make_unique<PacketDoorbell>(os::UniqueFd(bells[1]));
  for (const auto* memory : {&*first, &*second}) {
    (*memory)->close_descriptor();
    (*memory)->prefault(0, (*memory)->mapped_bytes() / kShmRingsShare);
  }
  const std::shared_ptr<const ShmMemory> of_first = std::move(*first);
  const std::shared_ptr<const ShmMemory> of_second = std::move(*second);
  return std::pair<std::unique_ptr<Bridge>, std::unique_ptr<Bridge>>(
      std::make_unique<ShmBridge>(ShmParts{of_first, of_second, std::move(first_bell)}),
      std::make_unique<ShmBridge>(ShmParts{of_second, of_first, std::move(second_bell)}));
}

}  // namespace splitnic::fabric
