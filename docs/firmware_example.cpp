// An appliance: an I/O unit whose LAN is the firmware itself, one station that answers ARP requests and pings.
//   appliance            pings itself: a host in the same process, whose network stack is a few lines of this program
//   appliance SOCKET     serves hosts: `splitnic host --connect shm:SOCKET --tap vnic0`
#include <poll.h>

#include <algorithm>
#include <array>
#include <boost/endian/buffers.hpp>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/frame/checksum.h"
#include "common/frame/ethernet.h"
#include "common/frame/headers.h"
#include "common/os/core_task.h"
#include "common/os/event_loop.h"
#include "common/os/log_notices.h"
#include "common/os/runtime_directory.h"
#include "common/random.h"
#include "common/result.h"
#include "fabric/bridge/shm_bridge.h"
#include "fabric/bridge/shm_source.h"
#include "fabric/bridge/single_bridge_source.h"
#include "host/host_driver.h"
#include "host/in_process_nic.h"
#include "iounit/io_unit.h"

using namespace splitnic;

namespace {

using Frame = std::vector<std::byte>;
using Ipv4Address = std::array<std::uint8_t, 4>;
using Octets = std::array<std::uint8_t, 6>;

constexpr MacAddress kStationMac{{0x02, 0, 0, 0, 0, 0x01}};
constexpr Ipv4Address kStationAddress{192, 0, 2, 1};

// ---- What the station understands

/// RFC 826, for Ethernet and IPv4.
struct ArpPacket {
  boost::endian::big_uint16_buf_t hardware{1};
  boost::endian::big_uint16_buf_t protocol{frame::kEtherTypeIpv4};
  std::uint8_t hardware_bytes = 6;
  std::uint8_t protocol_bytes = 4;
  boost::endian::big_uint16_buf_t operation{0};
  Octets sender_mac{};
  Ipv4Address sender{};
  Octets target_mac{};
  Ipv4Address target{};
};
static_assert(sizeof(ArpPacket) == 28);
constexpr std::uint16_t kArpRequest = 1;
constexpr std::uint16_t kArpReply = 2;

/// RFC 792, the first bytes of an echo request or reply.
struct EchoHeader {
  std::uint8_t type = 0;
  std::uint8_t code = 0;
  boost::endian::big_uint16_buf_t checksum{0};
  boost::endian::big_uint16_buf_t identifier{0};
  boost::endian::big_uint16_buf_t sequence{0};
};
static_assert(sizeof(EchoHeader) == 8);
constexpr std::uint8_t kEchoRequest = 8;
constexpr std::uint8_t kEchoReply = 0;
constexpr std::uint8_t kProtocolIcmp = 1;

void store_ethernet(Frame& frame, const MacAddress& to, const MacAddress& from) {
  frame::store(frame, 0, to.octets);
  frame::store(frame, 6, from.octets);
}

/// The reply to the ARP packet at `offset` of the frame, if it asks for the station.
bool answer_arp(Frame& frame, std::size_t offset) {
  if (!frame::holds<ArpPacket>(frame, offset)) return false;
  const auto request = frame::load<ArpPacket>(frame, offset);
  if (request.operation.value() != kArpRequest || request.target != kStationAddress) return false;
  ArpPacket reply;
  reply.operation = kArpReply;
  reply.sender_mac = kStationMac.octets;
  reply.sender = kStationAddress;
  reply.target_mac = request.sender_mac;
  reply.target = request.sender;
  frame::store(frame, offset, reply);
  return true;
}

/// The reply to the IPv4 packet at `offset` of the frame, if it is a whole ping of the station.
bool answer_ping(Frame& frame, std::size_t offset) {
  if (!frame::holds<frame::Ipv4Header>(frame, offset)) return false;
  auto ip = frame::load<frame::Ipv4Header>(frame, offset);
  const std::size_t bytes = ip.total_bytes.value();
  const bool whole = ip.version_and_words == 0x45 && bytes <= frame.size() - offset &&
                     (ip.flags_and_fragment.value() & (frame::kIpv4MoreFragments | frame::kIpv4FragmentOffset)) == 0;
  const std::size_t at = offset + sizeof ip;
  if (!whole || bytes < sizeof ip + sizeof(EchoHeader) || ip.protocol != kProtocolIcmp) return false;
  if (!std::ranges::equal(ip.destination, kStationAddress)) return false;
  const auto message = std::span(frame).subspan(at, bytes - sizeof ip);
  auto echo = frame::load<EchoHeader>(message, 0);
  if (echo.type != kEchoRequest || echo.code != 0 || !frame::InternetSum().add(message).is_valid()) return false;
  echo.type = kEchoReply;
  echo.checksum = 0;
  frame::store(message, 0, echo);
  echo.checksum = frame::InternetSum().add(message).checksum();
  frame::store(message, 0, echo);
  std::swap(ip.source, ip.destination);
  ip.time_to_live = 64;
  frame::store(std::span(frame), offset, ip);
  ip.checksum = frame::ipv4_header_checksum(std::span(frame).subspan(offset, sizeof ip));
  frame::store(std::span(frame), offset, ip);
  return true;
}

/// What the station answers to a frame; nullopt: nothing. Tags stay as they are.
std::optional<Frame> answer(std::span<const std::byte> request) {
  const auto header = frame::parse_ethernet(request);
  if (!header || (header->destination != kStationMac && !header->destination.is_broadcast())) return std::nullopt;
  Frame frame(request.begin(), request.end());
  const bool answered = header->ethertype == frame::kEtherTypeArp    ? answer_arp(frame, header->payload_offset)
                        : header->ethertype == frame::kEtherTypeIpv4 ? answer_ping(frame, header->payload_offset)
                                                                     : false;
  if (!answered) return std::nullopt;
  store_ethernet(frame, header->source, kStationMac);
  return frame;
}

// ---- The LAN engine: what the I/O unit sends goes to the station, and what the station answers comes back

class StationLan final : public iounit::LanEngine {
 public:
  std::size_t receive(iounit::LanSink& sink, std::size_t budget) override {
    std::size_t received = 0;
    for (; received < budget && !answers_.empty(); ++received) {
      const Frame frame = std::move(answers_.front());
      answers_.pop_front();
      ++counters_.rx_frames;
      sink.on_lan_frame(frame);
    }
    return received;
  }
  bool send(std::span<const std::byte> frame) override {
    if (answers_.size() == kMostAnswers) {
      ++counters_.tx_errors;
      return false;
    }
    ++counters_.tx_frames;
    if (auto reply = answer(frame)) answers_.push_back(std::move(*reply));
    return true;
  }
  void flush() override {}
  void poll(Time /*now*/) override {}
  [[nodiscard]] Time next_deadline() const override { return answers_.empty() ? kNever : Time::min(); }
  [[nodiscard]] bool carrier() const override { return true; }
  [[nodiscard]] std::uint32_t mtu() const override { return 1500; }
  [[nodiscard]] const iounit::LanCounters& counters() const override { return counters_; }
  void collect_descriptors(std::vector<int>& /*out*/) const override {}
  [[nodiscard]] std::string name() const override { return "station"; }

 private:
  static constexpr std::size_t kMostAnswers = 256;
  std::deque<Frame> answers_;
  iounit::LanCounters counters_;
};

// ---- The application of the host in the same process: a network stack that can only ping

constexpr Ipv4Address kOwnAddress{192, 0, 2, 2};

Frame arp_request(const MacAddress& own) {
  Frame frame(frame::kMinFrameBytes);
  store_ethernet(frame, kBroadcastMac, own);
  frame::store(std::span(frame), 12, boost::endian::big_uint16_buf_t(frame::kEtherTypeArp));
  ArpPacket request;
  request.operation = kArpRequest;
  request.sender_mac = own.octets;
  request.sender = kOwnAddress;
  request.target = kStationAddress;
  frame::store(std::span(frame), frame::kEthernetHeaderBytes, request);
  return frame;
}

Frame ping(const MacAddress& own, const MacAddress& station) {
  constexpr std::size_t kIp = frame::kEthernetHeaderBytes;
  constexpr std::size_t kEcho = kIp + sizeof(frame::Ipv4Header);
  constexpr std::size_t kPayload = 56;
  Frame frame(kEcho + sizeof(EchoHeader) + kPayload, std::byte{0x5a});
  store_ethernet(frame, station, own);
  frame::store(std::span(frame), 12, boost::endian::big_uint16_buf_t(frame::kEtherTypeIpv4));
  frame::Ipv4Header ip{};
  ip.version_and_words = 0x45;
  ip.total_bytes = static_cast<std::uint16_t>(frame.size() - kIp);
  ip.time_to_live = 64;
  ip.protocol = kProtocolIcmp;
  std::ranges::copy(kOwnAddress, ip.source);
  std::ranges::copy(kStationAddress, ip.destination);
  frame::store(std::span(frame), kIp, ip);
  ip.checksum = frame::ipv4_header_checksum(std::span(frame).subspan(kIp, sizeof ip));
  frame::store(std::span(frame), kIp, ip);
  EchoHeader echo{.type = kEchoRequest};
  frame::store(std::span(frame), kEcho, echo);
  echo.checksum = frame::InternetSum().add(std::span(frame).subspan(kEcho)).checksum();
  frame::store(std::span(frame), kEcho, echo);
  return frame;
}

/// Sends the frame until one of that ethertype from the station comes back, for 10 s at most.
std::optional<Frame> ask(host::InProcessNic& nic, const Frame& request, std::uint16_t ethertype) {
  const Time give_up = monotonic_now() + std::chrono::seconds(10);
  Frame room(2048);
  while (monotonic_now() < give_up) {
    if (nic.carrier()) nic.send(request);
    pollfd readable{nic.receive_descriptor(), POLLIN, 0};
    poll(&readable, 1, 20);
    while (const std::size_t bytes = nic.receive(room)) {
      const auto header = frame::parse_ethernet(std::span(room).first(bytes));
      const bool reply = header && header->source == kStationMac && header->ethertype == ethertype;
      if (reply) return Frame(room.begin(), room.begin() + static_cast<std::ptrdiff_t>(bytes));
    }
  }
  return std::nullopt;
}

bool ping_station(host::InProcessNic& nic) {
  const auto arp = ask(nic, arp_request(nic.address()), frame::kEtherTypeArp);
  if (!arp) return false;
  const auto found = frame::load<ArpPacket>(*arp, frame::kEthernetHeaderBytes);
  std::printf("192.0.2.1 is at %s\n", to_string(MacAddress{found.sender_mac}).c_str());
  const auto reply = ask(nic, ping(nic.address(), MacAddress{found.sender_mac}), frame::kEtherTypeIpv4);
  if (!reply) return false;
  std::printf("%zu bytes from 192.0.2.1\n", reply->size() - frame::kEthernetHeaderBytes);
  return frame::load<EchoHeader>(*reply, frame::kEthernetHeaderBytes + sizeof(frame::Ipv4Header)).type == kEchoReply;
}

// ---- The appliance

iounit::IoUnitOptions unit_options() {
  iounit::IoUnitOptions options;
  options.session.name = "appliance";
  return options;
}

/// Serves hosts of this machine until a signal comes.
int serve_socket(const std::string& path) {
  os::Log log("appliance");
  os::LogNotices notices(log);
  SystemRandom random;
  StationLan lan;
  fabric::ShmListenOptions listen;
  listen.path = path;
  if (const auto made = os::make_socket_directory(path); !made) throw StartupError{made.error().message};
  auto listener = fabric::ShmListener::listen(listen);
  if (!listener) throw StartupError{listener.error().message};
  fabric::ShmListenSource bridges(std::move(*listener), notices);
  iounit::IoUnit unit(unit_options(), lan, bridges, random, notices);
  os::EventLoop loop;
  os::CoreTask task(unit);
  loop.add(task);
  loop.run();
  os::shut_down(unit);
  return 0;
}

/// Serves a host in this process, whose application pings the station.
int serve_itself() {
  os::Log log("appliance");
  os::LogNotices notices(log);
  SystemRandom random;
  auto ends = fabric::shm_pair();
  if (!ends) throw StartupError{ends.error().message};

  StationLan lan;
  fabric::SingleBridgeSource unit_bridge(std::move(ends->first));
  iounit::IoUnit unit(unit_options(), lan, unit_bridge, random, notices);

  host::InProcessNic nic({.mac = {{0x02, 0, 0, 0, 0, 0x02}}});
  fabric::SingleBridgeSource host_bridge(std::move(ends->second));
  messaging::SessionOptions host_options;
  host_options.name = "station-2";
  host::HostDriver driver(host_options, nic, host_bridge, random, notices);
  nic.set_up(true);

  os::EventLoop loop;  // one thread for both; each could have its own
  os::CoreTask unit_task(unit);
  os::CoreTask host_task(driver);
  loop.add(unit_task);
  loop.add(host_task);
  bool answered = false;
  std::jthread application([&] {
    answered = ping_station(nic);
    loop.stop();
  });
  loop.run();
  application.join();
  if (!answered) std::printf("no answer\n");
  return answered ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return argc > 1 ? serve_socket(argv[1]) : serve_itself();
  } catch (const StartupError& error) {
    std::fprintf(stderr, "appliance: %s\n", error.message.c_str());
    return 1;
  }
}
