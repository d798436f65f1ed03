#include "host/tap_requests.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <utility>

namespace splitnic::host {
namespace {

using os::PrivilegedMessage;
using os::UniqueFd;

constexpr std::uint32_t kMinMtu = 68;
constexpr std::uint32_t kMaxMtu = 65535;
// The descriptors of an answer: those of a place, and then the device and its further queues.
constexpr std::size_t kPlaceDescriptors = 4;
// The bytes of an answer to attach; a note follows.
constexpr std::size_t kMadeHere = 0;
constexpr std::size_t kCreated = 1;
constexpr std::size_t kAttachBytes = 2;

TapRequest request_for(TapRequest::What what) {
  TapRequest request{};
  request.what = static_cast<std::uint32_t>(what);
  return request;
}

bool is_flag(std::uint8_t byte) { return byte <= 1; }

/// The fields that any request may have.
Result<TapRequest> parse(std::span<const std::byte> bytes) {
  TapRequest request;
  if (bytes.size() != sizeof request) return fail("a request for a TAP has {} bytes", sizeof request);
  std::memcpy(&request, bytes.data(), sizeof request);
  const std::uint32_t mtu = request.mtu.value();
  if (mtu != 0 && (mtu < kMinMtu || mtu > kMaxMtu)) return fail("no TAP has an MTU of {}", mtu);
  if (!is_flag(request.has_mac) || !is_flag(request.keep_neighbours)) return fail("a flag is 0 or 1");
  return request;
}

MacAddress mac_of(const TapRequest& request) {
  MacAddress mac;
  std::copy(std::begin(request.mac), std::end(request.mac), mac.octets.begin());
  return mac;
}

bool may_be_address(const MacAddress& mac) { return !mac.is_multicast() && !mac.is_zero(); }

/// Moves what only one process may own into an answer: copies of the netlink sockets stay open here until then.
PrivilegedMessage answer_with(std::vector<std::byte> bytes, TapPlace place) {
  PrivilegedMessage answer{std::move(bytes)};
  const auto copy = [](int descriptor) { return UniqueFd(::fcntl(descriptor, F_DUPFD_CLOEXEC, 0)); };
  const auto [requests, events] = place.links.descriptors();
  answer.descriptors.push_back(std::move(place.network_namespace));
  answer.descriptors.push_back(copy(requests));
  answer.descriptors.push_back(copy(events));
  answer.descriptors.push_back(std::move(place.multicast_list));
  for (const char letter : place.note) answer.bytes.push_back(static_cast<std::byte>(letter));
  return answer;
}

TapPlace place_of(PrivilegedMessage& answer, std::size_t note_at) {
  auto& given = answer.descriptors;
  auto links = os::LinkSocket::adopt(std::move(given[1]), std::move(given[2]));
  std::string note;
  for (const std::byte letter : std::span(answer.bytes).subspan(note_at)) note += static_cast<char>(letter);
  return TapPlace{std::move(given[0]), std::move(links), std::move(given[3]), std::move(note)};
}

Result<PrivilegedMessage> complete(PrivilegedMessage answer) {
  const bool whole = std::ranges::all_of(answer.descriptors, [](const UniqueFd& fd) { return static_cast<bool>(fd); });
  if (!whole) return fail("the TAP's namespace or its lists can't be opened");
  return answer;
}

}  // namespace

Result<PrivilegedMessage> TapService::serve(PrivilegedMessage request) {
  const auto parsed = parse(request.bytes);
  if (!parsed) return tl::unexpected(parsed.error());
  const auto what = static_cast<TapRequest::What>(parsed->what.value());
  if (what == TapRequest::What::attach) {
    if (!request.descriptors.empty()) return fail("to attach to a TAP needs no descriptor");
    return attach(*parsed);
  }
  const bool known =
      what == TapRequest::What::find || what == TapRequest::What::set_mtu || what == TapRequest::What::mark_address;
  if (!known) return fail("an unknown request for a TAP");
  if (request.descriptors.size() != 1) return fail("a request about a TAP comes with its descriptor");
  auto device = TapDevice::adopt(std::move(request.descriptors.front()));
  if (!device) return tl::unexpected(device.error());
  return about(*parsed, *device);
}

Result<PrivilegedMessage> TapService::about(const TapRequest& request, const TapDevice& device) {
  const auto what = static_cast<TapRequest::What>(request.what.value());
  if (what == TapRequest::What::set_mtu) {
    if (request.mtu.value() == 0) return fail("no TAP has an MTU of 0");
    return rights_.set_mtu(device, request.mtu.value()).map([] { return PrivilegedMessage{}; });
  }
  if (what == TapRequest::What::mark_address) {
    if (request.has_mac == 0 || !may_be_address(mac_of(request))) return fail("no TAP has this address");
    return rights_.mark_address(device, mac_of(request)).map([] { return PrivilegedMessage{}; });
  }
  auto place = rights_.find(device, request.keep_neighbours != 0);
  if (!place) return tl::unexpected(place.error());
  return complete(answer_with({}, *std::move(place)));
}

Result<PrivilegedMessage> TapService::attach(const TapRequest& request) {
  TapOptions options{.name = name_, .offloads = offloads_, .queues = queues_};
  if (request.has_mac != 0) {
    options.mac = mac_of(request);
    if (!may_be_address(*options.mac)) return fail("no TAP has this address");
  }
  if (request.mtu.value() != 0) options.mtu = request.mtu.value();
  auto tap = rights_.attach(options);
  if (!tap) return tl::unexpected(tap.error());
  std::vector<std::byte> bytes(kAttachBytes);
  bytes[kMadeHere] = static_cast<std::byte>(tap->made_here);
  bytes[kCreated] = static_cast<std::byte>(tap->created);
  PrivilegedMessage answer = answer_with(std::move(bytes), std::move(tap->place));
  answer.descriptors.push_back(tap->device.release());
  for (TapDevice& queue : tap->further) answer.descriptors.push_back(queue.release());
  return complete(std::move(answer));
}

os::PrivilegedService tap_service(std::string name, bool offloads, std::size_t queues) {
  return [name = std::move(name), offloads, queues,
          rights = std::shared_ptr<OwnTapRights>()](PrivilegedMessage request) mutable -> Result<PrivilegedMessage> {
    if (!rights) {
      auto own = OwnTapRights::in_this_namespace();
      if (!own) return tl::unexpected(own.error());
      rights = std::make_shared<OwnTapRights>(*std::move(own));
    }
    return TapService(name, *rights, offloads, queues).serve(std::move(request));
  };
}

Result<AttachedTap> TapRequests::attach(const TapOptions& options) {
  TapRequest request = request_for(TapRequest::What::attach);
  request.mtu = options.mtu.value_or(0);
  request.has_mac = options.mac ? 1 : 0;
  if (options.mac) std::ranges::copy(options.mac->octets, std::begin(request.mac));
  auto answer = process_->request(std::as_bytes(std::span(&request, 1)), {});
  if (!answer) return tl::unexpected(answer.error());
  if (answer->descriptors.size() != kPlaceDescriptors + options.queues || answer->bytes.size() < kAttachBytes) {
    return fail("the privileged process answers something else");
  }
  std::vector<TapDevice> devices;
  for (std::size_t at = kPlaceDescriptors; at < answer->descriptors.size(); ++at) {
    auto device = TapDevice::adopt(std::move(answer->descriptors[at]));
    if (!device) return tl::unexpected(device.error());
    devices.push_back(*std::move(device));
  }
  AttachedTap tap{std::move(devices.front()), place_of(*answer, kAttachBytes), answer->bytes[kMadeHere] != std::byte{},
                  answer->bytes[kCreated] != std::byte{}};
  tap.device.probe_offloads();
  devices.erase(devices.begin());
  tap.further = std::move(devices);
  return tap;
}

Result<TapPlace> TapRequests::find(const TapDevice& device, bool keep_neighbours) {
  TapRequest request = request_for(TapRequest::What::find);
  request.keep_neighbours = keep_neighbours ? 1 : 0;
  const std::array<int, 1> descriptors{device.descriptor()};
  auto answer = process_->request(std::as_bytes(std::span(&request, 1)), descriptors);
  if (!answer) return tl::unexpected(answer.error());
  if (answer->descriptors.size() != kPlaceDescriptors) return fail("the privileged process answers something else");
  return place_of(*answer, 0);
}

Result<void> TapRequests::set_mtu(const TapDevice& device, std::uint32_t mtu) {
  TapRequest request = request_for(TapRequest::What::set_mtu);
  request.mtu = mtu;
  const std::array<int, 1> descriptors{device.descriptor()};
  return process_->request(std::as_bytes(std::span(&request, 1)), descriptors).map([](const auto&) {});
}

Result<void> TapRequests::mark_address(const TapDevice& device, const MacAddress& address) {
  TapRequest request = request_for(TapRequest::What::mark_address);
  request.has_mac = 1;
  std::ranges::copy(address.octets, std::begin(request.mac));
  const std::array<int, 1> descriptors{device.descriptor()};
  return process_->request(std::as_bytes(std::span(&request, 1)), descriptors).map([](const auto&) {});
}

}  // namespace splitnic::host
