// Two things at once: any bytes as a datagram, which the decoder must refuse or give back as they were; and a peer that
// holds the right keys and sends data with any numbers, records and flags, which must neither end the link nor make it
// store more than its window.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "common/check.h"
#include "common/random.h"
#include "fabric/bridge/link.h"
#include "fabric/link/udp_peer.h"

using namespace splitnic;
using namespace splitnic::fabric;

namespace {

struct LastDatagram final : DatagramSink {
  bool send(std::span<const std::byte> datagram) override {
    bytes.assign(datagram.begin(), datagram.end());
    return true;
  }
  std::vector<std::byte> bytes;
};

void check_decoder(std::span<const std::byte> bytes) {
  const auto decoded = decode_udp(bytes);
  if (!decoded) return;
  if (const auto* hello = std::get_if<UdpHello>(&*decoded)) {
    const UdpHelloBytes again = encode_udp(*hello);
    SPLITNIC_CHECK(std::ranges::equal(std::as_bytes(std::span(&again, 1)), bytes));
    return;
  }
  const auto& data = std::get<UdpData>(*decoded);
  std::vector<std::byte> again(bytes.begin(), bytes.end());
  seal_udp(data, again);
  SPLITNIC_CHECK(std::ranges::equal(again, bytes));
  for (auto rest = data.records; !rest.empty();) SPLITNIC_CHECK(next_udp_record(rest).size() >= kUdpMinRecord);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* input, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(input, size));
  check_decoder(bytes);

  SeededRandom random(1);
  LastDatagram sent;
  UdpOptions options;
  options.window_bytes = {2048, 4096};
  UdpPeer peer(sent, options, random);
  Time now{};
  peer.poll(now);
  const auto offered = std::get<UdpHello>(*decode_udp(sent.bytes));
  UdpHello hello;
  hello.receiver_key = offered.sender_key;
  hello.sender_key = UdpKey{7};
  hello.epoch = Epoch{8};
  hello.window_bytes = {2048, 2048};
  hello.datagram_bytes = 1472;
  const UdpHelloBytes opening = encode_udp(hello);
  peer.take(std::as_bytes(std::span(&opening, 1)), now);
  SPLITNIC_CHECK(peer.up());

  // Each step: 1 byte what, 2 bytes a number, 1 byte how many bytes of records.
  std::size_t at = 0;
  while (at + 4 <= size) {
    const std::uint8_t what = input[at];
    const std::uint64_t number = input[at + 1] | std::uint64_t{input[at + 2]} << 8U;
    const std::size_t length = std::min<std::size_t>(input[at + 3], size - at - 4);
    const auto records = bytes.subspan(at + 4, length);
    at += 4 + length;
    UdpData data;
    data.receiver_key = offered.sender_key;
    data.epochs = epoch_tag(hello.epoch, offered.epoch);
    data.lane = (what & 1U) != 0 ? VirtualLane::data : VirtualLane::control;
    data.ask = (what & 2U) != 0;
    data.position = (what & 4U) != 0 ? ~number : number;
    data.granted = {number, number << (what & 63U)};
    std::vector<std::byte> datagram(sizeof(UdpDataBytes));
    datagram.insert(datagram.end(), records.begin(), records.end());
    seal_udp(data, datagram);
    peer.take(datagram, now);
    if ((what & 8U) != 0) {
      now += std::chrono::milliseconds(what);
      peer.poll(now);
      if (!peer.up()) return 0;
    }
    if ((what & 16U) != 0 && !peer.front(data.lane).empty()) peer.pop(data.lane);
    const auto claimed = (what & 32U) != 0 ? peer.claim(data.lane, kUdpMinRecord) : std::span<std::byte>{};
    if (!claimed.empty()) {
      std::ranges::fill(claimed, std::byte{1});
      peer.release(data.lane, claimed.size());
    }
    SPLITNIC_CHECK(peer.up() && peer.incarnation() == 1);
  }
  std::size_t stored = 0;
  for (const VirtualLane lane : {VirtualLane::control, VirtualLane::data}) {
    while (!peer.front(lane).empty()) {
      stored += peer.front(lane).size();
      peer.pop(lane);
    }
  }
  SPLITNIC_CHECK(stored <= 2048 + 4096);
  return 0;
}
