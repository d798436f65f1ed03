#include "fabric/link/udp_peer.h"

#include <algorithm>
#include <boost/endian/buffers.hpp>
#include <cstring>
#include <string>

#include "common/check.h"
#include "fabric/bridge/link.h"

namespace splitnic::fabric {
namespace {

// Hellos that nobody proved are answered at most this often, so that forged ones cost little.
constexpr Duration kAnswerAgain = std::chrono::milliseconds(1);
// A peer that has not shown by data that it is up is given up after so many hellos.
constexpr int kHellosUnconfirmed = 10;
// Sends a grant when a quarter of the window is new.
constexpr std::uint32_t kGrantShare = 4;

}  // namespace

std::vector<NamedCounter> describe(const UdpCounters& counters) {
  std::vector<NamedCounter> all{
      {"datagrams_sent", counters.datagrams_sent},
      {"datagrams_received", counters.datagrams_received},
      {"hellos_answered", counters.hellos_answered},
      {"peers_new", counters.peers_new},
      {"peers_silent", counters.peers_silent},
      {"asked_for_room", counters.asked_for_room},
      {"dropped_wrong_key", counters.dropped_wrong_key},
      {"dropped_wrong_epochs", counters.dropped_wrong_epochs},
      {"dropped_wrong_peer", counters.dropped_wrong_peer},
      {"dropped_reflected", counters.dropped_reflected},
      {"dropped_hello_limit", counters.dropped_hello_limit},
      {"dropped_too_long", counters.dropped_too_long},
      {"dropped_beyond_window", counters.dropped_beyond_window},
      {"dropped_no_room", counters.dropped_no_room},
  };
  constexpr std::array<const char*, kUdpFaults> kMalformed{
      "dropped_bad_length",   "dropped_bad_magic", "dropped_bad_version", "dropped_bad_check",   "dropped_bad_kind",
      "dropped_bad_reserved", "dropped_bad_key",   "dropped_bad_epoch",   "dropped_bad_port",    "dropped_bad_window",
      "dropped_bad_size",     "dropped_bad_lane",  "dropped_bad_flags",   "dropped_bad_records",
  };
  for (std::size_t i = 0; i < kUdpFaults; ++i) all.push_back({kMalformed[i], counters.dropped_malformed[i]});
  return all;
}

UdpPeer::UdpPeer(DatagramSink& sink, const UdpOptions& options, RandomSource& random)
    : sink_(sink), options_(options), windows_(options.window_bytes), random_(random), offer_(draw()) {
  SPLITNIC_CHECK(options_.datagram_bytes >= kUdpMinDatagram && options_.datagram_bytes <= kUdpMaxDatagram);
  SPLITNIC_CHECK(options_.port_address.value >> 48U == 0);
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    SPLITNIC_CHECK_OP(options_.window_bytes[lane], >=, options_.datagram_bytes);
    out_[lane].datagram.resize(options_.datagram_bytes);
    in_[lane].runs = RecordRing(options_.window_bytes[lane], options_.datagram_bytes);
  }
}

UdpPeer::Identity UdpPeer::draw() {
  Identity drawn;
  while (drawn.key == UdpKey{}) drawn.key = UdpKey{random_.next()};
  while (drawn.epoch == Epoch{}) drawn.epoch = Epoch{random_.next()};
  return drawn;
}

void UdpPeer::limit_windows(std::uint64_t bytes) {
  std::uint64_t all = 0;
  for (const std::uint32_t window : options_.window_bytes) all += window;
  const std::uint64_t most = std::min(bytes, all);
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    const std::uint32_t window = options_.window_bytes[lane];
    const std::uint32_t least = std::min(window, std::max(kLeastWindow, options_.datagram_bytes));
    windows_[lane] = std::max(least, static_cast<std::uint32_t>(window * most / all));
  }
}

// ---- incarnations

void UdpPeer::void_incarnation() {
  if (up_) changed_ = true;
  up_ = confirmed_ = owes_answer_ = false;
  own_ = Identity{};
  peer_ = UdpHello{};
  for (Out& out : out_) {
    out.used = sizeof(UdpDataBytes);
    out.position = out.granted = 0;
    out.wants_room = false;
    out.ask_next = kNever;
  }
  for (In& in : in_) {
    in.runs.clear();
    in.rest = {};
    in.seen = in.granted = 0;
  }
}

void UdpPeer::restart() {
  void_incarnation();
  offer_ = draw();
  hello_next_ = Time{};
}

void UdpPeer::say_hello(UdpKey receiver, Identity& as) {
  // What the first one has said holds, whichever of them the peer takes.
  if (as.windows[0] == 0) as.windows = windows_;
  UdpHello hello;
  hello.receiver_key = receiver;
  hello.sender_key = as.key;
  hello.epoch = as.epoch;
  hello.port_address = options_.port_address;
  hello.window_bytes = as.windows;
  hello.datagram_bytes = options_.datagram_bytes;
  const UdpHelloBytes bytes = encode_udp(hello);
  if (sink_.send(std::as_bytes(std::span(&bytes, 1)))) ++counters_.datagrams_sent;
}

void UdpPeer::answer(const UdpHello& hello, Identity& as) {
  if (now_ < answer_next_) {
    ++counters_.dropped_hello_limit;
    return;
  }
  answer_next_ = now_ + kAnswerAgain;
  ++counters_.hellos_answered;
  say_hello(hello.sender_key, as);
}

void UdpPeer::take_hello(const UdpHello& hello) {
  if (hello.sender_key == offer_.key || (up_ && hello.sender_key == own_.key)) {
    ++counters_.dropped_reflected;
    return;
  }
  const bool present_peer = up_ && hello.sender_key == peer_.sender_key;
  if (hello.receiver_key == UdpKey{}) return answer(hello, present_peer ? own_ : offer_);
  if (hello.receiver_key == offer_.key) return accept(hello);
  if (!up_ || hello.receiver_key != own_.key) {
    ++counters_.dropped_wrong_key;
    return;
  }
  if (!present_peer) {
    ++counters_.dropped_wrong_peer;
    return;
  }
  // The peer repeats its hello until it sees data.
  ++counters_.datagrams_received;
  heard_ = now_;
  owes_answer_ = true;
}

void UdpPeer::accept(const UdpHello& hello) {
  void_incarnation();
  own_ = offer_;
  offer_ = draw();
  peer_ = hello;
  epochs_out_ = epoch_tag(own_.epoch, peer_.epoch);
  epochs_in_ = epoch_tag(peer_.epoch, own_.epoch);
  datagram_bytes_ = std::min(options_.datagram_bytes, peer_.datagram_bytes);
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    out_[lane].granted = peer_.window_bytes[lane];
    in_[lane].granted = own_.windows[lane];
  }
  up_ = changed_ = true;
  ++incarnation_;
  ++counters_.peers_new;
  ++counters_.datagrams_received;
  heard_ = up_since_ = now_;
  hello_next_ = now_ + options_.hello_again;
  say_hello(peer_.sender_key, own_);
  owes_answer_ = true;  // the peer learns by data that this end is up
}

// ---- what comes in

void UdpPeer::take(std::span<const std::byte> datagram, Time now) {
  now_ = now;
  const auto decoded = decode_udp(datagram);
  if (!decoded) {
    ++counters_.dropped_malformed[static_cast<std::size_t>(decoded.error())];
    return;
  }
  if (const auto* hello = std::get_if<UdpHello>(&*decoded)) return take_hello(*hello);
  take_data(std::get<UdpData>(*decoded));
}

void UdpPeer::take_data(const UdpData& data) {
  if (!up_ || data.receiver_key != own_.key) {
    ++counters_.dropped_wrong_key;
    return;
  }
  if (data.epochs != epochs_in_) {
    ++counters_.dropped_wrong_epochs;
    return;
  }
  if (data.records.size() > options_.datagram_bytes - sizeof(UdpDataBytes)) {
    ++counters_.dropped_too_long;
    return;
  }
  In& lane = in(data.lane);
  const std::uint64_t room = lane.granted - std::min(lane.granted, data.position);
  if (data.position > lane.granted || data.records.size() > room) {
    ++counters_.dropped_beyond_window;
    return;
  }
  heard_ = now_;
  confirmed_ = true;
  lane.seen = std::max(lane.seen, data.position + data.records.size());
  for (std::size_t i = 0; i < kLanes; ++i) {
    if (data.granted[i] <= out_[i].granted) continue;
    out_[i].granted = data.granted[i];
    out_[i].ask_next = kNever;
  }
  if (data.ask) owes_answer_ = true;
  if (store(data)) ++counters_.datagrams_received;
}

bool UdpPeer::store(const UdpData& data) {
  if (data.records.empty()) return true;
  In& lane = in(data.lane);
  const bool fits =
      lane.runs.bytes() + data.records.size() <= options_.window_bytes[static_cast<std::size_t>(data.lane)];
  const auto to = fits ? lane.runs.claim(data.records.size()) : std::span<std::byte>{};
  if (to.empty()) {
    ++counters_.dropped_no_room;
    return false;
  }
  std::memcpy(to.data(), data.records.data(), to.size());
  lane.runs.put();
  return true;
}

std::span<std::byte> UdpPeer::front(VirtualLane number) {
  In& lane = in(number);
  if (lane.rest.empty()) lane.rest = lane.runs.front();
  if (lane.rest.empty()) return {};
  auto rest = lane.rest;
  return next_udp_record(rest);
}

void UdpPeer::pop(VirtualLane number) {
  In& lane = in(number);
  SPLITNIC_CHECK(!lane.rest.empty());
  static_cast<void>(next_udp_record(lane.rest));
  if (lane.rest.empty()) lane.runs.pop();
}

/// Lost bytes count as seen once a later datagram comes, so a loss does not shrink the window.
std::uint64_t UdpPeer::grantable(std::size_t lane) const {
  const std::uint64_t window = windows_[lane];
  const std::uint64_t stored = std::min<std::uint64_t>(window, in_[lane].runs.bytes());
  return std::max(in_[lane].granted, in_[lane].seen + (window - stored));
}

bool UdpPeer::grant_is_due() const {
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    if (grantable(lane) - in_[lane].granted >= windows_[lane] / kGrantShare) return true;
  }
  return false;
}

// ---- what goes out

std::size_t UdpPeer::max_record_bytes() const { return datagram_bytes_ - sizeof(UdpDataBytes) - kUdpRecordHead; }

std::span<std::byte> UdpPeer::claim(VirtualLane lane, std::size_t bytes) {
  SPLITNIC_CHECK(up_ && bytes >= kUdpMinRecord && bytes <= max_record_bytes());
  Out& to = out(lane);
  const std::size_t needed = kUdpRecordHead + bytes;
  to.wants_room = true;
  to.granted_known = to.granted;
  if (to.used + needed > datagram_bytes_ && !send_datagram(lane, false)) return {};
  const std::uint64_t after = to.position + (to.used - sizeof(UdpDataBytes)) + needed;
  if (after > to.granted) {
    if (to.ask_next == kNever) to.ask_next = now_ + options_.ask_again;
    return {};
  }
  to.wants_room = false;
  to.ask_next = kNever;
  return std::span(to.datagram).subspan(to.used + kUdpRecordHead, bytes);
}

void UdpPeer::release(VirtualLane lane, std::size_t bytes) {
  Out& to = out(lane);
  SPLITNIC_CHECK(bytes >= kUdpMinRecord && to.used + kUdpRecordHead + bytes <= datagram_bytes_);
  const boost::endian::little_uint16_buf_t length(static_cast<std::uint16_t>(bytes));
  std::memcpy(&to.datagram[to.used], &length, sizeof length);
  to.used += kUdpRecordHead + bytes;
}

bool UdpPeer::send_datagram(VirtualLane lane, bool ask) {
  Out& from = out(lane);
  UdpData data;
  data.receiver_key = peer_.sender_key;
  data.epochs = epochs_out_;
  data.lane = lane;
  data.ask = ask;
  data.position = from.position;
  for (std::size_t i = 0; i < kLanes; ++i) data.granted[i] = grantable(i);
  const auto datagram = std::span(from.datagram).first(from.used);
  seal_udp(data, datagram);
  if (!sink_.send(datagram)) return false;
  ++counters_.datagrams_sent;
  from.position += from.used - sizeof(UdpDataBytes);
  from.used = sizeof(UdpDataBytes);
  for (std::size_t i = 0; i < kLanes; ++i) in_[i].granted = data.granted[i];
  sent_ = now_;
  owes_answer_ = false;
  return true;
}

bool UdpPeer::flush() {
  if (!up_) return true;
  bool all = true;
  for (const VirtualLane lane : {VirtualLane::control, VirtualLane::data}) {
    if (!drained(lane)) all = send_datagram(lane, false) && all;
  }
  if (owes_answer_ || grant_is_due()) all = send_datagram(VirtualLane::control, false) && all;
  return all;
}

void UdpPeer::ask_for_room() {
  for (const VirtualLane lane : {VirtualLane::control, VirtualLane::data}) {
    Out& to = out(lane);
    if (now_ < to.ask_next) continue;
    to.ask_next = now_ + options_.ask_again;
    if (send_datagram(lane, true)) ++counters_.asked_for_room;
  }
}

// ---- time

std::size_t UdpPeer::poll(Time now) {
  now_ = now;
  if (up_) {
    const bool silent = now - heard_ >= options_.silence;
    const bool unconfirmed = !confirmed_ && now - up_since_ >= kHellosUnconfirmed * options_.hello_again;
    if (silent || unconfirmed) {
      ++counters_.peers_silent;
      void_incarnation();
      hello_next_ = now;
    }
  }
  if ((!up_ || !confirmed_) && now >= hello_next_) {
    hello_next_ = now + options_.hello_again;
    say_hello(up_ ? peer_.sender_key : UdpKey{}, up_ ? own_ : offer_);
  }
  if (up_) {
    ask_for_room();
    if (now - sent_ >= options_.keep_alive) owes_answer_ = true;
    static_cast<void>(flush());
  }
  const bool changed = changed_;
  changed_ = false;
  return changed ? 1 : 0;
}

Time UdpPeer::next_deadline() const {
  if (!up_) return hello_next_;
  Time deadline = std::min(heard_ + options_.silence, sent_ + options_.keep_alive);
  if (!confirmed_) deadline = std::min(deadline, hello_next_);
  for (const Out& out : out_) deadline = std::min(deadline, out.ask_next);
  return deadline;
}

}  // namespace splitnic::fabric
