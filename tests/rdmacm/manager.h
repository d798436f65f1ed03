#pragma once

#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

/// Fixtures for tests of the C interface: event channels, identifiers, and connections between two of them. All are in
/// this process, on a fabric of its own.
namespace splitnic::rdmacm::testing {

inline constexpr int kLimitMilliseconds = 20000;

/// The folder of this program's fabric.
const std::string& fabric_folder();

/// An IPv4 address of this machine.
sockaddr_in at(std::uint16_t number, const char* address = "127.0.0.1");

/// As ibv_query_qp() says.
ibv_qp_state state_of(ibv_qp* qp);
/// The next completion of the queue, which must come soon.
ibv_wc next(ibv_cq* queue);

/// An event that was got, with its private data, and acknowledged.
struct Seen {
  rdma_cm_event_type type{};
  int status = 0;
  rdma_cm_id* id = nullptr;
  rdma_cm_id* listener = nullptr;
  rdma_conn_param connection{};
  rdma_ud_param datagrams{};
  std::string data{};  ///< as long as the event says
};

struct Channel {
  Channel();
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  [[nodiscard]] bool readable(int milliseconds = 0) const;
  /// The next event, which must come soon.
  Seen next();
  Seen expect(rdma_cm_event_type type, int status = 0);

  rdma_event_channel* channel;
};

struct Id {
  Id(Channel& on, rdma_port_space space = RDMA_PS_TCP);
  /// Of a request.
  explicit Id(rdma_cm_id* of) : id(of) {}
  ~Id();
  Id(const Id&) = delete;
  Id& operator=(const Id&) = delete;

  void create_queue_pair(ibv_srq* srq = nullptr);
  int bind(const sockaddr_in& address);
  /// On a number that is free.
  void listen(const char* address = "127.0.0.1");
  [[nodiscard]] std::uint16_t number() const { return be16toh(rdma_get_src_port(id)); }
  /// Up to the state in which it can connect.
  void resolve(Channel& on, const sockaddr_in& destination);
  /// Sends a request to the listener with this number. on: the identifier's channel.
  void call(Channel& on, std::uint16_t listener);

  rdma_cm_id* id = nullptr;
};

/// A receive of 16 bytes, posted to an identifier's queue pair, which ends later.
struct PostedReceive {
  explicit PostedReceive(const Id& to);
  ~PostedReceive();
  PostedReceive(const PostedReceive&) = delete;
  PostedReceive& operator=(const PostedReceive&) = delete;

  /// Whether it has ended as flushed.
  [[nodiscard]] bool is_flushed() const;

  const Id& id;
  std::array<char, 16> bytes{};
  ibv_mr* region;
};

/// A connection, made.
struct Connected {
  explicit Connected(rdma_port_space space = RDMA_PS_TCP);

  Channel server_events;
  Channel client_events;
  Id listener;
  Id client;
  Seen request;
  Id server{nullptr};
  Seen established;  ///< at the client
};

}  // namespace splitnic::rdmacm::testing
