#pragma once

#include <boost/endian/buffers.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "common/os/privileged_process.h"
#include "host/tap_rights.h"

namespace splitnic::host {

/// A request to the privileged process of a host. Both processes are the same program, so there is no version.
/// ```
///  0 what 32     4 MTU 32     8 MAC address 48     14 has MAC 8     15 keep neighbours 8
/// ```
struct TapRequest {
  enum class What : std::uint32_t { attach = 1, find = 2, set_mtu = 3, mark_address = 4 };
  boost::endian::little_uint32_buf_t what;
  boost::endian::little_uint32_buf_t mtu;  ///< 0: none
  std::uint8_t mac[6];
  std::uint8_t has_mac;
  std::uint8_t keep_neighbours;
};
static_assert(sizeof(TapRequest) == 16);

/// The privileged process's part. It works on one interface name alone, and follows or changes only interfaces whose
/// tun descriptor the requester has. offloads, queues: of the TAPs that it attaches to. rights: lent.
class TapService {
 public:
  TapService(std::string name, TapRights& rights, bool offloads = false, std::size_t queues = 1)
      : name_(std::move(name)), rights_(rights), offloads_(offloads), queues_(queues) {}
  /// Errors: a request that this driver never makes, a descriptor that is no TAP's, and what the rights report.
  [[nodiscard]] Result<os::PrivilegedMessage> serve(os::PrivilegedMessage request);

 private:
  [[nodiscard]] Result<os::PrivilegedMessage> attach(const TapRequest& request);
  [[nodiscard]] Result<os::PrivilegedMessage> about(const TapRequest& request, const TapDevice& device);

  std::string name_;
  TapRights& rights_;
  bool offloads_;
  std::size_t queues_;
};

/// A TapService with the rights of the process that it runs in, for the namespace that its thread is in at the first
/// request.
[[nodiscard]] os::PrivilegedService tap_service(std::string name, bool offloads, std::size_t queues);

/// The driver's part: asks the privileged process. A request blocks until it is answered.
class TapRequests final : public TapRights {
 public:
  explicit TapRequests(std::shared_ptr<os::PrivilegedProcess> process) : process_(std::move(process)) {}

  /// options.name, offloads and queues: the service has its own, and options.queues is the same.
  [[nodiscard]] Result<AttachedTap> attach(const TapOptions& options) override;
  [[nodiscard]] Result<TapPlace> find(const TapDevice& device, bool keep_neighbours) override;
  [[nodiscard]] Result<void> set_mtu(const TapDevice& device, std::uint32_t mtu) override;
  [[nodiscard]] Result<void> mark_address(const TapDevice& device, const MacAddress& address) override;

 private:
  std::shared_ptr<os::PrivilegedProcess> process_;
};

}  // namespace splitnic::host
