// The cost of one message of a program on the C verbs, both ends in one thread: what callgrind counts between the
// beginning and the end of measured(), on that thread. The devices' progress threads sleep while it polls. It is linked
// with splitnic's libibverbs, and includes nothing else of splitnic.
#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <list>
#include <memory>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "bench/costs/named_task.h"
#include "bench/peers/verbs_device.h"

namespace splitnic::bench {
namespace {

constexpr std::uint32_t kDepth = 128;
constexpr std::uint32_t kBytes = 64;
constexpr std::size_t kMostInList = 32;
constexpr std::size_t kMemoryBytes = 2 * kMostInList * kBytes;  // what is sent, what is received

enum class What {
  sends,      ///< one end sends, and both wait for the completions
  ping_pong,  ///< each message answers the one before; nobody waits for the completion of a send
  nothing     ///< polls of both ends that find nothing
};

struct Task {
  std::string_view name;
  What what;
  std::size_t list = 1;
  bool one_device = false;  ///< of both queue pairs
  bool extended = false;    ///< posts by ibv_wr_send(), as newer programs do
};
constexpr std::array kTasks{
    Task{"verbs_send_64_lists", What::sends, kMostInList},
    Task{"verbs_send_64", What::sends},
    Task{"verbs_ping_pong_64", What::ping_pong},
    Task{"verbs_wr_ping_pong_64", What::ping_pong, 1, false, true},
    Task{"verbs_loop_64_lists", What::sends, kMostInList, true},
    Task{"verbs_loop_64", What::sends, 1, true},
    Task{"verbs_idle_poll", What::nothing, kMostInList},
};

using peers::check;
using peers::made;
using Device = peers::VerbsDevice;

/// A queue pair with what it sends and receives.
class End {
 public:
  explicit End(const std::shared_ptr<Device>& on) : device(on), memory_(kMemoryBytes) {
    constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE;
    region_ = made(ibv_reg_mr(on->domain, memory_.data(), memory_.size(), kAccess), "registering");
    completions_ = on->completion_queue(2 * kDepth);
    queue_pair = on->queue_pair(completions_, completions_, kDepth);
    for (std::size_t i = 0; i < kMostInList; ++i) {
      const auto at = reinterpret_cast<std::uintptr_t>(memory_.data() + i * kBytes);
      from_[i] = {at, kBytes, region_->lkey};
      into_[i] = {at + kMostInList * kBytes, kBytes, region_->lkey};
    }
  }

  void connect(const End& peer) {
    constexpr std::uint8_t kTimeout = 20;  // 4 s
    peers::connect(queue_pair, peer.device->lid, peer.queue_pair->qp_num, kTimeout);
  }

  void send(std::size_t count, bool extended) {
    if (extended) return build(count);
    for (std::size_t i = 0; i < count; ++i) {
      ibv_send_wr& request = requests_[i];
      request = {};
      request.sg_list = &from_[i];
      request.num_sge = 1;
      request.opcode = IBV_WR_SEND;
      request.send_flags = IBV_SEND_SIGNALED;
      request.next = i + 1 == count ? nullptr : &requests_[i + 1];
    }
    ibv_send_wr* bad = nullptr;
    check(ibv_post_send(queue_pair, requests_.data(), &bad), "posting");
  }
  void receive(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      receives_[i] = {0, i + 1 == count ? nullptr : &receives_[i + 1], &into_[i], 1};
    }
    ibv_recv_wr* bad = nullptr;
    check(ibv_post_recv(queue_pair, receives_.data(), &bad), "posting a receive");
  }
  void poll() {
    std::array<ibv_wc, 32> ended;
    const int count = ibv_poll_cq(completions_, static_cast<int>(ended.size()), ended.data());
    for (int i = 0; i < count; ++i) {
      const ibv_wc& one = ended[static_cast<std::size_t>(i)];
      if (one.status != IBV_WC_SUCCESS) throw std::runtime_error(ibv_wc_status_str(one.status));
      ++((one.opcode & IBV_WC_RECV) != 0 ? received : sent);
    }
  }

  std::shared_ptr<Device> device;
  ibv_qp* queue_pair = nullptr;
  std::size_t sent = 0;
  std::size_t received = 0;

 private:
  void build(std::size_t count) {
    ibv_qp_ex* const builder = ibv_qp_to_qp_ex(queue_pair);
    ibv_wr_start(builder);
    for (std::size_t i = 0; i < count; ++i) {
      builder->wr_flags = IBV_SEND_SIGNALED;
      ibv_wr_send(builder);
      ibv_wr_set_sge(builder, from_[i].lkey, from_[i].addr, from_[i].length);
    }
    check(ibv_wr_complete(builder), "posting what was built");
  }

  std::vector<std::uint8_t> memory_;
  ibv_mr* region_ = nullptr;
  ibv_cq* completions_ = nullptr;
  std::array<ibv_sge, kMostInList> from_{};
  std::array<ibv_sge, kMostInList> into_{};
  std::array<ibv_send_wr, kMostInList> requests_{};
  std::array<ibv_recv_wr, kMostInList> receives_{};
};

/// Two connected ends. They stay until the process ends.
class Pair {
 public:
  explicit Pair(const Task& task)
      : task_(task),
        client_(std::make_shared<Device>()),
        server_(task.one_device ? client_.device : std::make_shared<Device>()) {
    client_.connect(server_);
    server_.connect(client_);
    client_.receive(task.list);
    server_.receive(task.list);
  }

  /// One list.
  void exchange() {
    switch (task_.what) {
      case What::sends:
        return send();
      case What::ping_pong:
        answer(client_, server_);
        return answer(server_, client_);
      case What::nothing:
        for (std::size_t i = 0; i < task_.list; ++i) client_.poll();
    }
  }
  /// So that the bridge is there, and everything has been used once.
  void warm_up() {
    send();
    send();
    client_.sent = server_.received = 0;
  }

 private:
  void send() {
    client_.send(task_.list, task_.extended);
    const std::size_t sent = client_.sent + task_.list;
    const std::size_t received = server_.received + task_.list;
    while (client_.sent < sent || server_.received < received) {
      client_.poll();
      server_.poll();
    }
    server_.receive(task_.list);
  }
  void answer(End& from, End& to) const {
    from.send(1, task_.extended);
    const std::size_t received = to.received + 1;
    while (to.received < received) to.poll();
    to.receive(1);
  }

  Task task_;
  End client_;
  End server_;
};

}  // namespace

/// Callgrind counts what happens in here (--toggle-collect=measured).
extern "C" [[gnu::noinline]] void measured(Pair& pair, std::size_t lists) {
  for (std::size_t i = 0; i < lists; ++i) pair.exchange();
}

}  // namespace splitnic::bench

int main(int count, char** arguments) {
  using namespace splitnic::bench;
  return run_named_tasks(kTasks, count, arguments, [](const Task& task) -> std::size_t {
    static std::list<Pair> pairs;
    Pair& pair = pairs.emplace_back(task);
    pair.warm_up();
    const std::size_t per_exchange = task.what == What::ping_pong ? 2 : task.list;
    const std::size_t exchanges = messages_to_measure() / per_exchange;
    measured(pair, exchanges);
    return exchanges * per_exchange;
  });
}
