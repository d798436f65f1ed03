// Posts, polls and receives of two shared adapters whose queue pairs are connected.
#include <array>
#include <catch2/catch.hpp>
#include <optional>
#include <span>

#include "exchange.h"
#include "kinds.h"
#include "threads_fixtures.h"

namespace splitnic::quiet_verbs {
namespace {

using namespace fabric;
using fabric::test::SharedEnd;
using fabric::test::SharedPair;

/// Two adapters, and a queue pair of each for one service.
class Ends {
 public:
  Ends(const SharedAdapterOptions& how, Service service) : pair(how), service_(service) {
    for (std::size_t i = 0; i < 2; ++i) make(i);
    for (std::size_t i = 0; i < 2; ++i) connect(i);
    const MemoryRange range = buffers();
    pair.second().adapter->use([&](ChannelAdapter& verbs) {
      const auto made = verbs.register_bridge_memory(pair.second().domain, range, test::kThreadRights,
                                                     /*placeable=*/true, pair.second().path);
      direct_ = {verbs.region_address(made.value()), made.value()};
    });
  }

  [[nodiscard]] Places places() {
    return {pair.first().segment(0, kMemoryBytes), pair.second().remote(0), direct_, {handle_, numbers[1], 0}};
  }
  [[nodiscard]] std::uint64_t direct_writes() {
    return pair.first().adapter->use([](ChannelAdapter& verbs) { return verbs.counters().direct_writes; });
  }

  SharedPair pair;
  std::array<QpNumber, 2> numbers{};
  SrqNumber shared_receives{};  ///< of the second end

 private:
  void make(std::size_t index) {
    SharedEnd& end = pair.ends[index];
    end.adapter->use([&](ChannelAdapter& verbs) {
      QueuePairAttributes with;
      with.domain = end.domain;
      with.send_completions = with.receive_completions = end.completions;
      with.max_inline_bytes = kInlineBytes;
      with.datagram = service_ == Service::datagrams;
      with.acknowledged = !with.datagram;
      if (service_ == Service::shared_receives) {
        with.shared_receives = verbs.create_shared_receive_queue(end.domain, kMostInList).value();
      }
      shared_receives = with.shared_receives;
      numbers[index] = verbs.create_queue_pair(with).value();
    });
  }
  void connect(std::size_t index) {
    SharedEnd& end = pair.ends[index];
    end.adapter->use([&](ChannelAdapter& verbs) {
      const bool datagrams = service_ == Service::datagrams;
      const QueuePairPeer peer = datagrams ? QueuePairPeer{} : QueuePairPeer{numbers[1 - index], 5, 5, 4, end.path};
      REQUIRE(verbs.connect(numbers[index], peer) == Status::ok);
      if (index != 0 || !datagrams) return;
      AddressHandleOptions to;
      to.path = end.path;
      handle_ = verbs.create_address_handle(to).value();
    });
  }
  [[nodiscard]] MemoryRange buffers() {
    MemoryRange range{};
    pair.second().adapter->with_link(pair.second().path, [&](CellLink& link) {
      range = {link.direct()->buffers.offset, kMemoryBytes};
    });
    return range;
  }

  Service service_;
  RemoteAddress direct_{};
  AddressHandleNumber handle_{};
};

class AdapterExchange final : public Exchange {
 public:
  AdapterExchange(Ends& ends, const Requests& requests, bool in_a_list)
      : Exchange(requests.size(), receives_of(requests)),
        ends_(ends),
        requests_(requests),
        receives_(receives_of(requests),
                  ReceiveRequest{0, ends.pair.second().segment(kMemoryBytes, kReceiveBytes), {}}),
        in_a_list_(in_a_list) {}

 private:
  bool post() override {
    std::size_t posted = 0;
    if (!receives_.empty() && post_receives(posted) != Status::ok) return false;
    if (in_a_list_) {
      count_verb();
      return sender().adapter->post_send(ends_.numbers[0], requests_, posted) == Status::ok;
    }
    return std::ranges::all_of(requests_, [this](const WorkRequest& request) {
      count_verb();
      return sender().adapter->post_send(ends_.numbers[0], request) == Status::ok;
    });
  }
  Status post_receives(std::size_t& posted) {
    count_verb();
    SharedAdapter& adapter = *receiver().adapter;
    return ends_.shared_receives.value != 0 ? adapter.post_shared_receive(ends_.shared_receives, receives_, posted)
                                            : adapter.post_receive(ends_.numbers[1], receives_, posted);
  }
  bool poll() override { return take(sender()) && take(receiver()); }
  bool take(SharedEnd& end) {
    count_verb();
    std::array<Completion, 16> ended;
    const std::size_t count = end.adapter->poll_completions(end.completions, ended);
    for (const Completion& one : std::span(ended).first(count)) {
      if (one.status != CompletionStatus::success) return false;
      count_completion(one.receive);
    }
    return true;
  }
  SharedEnd& sender() { return ends_.pair.first(); }
  SharedEnd& receiver() { return ends_.pair.second(); }

  Ends& ends_;
  Requests requests_;
  std::vector<ReceiveRequest> receives_;
  bool in_a_list_;
};

}  // namespace

TEST_CASE("verbs of a shared adapter allocate nothing, enter no kernel, and try no lock", "[quiet]") {
  const bool threaded = GENERATE(true, false);
  INFO((threaded ? "with the progress thread" : "single-threaded"));
  for (const Kind& kind : kKinds) {
    Ends ends(threaded ? fabric::test::patient_thread() : fabric::test::alone(), kind.service);
    AdapterExchange exchange(ends, kind.requests(ends.places()), kind.in_a_list);
    check_quiet(kind.name, exchange);
    CHECK((ends.direct_writes() > 1000) == (kind.requests == direct_writes));
  }
}

}  // namespace splitnic::quiet_verbs
