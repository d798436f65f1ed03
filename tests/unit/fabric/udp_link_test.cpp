#include <fcntl.h>
#include <sys/socket.h>

#include "link_fixtures.h"

#include <algorithm>
#include <string>

#include "common/crc32c.h"

namespace splitnic::fabric::udp_link_test {
namespace {

using test::UdpNetworkLinks;
using test::UdpSocketLinks;
using Bytes = std::vector<std::byte>;

constexpr VirtualLane kData = VirtualLane::data;

void send_one(UdpLink& link, std::uint32_t number) {
  Cell cell;
  cell.destination_queue_pair = QpNumber{17};
  cell.source_queue_pair = QpNumber{18};
  cell.packet_sequence = number;
  ClaimedPayload to;
  REQUIRE(link.claim(kData, cell, 64, to));
  std::ranges::fill(to.next(64), std::byte{0x5a});
  std::uint32_t packet_crc = kPacketCrcStart;
  link.release(kData, cell, packet_crc);
  link.notify();
}

/// Links over a network without faults, up; end 0's next datagram is changed on its way.
struct Tampered {
  Tampered() {
    for (std::size_t i = 0; i < 2; ++i) links.network(i).faults = test::DatagramFaults{};
    while (!links.end(0).up() || !links.end(1).up()) links.step();
    for (int i = 0; i < 100; ++i) links.step();
  }
  template <class Change>
  const ReceivedCell* carry(Change&& change) {
    send_one(links.link(0), 1);
    auto& on_the_way = links.network(0).on_the_way;
    REQUIRE(on_the_way.size() == 1);
    Bytes& datagram = on_the_way.begin()->second;
    const auto decoded = decode_udp(datagram);
    REQUIRE(decoded.has_value());
    change(std::span(datagram).subspan(sizeof(UdpDataBytes) + kUdpRecordHead));
    seal_udp(std::get<UdpData>(*decoded), datagram);
    for (int i = 0; i < 5; ++i) links.step();
    return links.end(1).front(kData);
  }
  UdpNetworkLinks links;
};

TEST_CASE("a cell that makes no sense is delivered with its fault, and the lane goes on", "[fabric][link][udp]") {
  struct Row {
    const char* what;
    std::size_t at;
    CellFault fault;
  };
  for (const Row& row : {Row{"a payload that was changed", 40, CellFault::cell_crc},
                         Row{"another version", 0, CellFault::version}, Row{"no opcode", 1, CellFault::opcode}}) {
    INFO(row.what);
    Tampered tampered;
    const ReceivedCell* cell = tampered.carry([&row](std::span<std::byte> bytes) { bytes[row.at] ^= std::byte{0x7e}; });
    REQUIRE(cell != nullptr);
    CHECK(cell->fault == row.fault);
    tampered.links.end(1).pop(kData);
    cell = tampered.carry([](std::span<std::byte>) {});
    REQUIRE(cell != nullptr);
    CHECK_FALSE(cell->fault.has_value());
  }
}

TEST_CASE("a cell for another port, or from one, is delivered with its fault", "[fabric][link][udp]") {
  for (const std::size_t at : {std::size_t{4}, std::size_t{10}}) {  // destination, source
    Tampered tampered;
    const ReceivedCell* cell = tampered.carry([at](std::span<std::byte> bytes) {
      bytes[at] ^= std::byte{1};
      // With the CRCs that its sender would have computed: the packet CRC does not cover the addresses.
      const std::uint32_t crc = crc32c(bytes.first(bytes.size() - 4));
      for (std::size_t i = 0; i < 4; ++i) bytes[bytes.size() - 4 + i] = static_cast<std::byte>(crc >> 8 * i);
    });
    REQUIRE(cell != nullptr);
    CHECK(cell->fault == CellFault::port_address);
  }
}

TEST_CASE("a UDP link forgets the cell that it showed when its peer starts anew", "[fabric][link][udp]") {
  Tampered tampered;
  REQUIRE(tampered.carry([](std::span<std::byte>) {}) != nullptr);  // shown, and not consumed
  UdpNetworkLinks& links = tampered.links;
  const std::uint64_t before = links.end(1).incarnation();
  links.restart(0);
  while (links.end(1).incarnation() == before) links.step();
  CHECK(links.end(1).front(kData) == nullptr);
}

TEST_CASE("a socket counts what comes from an address without a link, and drops it", "[fabric][link][udp]") {
  UdpSocketLinks links;
  while (!links.end(0).up() || !links.end(1).up()) links.step();
  SeededRandom random(1);
  auto stranger = UdpSocket::open({});
  REQUIRE(stranger.has_value());
  auto link = (*stranger)->connect(links.socket(0).local(), UdpOptions{}, random);
  REQUIRE(link.has_value());
  (*link)->poll(links.now());  // a hello
  const std::uint64_t answered = links.link(0).peer().counters().hellos_answered;
  links.step();
  CHECK(links.socket(0).counters().dropped_unknown_source == 1);
  CHECK(links.link(0).peer().counters().hellos_answered == answered);
  CHECK(links.end(0).up());
  CHECK(links.end(0).incarnation() == 1);
}

TEST_CASE("one socket has a link to each of many peers, and one only", "[fabric][link][udp]") {
  SeededRandom random(1);
  auto center = UdpSocket::open({});
  REQUIRE(center.has_value());
  std::vector<std::unique_ptr<UdpSocket>> sockets;
  std::vector<std::unique_ptr<UdpLink>> links;
  for (int i = 0; i < 10; ++i) {
    sockets.push_back(std::move(UdpSocket::open({}).value()));
    links.push_back(std::move((*center)->connect(sockets.back()->local(), UdpOptions{}, random).value()));
    links.push_back(std::move(sockets.back()->connect((*center)->local(), UdpOptions{}, random).value()));
  }
  Time now{};
  for (int i = 0; i < 10; ++i) {
    now += std::chrono::microseconds(10);
    for (auto& link : links) link->poll(now);
  }
  for (auto& link : links) CHECK(link->up());
  CHECK_FALSE((*center)->connect(sockets[3]->local(), UdpOptions{}, random).has_value());
  links.erase(links.begin() + 6);  // the center's to peer 3
  CHECK((*center)->connect(sockets[3]->local(), UdpOptions{}, random).has_value());
}

TEST_CASE("the links of a socket offer what its kernel buffer holds, and share it", "[fabric][link][udp]") {
  SeededRandom random(1);
  auto opened = UdpSocket::open({});
  REQUIRE(opened.has_value());
  UdpSocket& center = **opened;
  const int bytes = 200'000;  // which Linux doubles, for data of its own
  REQUIRE(setsockopt(center.descriptor(), SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes) == 0);
  std::vector<std::unique_ptr<UdpSocket>> sockets;
  std::vector<std::unique_ptr<UdpLink>> theirs;
  std::vector<std::unique_ptr<UdpLink>> own;
  Time now{};
  const auto connect = [&] {
    sockets.push_back(std::move(UdpSocket::open({}).value()));
    own.push_back(std::move(center.connect(sockets.back()->local(), UdpOptions{}, random).value()));
    theirs.push_back(std::move(sockets.back()->connect(center.local(), UdpOptions{}, random).value()));
    while (!theirs.back()->up() || !own.back()->up()) {
      now += std::chrono::microseconds(10);
      theirs.back()->poll(now);
      own.back()->poll(now);
    }
  };
  // How much the peer can send before the center takes it.
  const auto unread = [&](UdpPeer& from) {
    std::size_t sum = 0;
    for (const VirtualLane lane : {VirtualLane::control, VirtualLane::data}) {
      while (!from.claim(lane, 1000).empty()) {
        from.release(lane, 1000);
        sum += 1000;
      }
    }
    return sum;
  };
  connect();
  const std::size_t alone = unread(theirs[0]->peer());
  CHECK(alone > 180'000);
  CHECK(alone <= 200'000);
  connect();
  const std::size_t shared = unread(theirs[1]->peer());
  CHECK(shared > 80'000);
  CHECK(shared <= 100'000);
  // A few datagrams are offered to each, however many there are.
  for (int i = 0; i < 20; ++i) connect();
  CHECK(unread(theirs.back()->peer()) > 30'000);
  own.resize(1);
  connect();
  CHECK(unread(theirs.back()->peer()) == shared);
}

TEST_CASE("a program that the process executes does not get its socket", "[fabric][link][udp]") {
  const std::string ip = GENERATE("127.0.0.1", "::1");
  const auto socket = UdpSocket::open({ip, 0});
  if (!socket) {
    WARN(socket.error().message);
    return;
  }
  CHECK((fcntl((*socket)->descriptor(), F_GETFD) & FD_CLOEXEC) != 0);
  CHECK((*socket)->local().ip == ip);
}

TEST_CASE("addresses that cannot be used are refused with a reason", "[fabric][link][udp]") {
  SeededRandom random(1);
  const auto refused = [](const auto& result) { return result ? std::string("not refused") : result.error().message; };
  CHECK(refused(UdpSocket::open({"localhost", 0})) == "'localhost' is not an IP address");
  auto socket = UdpSocket::open({});
  REQUIRE(socket.has_value());
  const UdpAddress local = (*socket)->local();
  CHECK(local.udp_port != 0);
  CHECK(refused(UdpSocket::open(local)) == "cannot use UDP address " + to_string(local) + ": Address already in use");
  CHECK(refused((*socket)->connect({"nowhere", 1}, UdpOptions{}, random)) == "'nowhere' is not an IP address");
  CHECK(refused((*socket)->connect({"::1", 7}, UdpOptions{}, random)) ==
        "UDP address [::1]:7 is not of the same family as " + to_string(local));
}

}  // namespace
}  // namespace splitnic::fabric::udp_link_test
