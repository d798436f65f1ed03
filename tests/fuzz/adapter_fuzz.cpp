// A live adapter whose peer writes cells of the fuzzer's choice, with CRCs that fit, between posts, polls,
// deregistrations and restarts of its own. Nothing but the adapter's own regions may change, and every request ends
// exactly once.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "common/check.h"
#include "fabric/adapter/channel_adapter.h"
#include "fabric/bridge/link.h"
#include "fabric/bridge/sim_bridge.h"
#include "fabric/wire/cell.h"

namespace {

using namespace splitnic;
using namespace splitnic::fabric;

constexpr Rights kRights = Right::local_read | Right::local_write | Right::remote_write;
constexpr QpNumber kPeerNumber{77};
constexpr std::size_t kGuard = 512;
constexpr std::byte kUntouched{0x5a};

class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : bytes_(data, size) {}
  [[nodiscard]] bool empty() const { return bytes_.empty(); }
  std::uint8_t byte() {
    if (bytes_.empty()) return 0;
    const std::uint8_t value = bytes_.front();
    bytes_ = bytes_.subspan(1);
    return value;
  }
  std::uint32_t half() { return static_cast<std::uint32_t>(byte() | byte() << 8U); }

 private:
  std::span<const std::uint8_t> bytes_;
};

SimBridgeOptions calm() {
  SimBridgeOptions options;
  options.local_bytes = {256U << 10U, 256U << 10U};
  options.write_delay_max = options.scratchpad_delay_max = options.doorbell_delay_max = Duration::zero();
  options.torn_permille = options.doorbell_lost_permille = options.doorbell_spurious_permille = 0;
  options.memory_scribbled = false;
  return options;
}

LinkOptions link_options(std::uint64_t port) {
  LinkOptions options;
  options.fifo_bytes = {8U << 10U, 16U << 10U};
  options.port_address = PortAddress{port};
  return options;
}

class World {
 public:
  World()
      : bridges_(calm(), random_),
        own_(bridges_.end(0), link_options(1), random_),
        peer_(bridges_.end(1), link_options(2), random_),
        memory_(kGuard + 4096 + kGuard, kUntouched) {
    own_.restart();
    peer_.restart();
    come_up();
    adapter_.emplace(own_, AdapterOptions{}, random_);
    domain_ = adapter_->allocate_domain();
    completions_ = adapter_->create_completion_queue(256);
    rebuild(true);
  }

  void run(Input& input) {
    while (!input.empty()) {
      switch (const std::uint8_t what = input.byte(); what % 16) {
        case 0:
          post_receive(input.half());
          break;
        case 1:
          post_send(input.half(), input.byte());
          break;
        case 2:
          advance(std::chrono::milliseconds(input.half()));
          break;
        case 3:
          static_cast<void>(adapter_->deregister(tag_));
          break;
        case 4:
          rebuild(what >= 128);
          break;
        case 5:
          restart_peer();
          break;
        default:
          put_cell(input);
          break;
      }
      advance(std::chrono::microseconds(1));
      collect();
    }
    static_cast<void>(adapter_->destroy_queue_pair(number_));
    collect();
    CHECK(posted_ == ended_);
    const auto guard_holds = [](std::byte byte) { return byte == kUntouched; };
    CHECK(std::all_of(memory_.begin(), memory_.begin() + kGuard, guard_holds));
    CHECK(std::all_of(memory_.end() - kGuard, memory_.end(), guard_holds));
  }

 private:
  void come_up() {
    for (int i = 0; i < 1000 && !(own_.up() && peer_.up()); ++i) advance(std::chrono::milliseconds(1));
    CHECK(own_.up() && peer_.up());
  }
  void advance(Duration by) {
    now_ += by;
    bridges_.advance(now_);
    own_.poll(now_);
    peer_.poll(now_);
    if (adapter_) adapter_->poll(now_);
    bridges_.advance(now_);
    if (!peer_.up()) return;
    for (const VirtualLane lane : {VirtualLane::control, VirtualLane::data}) {
      while (peer_.receiver(lane).front()) peer_.receiver(lane).pop();
      peer_.receiver(lane).push_tail(true);
    }
  }
  void rebuild(bool acknowledged) {
    static_cast<void>(adapter_->destroy_queue_pair(number_));
    collect();
    static_cast<void>(adapter_->deregister(tag_));
    tag_ = adapter_->register_memory(domain_, std::span(memory_).subspan(kGuard, 4096), kRights).value();
    static_cast<void>(adapter_->deregister(bridge_tag_));
    bridge_tag_ =
        adapter_->register_bridge_memory(domain_, {own_.buffers().offset + 64, 4096}, kRights, true).value_or(Stag{});
    QueuePairOptions options;
    options.domain = domain_;
    options.send_completions = options.receive_completions = completions_;
    options.acknowledged = acknowledged;
    number_ = adapter_->create_queue_pair(options).value();
    psn_ = random_.next32();
    static_cast<void>(adapter_->connect(number_, {kPeerNumber, 1, psn_}));
  }
  void restart_peer() {
    peer_.restart();
    come_up();
    rebuild(true);
  }
  LocalSegment segment(std::size_t bytes) {
    return {memory_.data() + kGuard, static_cast<std::uint32_t>(bytes % 4097), tag_};
  }
  void post_receive(std::size_t bytes) {
    if (adapter_->post_receive(number_, {1, segment(bytes)}) == Status::ok) ++posted_;
  }
  void post_send(std::size_t bytes, std::uint8_t how) {
    WorkRequest request;
    request.operation = static_cast<Operation>(how % 3);
    request.segments[0] = segment(bytes);
    request.segment_count = 1;
    request.remote = {std::uint64_t{how} << 8U, Stag{how}};
    if (adapter_->post_send(number_, request) == Status::ok) ++posted_;
  }
  void collect() {
    std::array<Completion, 32> out;
    while (const std::size_t count = adapter_->poll_completions(completions_, out)) ended_ += count;
    CHECK(ended_ <= posted_);
  }
  void put_cell(Input& input) {
    constexpr std::array<std::uint8_t, 11> kOpcodes{0, 1, 2, 4, 6, 7, 8, 9, 10, 11, 17};
    Cell cell;
    cell.opcode = static_cast<Opcode>(kOpcodes[input.byte() % kOpcodes.size()]);
    const OpcodeTraits& what = traits(cell.opcode);
    const std::uint8_t shape = input.byte();
    cell.direct = what.rdma_header && what.last && (shape & 1U) != 0;
    cell.destination = PortAddress{(shape & 0xe0U) == 0xe0U ? 5U : 1U};
    cell.source = PortAddress{2};
    cell.destination_queue_pair = number_;
    cell.source_queue_pair = kPeerNumber;
    const bool acknowledge = cell.opcode == Opcode::acknowledge;
    cell.packet_sequence = (acknowledge ? 1 : psn_) + input.byte() % 8U - 2;
    cell.cell_sequence = what.first ? 0 : static_cast<std::uint16_t>(1 + (shape >> 1U & 3U));
    cell.syndrome = static_cast<Syndrome>(shape >> 1U);
    cell.delay_microseconds = shape;
    const std::size_t payload = cell.direct || acknowledge ? 0 : input.half() % 700;
    cell.tag = (shape & 8U) != 0 ? bridge_tag_ : tag_;
    if ((shape & 0x70U) == 0x70U) cell.tag.value ^= 1U << input.byte() % 32;
    cell.address = adapter_->region_address(cell.tag) + input.half() - 64;
    cell.message_bytes = static_cast<std::uint32_t>(payload + ((shape & 16U) != 0 ? input.half() : what.last ? 0 : 1));
    const std::vector<std::byte> bytes(payload, std::byte{input.byte()});
    if (what.first) packet_crc_ = kPacketCrcStart;
    const std::array<std::span<const std::byte>, 1> pieces{bytes};
    const CellEnvelope envelope(cell, pieces, payload, packet_crc_);
    if (!peer_.up()) return;
    const auto lane = (shape & 4U) != 0 ? VirtualLane::control : VirtualLane::data;
    static_cast<void>(peer_.sender(lane).send({envelope.head(), bytes, envelope.tail()}));
    if (what.last && !acknowledge && cell.packet_sequence == psn_) ++psn_;
  }

  SeededRandom random_{1};
  Time now_{};
  SimBridgePair bridges_;
  FabricLink own_;
  FabricLink peer_;
  std::vector<std::byte> memory_;
  std::optional<ChannelAdapter> adapter_;
  ProtectionDomain domain_{};
  CqNumber completions_{};
  Stag tag_{};
  Stag bridge_tag_{};
  QpNumber number_{};
  std::uint32_t psn_ = 0;
  std::uint32_t packet_crc_ = kPacketCrcStart;
  std::uint64_t posted_ = 0;
  std::uint64_t ended_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input input(data, std::min<std::size_t>(size, 4096));
  World().run(input);
  return 0;
}
