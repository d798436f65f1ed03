#include "iounit/ownership.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "unit_bench.h"

namespace splitnic::iounit::test::ownership_test {
namespace {

using std::chrono::seconds;

constexpr Time kNow{std::chrono::hours(1)};
constexpr uid_t kAlice = 1000;
constexpr uid_t kBob = 1001;

TEST_CASE("an address is its host's while attached, and until its time after that", "[iounit][policy]") {
  Ownership owners;
  owners.attach("a", kAlice, station(1));
  REQUIRE(owners.find("a") != nullptr);
  CHECK(owners.find("a")->user == kAlice);
  CHECK(owners.holder_of(station(1), kNow + std::chrono::hours(1000))->name == "a");
  owners.detach("a", kNow + seconds(10));
  CHECK(owners.holder_of(station(1), kNow + seconds(9))->name == "a");
  CHECK(owners.holder_of(station(1), kNow + seconds(10)) == nullptr);
  CHECK(owners.find("a")->user == kAlice);  // the name stays its user's
}

TEST_CASE("the last address of a host that has changed it is held for the host, and only the last one",
          "[iounit][policy]") {
  Ownership owners;
  owners.attach("a", kAlice, station(1));
  owners.attach("a", kAlice, station(2), {}, kNow + seconds(10));
  CHECK(owners.holder_of(station(1), kNow + seconds(9))->name == "a");
  CHECK(owners.holder_of(station(1), kNow + seconds(10)) == nullptr);
  CHECK(owners.holder_of(station(2), kNow + seconds(10))->name == "a");
  SECTION("it goes on to a third one") {
    owners.attach("a", kAlice, station(3), {}, kNow + seconds(10));
    CHECK(owners.holder_of(station(1), kNow) == nullptr);
    CHECK(owners.holder_of(station(2), kNow)->name == "a");
    CHECK(owners.holder_of(station(3), kNow)->name == "a");
  }
  SECTION("it goes back") {
    owners.attach("a", kAlice, station(1), {}, kNow + seconds(10));
    CHECK(owners.holder_of(station(1), kNow + seconds(100))->name == "a");
    CHECK(owners.holder_of(station(2), kNow + seconds(9))->name == "a");
    CHECK(owners.holder_of(station(2), kNow + seconds(10)) == nullptr);
  }
  SECTION("another host takes it, and the host goes on to a third one") {
    owners.attach("b", kBob, station(1));
    CHECK(owners.holder_of(station(1), kNow)->name == "b");
    owners.attach("a", kAlice, station(3), {}, kNow + seconds(10));
    CHECK(owners.holder_of(station(1), kNow)->name == "b");
    CHECK(owners.holder_of(station(2), kNow)->name == "a");
  }
  SECTION("its name is forgotten") {
    owners.detach("a", kNow);
    for (unsigned number = 0; number < Ownership::kNamesPerUser; ++number) {
      owners.attach(fmt::format("n{}", number), kAlice, {{2, 0, 0, 1, 0, static_cast<std::uint8_t>(number)}});
    }
    REQUIRE(owners.find("a") == nullptr);
    CHECK(owners.holder_of(station(1), kNow) == nullptr);
    owners.attach("b", kBob, station(1));
    CHECK(owners.holder_of(station(1), kNow)->name == "b");
  }
}

TEST_CASE("a host that changes its address may leave the old one free; one that takes an address ends the hold",
          "[iounit][policy]") {
  Ownership owners;
  owners.attach("a", kAlice, station(1));
  owners.attach("a", kAlice, station(2));
  CHECK(owners.holder_of(station(1), kNow) == nullptr);
  CHECK(owners.holder_of(station(2), kNow)->name == "a");
  owners.detach("a", kNow + seconds(10));
  owners.attach("b", kBob, station(2));
  CHECK(owners.holder_of(station(2), kNow)->name == "b");
  CHECK(owners.find("a")->address.is_zero());
  owners.attach("a", kAlice, station(3));
  CHECK(owners.holder_of(station(2), kNow)->name == "b");
}

TEST_CASE("a user who invents names displaces only names of its own, the longest unused first, never an attached one",
          "[iounit][policy]") {
  Ownership owners;
  owners.attach("bob", kBob, station(1));
  owners.detach("bob", kNow);
  owners.attach("attached", kAlice, station(2));
  for (unsigned number = 0; number < 2 * Ownership::kNamesPerUser; ++number) {
    const std::string name = fmt::format("n{}", number);
    owners.attach(name, kAlice, {{2, 0, 0, 1, 0, static_cast<std::uint8_t>(number)}});
    owners.detach(name, kNow + seconds(10));
  }
  CHECK(owners.find("bob") != nullptr);
  CHECK(owners.find("attached") != nullptr);
  CHECK(owners.saved().size() == 1 + Ownership::kNamesPerUser);
  CHECK(owners.find("n64") == nullptr);
  CHECK(owners.find("n65") != nullptr);
  CHECK(owners.holder_of({{2, 0, 0, 1, 0, 64}}, kNow) == nullptr);
  CHECK(owners.holder_of({{2, 0, 0, 1, 0, 65}}, kNow)->name == "n65");
  CHECK(owners.derived_from(stable_mac_for("n64")) == nullptr);
  CHECK(owners.derived_from(stable_mac_for("n65"))->name == "n65");
}

TEST_CASE("names with users survive a restart, in the order of their use, with their addresses", "[iounit][policy]") {
  Ownership before;
  before.attach("a", kAlice, station(1));
  before.attach("b", kBob, station(2));
  before.attach("nobody's", std::nullopt, station(3));
  before.detach("a", kNow);
  before.attach("a", kAlice, station(1));
  const auto saved = before.saved();
  REQUIRE(saved.size() == 2);
  CHECK(saved[0].name == "b");
  CHECK(saved[1].name == "a");

  Ownership after;
  after.restore(saved, kNow + seconds(10));
  CHECK(after.find("a")->user == kAlice);
  CHECK(after.find("b")->user == kBob);
  CHECK(after.holder_of(station(2), kNow)->name == "b");
  CHECK(after.holder_of(station(2), kNow + seconds(10)) == nullptr);
  CHECK(after.derived_from(stable_mac_for("b"))->name == "b");
}

TEST_CASE("all names of a user with many hosts survive a restart, and later ones displace the longest unused",
          "[iounit][policy]") {
  constexpr unsigned kHosts = 100;
  static_assert(kHosts > Ownership::kNamesPerUser);
  const auto name_of = [](unsigned number) { return fmt::format("n{}", number); };
  const auto address_of = [](unsigned number) {
    return MacAddress{{2, 0, 0, 1, 0, static_cast<std::uint8_t>(number)}};
  };
  Ownership before;
  for (unsigned number = 0; number < kHosts; ++number) before.attach(name_of(number), kAlice, address_of(number));
  Ownership after;
  after.restore(before.saved(), kNow + seconds(10));
  CHECK(after.saved().size() == kHosts);
  for (unsigned number = 0; number < kHosts; ++number) {
    REQUIRE(after.find(name_of(number)) != nullptr);
    CHECK(after.holder_of(address_of(number), kNow)->name == name_of(number));
  }
  after.attach("new", kAlice, station(1));
  CHECK(after.saved().size() == kHosts);
  CHECK(after.find(name_of(0)) == nullptr);
}

TEST_CASE("the revision changes when something has changed that is saved, and only then", "[iounit][policy]") {
  Ownership owners;
  auto changed = [&, last = owners.revision()]() mutable { return std::exchange(last, owners.revision()) != last; };
  owners.attach("a", kAlice, station(1));
  CHECK(changed());
  owners.detach("a", kNow);
  owners.attach("a", kAlice, station(1));
  CHECK_FALSE(changed());
  owners.attach("a", kAlice, station(2));
  CHECK(changed());
  owners.attach("a", kBob, station(2));
  CHECK(changed());
}

}  // namespace
}  // namespace splitnic::iounit::test::ownership_test
