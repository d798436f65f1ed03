#include "tests/unit/messaging/wire_samples.h"

#include <fmt/format.h>

#include <stdexcept>

namespace splitnic::messaging::wire::samples {
namespace {

constexpr MacAddress kHostMac{{0x02, 0x00, 0x5e, 0x10, 0x00, 0x01}};

Sample request(const std::string& name, std::uint64_t transaction, const RequestBody& body) {
  const auto data = encode(body);
  return {"CfgUtilRequest-" + name,
          encoded([&](auto out) { return encode_cfg_util_request(out, transaction, request_of(body), data); })};
}

Sample reply(const std::string& name, std::uint64_t transaction, CfgRequest to, const ReplyBody& body) {
  const auto data = encode(body);
  return {"CfgUtilReply-" + name,
          encoded([&](auto out) { return encode_cfg_util_reply(out, transaction, CfgStatus::ok, data); }), to};
}

void add_buffer_messages(std::vector<Sample>& all) {
  const PoolAdvertisement pools[] = {
      {PoolNumber{7}, 256, 2048, 0x1234'56ab, 0x0000'7f00'0010'0000, 0xfeed'0001},
      {PoolNumber{300}, 64, 65'600, 0x1234'57cd, 0x0000'7f00'0020'0000, 0},
  };
  all.push_back({"BufferRecvPool", encoded([&](auto out) { return encode_buffer_recv_pool(out, 0, pools); })});
  all.push_back(
      {"BufferRecvPoolGet", encoded([&](auto out) { return encode_buffer_recv_pool_get(out, 17, 1514, 512); })});
  const ElementRun runs[] = {{PoolNumber{7}, 250, 6}, {PoolNumber{7}, 0, 10}, {PoolNumber{300}, 3, 1}};
  all.push_back(
      {"BufferRecvPoolUpdate", encoded([&](auto out) { return encode_buffer_recv_pool_update(out, 0, runs); })});
  const FlushedPool flushed[] = {{PoolNumber{7}, false}, {PoolNumber{2}, true}};
  all.push_back({"BufferPoolFlushRequest", encoded([&](auto out) {
                   return encode_buffer_pool_flush_request(out, 0x1122334455667788, flushed);
                 })});
  all.push_back({"BufferPoolFlushReply",
                 encoded([&](auto out) { return encode_buffer_pool_flush_reply(out, 0x1122334455667788); })});
  const Indication indications[] = {{PoolNumber{300}, 63, 65'600}, {PoolNumber{300}, 0, 14}};
  all.push_back(
      {"BufferRDMAIndicate", encoded([&](auto out) { return encode_buffer_rdma_indicate(out, 0, indications); })});
}

void add_data_messages(std::vector<Sample>& all) {
  const Bytes frame =
      from_hex("ffffffffffff 02005e100001 0806 0001080006040001 02005e100001 c0a80a02 000000000000 c0a80a01");
  all.push_back({"SendData", encoded([&](auto out) { return encode_send_data(out, 0, frame); })});
  const Unsupported unsupported{99, 0x000a'0001, kLowestVersion, kHighestVersion,
                                static_cast<std::uint32_t>(UnsupportedReason::unknown_function)};
  all.push_back({"Unsupported", encoded([&](auto out) { return encode_unsupported(out, unsupported); })});
}

void add_requests(std::vector<Sample>& all) {
  all.push_back(request("Hello", 1, sample_hello()));
  all.push_back(request("SetMacAddress", 2, SetMacAddress{kHostMac}));
  all.push_back(request("SetMtu", 3, SetMtu{9000}));
  all.push_back(request("LinkState", 4, LinkState{true, 10'000, 9000}));
  all.push_back(request("SetReceiveFilter", 5,
                        ReceiveFilter{.unicast = {MacAddress{{0x02, 0, 0, 0, 0, 0x2a}}},
                                      .multicast = {MacAddress{{0x01, 0x00, 0x5e, 0x00, 0x00, 0x01}},
                                                    MacAddress{{0x33, 0x33, 0x00, 0x00, 0x00, 0x01}}},
                                      .all_multicast = false,
                                      .promiscuous = true}));
  all.push_back(request("SetVlanFilter", 6, VlanFilter{.only = {{1, 100, 4094}}}));
  all.push_back(request("SetVlanFilter-all", 6, VlanFilter{}));
  all.push_back(request("SetModeration", 7, Moderation{64, 65'536, std::chrono::microseconds(50)}));
  all.push_back(request("StatisticsReport", 8, StatisticsReport{}));
  all.push_back(request("StatisticsClear", 9, StatisticsClear{}));
  all.push_back(request("StatusReport", 10, StatusReport{3, "LAN interface eth1 has vanished"}));
  all.push_back(request("Heartbeat", 11, Heartbeat{41, std::chrono::milliseconds(8000)}));
  all.push_back(request("Reset", 12, Reset{1, "shutting down"}));
}

void add_replies(std::vector<Sample>& all) {
  all.push_back(reply("Hello", 1, CfgRequest::hello, sample_hello_reply()));
  all.push_back(reply("SetMacAddress", 2, CfgRequest::set_mac_address, MacAddressReply{kHostMac}));
  all.push_back(reply("SetMtu", 3, CfgRequest::set_mtu, MtuReply{1500}));
  all.push_back(reply("Acknowledged", 4, CfgRequest::link_state, Acknowledged{}));
  all.push_back(reply("Statistics", 8, CfgRequest::statistics_report,
                      Statistics{.counters = {{"from_host_forged", 12}, {"to_host_no_element", 1U << 31U}},
                                 .counted_for = std::chrono::milliseconds(61'250),
                                 .from_peer = {.frames = 1000, .bytes = 64'000, .errors = 0, .drops = 12},
                                 .to_peer = {.frames = 500, .bytes = 700'000, .errors = 0, .drops = 1U << 31U},
                                 .from_interface = {.frames = 600, .bytes = 800'000, .errors = 1, .drops = 2},
                                 .to_interface = {.frames = 988, .bytes = 63'232, .errors = 3, .drops = 0}}));
  all.push_back(reply("Heartbeat", 11, CfgRequest::heartbeat, HeartbeatReply{41}));
  const auto refusal = encode_refusal("another host has this address");
  all.push_back({"CfgUtilReply-refused",
                 encoded([&](auto out) { return encode_cfg_util_reply(out, 2, CfgStatus::not_permitted, refusal); }),
                 CfgRequest::set_mac_address});
}

/// Lines of "field = value", in the order of the wire.
class Description {
 public:
  template <class Value>
  void add(std::string_view field, const Value& value) {
    text_ += fmt::format("{} = {}\n", field, value);
  }
  void add(std::string_view field, const MacAddress& mac) { add(field, to_string(mac)); }
  [[nodiscard]] std::string take() { return std::move(text_); }

  void body(const HelloRequest& hello) {
    add("lowest version", hello.lowest_version);
    add("highest version", hello.highest_version);
    role_and_mode(hello.role, hello.mode);
    add("features", fmt::format("{:#x}", hello.features));
    add("name", hello.name);
    add("requested MAC", hello.requested_mac);
    terms(hello.terms);
  }
  void body(const HelloReply& hello) {
    add("version", hello.version);
    role_and_mode(hello.role, hello.mode);
    add("features", fmt::format("{:#x}", hello.features));
    add("name", hello.name);
    add("assigned MAC", hello.assigned_mac);
    add("max MTU", hello.max_mtu);
    add("link up", hello.link_up);
    add("link speed Mb/s", hello.link_speed_mbps);
    terms(hello.terms);
  }
  void body(const SetMacAddress& value) { add("address", value.address); }
  void body(const MacAddressReply& value) { add("address in force", value.in_force); }
  void body(const SetMtu& value) { add("MTU", value.bytes); }
  void body(const MtuReply& value) { add("MTU in force", value.in_force); }
  void body(const LinkState& value) {
    add("up", value.up);
    add("speed Mb/s", value.speed_mbps);
    add("max MTU", value.max_mtu);
  }
  void body(const ReceiveFilter& value) {
    for (const auto& mac : value.unicast) add("unicast", mac);
    for (const auto& mac : value.multicast) add("multicast", mac);
    add("all multicast", value.all_multicast);
    add("promiscuous", value.promiscuous);
  }
  void body(const VlanFilter& value) {
    if (!value.only) return add("VLANs", "all");
    for (const auto vid : *value.only) add("VLAN", vid);
  }
  void body(const Moderation& value) {
    add("entries", value.entries);
    add("bytes", value.bytes);
    add("time ns", value.time.count());
  }
  void body(const StatisticsReport&) {}
  void body(const StatisticsClear&) {}
  void body(const Acknowledged&) {}
  void body(const Statistics& value) {
    for (const auto& counter : value.counters) add(counter.name, counter.value);
    add("counted for ns", value.counted_for.count());
    flow("from peer", value.from_peer);
    flow("to peer", value.to_peer);
    flow("from interface", value.from_interface);
    flow("to interface", value.to_interface);
  }
  void flow(const std::string& way, const Flow& value) {
    add(way + " frames", value.frames);
    add(way + " bytes", value.bytes);
    add(way + " errors", value.errors);
    add(way + " drops", value.drops);
  }
  void body(const StatusReport& value) {
    add("code", value.code);
    add("text", value.text);
  }
  void body(const Heartbeat& value) {
    add("sequence", value.sequence);
    add("next ms", static_cast<std::uint64_t>(value.next.count()));
  }
  void body(const HeartbeatReply& value) { add("echo", value.echo); }
  void body(const Reset& value) {
    add("code", value.code);
    add("text", value.text);
  }
  template <class Variant>
  void any_body(const tl::expected<Variant, CfgFault>& decoded) {
    if (!decoded) return add("fault", decoded.error().what);
    std::visit([this](const auto& value) { body(value); }, *decoded);
  }

 private:
  void role_and_mode(Role role, Mode mode) {
    add("role", role == Role::host ? "host" : "I/O unit");
    add("mode", mode == Mode::rdma ? "R" : "S");
  }
  void terms(const ChannelTerms& terms) {
    add("max message bytes", terms.max_message_bytes);
    add("max list entries", terms.max_list_entries);
    add("max frame bytes", terms.max_frame_bytes);
    add("cell bytes", terms.cell_bytes);
    add("receive depth", terms.receive_depth);
    add("data channel", terms.data_channel.has_value());
    if (!terms.data_channel) return;
    add("data queue pair", terms.data_channel->queue_pair);
    add("data receive depth", terms.data_channel->receive_depth);
    add("initial PSN", terms.data_channel->initial_psn);
  }

  std::string text_;
};

struct Describer {
  Description& out;
  std::optional<CfgRequest> replies_to;

  void operator()(const BufferRecvPool& message) const {
    for (const auto& pool : message.pools) {
      out.add("pool", pool.pool.value);
      out.add("  elements", pool.elements);
      out.add("  element bytes", pool.element_bytes);
      out.add("  memory handle", fmt::format("{:#010x}", pool.memory_handle));
      out.add("  address", fmt::format("{:#018x}", pool.address));
      out.add("  pool context", fmt::format("{:#018x}", pool.context));
    }
  }
  void operator()(const BufferRecvPoolGet& message) const {
    out.add("packet bytes", message.packet_bytes);
    out.add("packets", message.packets);
  }
  void operator()(const BufferRecvPoolUpdate& message) const {
    for (const auto& run : message.runs) {
      out.add("pool", run.pool.value);
      out.add("  first element", run.first);
      out.add("  elements", run.elements);
    }
  }
  void operator()(const BufferPoolFlushRequest& message) const {
    for (const auto& pool : message.pools) {
      out.add(pool.receivers_pool ? "receiver's pool" : "sender's pool", pool.pool.value);
    }
  }
  void operator()(const BufferPoolFlushReply&) const {}
  void operator()(const SendData& message) const { out.add("bytes", message.frame.size()); }
  void operator()(const BufferRdmaIndicate& message) const {
    for (const auto& indication : message.indications) {
      out.add("pool", indication.pool.value);
      out.add("  element", indication.element);
      out.add("  length", indication.length);
    }
  }
  void operator()(const CfgUtilRequest& message) const {
    out.add("request", fmt::format("{} {}", message.code, to_string(static_cast<CfgRequest>(message.code))));
    out.add("data bytes", message.data.size());
    out.any_body(decode_request(message.code, message.data));
  }
  void operator()(const CfgUtilReply& message) const {
    out.add("status", fmt::format("{} {}", static_cast<std::uint32_t>(message.status), to_string(message.status)));
    out.add("data bytes", message.data.size());
    if (message.status != CfgStatus::ok) return out.add("refusal", decode_refusal(message.data));
    out.any_body(decode_reply(replies_to.value(), message.data));
  }
  void operator()(const Unsupported& message) const {
    out.add("offending word", fmt::format("{:#010x}", message.offending_word));
    out.add("lowest version", message.lowest_version);
    out.add("highest version", message.highest_version);
    out.add("reason", message.reason);
  }
};

}  // namespace

std::vector<Sample> every_message() {
  std::vector<Sample> all;
  add_buffer_messages(all);
  add_data_messages(all);
  add_requests(all);
  add_replies(all);
  return all;
}

HelloRequest sample_hello() {
  return {.lowest_version = 1,
          .highest_version = 1,
          .role = Role::host,
          .mode = Mode::rdma,
          .features = 0,
          .name = "hôte-1",
          .requested_mac = kHostMac,
          .terms = {.max_message_bytes = 65'616,
                    .max_list_entries = 256,
                    .max_frame_bytes = 65'600,
                    .cell_bytes = 256,
                    .receive_depth = 128,
                    .data_channel = {{.queue_pair = 0x00'1235, .receive_depth = 512, .initial_psn = 0xdead'beef}}}};
}

HelloReply sample_hello_reply() {
  return {.version = 1,
          .role = Role::io_unit,
          .mode = Mode::rdma,
          .features = 0,
          .name = "unit",
          .assigned_mac = kHostMac,
          .max_mtu = 9000,
          .link_up = true,
          .link_speed_mbps = 10'000,
          .terms = {.max_message_bytes = 16'384,
                    .max_list_entries = 64,
                    .max_frame_bytes = 9018,
                    .cell_bytes = 256,
                    .receive_depth = 256,
                    .data_channel = {{.queue_pair = 0x00'0777, .receive_depth = 1024, .initial_psn = 1}}}};
}

std::string describe(const Sample& sample) {
  Description out;
  const auto message = decode(sample.bytes, Limits{});
  if (!message) {
    out.add("fault", to_string(message.error()));
    return out.take();
  }
  out.add("function", fmt::format("{:#06x} {}", static_cast<std::uint16_t>(function_of(*message)),
                                  to_string(function_of(*message))));
  std::visit([&](const auto& value) { out.add("transaction", fmt::format("{:#x}", value.transaction)); }, *message);
  std::visit(Describer{out, sample.replies_to}, *message);
  return out.take();
}

Bytes from_hex(std::string_view hex) {
  Bytes bytes;
  std::string digits;
  for (const char c : hex) {
    if (c == ' ') continue;
    digits += c;
    if (digits.size() < 2) continue;
    bytes.push_back(static_cast<std::byte>(std::stoul(digits, nullptr, 16)));
    digits.clear();
  }
  if (!digits.empty()) throw std::invalid_argument("an odd number of hex digits");
  return bytes;
}

std::string hex_dump(const Bytes& bytes) {
  std::string text;
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    if (at % 16 == 0) text += fmt::format("{}{:04x} ", at == 0 ? "" : "\n", at);
    text += fmt::format(" {:02x}", static_cast<unsigned>(bytes[at]));
  }
  return text + "\n";
}

}  // namespace splitnic::messaging::wire::samples
