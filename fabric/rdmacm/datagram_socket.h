#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <deque>
#include <list>
#include <memory>
#include <optional>

#include "fabric/rdmacm/rsocket.h"

namespace splitnic::rdmacm {

/// A datagram socket: a queue pair for datagrams (UD). It listens at its address, so that others find out its queue
/// pair through the connection manager; who has sent a datagram is known by it. Datagrams that have no room are lost.
class DatagramSocket final : public Rsocket {
 public:
  DatagramSocket(int of_family, os::UniqueFd set) : Rsocket(of_family, SOCK_DGRAM, std::move(set)) {}
  ~DatagramSocket() override;

  [[nodiscard]] int bind(const Address& address) override;
  [[nodiscard]] int listen(int) override { return EOPNOTSUPP; }
  [[nodiscard]] int connect(const Address& to) override;
  [[nodiscard]] int connected() override { return 0; }
  [[nodiscard]] Outcome<std::shared_ptr<Rsocket>> accept() override { return error(EOPNOTSUPP); }
  [[nodiscard]] Outcome<std::size_t> send(Transfer& what) override;
  [[nodiscard]] Outcome<std::size_t> receive(Transfer& what) override;
  [[nodiscard]] int shut_down(int how) override;
  void progress() override;
  void wake() override;
  void arm() override;
  [[nodiscard]] short ready(short wanted) const override;
  [[nodiscard]] short ready_for(const Transfer& what, short wanted) const override;
  void close() override;
  [[nodiscard]] std::optional<Address> own_address() const override;
  [[nodiscard]] std::optional<Address> peer_address() const override { return peer_; }
  [[nodiscard]] bool listens() const override { return false; }
  [[nodiscard]] int segment_bytes() const override;

 private:
  /// Where a socket is.
  struct Place {
    std::uint16_t endnode = 0;
    std::uint32_t queue_pair = 0;
    friend bool operator==(const Place&, const Place&) = default;
  };
  /// The way to another socket. It is known, or asked for, or both: another socket may have the address by now.
  struct Route {
    Address to{};
    rdma_cm_id* asks = nullptr;  ///< until the connection manager has answered
    ibv_ah* handle = nullptr;    ///< null: not known
    Place place{};
    std::uint32_t queue_key = 0;
    bool awaited = false;  ///< a call waits for the answer
    bool refused = false;  ///< nobody is there, which such a call is to learn
    Time confirmed{};      ///< when the other socket was heard last
    /// The last datagram that did not go to where the answer says that the socket is.
    std::optional<std::vector<std::byte>> kept{};
  };
  /// A datagram that waits for the program.
  struct Arrived {
    std::uint32_t buffer = 0;
    std::uint32_t bytes = 0;  ///< without its header
    Address from{};
  };

  [[nodiscard]] int open(const Address& address);
  [[nodiscard]] int create_queue_pair();
  [[nodiscard]] int create_buffers();
  [[nodiscard]] std::byte* buffer(std::uint32_t index) const;
  [[nodiscard]] int post_receive(std::uint32_t index);

  bool take_manager_events();
  /// Whether the event is the last one of its identifier, which ends.
  [[nodiscard]] bool take_manager_event(const rdma_cm_event& event);
  bool poll(ibv_cq* queue);
  void take_datagram(const ibv_wc& completion);
  [[nodiscard]] Route* find(const Address& to);
  Route& add_route(const Address& to);
  void forget(std::list<Route>::iterator route);
  [[nodiscard]] int ask(Route& route);
  /// 0, EAGAIN with a route that is asked for, or why there is no way.
  [[nodiscard]] int route_to(const Address& to, Route*& route);
  void use_answer(Route& route, const rdma_cm_event& event);
  /// The answer: nobody is there.
  void refuse_route(std::list<Route>::iterator route);
  /// The socket of the route is where these attributes say. false: there is no handle to be had.
  bool use_place(Route& route, ibv_ah_attr attributes, std::uint32_t queue_pair, std::uint32_t queue_key);
  void keep(Route& route, std::span<const iovec> parts);
  [[nodiscard]] int post(const Route& route, std::span<const iovec> parts);

  rdma_event_channel* channel_ = nullptr;
  rdma_cm_id* id_ = nullptr;
  ibv_comp_channel* completions_ = nullptr;
  ibv_cq* receives_ = nullptr;
  ibv_cq* sends_ = nullptr;
  ibv_qp* queue_pair_ = nullptr;
  ibv_mr* region_ = nullptr;
  std::unique_ptr<std::byte[]> memory_;  // receives first, then sends
  std::uint32_t receive_count_ = 0;
  std::vector<std::uint32_t> free_sends_;
  std::size_t sends_under_way_ = 0;
  std::deque<Arrived> arrived_;
  std::list<Route> routes_;  // the one that was used last is the first
  std::optional<Address> peer_;
  unsigned idle_looks_ = 0;
};

}  // namespace splitnic::rdmacm
