#pragma once

#include "adapter_requests.h"
#include "link_fixtures.h"

namespace splitnic::fabric::test {

inline constexpr std::uint32_t kKey = 0x11111111;
inline constexpr std::size_t kTo = 8192;  // where an end's receives lie in its buffer

inline Gid group_of(std::uint8_t last) {
  Gid gid;
  gid.bytes[0] = 0xff;
  gid.bytes[15] = last;
  return gid;
}

inline QueuePairAttributes datagrams(std::uint32_t queue_key = kKey) {
  QueuePairAttributes with;
  with.acknowledged = false;
  with.datagram = true;
  with.queue_key = queue_key;
  return with;
}

/// One adapter per end of a link, each with a datagram queue pair that is ready, and a handle to the other.
template <class Links>
struct Ends {
  explicit Ends(const AdapterOptions& options = small_cells()) {
    for (int i = 0; i < 100'000 && !(links.end(0).up() && links.end(1).up()); ++i) links.step();
    REQUIRE((links.end(0).up() && links.end(1).up()));
    for (std::size_t i = 0; i < 2; ++i) {
      ends[i] = std::make_unique<Endpoint>(links.end(i), options, random, datagrams());
      REQUIRE(ends[i]->adapter.connect(ends[i]->number, {}) == Status::ok);
      handles[i] = ends[i]->adapter.create_address_handle({}).value();
    }
  }
  void step() {
    links.step();
    for (auto& end : ends) end->adapter.poll(links.now());
  }
  void run(int steps = 200) {
    for (int i = 0; i < steps; ++i) step();
  }
  Status send(std::uint64_t id, std::size_t bytes, const DatagramTarget& to) {
    WorkRequest request = send_request(id, first().segment(0, bytes));
    request.datagram = to;
    return post(first(), request);
  }
  [[nodiscard]] DatagramTarget to_second(std::uint32_t queue_key = kKey) {
    return {handles[0], second().number, queue_key};
  }
  Endpoint& first() { return *ends[0]; }
  Endpoint& second() { return *ends[1]; }
  [[nodiscard]] const AdapterCounters& taken() { return second().adapter.counters(); }

  Links links;
  SeededRandom random{41};
  std::array<std::unique_ptr<Endpoint>, 2> ends;
  std::array<AddressHandleNumber, 2> handles{};
};
using Calm = Ends<LoopbackLinks>;

inline RouteHeader route_in(const Endpoint& end, std::size_t at) {
  RouteHeader route;
  std::memcpy(&route, end.buffer.data() + at, sizeof route);
  return route;
}

/// A link that is on its way up until it is shown; see CellLink::awaited(). It does not show its slots.
class AwaitedLink final : public CellLink {
 public:
  explicit AwaitedLink(CellLink& under) : under_(under) {}
  bool shown = false;

  [[nodiscard]] LinkProperties properties() const override { return under_.properties(); }
  [[nodiscard]] bool awaited() const override { return true; }
  [[nodiscard]] bool up() const override { return shown && under_.up(); }
  [[nodiscard]] std::uint64_t incarnation() const override { return shown ? under_.incarnation() : 0; }
  [[nodiscard]] PortAddress port_address() const override { return under_.port_address(); }
  [[nodiscard]] PortAddress peer_port_address() const override { return under_.peer_port_address(); }
  [[nodiscard]] DirectAccess* direct() override { return under_.direct(); }
  [[nodiscard]] std::size_t max_payload(VirtualLane lane) const override { return under_.max_payload(lane); }
  [[nodiscard]] bool claim(VirtualLane lane, const Cell& cell, std::size_t bytes, ClaimedPayload& to) override {
    return under_.claim(lane, cell, bytes, to);
  }
  std::uint64_t release(VirtualLane lane, const Cell& cell, std::uint32_t& packet_crc) override {
    return under_.release(lane, cell, packet_crc);
  }
  [[nodiscard]] std::uint64_t settled(VirtualLane lane) override { return under_.settled(lane); }
  [[nodiscard]] bool wants_room(VirtualLane lane) const override { return shown && under_.wants_room(lane); }
  [[nodiscard]] bool drained(VirtualLane lane) override { return !shown || under_.drained(lane); }
  [[nodiscard]] const ReceivedCell* front(VirtualLane lane) override { return under_.front(lane); }
  void pop(VirtualLane lane) override { under_.pop(lane); }
  void settle(VirtualLane lane) override { under_.settle(lane); }
  bool return_room(VirtualLane lane, bool all) override { return under_.return_room(lane, all); }
  void notify() override { under_.notify(); }
  std::size_t poll(Time now) override { return under_.poll(now); }
  [[nodiscard]] bool prepare_sleep() override { return under_.prepare_sleep(); }
  [[nodiscard]] bool rearm() override { return under_.rearm(); }
  void disarm() override { under_.disarm(); }
  [[nodiscard]] Time next_deadline(Time now, bool outstanding) const override {
    return under_.next_deadline(now, outstanding);
  }
  [[nodiscard]] int descriptor() const override { return under_.descriptor(); }

 private:
  CellLink& under_;
};

}  // namespace splitnic::fabric::test
