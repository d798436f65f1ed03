#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "fabric/adapter/channel_adapter.h"
#include "fabric/connect/connection_message.h"
#include "fabric/wire/datagram.h"

namespace splitnic::fabric {

/// Queue pair 1 of an adapter, with what it needs: sends messages to the queue pairs 1 of its peers, and receives
/// theirs. Thread: the adapter's owner.
class ConnectionEndpoint {
 public:
  /// Null: the adapter has no room for its objects, or queue pair 1 is taken. adapter: lent.
  [[nodiscard]] static std::unique_ptr<ConnectionEndpoint> make(ChannelAdapter& adapter);
  ~ConnectionEndpoint();
  ConnectionEndpoint(const ConnectionEndpoint&) = delete;
  ConnectionEndpoint& operator=(const ConnectionEndpoint&) = delete;

  /// Errors: those of create_address_handle and post_send; bad_length if the message does not fit the path's cells.
  Status send(PathNumber path, std::span<std::byte> message);
  /// Gives every message that has come to `take(bytes, path, source)`, at most as many as receives are posted; returns
  /// how many.
  template <class Take>
  std::size_t receive(Take&& take) {
    std::array<Completion, kDepth> completions;
    const std::size_t count = adapter_.poll_completions(completions_, completions);
    for (const Completion& completion : std::span(completions).first(count)) {
      if (!completion.receive) continue;
      const auto place = static_cast<std::size_t>(completion.id);
      if (completion.status == CompletionStatus::success) {
        const auto all = std::span(memory_).subspan(place * kReceiveBytes, completion.bytes);
        take(std::span<const std::byte>(all.subspan(kRouteHeaderBytes)), completion.path, completion.source);
      }
      post_receive(place);
    }
    return count;
  }
  /// The path is about to end.
  void forget(PathNumber path);

 private:
  static constexpr std::size_t kDepth = 64;
  static constexpr std::size_t kReceiveBytes = kRouteHeaderBytes + kMaxConnectionMessage;

  explicit ConnectionEndpoint(ChannelAdapter& adapter);
  [[nodiscard]] bool create();
  void post_receive(std::size_t place);

  ChannelAdapter& adapter_;
  std::vector<std::byte> memory_;
  ProtectionDomain domain_{};
  CqNumber completions_{};
  Stag tag_{};
  QpNumber queue_pair_{};
  std::unordered_map<std::uint32_t, AddressHandleNumber> handles_;  // by path
};

}  // namespace splitnic::fabric
