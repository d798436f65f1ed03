#pragma once

// A Session on one end of an in-process bridge and, on the other, a peer that says whatever a test wants: right, wrong,
// or nothing.

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/check.h"
#include "fabric/bridge/link.h"
#include "fabric/bridge/shm_bridge.h"
#include "messaging/session.h"
#include "tests/unit/loads_once.h"

namespace splitnic::test {

namespace wire = messaging::wire;

/// Records what a session tells its driver.
struct RecordedEvents final : messaging::SessionEvents {
  int ups = 0;
  std::vector<std::string> downs;
  std::vector<std::vector<std::byte>> frames;
  std::vector<frame::FrameOffload> offloads;  ///< of each frame
  std::vector<wire::RequestBody> requests;
  std::vector<std::pair<wire::CfgRequest, messaging::Answer>> replies;
  std::uint32_t granted_mtu = 1500;
  std::function<void()> after_frame;  ///< what the driver does then; empty: nothing

  tl::expected<messaging::HelloGrant, messaging::Refusal> on_hello(const wire::HelloRequest&) override {
    return messaging::HelloGrant{.mac = MacAddress{{2, 0, 0, 0, 0, 1}}, .max_mtu = granted_mtu, .link_up = true};
  }
  void on_up(const wire::HelloReply*) override { ++ups; }
  void on_down(std::string_view reason) override { downs.emplace_back(reason); }
  void on_frame(const messaging::ReceivedFrame& frame) override {
    frames.emplace_back(frame.size());
    frame.copy_out(frames.back());
    offloads.push_back(frame.offload);
    if (after_frame) after_frame();
  }
  messaging::Answer on_request(const wire::RequestBody& request) override {
    requests.push_back(request);
    return wire::Acknowledged{};
  }
  void on_reply(wire::CfgRequest request, const messaging::Answer& answer) override {
    replies.emplace_back(request, answer);
  }
};

/// What the scripted peer received.
struct RecordedMessages final : messaging::ChannelSink {
  std::vector<std::vector<std::byte>> messages;
  std::vector<std::uint32_t> immediates;
  std::vector<fabric::CompletionStatus> failures;
  void on_message(std::span<const std::byte> message) override {
    messages.emplace_back(message.begin(), message.end());
  }
  void on_immediate(std::uint32_t immediate) override { immediates.push_back(immediate); }
  void on_channel_failure(fabric::CompletionStatus status) override { failures.push_back(status); }
};

/// The session under test has the unit's role; the script plays the host, with a data channel.
class ScriptedHost {
 public:
  explicit ScriptedHost(const messaging::SessionOptions& options = unit_options()) : ends_(make_ends()) {
    session_ = std::make_unique<messaging::Session>(options, *ends_.first, random_, events);
    link_ = std::make_unique<fabric::FabricLink>(*ends_.second, fabric::LinkOptions{}, random_);
    link_->restart();
  }

  ~ScriptedHost() {
    SPLITNIC_CHECK(session_->doorbells_left_out() == 0);
    SPLITNIC_CHECK(link_->doorbells_left_out() == 0);
  }
  ScriptedHost(const ScriptedHost&) = delete;
  ScriptedHost& operator=(const ScriptedHost&) = delete;

  static messaging::SessionOptions unit_options() {
    messaging::SessionOptions options;
    options.role = wire::Role::io_unit;
    options.name = "unit";
    options.pool_elements = 8;
    return options;
  }

  messaging::Session& session() { return *session_; }
  messaging::Channel& control() { return *control_; }
  messaging::Channel& data() { return *data_; }

  /// Lets both sides run for so long, simulated.
  void run(Duration time = std::chrono::milliseconds(2)) {
    for (const Time end = now_ + time; now_ < end; now_ += std::chrono::microseconds(20)) step();
  }
  /// Until the condition holds; false after `limit` of simulated time.
  bool run_until(const std::function<bool()>& condition, Duration limit = std::chrono::seconds(2)) {
    for (const Time end = now_ + limit; now_ < end; now_ += std::chrono::microseconds(20)) {
      if (condition()) return true;
      step();
    }
    return condition();
  }

  /// Only the session runs: the peer is stopped, and acknowledges nothing.
  void run_session_alone(Duration time = std::chrono::milliseconds(2)) {
    for (const Time end = now_ + time; now_ < end; now_ += std::chrono::microseconds(20)) session_->poll(now_);
  }
  /// Only the peer runs.
  void run_peer_alone(Duration time = std::chrono::milliseconds(2)) {
    for (const Time end = now_ + time; now_ < end; now_ += std::chrono::microseconds(20)) step_peer();
  }
  /// Long quiet times, in steps of a millisecond; the peer answers heartbeats.
  void idle(Duration time) {
    for (const Time end = now_ + time; now_ < end; now_ += std::chrono::milliseconds(1)) {
      step();
      answer_heartbeats();
    }
  }
  [[nodiscard]] Time now() const { return now_; }
  /// Whether the peer has rung the session since the last call.
  [[nodiscard]] bool rung() { return ends_.first->take_doorbells(); }

  /// Brings the link up and opens the control channel; says nothing yet.
  bool connect() {
    if (!run_until([&] { return link_->up() && link_->incarnation() != incarnation_; })) return false;
    close();
    incarnation_ = link_->incarnation();
    adapter_ = std::make_unique<fabric::ChannelAdapter>(*link_, fabric::AdapterOptions{}, random_);
    domain_ = adapter_->allocate_domain();
    control_ =
        messaging::Channel::open(*adapter_, domain_, {.number = fabric::QpNumber{1}, .send_buffers = control_buffers});
    return control_ && control_->connect({.number = fabric::QpNumber{1}}) == fabric::Status::ok;
  }

  [[nodiscard]] wire::HelloRequest hello() {
    data_ = messaging::Channel::open(*adapter_, domain_,
                                     {.acknowledged = mode == wire::Mode::rdma,
                                      .lane = fabric::VirtualLane::data,
                                      .send_buffers = 256,
                                      .writes = 256});
    wire::HelloRequest hello;
    hello.name = "script";
    hello.mode = mode;
    hello.features = features;
    hello.terms = {.max_message_bytes = 4096,
                   .max_list_entries = list_entries,
                   .max_frame_bytes = 1522,
                   .cell_bytes = 256,
                   .receive_depth = 64,
                   .data_channel = {{.queue_pair = data_->number().value, .receive_depth = 64, .initial_psn = 5}}};
    return hello;
  }

  /// Sends raw bytes on the control channel.
  void send(std::span<const std::byte> message) {
    const auto buffer = control_->claim();
    SPLITNIC_CHECK(buffer.size() >= message.size());
    std::copy(message.begin(), message.end(), buffer.begin());
    SPLITNIC_CHECK(control_->commit(message.size()));
    link_->notify();
  }
  template <class Encode>
  void say(Encode&& encode) {
    std::vector<std::byte> out(4096);
    out.resize(encode(std::span(out)));
    send(out);
  }
  std::uint64_t request(const wire::RequestBody& body) {
    const std::uint64_t transaction = next_transaction_++;
    const auto data = wire::encode(body);
    say([&](auto out) { return wire::encode_cfg_util_request(out, transaction, wire::request_of(body), data); });
    return transaction;
  }

  /// The answer to a request; nullopt if none came.
  std::optional<wire::CfgUtilReply> reply_to(std::uint64_t transaction) {
    std::optional<wire::CfgUtilReply> found;
    run_until([&] {
      for (const auto& message : received.messages) {
        const auto decoded = wire::decode(message, {});
        const auto* reply = decoded ? std::get_if<wire::CfgUtilReply>(&*decoded) : nullptr;
        if (reply != nullptr && reply->transaction == transaction) found = *reply;
      }
      return found.has_value();
    });
    return found;
  }

  /// Says hello and takes the unit's pool.
  bool come_up_to_pools() {
    if (!connect()) return false;
    const auto reply = reply_to(request(hello()));
    if (!reply || reply->status != wire::CfgStatus::ok) return false;
    const auto body = wire::decode_reply(wire::CfgRequest::hello, reply->data);
    if (!body) return false;
    const auto terms = std::get<wire::HelloReply>(*body).terms;
    SPLITNIC_CHECK(data_->connect({.number = fabric::QpNumber{terms.data_channel->queue_pair},
                                   .first_psn_to_send = 5,
                                   .first_psn_expected = terms.data_channel->initial_psn}) == fabric::Status::ok);
    if (mode == wire::Mode::send) return move_to_unacknowledged_control();
    return run_until([&] { return unit_pool().has_value(); });
  }
  /// Then advertises a pool and says ready: the session is up.
  bool come_up() {
    if (!come_up_to_pools()) return false;
    if (mode == wire::Mode::rdma) advertise(0, 4);
    request(wire::LinkState{.up = true});
    return run_until([&] { return session_->up(); });
  }

  /// A pool of which only the numbers exist.
  void advertise(std::uint32_t pool, std::uint32_t elements, std::uint32_t element_bytes = 1536) {
    const wire::PoolAdvertisement advertised{wire::PoolNumber{pool}, elements, element_bytes, 77, 0x1000, 0};
    say([&](auto out) { return wire::encode_buffer_recv_pool(out, 0, std::span(&advertised, 1)); });
  }
  /// A pool with memory behind it, into which the unit can write.
  void advertise_memory(std::uint32_t pool, std::uint32_t elements) {
    constexpr std::uint32_t kElementBytes = 1536;
    auto& memory = memories_.emplace_back(std::size_t{elements} * kElementBytes);
    const auto tag =
        adapter_->register_memory(domain_, memory, fabric::Right::local_read | fabric::Right::remote_write);
    SPLITNIC_CHECK(tag.has_value());
    const wire::PoolAdvertisement advertised{wire::PoolNumber{pool},         elements, kElementBytes, tag->value,
                                             adapter_->region_address(*tag), 0};
    say([&](auto out) { return wire::encode_buffer_recv_pool(out, 0, std::span(&advertised, 1)); });
  }
  /// A pool in the bridge's memory, of which the unit may store into the first `granted` elements.
  void advertise_bridge_memory(std::uint32_t pool, std::uint32_t elements, std::uint32_t granted) {
    constexpr std::uint32_t kElementBytes = 1536;
    const fabric::MemoryRange range{link_->buffers().offset, std::size_t{granted} * kElementBytes};
    const auto tag =
        adapter_->register_bridge_memory(domain_, range, fabric::Right::local_read | fabric::Right::remote_write, true);
    SPLITNIC_CHECK(tag.has_value());
    const wire::PoolAdvertisement advertised{wire::PoolNumber{pool},         elements, kElementBytes, tag->value,
                                             adapter_->region_address(*tag), 0};
    say([&](auto out) { return wire::encode_buffer_recv_pool(out, 0, std::span(&advertised, 1)); });
  }
  /// The memory of the pool that advertise_memory() made last.
  [[nodiscard]] std::span<const std::byte> memory() const { return memories_.back(); }
  /// Says where writes have put a frame, whether there were any or not.
  void indicate(const wire::Indication& indication) {
    const auto buffer = data_->claim();
    wire::IndicateWriter writer(buffer, 1);
    SPLITNIC_CHECK(writer.add(indication));
    SPLITNIC_CHECK(data_->commit(writer.finish().size()));
    link_->notify();
  }
  void flush(std::uint64_t transaction, std::uint32_t pool, bool receivers_pool) {
    const wire::FlushedPool flushed{wire::PoolNumber{pool}, receivers_pool};
    say([&](auto out) { return wire::encode_buffer_pool_flush_request(out, transaction, std::span(&flushed, 1)); });
  }
  void answer_flush(std::uint64_t transaction) {
    say([&](auto out) { return wire::encode_buffer_pool_flush_reply(out, transaction); });
  }
  /// The messages of one type on the control channel so far. Valid until the next run.
  template <class Message>
  [[nodiscard]] std::vector<Message> got() const {
    std::vector<Message> found;
    for (const auto& bytes : received.messages) {
      const auto decoded = wire::decode(bytes, {});
      if (decoded && std::holds_alternative<Message>(*decoded)) found.push_back(std::get<Message>(*decoded));
    }
    return found;
  }
  /// The first pool that the unit has advertised.
  [[nodiscard]] std::optional<wire::PoolAdvertisement> unit_pool() const {
    for (const auto& message : received.messages) {
      const auto decoded = wire::decode(message, {});
      const auto* pools = decoded ? std::get_if<wire::BufferRecvPool>(&*decoded) : nullptr;
      if (pools != nullptr) return pools->pools[0];
    }
    return std::nullopt;
  }
  /// Writes `bytes` bytes into an element of the unit's pool and indicates what the test wants it to.
  void write(std::uint32_t element, std::uint32_t bytes, std::uint32_t immediate,
             std::span<const std::byte> first_bytes = {}) {
    const auto pool = *unit_pool();
    const auto buffer = data_->claim();
    std::fill(buffer.begin(), buffer.begin() + bytes, std::byte{0x42});
    std::copy(first_bytes.begin(), first_bytes.end(), buffer.begin());
    const fabric::RemoteAddress to{pool.address + std::uint64_t{element} * pool.element_bytes,
                                   fabric::Stag{pool.memory_handle}};
    SPLITNIC_CHECK(data_->commit_write(bytes, to, &immediate));
    link_->notify();
  }

  RecordedEvents events;
  RecordedMessages received;
  RecordedMessages received_data;
  wire::Mode mode = wire::Mode::rdma;
  std::uint32_t list_entries = 64;  ///< what the hello offers
  std::uint64_t features = 0;
  std::size_t control_buffers = 32;  ///< of its control channel, for messages that the session has not taken

 private:
  using Ends = std::pair<std::unique_ptr<fabric::Bridge>, std::unique_ptr<fabric::Bridge>>;
  static Ends make_ends() {
    auto ends = fabric::shm_pair(1U << 20U, 1U << 20U);
    SPLITNIC_CHECK(ends.has_value());
    return std::move(*ends);
  }
  bool move_to_unacknowledged_control() {
    constexpr fabric::QpNumber kNumber{2};
    hello_control_ = std::move(control_);
    control_ = messaging::Channel::open(*adapter_, domain_,
                                        {.number = kNumber, .acknowledged = false, .send_buffers = control_buffers});
    return control_ && control_->connect({.number = kNumber}) == fabric::Status::ok;
  }
  void close() {
    control_.reset();
    hello_control_.reset();
    data_.reset();
    adapter_.reset();
    memories_.clear();
    received = {};
    received_data = {};
  }
  void step() {
    session_->poll(now_);
    step_peer();
  }
  void answer_heartbeats() {
    for (const auto& request : got<wire::CfgUtilRequest>()) {
      if (request.transaction <= answered_ || request.code != static_cast<std::uint32_t>(wire::CfgRequest::heartbeat)) {
        continue;
      }
      answered_ = request.transaction;
      const auto beat = wire::decode_request(request.code, request.data);
      const auto data = wire::encode(wire::ReplyBody(wire::HeartbeatReply{std::get<wire::Heartbeat>(*beat).sequence}));
      say([&](auto out) { return wire::encode_cfg_util_reply(out, request.transaction, wire::CfgStatus::ok, data); });
    }
  }
  void step_peer() {
    link_->poll(now_);
    if (!adapter_ || !link_->up()) return;
    adapter_->poll(now_);
    if (control_) control_->poll(received, 64);
    if (data_) data_->poll(received_data, 64);
    link_->notify();
  }

  SeededRandom random_{7};
  Ends ends_;
  splitnic::test::LoadsOnce loads_{ends_.first->local_memory()};
  Time now_{};
  std::unique_ptr<messaging::Session> session_;
  std::unique_ptr<fabric::FabricLink> link_;
  std::uint64_t incarnation_ = ~std::uint64_t{0};
  std::unique_ptr<fabric::ChannelAdapter> adapter_;
  fabric::ProtectionDomain domain_{};
  std::unique_ptr<messaging::Channel> control_;
  std::unique_ptr<messaging::Channel> hello_control_;  ///< in mode S, after the hello
  std::unique_ptr<messaging::Channel> data_;
  std::uint64_t next_transaction_ = 1000;
  std::uint64_t answered_ = 0;  // the last heartbeat's transaction
  std::deque<std::vector<std::byte>> memories_;
};

}  // namespace splitnic::test
