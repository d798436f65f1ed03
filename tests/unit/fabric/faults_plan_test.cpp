#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "fabric/faults/fault_plan.h"

namespace splitnic::fabric::faults_plan_test {
namespace {

constexpr QpNumber kFirst{0x1234};
constexpr QpNumber kSecond{0x99};

/// A plan with a log that tests read, and time that they move.
struct Planned {
  explicit Planned(const std::string& text, unsigned device = 1) : plan(options(text, device)) {
    plan.created(kFirst);
    plan.created(kSecond);
  }
  FaultPlanOptions options(const std::string& text, unsigned device) {
    FaultPlanOptions made;
    made.faults = parse_faults(text).value();
    made.device = device;
    made.clock = [this] { return now; };
    made.kill_peer = [this](PathNumber path) {
      killed.push_back(path.value);
      return can_kill;
    };
    made.log = [this](const std::string& line) { lines.push_back(line); };
    return made;
  }

  std::vector<std::string> lines;
  std::vector<std::uint32_t> killed;
  bool can_kill = true;
  Time now{};
  FaultPlan plan;
};

SendingRequest request(std::uint64_t number, QpNumber queue_pair = kFirst) {
  return {queue_pair, PathNumber{3}, number - 1, 7000 + number, Operation::send};
}

ArrivingMessage message(std::uint32_t psn, MessageKind kind = MessageKind::send) { return {kFirst, psn, kind}; }

/// Which of 1000 requests lose their first cell.
std::set<std::uint64_t> lost(Planned& planned, QpNumber queue_pair = kFirst) {
  std::set<std::uint64_t> numbers;
  for (std::uint64_t number = 1; number <= 1000; ++number) {
    if (planned.plan.loses(request(number, queue_pair), 0)) numbers.insert(number);
  }
  return numbers;
}

}  // namespace

TEST_CASE("draws of a fault plan depend on seed, device, queue pair and request, and have the rate",
          "[fabric][faults]") {
  Planned one("5,drop=100");
  const auto first = lost(one);
  CHECK(first.size() > 60);
  CHECK(first.size() < 140);
  CHECK(one.lines.size() == first.size());
  Planned again("5,drop=100");
  CHECK(lost(again) == first);
  CHECK(again.lines == one.lines);
  Planned other_seed("6,drop=100");
  CHECK(lost(other_seed) != first);
  Planned other_device("5,drop=100", 2);
  CHECK(lost(other_device) != first);
  CHECK(lost(one, kSecond) != first);
  Planned always("5,drop=1000");
  CHECK(lost(always).size() == 1000);
  Planned never("5,drop=0");
  CHECK(lost(never).empty());
}

TEST_CASE("a fault plan draws the same whatever was drawn before, and counts how often a cell was lost",
          "[fabric][faults]") {
  Planned straight("5,drop=300");
  Planned crooked("5,drop=300");
  const auto losses = [](Planned& planned, std::uint64_t number) {
    unsigned times = 0;
    while (times < 100 && planned.plan.loses(request(number), 2)) ++times;  // of one in three, no hundred in a row
    return times;
  };
  std::vector<unsigned> forwards;
  for (std::uint64_t number = 1; number <= 100; ++number) forwards.push_back(losses(straight, number));
  for (std::uint64_t number = 100; number >= 1; --number) {
    static_cast<void>(crooked.plan.turn(request(number, kSecond)));
    static_cast<void>(crooked.plan.loses(request(number, kSecond), 0));
    CHECK(losses(crooked, number) == forwards[number - 1]);
    CHECK(losses(crooked, number) == 0);  // what has got through gets through again
  }
  CHECK(std::set<unsigned>(forwards.begin(), forwards.end()).size() > 2);
  const auto twice = [](const std::string& line) { return line.find(" cell=2 time=2") != std::string::npos; };
  CHECK(std::any_of(straight.lines.begin(), straight.lines.end(), twice));
}

TEST_CASE("lines of a fault plan name the fault, the queue pair in order of creation, and the request",
          "[fabric][faults]") {
  Planned planned("5,drop=1000,corrupt=1000,delay=1000:1500,rnr=1000,cq-error=loc-prot-err:2,kill-peer=3", 4);
  static_cast<void>(planned.plan.turn(request(1)));
  static_cast<void>(planned.plan.turn(request(2)));
  static_cast<void>(planned.plan.loses(request(2, kSecond), 6));
  static_cast<void>(planned.plan.damages(message(77, MessageKind::write)));
  static_cast<void>(planned.plan.not_ready(message(78), 55));
  static_cast<void>(planned.plan.turn(request(3)));
  CHECK(planned.lines == std::vector<std::string>{
                             "fault delay device=4 qp=1 request=1 wr_id=7001 opcode=SEND us=1500",
                             "fault cq-error device=4 qp=1 request=2 wr_id=7002 opcode=SEND status=loc-prot-err",
                             "fault drop device=4 qp=2 request=2 wr_id=7002 opcode=SEND cell=6 time=1",
                             "fault corrupt device=4 qp=1 message=1 opcode=RDMA_WRITE time=1",
                             "fault rnr device=4 qp=1 message=2 opcode=SEND receive_wr_id=55 time=1",
                             "fault kill-peer device=4 qp=1 request=3 wr_id=7003 opcode=SEND",
                         });
}

TEST_CASE("copies of cells and lost answers are drawn apart from losses, and named", "[fabric][faults]") {
  Planned planned("5,drop=300,duplicate=300,lost-ack=300");
  std::set<std::uint64_t> dropped, doubled, unanswered;
  for (std::uint64_t number = 1; number <= 200; ++number) {
    if (planned.plan.loses(request(number), 0)) dropped.insert(number);
    if (planned.plan.duplicates(request(number), 0)) doubled.insert(number);
    if (planned.plan.loses_answer(request(number))) unanswered.insert(number);
  }
  for (const auto* hit : {&dropped, &doubled, &unanswered}) {
    CHECK(hit->size() > 30);
    CHECK(hit->size() < 90);
  }
  CHECK(dropped != doubled);
  CHECK(doubled != unanswered);
  CHECK(planned.plan.counters().duplicate == doubled.size());
  CHECK(planned.plan.counters().lost_ack == unanswered.size());
  Planned always("5,duplicate=1000,lost-ack=1000");
  CHECK(always.plan.duplicates(request(3), 4));
  CHECK_FALSE(always.plan.duplicates(request(3), 4));
  CHECK(always.plan.loses_answer(request(3)));
  CHECK(always.plan.loses_answer(request(3)));
  CHECK(always.lines == std::vector<std::string>{
                            "fault duplicate device=1 qp=1 request=3 wr_id=7003 opcode=SEND cell=4",
                            "fault lost-ack device=1 qp=1 request=3 wr_id=7003 opcode=SEND time=1",
                            "fault lost-ack device=1 qp=1 request=3 wr_id=7003 opcode=SEND time=2",
                        });
}

TEST_CASE("each datagram that comes in is a message of its own, whoever sent it", "[fabric][faults]") {
  Planned planned("5,corrupt=1000");
  CHECK(planned.plan.damages(message(7, MessageKind::datagram)));
  CHECK(planned.plan.damages(message(7, MessageKind::datagram)));
  REQUIRE(planned.lines.size() == 2);
  CHECK(planned.lines[1] == "fault corrupt device=1 qp=1 message=2 opcode=SEND time=1");
}

TEST_CASE("a datagram without a peer kills none, and those after one that did may go to others", "[fabric][faults]") {
  Planned planned("5,kill-peer=1");
  SendingRequest datagram = request(1);
  datagram.datagram = true;
  datagram.path = {};
  CHECK(planned.plan.turn(datagram).what == RequestTurn::What::go);
  CHECK(planned.killed.empty());
  datagram.queue_pair = kSecond;
  datagram.path = PathNumber{3};
  CHECK(planned.plan.turn(datagram).what == RequestTurn::What::go);
  CHECK(planned.killed == std::vector<std::uint32_t>{3});
  CHECK_FALSE(planned.plan.loses(datagram, 0));
}

TEST_CASE("a delayed request is held once, by the adapter's clock", "[fabric][faults]") {
  Planned planned("5,delay=1000:1500");
  planned.now += std::chrono::seconds(9);
  const RequestTurn held = planned.plan.turn(request(1));
  CHECK(held.what == RequestTurn::What::hold);
  CHECK(held.until == planned.now + std::chrono::microseconds(1500));
  CHECK(planned.plan.turn(request(1)).what == RequestTurn::What::go);
  CHECK(planned.plan.turn(request(2)).what == RequestTurn::What::hold);
  CHECK(planned.lines.size() == 2);
}

TEST_CASE("a completion error comes once on each queue pair", "[fabric][faults]") {
  Planned planned("5,cq-error=rem-op-err:2");
  for (const QpNumber queue_pair : {kFirst, kSecond}) {
    CHECK(planned.plan.turn(request(1, queue_pair)).what == RequestTurn::What::go);
    const RequestTurn failed = planned.plan.turn(request(2, queue_pair));
    CHECK(failed.what == RequestTurn::What::fail);
    CHECK(failed.status == CompletionStatus::remote_operation_error);
    CHECK(planned.plan.turn(request(2, queue_pair)).what == RequestTurn::What::go);
    CHECK(planned.plan.turn(request(3, queue_pair)).what == RequestTurn::What::go);
  }
}

TEST_CASE("a peer is killed once, and what its queue pair still sends is lost", "[fabric][faults]") {
  Planned planned("5,kill-peer=2");
  CHECK(planned.plan.turn(request(1)).what == RequestTurn::What::go);
  CHECK_FALSE(planned.plan.loses(request(1), 0));
  CHECK(planned.plan.turn(request(2)).what == RequestTurn::What::go);
  CHECK(planned.killed == std::vector<std::uint32_t>{3});
  CHECK(planned.plan.loses(request(2), 0));
  CHECK(planned.plan.loses(request(3), 0));
  CHECK(planned.plan.turn(request(2, kSecond)).what == RequestTurn::What::go);
  CHECK_FALSE(planned.plan.loses(request(2, kSecond), 0));
  CHECK(planned.killed.size() == 1);
  CHECK(planned.lines.size() == 1);
}

TEST_CASE("a peer that can't be killed ends the request alone", "[fabric][faults]") {
  Planned planned("5,kill-peer=1");
  planned.can_kill = false;
  const RequestTurn failed = planned.plan.turn(request(1));
  CHECK(failed.what == RequestTurn::What::fail);
  CHECK(failed.status == CompletionStatus::retry_exceeded);
  CHECK_FALSE(planned.plan.loses(request(2), 0));
}

TEST_CASE("a message that comes again is the same message, and draws anew only after a fault", "[fabric][faults]") {
  const auto run = [](unsigned copies) {
    Planned planned("5,corrupt=300,rnr=300");
    for (std::uint32_t psn = 100; psn < 200; ++psn) {
      while (planned.plan.damages(message(psn))) {
      }
      while (planned.plan.not_ready(message(psn), psn)) {
      }
      for (unsigned copy = 0; copy < copies; ++copy) {
        CHECK_FALSE(planned.plan.damages(message(psn)));
        CHECK_FALSE(planned.plan.not_ready(message(psn), psn));
      }
    }
    return planned.lines;
  };
  const auto lines = run(0);
  CHECK(run(3) == lines);
  CHECK(lines.size() > 50);
  CHECK(lines.size() < 150);
}

TEST_CASE("queue pairs that a fault plan does not know, or no longer, meet no faults", "[fabric][faults]") {
  Planned planned("5,drop=1000,corrupt=1000,delay=1000:5,rnr=1000,kill-peer=1");
  planned.plan.destroyed(kFirst);
  CHECK(planned.plan.turn(request(1)).what == RequestTurn::What::go);
  CHECK_FALSE(planned.plan.loses(request(1), 0));
  CHECK_FALSE(planned.plan.damages(message(1)));
  CHECK_FALSE(planned.plan.not_ready(message(1), 1));
  CHECK(planned.lines.empty());
  planned.plan.created(kFirst);  // another one, with the same number
  CHECK(planned.plan.turn(request(1)).what == RequestTurn::What::go);
  CHECK(planned.lines.at(0).find(" qp=3 ") != std::string::npos);
  planned.plan.end();
  CHECK_FALSE(planned.plan.loses(request(1, kSecond), 0));
  CHECK_FALSE(planned.plan.loses(request(1), 0));
}

}  // namespace splitnic::fabric::faults_plan_test
