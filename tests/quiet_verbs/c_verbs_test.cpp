// Posts, polls and receives of the C verbs: two devices of this process, each with its progress thread.
#include <infiniband/verbs.h>
#include <sys/mman.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <vector>

#include "exchange.h"
#include "kinds.h"
#include "tests/ibverbs/device.h"

namespace splitnic::quiet_verbs {
namespace {

using ibverbs::testing::Device;
using ibverbs::testing::Queue;
using ibverbs::testing::Shape;
using ibverbs::testing::SharedReceives;

/// How a program posts and polls.
enum class Interface : std::uint8_t {
  plain,     ///< ibv_post_send, ibv_poll_cq
  extended,  ///< ibv_wr_*, ibv_start_poll: the locks last from the first call to the last
};

/// Memory of files, which other processes may map: peers store into it past the fabric.
class SharedMemory {
 public:
  explicit SharedMemory(Device& on)
      : bytes_(mmap(nullptr, kMemoryBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
    REQUIRE(bytes_ != MAP_FAILED);
    region_ = ibv_reg_mr(on.pd, bytes_, kMemoryBytes, ibverbs::testing::kAllAccess);
    REQUIRE(region_ != nullptr);
  }
  ~SharedMemory() {
    CHECK(ibv_dereg_mr(region_) == 0);
    munmap(bytes_, kMemoryBytes);
  }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  [[nodiscard]] verbs::RemoteAddress address() const {
    return {reinterpret_cast<std::uintptr_t>(bytes_), fabric::Stag{region_->rkey}};
  }

 private:
  void* bytes_;
  ibv_mr* region_ = nullptr;
};

struct CloseQueue {
  void operator()(ibv_cq_ex* queue) const { CHECK(ibv_destroy_cq(ibv_cq_ex_to_cq(queue)) == 0); }
};
using ExtendedQueue = std::unique_ptr<ibv_cq_ex, CloseQueue>;

ExtendedQueue extended_queue(Device& on, bool single_threaded) {
  ibv_cq_init_attr_ex wanted{};
  wanted.cqe = 256;
  wanted.wc_flags = IBV_WC_EX_WITH_BYTE_LEN;
  wanted.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
  wanted.flags = single_threaded ? IBV_CREATE_CQ_ATTR_SINGLE_THREADED : 0;
  ExtendedQueue made(ibv_create_cq_ex(on.context, &wanted));
  REQUIRE(made != nullptr);
  return made;
}

/// Two devices, and a queue pair of each for one service.
class Ends {
 public:
  Ends(Service service, Interface interface, bool single_threaded = false) : shared_(receiver) {
    for (std::size_t i = 0; i < 2; ++i) {
      Device& device = i == 0 ? sender : receiver;
      Shape shape;
      shape.depth = 2 * kMostInList;
      shape.extended = interface == Interface::extended;
      shape.timeout = 20;
      if (service == Service::datagrams) shape.type = IBV_QPT_UD;
      if (service == Service::shared_receives && i == 1) {
        shared_receives = std::make_unique<SharedReceives>(receiver, kMostInList);
        shape.srq = shared_receives->srq;
      }
      if (shape.extended) {
        completions[i] = extended_queue(device, single_threaded);
        std::swap(device.cq, plain_[i]);
        device.cq = ibv_cq_ex_to_cq(completions[i].get());
      }
      queues[i] = std::make_unique<Queue>(device, shape);
      if (shape.extended) std::swap(device.cq, plain_[i]);
    }
    for (std::size_t i = 0; i < 2; ++i) {
      queues[i]->connect((i == 0 ? receiver : sender).lid(), queues[1 - i]->qp->qp_num);
    }
    ibv_ah_attr address{};
    address.dlid = receiver.lid();
    address.port_num = 1;
    handle = ibv_create_ah(sender.pd, &address);
    REQUIRE(handle != nullptr);
  }
  ~Ends() { CHECK(ibv_destroy_ah(handle) == 0); }
  Ends(const Ends&) = delete;
  Ends& operator=(const Ends&) = delete;

  [[nodiscard]] Places places() {
    const ibv_sge all = sender.part(0, kMemoryBytes);
    return {verbs::LocalSegment::at(all.addr, all.length, fabric::Stag{all.lkey}),
            {receiver.address(), fabric::Stag{receiver.mr->rkey}},
            shared_.address(),
            {{}, fabric::QpNumber{queues[1]->qp->qp_num}, ibverbs::testing::kQueueKey}};
  }

  Device sender;
  Device receiver;
  std::unique_ptr<SharedReceives> shared_receives;
  std::array<ExtendedQueue, 2> completions;
  std::array<std::unique_ptr<Queue>, 2> queues;
  ibv_ah* handle = nullptr;

 private:
  SharedMemory shared_;
  std::array<ibv_cq*, 2> plain_{};
};

ibv_wr_opcode opcode_of(verbs::Operation operation) {
  switch (operation) {
    case verbs::Operation::rdma_write:
      return IBV_WR_RDMA_WRITE;
    case verbs::Operation::rdma_write_with_immediate:
      return IBV_WR_RDMA_WRITE_WITH_IMM;
    case verbs::Operation::rdma_read:
      return IBV_WR_RDMA_READ;
    case verbs::Operation::compare_swap:
      return IBV_WR_ATOMIC_CMP_AND_SWP;
    case verbs::Operation::fetch_add:
      return IBV_WR_ATOMIC_FETCH_AND_ADD;
    default:
      return IBV_WR_SEND;
  }
}

/// The requests in the form of the C verbs. They stay where they are.
class List {
 public:
  List(const Requests& from, Ends& ends, Service service) : parts_(from.size()), list_(from.size()) {
    for (std::size_t i = 0; i < from.size(); ++i) {
      const verbs::WorkRequest& request = from[i];
      ibv_send_wr& made = list_[i];
      for (std::size_t part = 0; part < request.segment_count; ++part) {
        const verbs::LocalSegment& segment = request.segments[part];
        parts_[i][part] = {segment.as_number(), segment.bytes, segment.tag.value};
      }
      made.wr_id = request.id;
      made.sg_list = parts_[i].data();
      made.num_sge = static_cast<int>(request.segment_count);
      made.opcode = opcode_of(request.operation);
      made.send_flags = IBV_SEND_SIGNALED | (request.inline_data ? IBV_SEND_INLINE : 0);
      if (service == Service::datagrams) {
        made.wr.ud = {ends.handle, request.datagram.queue_pair.value, request.datagram.queue_key};
      } else if (made.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || made.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        made.wr.atomic = {request.remote.address, request.compare, request.swap_or_add, request.remote.tag.value};
      } else {
        made.wr.rdma = {request.remote.address, request.remote.tag.value};
      }
    }
  }

  [[nodiscard]] std::span<ibv_send_wr> all() { return list_; }
  void chain() {
    for (std::size_t i = 0; i + 1 < list_.size(); ++i) list_[i].next = &list_[i + 1];
  }

 private:
  std::vector<std::array<ibv_sge, 2>> parts_;
  std::vector<ibv_send_wr> list_;
};

class CExchange final : public Exchange {
 public:
  CExchange(Ends& ends, const Kind& kind, const Requests& requests, Interface interface)
      : Exchange(requests.size(), receives_of(requests)),
        ends_(ends),
        requests_(requests, ends, kind.service),
        in_a_list_(kind.in_a_list),
        extended_(interface == Interface::extended),
        datagrams_(kind.service == Service::datagrams),
        into_(ends.receiver.part(kMemoryBytes, kReceiveBytes)),
        receives_(receives_of(requests)) {
    if (in_a_list_) requests_.chain();
    for (std::size_t i = 0; i < receives_.size(); ++i) {
      receives_[i] = {0, i + 1 == receives_.size() ? nullptr : &receives_[i + 1], &into_, 1};
    }
  }

 private:
  bool post() override {
    if (!receives_.empty() && !post_receives()) return false;
    const std::span list = requests_.all();
    if (extended_ && in_a_list_) return build(list);
    if (extended_) return std::ranges::all_of(list, [this](ibv_send_wr& one) { return build(std::span(&one, 1)); });
    ibv_send_wr* bad = nullptr;
    for (ibv_send_wr& one : list.first(in_a_list_ ? 1 : list.size())) {
      count_verb();
      if (ibv_post_send(ends_.queues[0]->qp, &one, &bad) != 0) return false;
    }
    return true;
  }
  bool post_receives() {
    count_verb();
    ibv_recv_wr* bad = nullptr;
    if (ends_.shared_receives != nullptr) {
      return ibv_post_srq_recv(ends_.shared_receives->srq, receives_.data(), &bad) == 0;
    }
    return ibv_post_recv(ends_.queues[1]->qp, receives_.data(), &bad) == 0;
  }

  bool build(std::span<ibv_send_wr> list) {
    ibv_qp_ex* qp = ibv_qp_to_qp_ex(ends_.queues[0]->qp);
    count_verb();
    ibv_wr_start(qp);
    for (const ibv_send_wr& one : list) {
      qp->wr_id = one.wr_id;
      qp->wr_flags = one.send_flags;
      begin(qp, one);
      if (datagrams_) ibv_wr_set_ud_addr(qp, one.wr.ud.ah, one.wr.ud.remote_qpn, one.wr.ud.remote_qkey);
      if ((one.send_flags & IBV_SEND_INLINE) != 0) {
        ibv_wr_set_inline_data(qp, reinterpret_cast<void*>(one.sg_list[0].addr), one.sg_list[0].length);
      } else {
        ibv_wr_set_sge_list(qp, static_cast<std::size_t>(one.num_sge), one.sg_list);
      }
    }
    return ibv_wr_complete(qp) == 0;
  }
  static void begin(ibv_qp_ex* qp, const ibv_send_wr& one) {
    const auto& [address, key] = one.wr.rdma;
    switch (one.opcode) {
      case IBV_WR_RDMA_WRITE:
        return ibv_wr_rdma_write(qp, key, address);
      case IBV_WR_RDMA_WRITE_WITH_IMM:
        return ibv_wr_rdma_write_imm(qp, key, address, one.imm_data);
      case IBV_WR_RDMA_READ:
        return ibv_wr_rdma_read(qp, key, address);
      case IBV_WR_ATOMIC_CMP_AND_SWP:
        return ibv_wr_atomic_cmp_swp(qp, one.wr.atomic.rkey, one.wr.atomic.remote_addr, one.wr.atomic.compare_add,
                                     one.wr.atomic.swap);
      case IBV_WR_ATOMIC_FETCH_AND_ADD:
        return ibv_wr_atomic_fetch_add(qp, one.wr.atomic.rkey, one.wr.atomic.remote_addr, one.wr.atomic.compare_add);
      default:
        return ibv_wr_send(qp);
    }
  }

  bool poll() override {
    if (extended_) return take_extended(*ends_.completions[0]) && take_extended(*ends_.completions[1]);
    return take(ends_.sender) && take(ends_.receiver);
  }
  bool take(Device& device) {
    count_verb();
    constexpr int kAtOnce = 16;  // that ibv_poll_cq() takes from the adapter
    std::array<ibv_wc, 4 * kAtOnce> ended;
    const int count = ibv_poll_cq(device.cq, static_cast<int>(ended.size()), ended.data());
    for (int more = count; more >= kAtOnce; more -= kAtOnce) count_verb();
    for (const ibv_wc& one : std::span(ended).first(static_cast<std::size_t>(count))) {
      if (one.status != IBV_WC_SUCCESS) return false;
      count_completion((one.opcode & IBV_WC_RECV) != 0);
    }
    return true;
  }
  bool take_extended(ibv_cq_ex& queue) {
    ibv_poll_cq_attr attributes{};
    count_verb();
    if (ibv_start_poll(&queue, &attributes) != 0) return true;
    do {
      if (queue.status != IBV_WC_SUCCESS) return false;
      count_completion((ibv_wc_read_opcode(&queue) & IBV_WC_RECV) != 0);
      count_verb();
    } while (ibv_next_poll(&queue) == 0);
    ibv_end_poll(&queue);
    return true;
  }

  Ends& ends_;
  List requests_;
  const bool in_a_list_;
  const bool extended_;
  const bool datagrams_;
  ibv_sge into_;
  std::vector<ibv_recv_wr> receives_;
};

/// What the environment says of placements, for the devices that are opened meanwhile.
class Placement {
 public:
  explicit Placement(const char* which) { setenv("SPLITNIC_PLACEMENT", which, 1); }
  ~Placement() { unsetenv("SPLITNIC_PLACEMENT"); }
  Placement(const Placement&) = delete;
  Placement& operator=(const Placement&) = delete;
};

/// A progress thread takes the adapter's lock when it finds that nobody has polled for a while: many short tries.
Permitted beside_threads() {
  Permitted permitted;
  permitted.others_take_the_lock = true;
  permitted.rounds = 20;
  permitted.tries = 500;
  return permitted;
}

}  // namespace

TEST_CASE("the C verbs allocate nothing, enter no kernel, and try at most the lock of the adapter", "[quiet]") {
  for (const Kind& kind : kKinds) {
    Ends ends(kind.service, Interface::plain);
    CExchange exchange(ends, kind, kind.requests(ends.places()), Interface::plain);
    check_quiet(kind.name, exchange, beside_threads());
  }
}

TEST_CASE("extended posts and polls of the C verbs are as quiet", "[quiet]") {
  const bool single_threaded = GENERATE(false, true);
  INFO((single_threaded ? "completion queues of one thread" : "completion queues that threads share"));
  for (const Kind& kind : kKinds) {
    Ends ends(kind.service, Interface::extended, single_threaded);
    CExchange exchange(ends, kind, kind.requests(ends.places()), Interface::extended);
    check_quiet(kind.name, exchange, beside_threads());
  }
}

TEST_CASE("requests that the kernel places into private memory enter it once each", "[quiet]") {
  const Placement placement("process");
  for (const Kind& kind : {Kind{"writes", writes_in_cells}, Kind{"reads", reads}}) {
    Ends ends(kind.service, Interface::plain);
    const Requests all = kind.requests(ends.places());
    CExchange exchange(ends, kind, all, Interface::plain);
    Permitted permitted = beside_threads();
    permitted.system_calls_per_round = all.size() - receives_of(all);  // a write with immediate needs the peer
    check_quiet(kind.name, exchange, permitted);
  }
}

}  // namespace splitnic::quiet_verbs
