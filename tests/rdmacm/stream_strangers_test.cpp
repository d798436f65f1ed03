// Stream sockets over RDMA whose other end is not one of ours: it speaks through the connection manager and the verbs.
#include <arpa/inet.h>
#include <rdma/rsocket.h>

#include <array>
#include <bit>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "fabric/rdmacm/stream_record.h"
#include "tests/rdmacm/stream_sockets.h"

namespace splitnic::rdmacm::testing::stream_strangers_test {
namespace {

using namespace streams;

/// A client that speaks with a listener of stream sockets through the connection manager and the verbs.
struct Stranger {
  Stranger() : id(events) {}
  ~Stranger() {
    if (region != nullptr) ibv_dereg_mr(region);
    if (ring_region != nullptr) ibv_dereg_mr(ring_region);
  }
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;

  /// With a ring that is there.
  void call(const Listener& listener, std::span<std::byte> ring) {
    id.resolve(events, at(ntohs(listener.address().sin_port)));
    ring_region = rdma_reg_write(id.id, ring.data(), ring.size());
    REQUIRE(ring_region != nullptr);
    connect(encode({std::bit_cast<std::uintptr_t>(ring.data()), ring_region->rkey,
                    static_cast<std::uint32_t>(ring.size()), 64, 0}));
  }
  void call(const Listener& listener, const StreamSetUpBytes& set_up) {
    id.resolve(events, at(ntohs(listener.address().sin_port)));
    connect(set_up);
  }
  void connect(const StreamSetUpBytes& set_up) {
    id.create_queue_pair();
    region = rdma_reg_msgs(id.id, memory.data(), memory.size());
    REQUIRE(region != nullptr);
    for (int i = 0; i < receives; ++i) REQUIRE(rdma_post_recv(id.id, nullptr, memory.data(), 48, region) == 0);
    rdma_conn_param about{};
    about.rnr_retry_count = 7;  // without end
    about.private_data = &set_up;
    about.private_data_len = sizeof set_up;
    REQUIRE(rdma_connect(id.id, &about) == 0);
  }
  StreamSetUp set_up() { return {1 << 12, 1, 1 << 12, 64, 0}; }
  /// What the other end has answered.
  StreamSetUp expect_set_up() {
    const std::string reply = events.expect(RDMA_CM_EVENT_ESTABLISHED).data;
    const auto there = decode_set_up(std::as_bytes(std::span(reply)));
    REQUIRE(there.has_value());
    return *there;
  }
  /// Into the ring of the other end, behind so many bytes.
  void write(const std::string& text, const StreamSetUp& there, std::size_t behind = 0) {
    std::memcpy(memory.data() + 512, text.data(), text.size());
    ibv_sge part{std::bit_cast<std::uintptr_t>(memory.data() + 512), static_cast<std::uint32_t>(text.size()),
                 region->lkey};
    ibv_send_wr request{};
    request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    request.imm_data = htonl(part.length);
    request.wr.rdma = {there.ring_address + behind, there.ring_key};
    request.sg_list = &part;
    request.num_sge = 1;
    ibv_send_wr* bad = nullptr;
    REQUIRE(ibv_post_send(id.id->qp, &request, &bad) == 0);
  }
  void send(const void* bytes, std::size_t count) {
    std::memcpy(memory.data() + 1024, bytes, count);
    REQUIRE(rdma_post_send(id.id, nullptr, memory.data() + 1024, count, region, 0) == 0);
  }

  Channel events;
  Id id;
  std::array<std::byte, 2048> memory{};
  ibv_mr* region = nullptr;
  ibv_mr* ring_region = nullptr;
  int receives = 8;  ///< that it posts
};

/// There is an asynchronous event, which nobody takes.
void await_async_event(const ibv_context* device) {
  pollfd readable{device->async_fd, POLLIN, 0};
  REQUIRE(poll(&readable, 1, kLimitMilliseconds) == 1);
}

TEST_CASE("a caller without the set-up of a stream is rejected, and the listener stays", "[rdmacm][rsocket]") {
  Listener listener;
  listener.set_nonblocking();
  Stranger stranger;
  StreamSetUpBytes bad = encode(stranger.set_up());
  bad.version = 2;
  stranger.call(listener, bad);
  CHECK(listener.poll(POLLIN, 100) == 0);
  stranger.events.expect(RDMA_CM_EVENT_REJECTED, 28);
  expect_error(raccept(listener.number, nullptr, nullptr), EAGAIN);
}

TEST_CASE("a peer that breaks the protocol ends its own connection and no other", "[rdmacm][rsocket]") {
  Pair good;
  Stranger stranger;
  stranger.call(good.listener, encode(stranger.set_up()));
  Socket server(raccept(good.listener.number, nullptr, nullptr));
  stranger.events.expect(RDMA_CM_EVENT_ESTABLISHED);
  StreamControl control;
  std::size_t bytes = sizeof(StreamControlBytes);
  SECTION("credits for what was not sent") { control.consumed_bytes = 1; }
  SECTION("fewer bytes than a control message has") { --bytes; }
  SECTION("a map that was not allowed") { control = {ControlKind::map, 0, 0, 1, 0, 0, 100}; }
  const StreamControlBytes encoded = encode(control);
  stranger.send(&encoded, bytes);
  char byte = 0;
  expect_error(rrecv(server.number, &byte, 1, 0), EPROTO);
  CHECK(rrecv(server.number, &byte, 1, 0) == 0);
  expect_error(rsend(server.number, &byte, 1, 0), EPIPE);
  stranger.events.expect(RDMA_CM_EVENT_DISCONNECTED);
  good.client.send("still here");
  CHECK(good.server->receive() == "still here");
}

TEST_CASE(
    "an end that has lost bytes says so in the call that learns of the end, also from the connection manager alone",
    "[rdmacm][rsocket]") {
  Listener listener;
  Stranger stranger;
  stranger.receives = 0;  // so what it is sent waits
  std::vector<std::byte> ring(4096);
  stranger.call(listener, ring);
  Socket server(raccept(listener.number, nullptr, nullptr));
  static_cast<void>(stranger.expect_set_up());
  server.send("lost");
  // Its queue pair says nothing of the end.
  ibv_qp* const goes_on = std::exchange(stranger.id.id->qp, nullptr);
  REQUIRE(rdma_disconnect(stranger.id.id) == 0);
  stranger.id.id->qp = goes_on;
  const auto limit = std::chrono::steady_clock::now() + std::chrono::milliseconds(kLimitMilliseconds);
  while (rsend(server.number, "x", 1, MSG_DONTWAIT) == 1 || errno == EAGAIN)
    REQUIRE(std::chrono::steady_clock::now() < limit);
  CHECK(errno == ECONNRESET);
  expect_error(rsend(server.number, "x", 1, 0), EPIPE);
}

TEST_CASE("an error after a part of a transfer waits for the next call", "[rdmacm][rsocket]") {
  Listener listener;
  Stranger stranger;
  std::vector<std::byte> ring(4096);
  stranger.call(listener, ring);
  Socket server(raccept(listener.number, nullptr, nullptr));
  const StreamSetUp there = stranger.expect_set_up();
  StreamControl control;
  control.consumed_bytes = 1 << 20;  // credits for what was not sent
  const StreamControlBytes breach = encode(control);
  char byte = 0;
  SECTION("of a receive") {
    stranger.write("four", there);
    stranger.send(&breach, sizeof breach);
    CHECK(server.receive(8, MSG_WAITALL) == "four");
    expect_error(rrecv(server.number, &byte, 1, 0), EPROTO);
    CHECK(rrecv(server.number, &byte, 1, 0) == 0);
  }
  SECTION("of a send") {
    const std::string all(3 * ring.size(), 'x');
    ssize_t sent = 0;
    std::thread sender([&] { sent = rsend(server.number, all.data(), all.size(), 0); });
    ibv_wc completion{};
    CHECK(rdma_get_recv_comp(stranger.id.id, &completion) == 1);
    stranger.send(&breach, sizeof breach);
    sender.join();
    CHECK(sent == static_cast<ssize_t>(ring.size()));
    expect_error(rsend(server.number, &byte, 1, 0), EPROTO);
    expect_error(rsend(server.number, &byte, 1, 0), EPIPE);
  }
}

TEST_CASE("bytes that have arrived are read although what was sent to their peer has failed", "[rdmacm][rsocket]") {
  constexpr std::size_t kWrites = 40;  // more than a look at the completion queue takes
  Listener listener;
  Stranger stranger;
  stranger.receives = 0;
  std::vector<std::byte> ring(4096);
  stranger.call(listener, ring);
  Socket server(raccept(listener.number, nullptr, nullptr));
  const StreamSetUp there = stranger.expect_set_up();
  server.send("x");  // waits for a receive
  for (std::size_t written = 0; written != kWrites; ++written) {
    stranger.write("y", there, written);
    REQUIRE(next(stranger.id.id->send_cq).status == IBV_WC_SUCCESS);
  }
  REQUIRE(rdma_disconnect(stranger.id.id) == 0);
  await_async_event(stranger.id.id->verbs);  // the server's queue pair has failed
  CHECK(server.receive(100, MSG_WAITALL) == std::string(kWrites, 'y'));
  char byte = 0;
  expect_error(rrecv(server.number, &byte, 1, 0), ECONNRESET);
}

TEST_CASE("the end of the send ring costs one short write, and no more", "[rdmacm][rsocket]") {
  Listener listener;
  listener.set(SOL_SOCKET, SO_SNDBUF, 4096);
  Stranger stranger;
  std::vector<std::byte> ring(1 << 16);
  stranger.call(listener, ring);
  Socket server(raccept(listener.number, nullptr, nullptr));
  stranger.events.expect(RDMA_CM_EVENT_ESTABLISHED);
  // All but 16 bytes, which is less than what is sent inline.
  server.send(std::string(4080, 'x'));
  server.send(std::string(4096, 'y'));
  std::vector<std::uint32_t> writes;
  for (std::uint32_t bytes = 0; bytes < 4080 + 4096; bytes += writes.back()) {
    ibv_wc completion{};
    REQUIRE(rdma_get_recv_comp(stranger.id.id, &completion) == 1);
    REQUIRE(completion.opcode == IBV_WC_RECV_RDMA_WITH_IMM);
    writes.push_back(ntohl(completion.imm_data));
    REQUIRE(writes.size() <= 4);
  }
  CHECK(writes == std::vector<std::uint32_t>{4080, 16, 4080});
  CHECK(ring[4079] == std::byte{'x'});
  CHECK(ring[4080] == std::byte{'y'});
  CHECK(ring[4080 + 4095] == std::byte{'y'});
}

TEST_CASE("a ring that the peer does not have ends the connection that uses it", "[rdmacm][rsocket]") {
  Listener listener;
  Stranger stranger;
  stranger.call(listener, encode(stranger.set_up()));
  Socket server(raccept(listener.number, nullptr, nullptr));
  stranger.events.expect(RDMA_CM_EVENT_ESTABLISHED);
  server.send("into nowhere");
  char byte = 0;
  expect_error(rrecv(server.number, &byte, 1, 0), ECONNRESET);
  CHECK(rrecv(server.number, &byte, 1, 0) == 0);
}

}  // namespace
}  // namespace splitnic::rdmacm::testing::stream_strangers_test
