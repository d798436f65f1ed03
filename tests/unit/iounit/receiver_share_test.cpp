#include "iounit/receiver_share.h"

#include <catch2/catch.hpp>

namespace splitnic::iounit::test::receiver_share_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Verdict = ReceiverShare::Verdict;

constexpr std::size_t kLan = ReceiverShare::kLan;
constexpr std::size_t kFlooder = ReceiverShare::of_host(3);
constexpr std::size_t kOther = ReceiverShare::of_host(0);

/// A host with one pool of 256 elements, unless a test adds one, and those that send to it.
struct Receiver {
  ReceiverShare share;
  Time now{std::chrono::hours(1)};
  std::uint32_t elements = 256;
  std::uint32_t filled = 0;
  bool few_writes = false;
  Verdict last = Verdict::admitted;

  [[nodiscard]] messaging::Credits offered() const { return {elements, elements - filled, 256, few_writes}; }
  /// One frame, which takes so many elements if it gets them.
  bool send(std::size_t sender, std::uint32_t takes = 1) {
    last = share.admit(sender, offered(), now);
    if (last != Verdict::admitted || filled + takes > elements) return false;
    filled += takes;
    share.took(sender, offered());
    return true;
  }
  /// So many frames at most; returns how many were delivered until one was not.
  unsigned send_all(std::size_t sender, std::uint32_t takes = 1) {
    unsigned sent = 0;
    while (send(sender, takes)) ++sent;
    return sent;
  }
  void handle(std::uint32_t count) { filled -= count; }
  /// Ten milliseconds later the host has handled everything.
  void begin_period() {
    now += milliseconds(10);
    handle(filled);
  }
  /// The LAN takes one element and the flooder 191, and so many of its frames are refused.
  void flood(unsigned refused) {
    REQUIRE(send(kLan));
    REQUIRE(send_all(kFlooder) == 191);
    for (unsigned frame = 1; frame < refused; ++frame) REQUIRE_FALSE(send(kFlooder));
  }
};

TEST_CASE("a sender that is alone takes every element, however long the queue stands", "[iounit][receiver]") {
  Receiver receiver;
  for (unsigned round = 0; round < 100; ++round) {
    CHECK(receiver.send_all(kFlooder) == (round == 0 ? 256 : 64));
    CHECK(receiver.last == Verdict::admitted);
    CHECK(receiver.share.held(kFlooder) == 256);
    receiver.handle(64);
    receiver.now += milliseconds(1);
  }
  CHECK(receiver.share.competing() == 1);
}

TEST_CASE("beside another sender, a burst leaves a quarter of the elements", "[iounit][receiver]") {
  Receiver receiver;
  REQUIRE(receiver.send(kLan));
  CHECK(receiver.send_all(kFlooder) == 191);
  CHECK(receiver.last == Verdict::over_part);
  CHECK(receiver.share.competing() == 2);
  // The other takes as many as are its part, and finds them.
  CHECK(receiver.send_all(kLan) == 63);
  CHECK(receiver.share.held(kLan) == 64);
  CHECK(receiver.share.held(kFlooder) == 191);
}

TEST_CASE("a sender that goes on although it is refused keeps the queue short from then on", "[iounit][receiver]") {
  Receiver receiver;
  receiver.flood(96);
  receiver.now += milliseconds(10);
  receiver.handle(1);
  CHECK_FALSE(receiver.send(kFlooder));
  CHECK(receiver.last == Verdict::restrained);
  receiver.handle(95);  // 96 are left
  CHECK_FALSE(receiver.send(kFlooder));
  for (unsigned round = 0; round < 100; ++round) {
    receiver.now += milliseconds(1);
    receiver.handle(64);
    CHECK(receiver.send_all(kFlooder) == 64);
    for (unsigned more = 0; more < 32; ++more) CHECK_FALSE(receiver.send(kFlooder));
    CHECK(receiver.last == Verdict::restrained);
    REQUIRE(receiver.filled == 96);
  }
}

/// A receiver with a flooder: ten periods in which the LAN sends, too.
void make_flooder(Receiver& receiver) {
  receiver.flood(96);
  for (unsigned period = 0; period < 10; ++period) {
    receiver.begin_period();
    REQUIRE(receiver.send(kLan));
    REQUIRE(receiver.send_all(kFlooder) == (period < 9 ? 95 : 32));
    for (unsigned frame = 1; frame < 96; ++frame) REQUIRE_FALSE(receiver.send(kFlooder));
    REQUIRE(receiver.last == Verdict::restrained);
  }
}

TEST_CASE("a host that floods for a tenth of a second gets an eighth of a pool in each period", "[iounit][receiver]") {
  Receiver receiver;
  make_flooder(receiver);
  for (unsigned period = 0; period < 100; ++period) {
    receiver.begin_period();
    REQUIRE(receiver.send(kLan));
    CHECK(receiver.send_all(kFlooder) == 32);
    receiver.handle(receiver.filled);  // an empty queue doesn't matter
    for (unsigned frame = 1; frame < 64; ++frame) CHECK_FALSE(receiver.send(kFlooder));
    CHECK(receiver.last == Verdict::restrained);
  }
  CHECK(receiver.send_all(kLan) == 192);
  receiver.begin_period();
  CHECK(receiver.send(kFlooder, 31));
  CHECK(receiver.send(kFlooder, 45));  // one super-frame more
  CHECK_FALSE(receiver.send(kFlooder));
}

TEST_CASE("a flooder is not limited while nobody else sends", "[iounit][receiver]") {
  Receiver receiver;
  make_flooder(receiver);
  for (unsigned period = 1; period <= 20; ++period) {  // since the LAN's last frame
    receiver.begin_period();
    CHECK(receiver.send_all(kFlooder) == (period < 10 ? 32 : 96));
    for (unsigned frame = 1; frame < 64; ++frame) REQUIRE_FALSE(receiver.send(kFlooder));
  }
}

TEST_CASE("a flooder that keeps to its share for a tenth of a second is none, however long it flooded",
          "[iounit][receiver]") {
  Receiver receiver;
  make_flooder(receiver);
  for (unsigned period = 0; period < 100; ++period) {
    receiver.begin_period();
    REQUIRE(receiver.send(kLan));
    REQUIRE(receiver.send_all(kFlooder) == 32);
    for (unsigned frame = 1; frame < 17; ++frame) REQUIRE_FALSE(receiver.send(kFlooder));
  }
  const bool silent = GENERATE(false, true);
  for (unsigned period = 0; period < 12; ++period) {  // the first one is judged by the last flood
    receiver.begin_period();
    REQUIRE(receiver.send(kLan));
    if (!silent) REQUIRE(receiver.send(kFlooder));
  }
  receiver.handle(receiver.filled);
  CHECK(receiver.send_all(kFlooder) == 192);
}

TEST_CASE("the LAN is many stations, and its floods are restrained but not limited", "[iounit][receiver]") {
  Receiver receiver;
  REQUIRE(receiver.send(kOther));
  REQUIRE(receiver.send_all(kLan) == 191);
  for (unsigned frame = 1; frame < 96; ++frame) REQUIRE_FALSE(receiver.send(kLan));
  for (unsigned period = 0; period < 20; ++period) {
    receiver.begin_period();
    REQUIRE(receiver.send(kOther));
    CHECK(receiver.send_all(kLan) == 95);
    for (unsigned frame = 1; frame < 48; ++frame) REQUIRE_FALSE(receiver.send(kLan));
  }
}

TEST_CASE("writes that a receiver does not acknowledge are short as elements are", "[iounit][receiver]") {
  Receiver receiver;
  receiver.elements = 1024;
  REQUIRE(receiver.send(kLan));
  for (unsigned frame = 0; frame < 200; ++frame) REQUIRE(receiver.send(kFlooder));
  receiver.few_writes = true;
  CHECK_FALSE(receiver.send(kFlooder));
  CHECK(receiver.last == Verdict::over_part);
  CHECK(receiver.send_all(kLan) == 63);  // below its part
  receiver.few_writes = false;
  CHECK(receiver.send(kFlooder));
}

TEST_CASE("a sender of whose frames a third was refused may send another burst", "[iounit][receiver]") {
  Receiver receiver;
  receiver.flood(95);  // of 286
  receiver.begin_period();
  CHECK(receiver.send_all(kFlooder) == 192);
  CHECK(receiver.last == Verdict::over_part);
}

TEST_CASE("while a flood is restrained, a sender below its part is admitted", "[iounit][receiver]") {
  Receiver receiver;
  receiver.flood(96);
  receiver.now += milliseconds(10);
  REQUIRE_FALSE(receiver.send(kFlooder));
  CHECK(receiver.send_all(kLan) == 63);  // 64 of 256 are the part of one of two
  CHECK(receiver.last == Verdict::over_part);
  receiver.handle(receiver.filled);
  CHECK(receiver.send_all(kFlooder) == 96);
  CHECK(receiver.send(kOther));  // a third: its part is 42
  CHECK(receiver.share.competing() == 3);
  CHECK(receiver.send_all(kOther) == 95);  // a burst
  CHECK(receiver.last == Verdict::over_part);
  receiver.handle(96);
  REQUIRE(receiver.filled == 96);
  CHECK(receiver.send_all(kFlooder) == 42);
  CHECK(receiver.last == Verdict::restrained);
}

TEST_CASE("a restrained sender may send bursts again when it has kept to its share or to silence",
          "[iounit][receiver]") {
  Receiver receiver;
  receiver.flood(96);
  receiver.begin_period();
  const bool silent = GENERATE(false, true);
  if (silent) {
    receiver.now += milliseconds(10);
  } else {
    for (unsigned frame = 0; frame < 96; ++frame) REQUIRE(receiver.send(kFlooder));
    for (unsigned frame = 0; frame < 48; ++frame) REQUIRE_FALSE(receiver.send(kFlooder));
    CHECK(receiver.last == Verdict::restrained);
    receiver.now += milliseconds(10) - Duration(1);
    REQUIRE_FALSE(receiver.send(kFlooder));
    receiver.handle(receiver.filled);
    REQUIRE(receiver.send(kFlooder));
    REQUIRE(receiver.send(kFlooder));  // 49 of 147
    receiver.handle(2);
    receiver.now += Duration(1);
  }
  CHECK(receiver.send_all(kFlooder) == 192);
  CHECK(receiver.last == Verdict::over_part);
}

TEST_CASE("a sender that has sent nothing for two seconds competes no more", "[iounit][receiver]") {
  Receiver receiver;
  REQUIRE(receiver.send(kLan));
  receiver.now += seconds(1);
  REQUIRE(receiver.send(kFlooder));
  CHECK(receiver.share.competing() == 1);
  REQUIRE(receiver.send(kLan));
  CHECK(receiver.share.competing() == 2);
  receiver.now += seconds(2) - Duration(1);  // in the next second of the count
  REQUIRE(receiver.send(kFlooder));
  CHECK(receiver.share.competing() == 2);
  receiver.now += Duration(1);
  REQUIRE(receiver.send(kFlooder));
  CHECK(receiver.share.competing() == 1);
  CHECK(receiver.send_all(kFlooder) == 256 - receiver.share.held(kLan) - 3);
}

TEST_CASE("elements come back in the order in which frames took them", "[iounit][receiver]") {
  Receiver receiver;
  for (unsigned round = 0; round < 1000; ++round) {  // many times round the ring
    REQUIRE(receiver.send(kLan, 3));
    REQUIRE(receiver.send(kFlooder, 44));
    REQUIRE(receiver.send(kFlooder, 2));
    REQUIRE(receiver.send(kOther));
    receiver.handle(2);
    static_cast<void>(receiver.share.admit(kLan, receiver.offered(), receiver.now));
    CHECK(receiver.share.held(kLan) == 1);
    receiver.handle(40);
    static_cast<void>(receiver.share.admit(kLan, receiver.offered(), receiver.now));
    CHECK(receiver.share.held(kLan) == 0);
    CHECK(receiver.share.held(kFlooder) == 7);
    CHECK(receiver.share.held(kOther) == 1);
    receiver.handle(8);
    receiver.now += milliseconds(1);
  }
  REQUIRE(receiver.filled == 0);
}

TEST_CASE("further pools are for bursts; how short a flood keeps the queue depends on the first one",
          "[iounit][receiver]") {
  Receiver receiver;
  REQUIRE(receiver.send_all(kFlooder) == 256);
  receiver.elements = 1024;
  receiver.handle(256);
  REQUIRE(receiver.send(kLan));
  CHECK(receiver.send_all(kFlooder) == 767);
  CHECK(receiver.last == Verdict::over_part);
  for (unsigned frame = 0; frame < 600; ++frame) REQUIRE_FALSE(receiver.send(kFlooder));
  receiver.now += milliseconds(10);
  receiver.handle(768 - 96);
  CHECK_FALSE(receiver.send(kFlooder));
  CHECK(receiver.last == Verdict::restrained);
  receiver.handle(1);
  CHECK(receiver.send_all(kFlooder) == 1);
}

TEST_CASE("however many send to a host, each gets an element", "[iounit][receiver]") {
  ReceiverShare share;
  const Time now{std::chrono::hours(1)};
  std::uint32_t free = 16;
  for (std::size_t sender = 0; sender < 16; ++sender) {
    CHECK(share.admit(sender, {16, free, 16}, now) == Verdict::admitted);
    share.took(sender, {16, --free, 16});
    CHECK(share.held(sender) == 1);
  }
  CHECK(share.competing() == 16);
}

TEST_CASE("a host without pools admits every frame", "[iounit][receiver]") {
  ReceiverShare share;
  for (unsigned frame = 0; frame < 1000; ++frame) {
    CHECK(share.admit(kFlooder, {}, Time(seconds(frame))) == Verdict::admitted);
    share.took(kFlooder, {});
  }
  CHECK(share.held(kFlooder) == 0);
}

TEST_CASE("a new session of the receiver starts with an empty queue", "[iounit][receiver]") {
  Receiver receiver;
  REQUIRE(receiver.send(kLan));
  REQUIRE(receiver.send_all(kFlooder) == 191);
  receiver.elements = receiver.filled = 0;  // no pool yet
  CHECK(receiver.share.admit(kLan, receiver.offered(), receiver.now) == Verdict::admitted);
  receiver.elements = 256;
  CHECK(receiver.send(kLan));
  CHECK(receiver.share.held(kLan) == 1);
  CHECK(receiver.share.held(kFlooder) == 0);
}

}  // namespace
}  // namespace splitnic::iounit::test::receiver_share_test
