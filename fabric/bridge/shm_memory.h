#pragma once

#include <boost/interprocess/mapped_region.hpp>
#include <cstddef>
#include <memory>

#include "common/os/unique_fd.h"
#include "common/result.h"
#include "fabric/bridge/peer_memory.h"

namespace splitnic::fabric {

/// One end's local memory as a sealed memfd, mapped: a header page (the scratchpads that the peer writes
/// for that end), then the memory itself. It has no name, so the kernel frees it with the last process that holds it.
/// Thread: any.
class ShmMemory {
 public:
  static constexpr std::size_t kHeaderBytes = 4096;

  /// bytes: of the memory without its header, a multiple of kHeaderBytes. Errors: no memory, no descriptors.
  [[nodiscard]] static Result<std::unique_ptr<ShmMemory>> create(std::size_t bytes);
  /// Maps a descriptor that a peer sent. Checks that it is a memfd of ordinary pages, sealed against changes of its
  /// size and seals, and exactly kHeaderBytes + bytes long; else a store into it could raise SIGBUS. What is none
  /// stays the caller's, who decides where to close it (os::close_elsewhere).
  [[nodiscard]] static Result<std::unique_ptr<ShmMemory>> adopt(os::UniqueFd&& descriptor, std::size_t bytes);

  /// The views of the owner (local) and of its peer (window).
  [[nodiscard]] PeerMemory local() const;
  [[nodiscard]] PeerWindow window() const;
  [[nodiscard]] PeerMemory local_scratchpads() const;
  [[nodiscard]] PeerWindow window_scratchpads() const;

  /// Clears and maps pages now, so that no store and no load of this process faults there later. offset: whole pages,
  /// from the start of the mapping; what is beyond the end is left out. A kernel without memory for it changes nothing.
  void prefault(std::size_t offset, std::size_t bytes) const;
  [[nodiscard]] std::size_t mapped_bytes() const { return region_.get_size(); }

  /// Frees the pages. A process that still maps the memory, or holds its descriptor, then reads zeros, and its writes
  /// allocate pages on its own account.
  void discard() const;

  /// The descriptor to send to the peer; -1 once closed. The mapping stays without it.
  [[nodiscard]] int descriptor() const { return descriptor_.get(); }
  void close_descriptor() { descriptor_.reset(); }

 private:
  ShmMemory(os::UniqueFd descriptor, boost::interprocess::mapped_region region)
      : descriptor_(std::move(descriptor)), region_(std::move(region)) {}
  [[nodiscard]] static Result<std::unique_ptr<ShmMemory>> map(os::UniqueFd descriptor, std::size_t bytes);
  [[nodiscard]] std::byte* base() const { return static_cast<std::byte*>(region_.get_address()); }

  os::UniqueFd descriptor_;
  boost::interprocess::mapped_region region_;
};

}  // namespace splitnic::fabric
