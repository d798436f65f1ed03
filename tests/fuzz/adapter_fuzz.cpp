// A live adapter whose peer writes cells of the fuzzer's choice, with CRCs that fit, between posts of every kind,
// polls, deregistrations, changes of state and restarts of its own. Nothing but the adapter's own regions may change,
// every request ends exactly once, and no queue pair is ended by more than one terminate message.

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
#include "fabric/memory/mpt.h"
#include "fabric/wire/cell.h"
#include "tests/hostile_sessions/input.h"
#include "tests/sim_bridge/sim_bridge.h"
#include "tests/unit/fabric/every_opcode.h"

namespace {

using namespace splitnic;
using namespace splitnic::fabric;
using hostile::Input;

constexpr Rights kRights = Right::local_read | Right::local_write | Right::remote_read | Right::remote_write |
                           Right::remote_atomic | Right::window_binding;
constexpr Rights kPlaceableRights = Right::local_read | Right::local_write | Right::remote_write;
constexpr QpNumber kPeerNumber{77};
constexpr RemoteAddress kGranted{0x1000, Stag{0x4d00}};
constexpr std::size_t kGuard = 512;
constexpr std::size_t kPage = 4096;
constexpr std::byte kUntouched{0x5a};

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
  options.slot_bytes = {4U << 10U, 8U << 10U};
  options.payload_bytes = {8U << 10U, 16U << 10U};
  options.port_address = PortAddress{port};
  return options;
}

class World {
 public:
  World()
      : bridges_(calm(), random_),
        own_(bridges_.end(0), link_options(1), random_),
        peer_(bridges_.end(1), link_options(2), random_),
        memory_(2 * kPage + kGuard + kPage + kGuard, kUntouched) {
    void* at = memory_.data() + kGuard;
    std::size_t room = memory_.size() - kGuard;
    page_ = static_cast<std::byte*>(std::align(kPage, kPage + kGuard, at, room));
    SPLITNIC_CHECK(page_ != nullptr);
    pages_ = {page_};
    own_.restart();
    peer_.restart();
    come_up();
    grant_to_adapter();
    AdapterOptions options;
    options.cell_payload_bytes = 256;  // so that its messages have several cells
    adapter_.emplace(own_, options, random_);
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
          static_cast<void>(adapter_->deregister(what >= 128 ? tag_ : bridge_tag_));
          break;
        case 4:
          rebuild(what >= 128);
          break;
        case 5:
          restart_peer();
          break;
        case 6:
          post_memory_request(input.half(), what >> 4U);
          break;
        case 7:
          change_state(what >> 4U);
          break;
        case 8:
          spoil_table(input);
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
    SPLITNIC_CHECK_OP(posted_, <=, ended_);
    SPLITNIC_CHECK_OP(ended_, <=, posted_ + unsignalled_);
    const auto guard_holds = [](std::byte byte) { return byte == kUntouched; };
    const std::span<std::byte> all(memory_);
    SPLITNIC_CHECK(std::all_of(all.data(), page_, guard_holds));
    SPLITNIC_CHECK(std::all_of(page_ + kPage, all.data() + all.size(), guard_holds));
  }

 private:
  void come_up() {
    for (int i = 0; i < 1000 && !(own_.up() && peer_.up()); ++i) advance(std::chrono::milliseconds(1));
    SPLITNIC_CHECK(own_.up() && peer_.up());
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
      while (const ReceivedCell* front = peer_.front(lane)) {
        SPLITNIC_CHECK(!front->fault);
        remember(front->cell);
        peer_.pop(lane);
      }
      peer_.return_room(lane, true);
    }
  }
  /// What an answer has to fit.
  void remember(const Cell& sent) {
    const OpcodeTraits& what = traits(sent.opcode);
    if (what.is(MessageKind::send) || what.is(MessageKind::write)) sent_psn_ = sent.packet_sequence;
    if (what.is(MessageKind::read_request) || what.is(MessageKind::atomic)) {
      asked_psn_ = sent.packet_sequence;
      asked_bytes_ = sent.message_bytes;
    }
  }
  /// Memory of the peer's that the adapter may store into directly.
  void grant_to_adapter() {
    grants_.start(*peer_.direct());
    MptGrant grant;
    grant.tag = kGranted.tag;
    grant.address = kGranted.address;
    grant.length = 4096;
    grant.window_offset = peer_.buffers().offset;
    grant.rights = kPlaceableRights;
    SPLITNIC_CHECK(grants_.grant(*peer_.direct(), grant));
  }
  /// The peer's table holds anything, at a place of the fuzzer's choice.
  void spoil_table(Input& input) {
    if (!peer_.up()) return;
    const MemoryRange range = input.byte() % 2 == 0 ? peer_.direct()->peer_mpt : peer_.direct()->peer_admissions;
    const std::array bytes{std::byte{input.byte()}, std::byte{input.byte()}};
    peer_.bridge().peer_window().write(range.offset + input.half() % (range.bytes - bytes.size()), bytes);
  }
  void rebuild(bool acknowledged) {
    static_cast<void>(adapter_->destroy_queue_pair(number_));
    collect();
    SPLITNIC_CHECK_OP(adapter_->counters().terminates_sent, <=, built_);
    ++built_;
    static_cast<void>(adapter_->table().deallocate(window_));
    static_cast<void>(adapter_->table().deregister(fast_));
    static_cast<void>(adapter_->deregister(tag_));
    tag_ = adapter_->register_memory(domain_, std::span(page_, kPage), kRights).value();
    static_cast<void>(adapter_->deregister(bridge_tag_));
    bridge_tag_ = adapter_->register_bridge_memory(domain_, {own_.buffers().offset + 64, 4096}, kPlaceableRights, true)
                      .value_or(Stag{});
    std::array<Stag, 1> windows{};
    SPLITNIC_CHECK(adapter_->table().allocate_windows(domain_, EntryKind::window_type_2, windows));
    window_ = windows[0];
    fast_ = adapter_->table().allocate_region(domain_, 1).value();
    QueuePairAttributes options;
    options.domain = domain_;
    options.send_completions = options.receive_completions = completions_;
    options.acknowledged = acknowledged;
    options.memory_requests = true;
    options.on_memory_request_failure =
        (built_ & 1U) != 0 ? MemoryRequestFailure::fail : MemoryRequestFailure::fail_sends;
    options.max_inline_bytes = 128;
    number_ = adapter_->create_queue_pair(options).value();
    psn_ = random_.next32();
    message_sequence_ = 0;
    static_cast<void>(adapter_->connect(number_, {kPeerNumber, 1, psn_}));
    if (!peer_.up()) return;
    static_cast<void>(grants_.dismiss(*peer_.direct(), kPeerNumber));
    SPLITNIC_CHECK(grants_.admit(*peer_.direct(), {kPeerNumber, number_, {}}));
  }
  void restart_peer() {
    peer_.restart();
    come_up();
    grant_to_adapter();
    rebuild(true);
  }
  LocalSegment segment(std::size_t bytes) { return {page_, static_cast<std::uint32_t>(bytes % (kPage + 1)), tag_}; }
  void post_receive(std::size_t bytes) {
    if (adapter_->post_receive(number_, {1, segment(bytes)}) == Status::ok) ++posted_;
  }
  /// Any kind of request that goes over the wire, and delays.
  void post_send(std::size_t bytes, std::uint8_t how) {
    constexpr std::array kOperations{Operation::send,
                                     Operation::rdma_write,
                                     Operation::rdma_write_with_immediate,
                                     Operation::send_with_invalidate,
                                     Operation::rdma_read,
                                     Operation::compare_swap,
                                     Operation::fetch_add,
                                     Operation::delay};
    WorkRequest request;
    request.operation = kOperations[how % kOperations.size()];
    const bool atomic = request.operation == Operation::compare_swap || request.operation == Operation::fetch_add;
    const bool delay = request.operation == Operation::delay;
    request.segments[0] = segment(atomic ? kAtomicBytes : bytes % 2048);
    if ((how & 128U) != 0) {
      request.segments[0] =
          LocalSegment::at(adapter_->region_address(bridge_tag_), request.segments[0].bytes, bridge_tag_);
    }
    request.segment_count = delay ? 0 : 1;
    request.remote = (bytes & 1U) != 0 ? kGranted : RemoteAddress{std::uint64_t{how} << 8U, Stag{how}};
    request.delay = std::chrono::microseconds(bytes);
    request.fence = (how & 8U) != 0;
    request.solicited = (how & 16U) != 0;
    request.signalled = (how & 32U) == 0;
    request.inline_data = (how & 64U) != 0;
    request.invalidate = Stag{how};
    post(request);
  }
  void post(const WorkRequest& request) {
    if (adapter_->post_send(number_, request) != Status::ok) return;
    // What is not signalled may end without a completion, and is not counted.
    ++(request.signalled ? posted_ : unsignalled_);
  }
  void post_memory_request(std::size_t bytes, unsigned how) {
    MemoryRequest memory = Bind{.window = window_,
                                .region = tag_,
                                .address = adapter_->region_address(tag_) + bytes % 64,
                                .length = bytes / 64,
                                .rights = Right::remote_read | Right::remote_write,
                                .key = static_cast<std::uint8_t>(bytes)};
    WorkRequest request;
    request.fence = (how & 4U) != 0;
    switch (how & 3U) {
      case 0:
        request.operation = Operation::bind_window;
        request.memory = &memory;
        break;
      case 1: {
        FastRegister fast;
        fast.tag = fast_;
        fast.key = static_cast<std::uint8_t>(bytes);
        fast.pages.pages = pages_;
        fast.pages.end_offset = 1 + bytes % 4096;
        fast.options.rights = kRights;
        fast.options.invalidatable = true;
        memory = fast;
        request.operation = (how & 8U) != 0 ? Operation::send : Operation::register_memory;
        request.memory = &memory;
        break;
      }
      default:
        request.operation = Operation::local_invalidate;
        request.invalidate = (how & 1U) != 0 ? window_ : fast_;
    }
    post(request);
    // The instances that binds and registrations have given by now.
    collect();
  }
  void change_state(unsigned how) {
    constexpr std::array kEvents{QueuePairEvent::drain_sends, QueuePairEvent::ready_to_send, QueuePairEvent::fail_sends,
                                 QueuePairEvent::fail};
    static_cast<void>(adapter_->modify(number_, kEvents[how % kEvents.size()]));
  }
  void collect() {
    std::array<Completion, 32> out;
    while (const std::size_t count = adapter_->poll_completions(completions_, out)) {
      ended_ += count;
      for (const Completion& end : std::span(out).first(count)) {
        if (end.operation == Operation::bind_window && end.tag != Stag{}) window_ = end.tag;
        if (end.operation == Operation::register_memory && end.tag != Stag{}) fast_ = end.tag;
      }
    }
    SPLITNIC_CHECK_OP(ended_, <=, posted_ + unsignalled_);
    std::array<AsyncEvent, 16> events;
    while (adapter_->poll_events(events) != 0) {
    }
  }
  void put_cell(Input& input) {
    static const std::vector<Opcode> opcodes = [] {
      std::vector<Opcode> every = test::every_opcode();
      std::erase_if(every, [](Opcode opcode) { return traits(opcode).xrc; });
      return every;
    }();
    Cell cell;
    cell.opcode = opcodes[input.byte() % opcodes.size()];
    const std::uint8_t shape = input.byte();
    // Now and then as an XRC initiator's, of which there is none.
    const bool xrc = (shape & 0xe0U) == 0xa0U && traits(static_cast<std::uint8_t>(xrc_of(cell.opcode))).xrc;
    if (xrc) cell.opcode = xrc_of(cell.opcode);
    cell.shared_receives = SrqNumber{1U + shape % 4U};
    const OpcodeTraits& what = traits(cell.opcode);
    cell.direct = what.may_be_direct() && (shape & 1U) != 0;
    cell.solicited = what.may_be_solicited() && (shape & 2U) != 0;
    if (!what.is(MessageKind::drain)) {
      cell.destination_queue_pair = number_;
      cell.source_queue_pair = kPeerNumber;
    }
    const bool gives = what.is(MessageKind::read_response) || what.is(MessageKind::atomic_response);
    const bool answers = gives || what.is(MessageKind::acknowledgement) || what.is(MessageKind::terminate) ||
                         what.is(MessageKind::not_taken);
    // Most are the number that is expected.
    const std::uint32_t off = input.byte();
    cell.packet_sequence = (gives ? asked_psn_ : answers ? sent_psn_ : psn_) + (off < 192 ? 0 : off % 8 - 2);
    cell.cell_sequence = what.first ? 0 : static_cast<std::uint16_t>(1 + (shape >> 1U & 3U));
    cell.syndrome = static_cast<Syndrome>((shape >> 1U) % kSyndromes);
    cell.delay_microseconds = shape;
    cell.reason = {static_cast<std::uint8_t>(shape & 1U), static_cast<std::uint8_t>(shape >> 1U & 3U), shape};
    cell.generation = shape % 4;
    std::size_t payload = payload_bytes(what, cell.direct, input);
    if (what.is(MessageKind::read_response) && what.last && payload != 0 && (shape & 4U) == 0) {
      payload = std::clamp<std::size_t>(asked_bytes_, 1, 700);
    }
    const std::array tags{tag_, bridge_tag_, window_, fast_};
    cell.tag = cell.sink_tag = cell.invalidate = tags[(shape >> 3U & 3U)];
    if ((shape & 0x70U) == 0x70U) cell.tag.value ^= 1U << input.byte() % 32;
    cell.address = adapter_->region_address(cell.tag) + input.half() - 64;
    if ((shape & 1U) != 0) cell.sink_tag = kGranted.tag;
    cell.sink_address = (shape & 1U) != 0 ? kGranted.address : cell.address;
    cell.message_bytes = what.is(MessageKind::read_request) ? input.half() % 1024 : 0;
    cell.message_bytes += static_cast<std::uint32_t>(payload + ((shape & 16U) != 0 ? input.half() : what.last ? 0 : 1));
    if (what.is(MessageKind::atomic)) {
      cell.message_bytes = kAtomicBytes;
      cell.address &= ~std::uint64_t{7};
      cell.swap_or_add = shape;
    }
    const bool asks = what.is(MessageKind::atomic) || what.is(MessageKind::read_request);
    if (asks) cell.message_sequence = message_sequence_ + ((shape & 0xc0U) == 0xc0U ? 0 : 1);
    const std::vector<std::byte> bytes(payload, std::byte{input.byte()});
    if (!peer_.up()) return;
    const auto lane = (shape & 4U) != 0 ? VirtualLane::control : VirtualLane::data;
    ClaimedPayload to;
    if (peer_.claim(lane, cell, bytes.size(), to)) {
      to.put(bytes);
      std::uint32_t packet_crc = kPacketCrcStart;
      peer_.release(lane, cell, packet_crc);
    }
    if (what.last && !answers && !what.is(MessageKind::drain) && cell.packet_sequence == psn_) {
      ++psn_;
      message_sequence_ += asks ? 1 : 0;
    }
  }
  static std::size_t payload_bytes(const OpcodeTraits& what, bool direct, Input& input) {
    if (what.is(MessageKind::terminate)) return input.byte() % (kMaxCellHeadBytes + 1);
    return what.carries_message() && !direct ? input.half() % 700 : 0;
  }

  SeededRandom random_{1};
  Time now_{};
  SimBridgePair bridges_;
  FabricLink own_;
  FabricLink peer_;
  std::vector<std::byte> memory_;
  std::byte* page_ = nullptr;  // within memory_, guards around it
  std::array<std::byte*, 1> pages_{};
  std::optional<ChannelAdapter> adapter_;
  ProtectionDomain domain_{};
  CqNumber completions_{};
  Stag tag_{};
  Stag bridge_tag_{};
  Stag window_{};
  Stag fast_{};
  QpNumber number_{};
  std::uint32_t psn_ = 0;
  std::uint32_t message_sequence_ = 0;
  std::uint32_t sent_psn_ = 0;  // of the adapter's last send or write, and of its last read or atomic
  std::uint32_t asked_psn_ = 0;
  std::uint32_t asked_bytes_ = 0;
  MptPublisher grants_;
  std::uint64_t built_ = 0;
  std::uint64_t posted_ = 0;
  std::uint64_t unsignalled_ = 0;
  std::uint64_t ended_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input input({data, std::min<std::size_t>(size, 4096)});
  World().run(input);
  return 0;
}
