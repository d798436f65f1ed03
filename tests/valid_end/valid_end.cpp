#include "tests/valid_end/valid_end.h"

#include <algorithm>

#include "common/check.h"
#include "messaging/buffer_pools.h"
#include "messaging/wire/immediate.h"
#include "messaging/wire/messages.h"

namespace splitnic::test {

namespace {

constexpr fabric::QpNumber kControl{1};
constexpr fabric::QpNumber kUnacknowledged{2};
constexpr std::uint32_t kFirstPsn = 5;
constexpr std::uint32_t kMaxMtu = 1500;
constexpr std::uint32_t kMaxFrame = 1522;
constexpr std::uint32_t kElementBytes = 1536;
constexpr std::size_t kPoolsKept = 16;

}  // namespace

ValidEnd::ValidEnd(const ValidEndOptions& options, fabric::Bridge& bridge, RandomSource& random)
    : options_(options), random_(random), link_(bridge, options.link, random) {
  link_.restart();
}

ValidEnd::~ValidEnd() = default;

void ValidEnd::restart() {
  close_epoch();
  link_.restart();
}

void ValidEnd::start_over() {
  restart();
  pools_.clear();
}

void ValidEnd::close_epoch() {
  control_.reset();
  unacknowledged_.reset();
  data_.reset();
  adapter_.reset();
  heard_ = {};
  consumed_.clear();
  hello_transaction_ = ready_transaction_ = 0;
  next_pool_ = next_element_ = free_elements_ = 0;
  data_connected_ = advertised_ = ready_ = failed_ = unanswered_ = unflushed_ = false;
  if (pools_.size() > kPoolsKept) pools_.erase(pools_.begin(), pools_.end() - kPoolsKept);
}

void ValidEnd::open_epoch() {
  close_epoch();
  incarnation_ = link_.incarnation();
  adapter_ = std::make_unique<fabric::ChannelAdapter>(link_, fabric::AdapterOptions{}, random_);
  domain_ = adapter_->allocate_domain();
  control_ = messaging::Channel::open(*adapter_, domain_, {.number = kControl});
  SPLITNIC_CHECK(control_ && control_->connect({.number = kControl}) == fabric::Status::ok);
}

void ValidEnd::poll(Time now) {
  link_.poll(now);
  if (link_.phase() == fabric::LinkPhase::faulty) return restart();
  if (!link_.up()) {
    if (adapter_) close_epoch();
    return;
  }
  if (!adapter_ || link_.incarnation() != incarnation_) open_epoch();
  adapter_->poll(now);
  control_->poll(*this, 64);
  if (unacknowledged_) unacknowledged_->poll(*this, 64);
  if (data_) data_->poll(*this, 256);
  link_.notify();
}

// ---- an honest session

wire::ChannelTerms ValidEnd::terms() const {
  return {.max_message_bytes = 4096,
          .max_list_entries = 64,
          .max_frame_bytes = kMaxFrame,
          .cell_bytes = 256,
          .receive_depth = 64,
          .data_channel = {{.queue_pair = data_->number().value, .receive_depth = 64, .initial_psn = kFirstPsn}}};
}

bool ValidEnd::open_data() {
  if (data_) return true;
  data_ = messaging::Channel::open(*adapter_, domain_,
                                   {.acknowledged = options_.mode == wire::Mode::rdma,
                                    .lane = fabric::VirtualLane::data,
                                    .receive_buffers = 128,
                                    .message_bytes = 2048,
                                    .writes = 256});
  return data_ != nullptr;
}

bool ValidEnd::greet() {
  if (!connected() || !open_data()) return false;
  wire::HelloRequest hello;
  hello.mode = options_.mode;
  hello.name = options_.name;
  hello.requested_mac = options_.mac;
  hello.features = options_.features;
  hello.terms = terms();
  if (!request(hello)) return false;
  hello_transaction_ = transaction_;
  return true;
}

bool ValidEnd::connect_data(const wire::ChannelTerms& theirs) {
  if (!data_ || data_connected_ || !theirs.data_channel) return false;
  data_connected_ = data_->connect({.number = fabric::QpNumber{theirs.data_channel->queue_pair},
                                    .first_psn_to_send = kFirstPsn,
                                    .first_psn_expected = theirs.data_channel->initial_psn}) == fabric::Status::ok;
  return data_connected_;
}

/// In mode S, every message after the hello and its answer goes over a channel of its own.
void ValidEnd::open_unacknowledged() {
  if (options_.mode != wire::Mode::send || unacknowledged_) return;
  unacknowledged_ = messaging::Channel::open(*adapter_, domain_, {.number = kUnacknowledged, .acknowledged = false});
  SPLITNIC_CHECK(unacknowledged_ && unacknowledged_->connect({.number = kUnacknowledged}) == fabric::Status::ok);
}

void ValidEnd::take_next_step() {
  if (!connected()) return;
  const bool host = options_.role == wire::Role::host;
  if (failed_) return restart();
  if (host && hello_transaction_ == 0) static_cast<void>(greet());
  if (!advertised_ && data_connected_ && options_.mode == wire::Mode::rdma) {
    const auto pool = make_pool(options_.elements, kElementBytes);
    advertised_ = pool && say([&](std::span<std::byte> out) {
                    return wire::encode_buffer_recv_pool(out, 0, std::span(&*pool, 1));
                  });
  }
  const bool pools = options_.mode == wire::Mode::send || (advertised_ && !heard_.pools.empty());
  if (host && data_connected_ && pools && ready_transaction_ == 0 && request(wire::LinkState{.up = true})) {
    ready_transaction_ = transaction_;
  }
  answer();
}

/// Answers requests and flushes, and returns elements.
void ValidEnd::answer() {
  if (unanswered_) {
    const auto code = static_cast<wire::CfgRequest>(heard_.asked_code);
    bool answered = true;
    if (code == wire::CfgRequest::hello && heard_.hello && open_data()) {
      wire::HelloReply hello{.mode = options_.mode,
                             .features = options_.features & heard_.hello->features,
                             .name = options_.name,
                             .assigned_mac = options_.mac,
                             .max_mtu = kMaxMtu,
                             .link_up = true,
                             .terms = terms()};
      static_cast<void>(connect_data(heard_.hello->terms));
      answered = reply(hello);
      if (answered) open_unacknowledged();
    } else if (code == wire::CfgRequest::set_mac_address) {
      answered = reply(wire::MacAddressReply{options_.mac});
    } else if (code == wire::CfgRequest::set_mtu) {
      answered = reply(wire::MtuReply{kMaxMtu});
    } else if (code == wire::CfgRequest::statistics_report || code == wire::CfgRequest::statistics_clear) {
      answered = reply(wire::Statistics{});
    } else if (code == wire::CfgRequest::heartbeat) {
      answered = reply(wire::HeartbeatReply{});
    } else {
      answered = reply(wire::Acknowledged{});
      ready_ = ready_ || code == wire::CfgRequest::link_state;
    }
    unanswered_ = !answered;
  }
  if (unflushed_ &&
      say([&](std::span<std::byte> out) { return wire::encode_buffer_pool_flush_reply(out, heard_.flush); })) {
    unflushed_ = false;
  }
  while (!consumed_.empty()) {
    const wire::ElementRun run = consumed_.front();
    if (!say([&](std::span<std::byte> out) {
          return wire::encode_buffer_recv_pool_update(out, 0, std::span(&run, 1));
        })) {
      break;
    }
    consumed_.pop_front();
  }
}

// ---- what is said

bool ValidEnd::say_bytes(std::span<const std::byte> bytes) {
  return say([&](std::span<std::byte> out) {
    const std::size_t count = std::min(bytes.size(), out.size());
    std::copy_n(bytes.begin(), count, out.begin());
    return count;
  });
}

bool ValidEnd::request(const wire::RequestBody& body) {
  const auto data = wire::encode(body);
  return say([&](std::span<std::byte> out) {
    return wire::encode_cfg_util_request(out, ++transaction_, wire::request_of(body), data);
  });
}

bool ValidEnd::reply(const wire::ReplyBody& body) {
  const auto data = wire::encode(body);
  return say([&](std::span<std::byte> out) {
    return wire::encode_cfg_util_reply(out, heard_.asked, wire::CfgStatus::ok, data);
  });
}

std::uint32_t ValidEnd::peer_data_number() const {
  const std::optional<wire::ChannelTerms::DataChannel> none;
  const auto& channel = heard_.granted ? heard_.granted->terms.data_channel
                        : heard_.hello ? heard_.hello->terms.data_channel
                                       : none;
  return channel ? channel->queue_pair : 0;
}

std::optional<wire::PoolAdvertisement> ValidEnd::make_pool(std::uint32_t elements, std::uint32_t element_bytes) {
  if (!adapter_) return std::nullopt;
  auto& memory = pools_.emplace_back(std::size_t{elements} * element_bytes);
  const auto tag = adapter_->register_memory(domain_, memory, fabric::Right::local_read | fabric::Right::remote_write);
  if (!tag) return std::nullopt;
  return wire::PoolAdvertisement{.pool = wire::PoolNumber{next_pool_++},
                                 .elements = elements,
                                 .element_bytes = element_bytes,
                                 .memory_handle = tag->value,
                                 .address = adapter_->region_address(*tag),
                                 .context = 0};
}

bool ValidEnd::send_frame(std::span<const std::byte> frame) {
  if (!data_connected_ || frame.empty()) return false;
  const auto buffer = data_->claim();
  if (buffer.size() < frame.size()) return false;
  if (options_.mode == wire::Mode::send) {
    std::ranges::copy(frame, buffer.begin());
    return data_->commit(frame.size());
  }
  if (heard_.pools.empty() || !data_->can_write()) return false;
  const wire::PoolAdvertisement& pool = heard_.pools.front();
  const std::uint32_t used = messaging::elements_for(static_cast<std::uint32_t>(frame.size()), pool.element_bytes);
  if (used > free_elements_) return false;
  const wire::Indication at{pool.pool, next_element_ % pool.elements, static_cast<std::uint32_t>(frame.size())};
  if (!wire::uses_immediate(pool.pool, pool.elements, pool.element_bytes)) return false;
  std::ranges::copy(frame, buffer.begin());
  const std::uint32_t immediate = wire::encode_immediate(at);
  const fabric::RemoteAddress to{pool.address + std::uint64_t{at.element} * pool.element_bytes,
                                 fabric::Stag{pool.memory_handle}};
  next_element_ = (at.element + used) % pool.elements;
  free_elements_ -= used;
  return data_->commit_write(frame.size(), to, &immediate);
}

// ---- what is heard

void ValidEnd::on_immediate(std::uint32_t immediate) { hear(wire::decode_immediate(immediate)); }

void ValidEnd::hear(const wire::Indication& indication) {
  heard_.indication = indication;
  consumed_.push_back(
      {indication.pool, indication.element, std::max(1U, messaging::elements_for(indication.length, kElementBytes))});
}

void ValidEnd::hear(const wire::CfgUtilRequest& request) {
  heard_.asked = request.transaction;
  heard_.asked_code = request.code;
  unanswered_ = true;
  const auto body = wire::decode_request(request.code, request.data);
  SPLITNIC_CHECK(body.has_value());
  if (const auto* hello = std::get_if<wire::HelloRequest>(&*body)) heard_.hello = *hello;
}

void ValidEnd::hear(const wire::CfgUtilReply& reply) {
  ++answers_;
  heard_.answer = reply.transaction;
  if (reply.status != wire::CfgStatus::ok) return;
  if (reply.transaction == ready_transaction_) ready_ = true;
  if (reply.transaction != hello_transaction_ || heard_.granted) return;
  const auto body = wire::decode_reply(wire::CfgRequest::hello, reply.data);
  if (!body) return;
  heard_.granted = std::get<wire::HelloReply>(*body);
  open_unacknowledged();
  static_cast<void>(connect_data(heard_.granted->terms));
}

void ValidEnd::on_message(std::span<const std::byte> message) {
  const auto decoded = wire::decode(message, {});
  if (!decoded) {
    SPLITNIC_CHECK(options_.mode == wire::Mode::send);  // a frame
    return;
  }
  if (const auto* request = std::get_if<wire::CfgUtilRequest>(&*decoded)) return hear(*request);
  if (const auto* reply = std::get_if<wire::CfgUtilReply>(&*decoded)) return hear(*reply);
  if (const auto* pools = std::get_if<wire::BufferRecvPool>(&*decoded)) {
    if (heard_.pools.empty()) free_elements_ = pools->pools[0].elements;
    for (const auto pool : pools->pools) heard_.pools.push_back(pool);
  } else if (const auto* returned = std::get_if<wire::BufferRecvPoolUpdate>(&*decoded)) {
    for (const auto run : returned->runs) {
      if (!heard_.pools.empty() && run.pool == heard_.pools.front().pool) free_elements_ += run.elements;
    }
  } else if (const auto* flush = std::get_if<wire::BufferPoolFlushRequest>(&*decoded)) {
    heard_.flush = flush->transaction;
    unflushed_ = true;
    for (const auto flushed : flush->pools) {
      if (flushed.receivers_pool) continue;
      std::erase_if(heard_.pools, [&](const auto& pool) { return pool.pool == flushed.pool; });
    }
  } else if (const auto* list = std::get_if<wire::BufferRdmaIndicate>(&*decoded)) {
    for (const auto indication : list->indications) hear(indication);
  }
}

}  // namespace splitnic::test
