// Attacks on the link and on the control session.
#include <algorithm>

#include "tests/hostile_host/ends.h"

namespace splitnic::hostile {

namespace {

MacAddress random_mac(RandomSource& random) {
  MacAddress mac;
  for (auto& octet : mac.octets) octet = static_cast<std::uint8_t>(random.next());
  mac.octets[0] = 0x02;
  return mac;
}

/// Each time that the session is up, a new one on the same bridge.
void restart_sessions(Target& target, Counts& counts) {
  auto& ups = counts["sessions"];
  while (target.goes_on()) {
    const std::shared_ptr<fabric::Bridge> bridge = connect(target);
    while (bridge && bridge->link() == fabric::LinkState::up && target.goes_on()) {
      HostEnd end(target, bridge);
      if (end.come_up(target)) ++ups;
    }
  }
}

void change_epochs(Target& target, Counts& counts) {
  auto& epochs = counts["epochs"];
  auto& ups = counts["links_up"];
  SystemRandom random;
  while (target.goes_on()) {
    const auto bridge = connect(target);
    if (!bridge) return;
    fabric::FabricLink link(*bridge, {}, random);
    while (bridge->link() == fabric::LinkState::up && target.goes_on()) {
      link.restart();
      ++epochs;
      for (unsigned polls = 0; polls < 2000 && !link.up(); ++polls) link.poll(monotonic_now());
      if (link.up()) ++ups;
    }
  }
}

fabric::Cell random_cell(RandomSource& random) {
  fabric::Cell cell;
  cell.opcode = static_cast<fabric::Opcode>(random.below(30));
  cell.destination_queue_pair = fabric::QpNumber{static_cast<std::uint32_t>(random.below(4))};
  cell.packet_sequence = static_cast<std::uint32_t>(random.below(16));
  cell.address = random.next();
  cell.tag = fabric::Stag{random.next32()};
  cell.message_bytes = static_cast<std::uint32_t>(random.below(1U << 16U));
  cell.immediate = random.next32();
  return cell;
}

void send_cells(Target& target, Counts& counts) {
  auto& cells = counts["cells"];
  SystemRandom random;
  while (target.goes_on()) {
    const auto bridge = connect(target);
    if (!bridge) return;
    fabric::FabricLink link(*bridge, {}, random);
    link.restart();
    while (bridge->link() == fabric::LinkState::up && target.goes_on()) {
      link.poll(monotonic_now());
      if (link.phase() == fabric::LinkPhase::faulty) link.restart();
      for (unsigned batch = 0; batch < 64 && link.up(); ++batch) {
        const auto lane = target.random.below(2) == 0 ? fabric::VirtualLane::control : fabric::VirtualLane::data;
        while (link.front(lane) != nullptr) link.pop(lane);
        link.return_room(lane, true);
        const fabric::Cell cell = random_cell(target.random);
        fabric::ClaimedPayload to;
        if (!link.claim(lane, cell, target.random.below(64), to)) break;
        std::uint32_t crc = 0;
        link.release(lane, cell, crc);
        ++cells;
      }
      link.notify();
    }
  }
}

/// Runs act over and over on control sessions that the unit has accepted. act: false: no room now.
template <class Act>
void on_sessions(Target& target, Counts& counts, Act&& act) {
  auto& sessions = counts["sessions"];
  while (target.goes_on()) {
    auto bridge = connect(target);
    if (!bridge) return;
    ControlEnd end(target, std::move(bridge));
    while (target.goes_on() && end.greet(target)) {
      ++sessions;
      do {
        for (unsigned batch = 0; batch < 32 && act(end); ++batch) {
        }
      } while (end.poll() && target.goes_on());
      counts["answers"] = end.answers();
    }
  }
}

void send_bad_messages(Target& target, Counts& counts) {
  auto& messages = counts["messages"];
  on_sessions(target, counts, [&](ControlEnd& end) {
    const bool sent = end.say([&](std::span<std::byte> out) {
      // A message that is right, and then one byte of it is not.
      const std::uint64_t what = target.random.below(3);
      const wire::ElementRun run{};
      const std::size_t bytes =
          what == 0   ? wire::encode_buffer_recv_pool_update(out, 0, std::span(&run, 1))
          : what == 1 ? wire::encode_buffer_recv_pool_get(out, messages, 1500, 8)
                      : wire::encode_cfg_util_request(out, messages, wire::CfgRequest::set_mac_address,
                                                      wire::encode(wire::RequestBody(wire::SetMacAddress{kNobody})));
      out[target.random.below(bytes)] ^= static_cast<std::byte>(1U + target.random.below(255));
      return bytes;
    });
    if (sent) ++messages;
    return sent;
  });
}

void ask_for_addresses(Target& target, Counts& counts) {
  auto& requests = counts["requests"];
  on_sessions(target, counts, [&](ControlEnd& end) {
    const bool sent = end.request(wire::SetMacAddress{random_mac(target.random)});
    requests += sent ? 1 : 0;
    return sent;
  });
}

void ask_for_filters(Target& target, Counts& counts) {
  auto& requests = counts["requests"];
  on_sessions(target, counts, [&](ControlEnd& end) {
    wire::ReceiveFilter filter{.promiscuous = true};
    for (unsigned index = 0; index < 60; ++index) filter.unicast.push_back(random_mac(target.random));
    for (unsigned index = 0; index < 250; ++index) {
      filter.multicast.push_back(random_mac(target.random));
      filter.multicast.back().octets[0] = 0x01;
    }
    const bool sent = end.request(filter);
    requests += sent ? 1 : 0;
    return sent;
  });
}

void talk(Target& target, Counts& counts) {
  auto& requests = counts["requests"];
  on_sessions(target, counts, [&](ControlEnd& end) {
    const bool sent = end.request(wire::StatusReport{1, std::string(wire::kMaxTextBytes, 'x')});
    requests += sent ? 1 : 0;
    return sent;
  });
}

void return_what_it_has_not(Target& target, Counts& counts) {
  auto& messages = counts["messages"];
  on_sessions(target, counts, [&](ControlEnd& end) {
    const wire::ElementRun run{wire::PoolNumber{target.random.next32() & 7U}, target.random.next32() & 0xffU, 4};
    const bool sent = end.say(
        [&](std::span<std::byte> out) { return wire::encode_buffer_recv_pool_update(out, 0, std::span(&run, 1)); });
    messages += sent ? 1 : 0;
    return sent;
  });
}

void greet_again(Target& target, Counts& counts) {
  auto& requests = counts["requests"];
  on_sessions(target, counts, [&](ControlEnd& end) {
    wire::HelloRequest hello;
    hello.name = "invented-" + std::to_string(target.random.below(1U << 20U));
    hello.terms = {.max_message_bytes = 4096,
                   .max_list_entries = 64,
                   .max_frame_bytes = 1522,
                   .cell_bytes = 256,
                   .receive_depth = 64,
                   .data_channel = {}};
    const bool sent = end.request(hello);
    requests += sent ? 1 : 0;
    return sent;
  });
}

/// An indication, or a write with one, of an element that is not there or not this host's to fill.
bool indicate_wrongly(test::ValidEnd& end, RandomSource& random) {
  messaging::Channel* const data = end.data();
  const auto buffer = end.data_connected() ? data->claim() : std::span<std::byte>();
  if (buffer.empty()) return false;
  const wire::Indication wrong{wire::PoolNumber{random.next32() & 3U}, random.next32() & 0x1ffU,
                               random.next32() & 0xffffU};
  if (random.below(2) == 0) {
    return data->commit(wire::encode_buffer_rdma_indicate(buffer, 0, std::span(&wrong, 1)));
  }
  const wire::PoolAdvertisement& pool = end.heard().pools.front();
  const std::uint32_t immediate = random.next32();
  return data->can_write() && data->commit_write(14, {pool.address, fabric::Stag{pool.memory_handle}}, &immediate);
}

constexpr unsigned kRightIndications = 2000;

/// Fills elements with nothing, as fast as the unit returns them, and now and then indicates a wrong one.
void indicate(Target& target, Counts& counts) {
  auto& sessions = counts["sessions"];
  auto& frames = counts["indications"];
  auto& wrong = counts["wrong"];
  const std::vector<std::byte> nothing(60);
  while (target.goes_on()) {
    auto bridge = connect(target);
    if (!bridge) return;
    ControlEnd end(target, std::move(bridge));
    while (target.goes_on() && end.come_up(target)) {
      ++sessions;
      unsigned right = 0;
      while (end.poll() && target.goes_on()) {
        end.end().take_next_step();
        for (; right < kRightIndications && end.end().send_frame(nothing); ++right) ++frames;
        if (right == kRightIndications && indicate_wrongly(end.end(), target.random)) {
          ++wrong;
          right = 0;
        }
      }
    }
  }
}

constexpr Attack kSessionAttacks[] = {
    {"restarts", "comes up and starts a new session at once, on the same bridge", restart_sessions},
    {"epochs", "announces one epoch after the other", change_epochs},
    {"cells", "sends cells with random opcodes, numbers, addresses and tags", send_cells},
    {"messages", "sends control messages of which one byte is wrong", send_bad_messages},
    {"addresses", "requests one address after the other, without waiting for the answers", ask_for_addresses},
    {"filters", "requests the longest receive filters likewise", ask_for_filters},
    {"talk", "sends status reports, each a line in the unit's log", talk},
    {"hellos", "says hello again under invented names", greet_again},
    {"returns", "returns elements that it does not have", return_what_it_has_not},
    {"indications", "fills elements with nothing, and indicates some that it may not fill", indicate},
};

}  // namespace

std::span<const Attack> session_attacks() { return kSessionAttacks; }

}  // namespace splitnic::hostile
