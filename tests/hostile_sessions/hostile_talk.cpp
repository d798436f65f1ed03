#include "tests/hostile_sessions/hostile_talk.h"

#include <algorithm>
#include <array>
#include <string>

#include "messaging/wire/immediate.h"

namespace splitnic::hostile {

namespace {

namespace wire = messaging::wire;
using messaging::Channel;

constexpr std::size_t kMaxMessage = 4096;
constexpr unsigned kMostRounds = 16;
constexpr unsigned kCellsInRound = 64;

MacAddress draw_mac(Input& input) {
  MacAddress mac{{0x02, 0, 0, 0, 0, input.byte()}};
  if (input.byte() >= 192) mac.octets[0] = input.byte();
  return mac;
}

std::string draw_text(Input& input, std::size_t limit) {
  const std::size_t bytes = std::min<std::size_t>(input.byte(), limit);
  return std::string(bytes, static_cast<char>('a' + input.byte() % 26));
}

wire::HelloRequest draw_hello(Input& input) {
  wire::HelloRequest hello;
  hello.mode = input.byte() % 4 == 0 ? wire::Mode::send : wire::Mode::rdma;
  hello.features = input.byte();
  hello.name = input.byte() < 64 ? "a" : "h" + draw_text(input, 20);  // an honest host's, or an invented one
  hello.requested_mac = draw_mac(input);
  hello.terms = {.max_message_bytes = input.near(4096),
                 .max_list_entries = input.near(64),
                 .max_frame_bytes = input.near(1522),
                 .cell_bytes = input.near(256),
                 .receive_depth = input.near(64),
                 .data_channel = {{.queue_pair = input.near(2), .receive_depth = 64, .initial_psn = input.near(5)}}};
  return hello;
}

wire::ReceiveFilter draw_filter(Input& input) {
  wire::ReceiveFilter filter{.all_multicast = input.byte() % 2 != 0, .promiscuous = input.byte() % 2 != 0};
  for (unsigned count = input.byte() % 65; count > 0; --count) filter.unicast.push_back(draw_mac(input));
  for (unsigned count = input.byte(); count > 0; --count) {
    filter.multicast.push_back(draw_mac(input));
    filter.multicast.back().octets[0] |= 1U;
  }
  return filter;
}

wire::RequestBody draw_request(Input& input) {
  switch (input.byte() % 12) {
    case 0:
      return draw_hello(input);
    case 1:
      return wire::SetMacAddress{draw_mac(input)};
    case 2:
      return wire::SetMtu{input.near(1500)};
    case 3:
      return wire::LinkState{.up = input.byte() % 2 != 0, .speed_mbps = input.byte(), .max_mtu = input.near(1500)};
    case 4:
      return draw_filter(input);
    case 5:
      return wire::VlanFilter{{{static_cast<std::uint16_t>(1 + input.byte()), 300}}};
    case 6:
      return wire::Moderation{input.byte(), input.half(), std::chrono::microseconds(input.half())};
    case 7:
      return wire::StatisticsReport{};
    case 8:
      return wire::StatisticsClear{};
    case 9:
      return wire::StatusReport{input.byte(), draw_text(input, wire::kMaxTextBytes)};
    case 10:
      // A reset ends the session, so that it should be rare.
      if (input.byte() >= 224) return wire::Reset{input.byte(), draw_text(input, 20)};
      [[fallthrough]];
    default:
      return wire::Heartbeat{input.byte()};
  }
}

wire::ReplyBody draw_reply(Input& input) {
  switch (input.byte() % 6) {
    case 0: {
      wire::HelloReply hello;
      hello.mode = input.byte() % 4 == 0 ? wire::Mode::send : wire::Mode::rdma;
      hello.features = input.byte() % 4;
      hello.name = "u" + draw_text(input, 20);
      hello.assigned_mac = draw_mac(input);
      hello.max_mtu = input.near(1500);
      hello.terms = draw_hello(input).terms;
      return hello;
    }
    case 1:
      return wire::MacAddressReply{draw_mac(input)};
    case 2:
      return wire::MtuReply{input.near(1500)};
    case 3: {
      wire::Statistics statistics;
      for (unsigned count = input.byte(); count > 0; --count) statistics.counters.push_back({"x", input.byte()});
      return statistics;
    }
    case 4:
      return wire::HeartbeatReply{input.byte()};
    default:
      return wire::Acknowledged{};
  }
}

}  // namespace

void HostileTalk::act(Input& input) {
  note_pools();
  switch (const std::uint8_t what = input.byte(); what % 16) {
    case 0:
      return ask(input);
    case 1:
      return answer(input);
    case 2:
      return advertise(input);
    case 3:
      return return_elements(input);
    case 4:
      return flush(input);
    case 5:
      return say_other(input);
    case 6:
      return indicate(input);
    case 7:
      return write(input);
    case 8:
      return say_again(input);
    case 9:
      if (what >= 224) return scribble(input);
      [[fallthrough]];
    case 10:
    case 11:
      return put_cells(input);
    case 12:
      if (what >= 240) return end_.restart();
      [[fallthrough]];
    case 13:
      return ask(input);
    default:
      return send_frames(input);
  }
}

/// Remembers the pools of ended epochs, too: their tags are stale.
void HostileTalk::note_pools() {
  for (const auto& pool : end_.heard().pools) {
    if (std::ranges::find(pools_, pool) == pools_.end()) pools_.push_back(pool);
  }
}

/// Sends the message: as it is, with changed bytes, or cut off; once or many times.
void HostileTalk::speak(std::span<const std::byte> message, Input& input) {
  last_.assign(message.begin(), message.end());
  say_again(input);
}

void HostileTalk::say_again(Input& input) {
  const std::uint8_t how = input.byte();
  if (how >= 248 && !last_.empty()) {
    last_[input.half() % last_.size()] ^= static_cast<std::byte>(input.byte() | 1U);
    if (how >= 252) last_.resize(input.half() % last_.size());
  }
  const unsigned times = how % 8 == 0 ? 1U + input.byte() % 64 : 1;
  for (unsigned time = 0; time < times && end_.say_bytes(last_); ++time) ++tally_.messages;
}

void HostileTalk::ask(Input& input) {
  const wire::RequestBody body = draw_request(input);
  const auto data = wire::encode(body);
  std::array<std::byte, 2 * kMaxMessage> out{};
  if (data.size() > kMaxMessage) return;
  const auto code = static_cast<wire::CfgRequest>(input.near(static_cast<std::uint32_t>(wire::request_of(body))));
  speak(std::span(out).first(wire::encode_cfg_util_request(out, input.byte(), code, data)), input);
}

void HostileTalk::answer(Input& input) {
  const auto data = wire::encode(draw_reply(input));
  std::array<std::byte, 8 * kMaxMessage> out{};
  const std::uint64_t transaction = input.near_double(end_.heard().asked);
  const auto status = static_cast<wire::CfgStatus>(input.byte() % 8 == 0 ? input.byte() % 8 : 0);
  speak(std::span(out).first(wire::encode_cfg_util_reply(out, transaction, status, data)), input);
}

void HostileTalk::advertise(Input& input) {
  constexpr std::uint32_t kElementBytes = 1536;
  wire::PoolAdvertisement pool{.pool = wire::PoolNumber{1}, .elements = 4, .element_bytes = kElementBytes};
  if (input.byte() % 2 == 0) {
    if (const auto real = end_.make_pool(1 + input.byte() % 16U, kElementBytes)) pool = *real;
  }
  pool.pool.value = input.near(pool.pool.value);
  pool.elements = input.near(pool.elements);
  pool.element_bytes = input.near(pool.element_bytes);
  pool.memory_handle = input.near(pool.memory_handle);
  pool.address = input.near_double(pool.address);
  const std::vector<wire::PoolAdvertisement> list(input.byte() >= 240 ? 8 : 1, pool);
  std::array<std::byte, kMaxMessage> out{};
  speak(std::span(out).first(wire::encode_buffer_recv_pool(out, input.byte(), list)), input);
}

void HostileTalk::return_elements(Input& input) {
  const auto indication = end_.heard().indication.value_or(wire::Indication{});
  const wire::ElementRun run{wire::PoolNumber{input.near(indication.pool.value)}, input.near(indication.element),
                             input.near(1)};
  std::array<std::byte, kMaxMessage> out{};
  speak(std::span(out).first(wire::encode_buffer_recv_pool_update(out, 0, std::span(&run, 1))), input);
}

void HostileTalk::flush(Input& input) {
  std::array<std::byte, kMaxMessage> out{};
  if (input.byte() % 4 == 0) {
    const std::uint64_t transaction = input.near_double(end_.heard().flush);
    return speak(std::span(out).first(wire::encode_buffer_pool_flush_reply(out, transaction)), input);
  }
  const wire::FlushedPool pool{wire::PoolNumber{input.near(input.byte() % 3)}, input.byte() % 2 == 0};
  speak(std::span(out).first(wire::encode_buffer_pool_flush_request(out, input.byte(), std::span(&pool, 1))), input);
}

void HostileTalk::say_other(Input& input) {
  std::array<std::byte, 2 * kMaxMessage> out{};
  std::size_t bytes = 0;
  switch (input.byte() % 8) {
    case 0:
      bytes = wire::encode_unsupported(out, {.transaction = input.byte(), .offending_word = input.word()});
      break;
    case 1: {
      const wire::Indication indication{wire::PoolNumber{0}, input.byte(), input.half()};
      bytes = wire::encode_buffer_rdma_indicate(out, 0, std::span(&indication, 1));
      break;
    }
    case 2:
    case 3: {
      auto frame = world_.draw_frame(input);
      frame.resize(std::max<std::size_t>(frame.size(), wire::kMinFrameBytes));
      bytes = wire::encode_send_data(out, 0, frame);
      break;
    }
    default:
      bytes = wire::encode_buffer_recv_pool_get(out, input.byte(), input.near(1500), input.near(8));
  }
  speak(std::span(out).first(bytes), input);
}

void HostileTalk::indicate(Input& input) {
  Channel* const data = end_.data();
  if (data == nullptr || !end_.data_connected()) return;
  const auto buffer = data->claim();
  if (buffer.empty()) return;
  wire::IndicateWriter writer(buffer, 64);
  for (unsigned count = 1 + input.byte() % 4; count > 0; --count) {
    const wire::Indication indication{wire::PoolNumber{input.near(0)}, input.near(end_.next_element()), input.near(60)};
    if (!writer.add(indication)) break;
  }
  if (data->commit(writer.finish().size())) ++tally_.messages;
}

/// Into an element of the victim, or near one, with an indication that may say something else.
void HostileTalk::write(Input& input) {
  Channel* const data = end_.data();
  if (data == nullptr || !end_.data_connected() || pools_.empty()) return;
  const auto buffer = data->claim();
  if (buffer.empty() || !data->can_write()) return;
  const wire::PoolAdvertisement& pool = input.byte() >= 224 ? pools_[input.byte() % pools_.size()] : pools_.back();
  const std::uint32_t element = input.near(end_.next_element());
  const std::uint32_t bytes = std::min(input.near(60), static_cast<std::uint32_t>(buffer.size()));
  const fabric::RemoteAddress to{input.near_double(pool.address + std::uint64_t{element} * pool.element_bytes),
                                 fabric::Stag{input.byte() >= 240 ? input.word() : pool.memory_handle}};
  const std::uint32_t immediate = input.near(element << 16U | bytes);
  const auto frame = world_.draw_frame(input);
  std::copy_n(frame.begin(), std::min<std::size_t>(frame.size(), bytes), buffer.begin());
  if (data->commit_write(bytes, to, input.byte() % 8 == 0 ? nullptr : &immediate)) ++tally_.writes;
}

void HostileTalk::send_frames(Input& input) {
  const auto frame = world_.draw_frame(input);
  const unsigned times = 1U + input.byte() % 8;
  for (unsigned time = 0; time < times && end_.send_frame(frame); ++time) ++tally_.writes;
}

/// Cells by hand: for queue pairs that are and that are not, behind or before the sequence, with any opcode.
void HostileTalk::put_cells(Input& input) {
  SeededRandom random(input.half());
  const std::uint8_t how = input.byte();
  for (unsigned rounds = flood_ * (1U + input.byte() % kMostRounds); rounds > 0 && end_.link().up(); --rounds) {
    for (unsigned count = 0; count < kCellsInRound && put_cell(random, how); ++count) ++tally_.cells;
    end_.link().notify();
    world_.step(std::chrono::microseconds(1));
  }
}

/// False: there is no room.
bool HostileTalk::put_cell(RandomSource& random, std::uint8_t how) {
  fabric::Cell cell;
  cell.opcode = static_cast<fabric::Opcode>(random.below(30));
  const std::array<std::uint32_t, 3> numbers{1, end_.peer_data_number(), random.next32() & 0xffU};
  const bool nobodys = how < 240;
  cell.destination_queue_pair =
      fabric::QpNumber{nobodys ? 0x1000U + random.next32() % 0x1000U : numbers[random.below(numbers.size())]};
  cell.packet_sequence = how % 4 == 0 ? random.next32() : static_cast<std::uint32_t>(random.below(64));
  cell.address = random.next();
  cell.tag = fabric::Stag{pools_.empty() || how % 3 == 0 ? random.next32() : pools_.back().memory_handle};
  cell.message_bytes = static_cast<std::uint32_t>(random.below(1U << 16U));
  cell.immediate = random.next32();
  const auto lane = random.below(2) == 0 ? fabric::VirtualLane::control : fabric::VirtualLane::data;
  const std::size_t payload = how % 2 == 0 ? 0 : random.below(64);
  fabric::ClaimedPayload to;
  if (!end_.link().claim(lane, cell, payload, to)) return false;
  const std::vector<std::byte> bytes(payload, static_cast<std::byte>(how));
  to.put(bytes);
  std::uint32_t crc = fabric::kPacketCrcStart;
  end_.link().release(lane, cell, crc);
  return true;
}

/// Anything anywhere in the memory that the victim shares.
void HostileTalk::scribble(Input& input) {
  fabric::PeerWindow& window = end_.bridge().peer_window();
  const std::uint64_t word = input.double_word();
  const std::size_t at = input.word() % (window.size() - sizeof word);
  window.write(at, std::as_bytes(std::span(&word, 1)));
}

}  // namespace splitnic::hostile
