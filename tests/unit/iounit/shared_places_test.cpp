#include "iounit/shared_places.h"

#include <catch2/catch.hpp>
#include <map>

#include "common/random.h"

namespace splitnic::iounit::test::shared_places_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Receivers = SharedPlaces::Receivers;

constexpr Time kNow{std::chrono::hours(1)};
constexpr UnitNumber kFirst{0};
constexpr UnitNumber kSecond{1};
constexpr UnitNumber kThird{2};

MacAddress address(unsigned number) {
  return {{2, 0, 0, 1, static_cast<std::uint8_t>(number >> 8U), static_cast<std::uint8_t>(number)}};
}
frame::EthernetHeader to(const MacAddress& destination, std::uint16_t vlan = 0) {
  return {.destination = destination, .source = address(999), .vlan_id = vlan};
}

TEST_CASE("a learned address is known on the side that was heard last, until it was silent for too long",
          "[iounit][group][places]") {
  SharedAddresses addresses(64, 5);
  addresses.learn(address(1), 0, kLanSide, kNow);
  CHECK(addresses.find(address(1), 0, kNow, seconds(60)) == kLanSide);
  CHECK(addresses.find(address(1), 7, kNow, seconds(60)) == std::nullopt);
  CHECK(addresses.find(address(2), 0, kNow, seconds(60)) == std::nullopt);
  CHECK(addresses.find(address(1), 0, kNow + seconds(60) - milliseconds(2), seconds(60)) == kLanSide);
  CHECK(addresses.find(address(1), 0, kNow + seconds(61), seconds(60)) == std::nullopt);
  addresses.learn(address(1), 0, side_of(kSecond), kNow + seconds(1));
  CHECK(addresses.find(address(1), 0, kNow + seconds(61) - milliseconds(2), seconds(60)) == side_of(kSecond));
  addresses.learn(address(3), 4, side_of(kFirst), kNow);
  addresses.forget(side_of(kSecond));
  CHECK(addresses.find(address(1), 0, kNow, seconds(60)) == std::nullopt);
  CHECK(addresses.find(address(3), 4, kNow, seconds(60)) == side_of(kFirst));
}

TEST_CASE("a full set forgets the address that was silent longest", "[iounit][group][places]") {
  SharedAddresses addresses(4, 5);  // one set
  REQUIRE(addresses.capacity() == 4);
  for (unsigned number = 0; number < 4; ++number) {
    addresses.learn(address(number), 0, kLanSide, kNow + seconds(number));
  }
  addresses.learn(address(0), 0, kLanSide, kNow + seconds(10));
  addresses.learn(address(9), 0, kLanSide, kNow + seconds(11));
  for (const unsigned number : {0U, 2U, 3U, 9U}) {
    CHECK(addresses.find(address(number), 0, kNow + seconds(11), seconds(60)));
  }
  CHECK_FALSE(addresses.find(address(1), 0, kNow + seconds(11), seconds(60)));
}

TEST_CASE("a host's address is pinned to one unit in every VLAN, whatever is learned", "[iounit][group][places]") {
  SharedPlaces places(3, 16, seconds(300), 9);
  REQUIRE(places.pin(address(1), kSecond));
  CHECK(places.pin(address(1), kSecond));
  CHECK_FALSE(places.pin(address(1), kThird));
  places.learn(address(1), 5, kLanSide, kNow);
  CHECK(places.find(address(1), 5, kNow) == side_of(kSecond));
  CHECK(places.host_at(address(1)) == kSecond);
  places.unpin(address(1), kThird);
  CHECK(places.host_at(address(1)) == kSecond);
  places.unpin(address(1), kSecond);
  CHECK_FALSE(places.host_at(address(1)));
  CHECK(places.pin(address(1), kThird));
}

TEST_CASE("pins come and go as a map has them, and there are no more than hosts", "[iounit][group][places]") {
  constexpr std::size_t kHosts = 24;
  SharedPlaces places(3, kHosts, seconds(300), 11);
  std::map<unsigned, UnitNumber> model;
  SeededRandom random(3);
  std::size_t full = 0;
  for (unsigned round = 0; round < 20'000; ++round) {
    const auto number = static_cast<unsigned>(random.below(40));
    const UnitNumber unit{static_cast<std::uint16_t>(random.below(3))};
    const auto known = model.find(number);
    if (random.below(2) == 0) {
      const bool fits = known != model.end() ? known->second == unit : model.size() < kHosts;
      full += known == model.end() && !fits ? 1 : 0;
      REQUIRE(places.pin(address(number), unit) == fits);
      if (fits) model[number] = unit;
    } else {
      places.unpin(address(number), unit);
      if (known != model.end() && known->second == unit) model.erase(known);
    }
    const auto other = static_cast<unsigned>(random.below(40));
    const auto there = model.find(other);
    REQUIRE(places.host_at(address(other)) == (there == model.end() ? std::nullopt : std::optional(there->second)));
  }
  CHECK(full > 10);
}

TEST_CASE("further addresses never take the room of those that hosts use", "[iounit][group][places]") {
  constexpr std::size_t kHosts = 4;
  constexpr std::size_t kFurther = 6;
  SharedPlaces places(2, kHosts, seconds(300), 11, kFurther);
  for (unsigned number = 0; number < kFurther; ++number) {
    CHECK(places.pin(address(number), kFirst, SharedPlaces::Pin::further));
  }
  CHECK_FALSE(places.pin(address(20), kFirst, SharedPlaces::Pin::further));
  CHECK(places.pin(address(0), kFirst));  // one of them is used now
  for (unsigned number = 0; number < kHosts; ++number) CHECK(places.pin(address(30 + number), kSecond));
  CHECK_FALSE(places.pin(address(40), kSecond));
  CHECK_FALSE(places.pin(address(41), kSecond, SharedPlaces::Pin::further));
}

TEST_CASE("a frame goes to the side of its destination, and to the units that want others' frames",
          "[iounit][group][places]") {
  SharedPlaces places(3, 16, seconds(300), 9);
  REQUIRE(places.pin(address(1), kFirst));
  REQUIRE(places.pin(address(2), kSecond));
  places.learn(address(3), 0, kLanSide, kNow);
  places.learn(address(4), 0, side_of(kThird), kNow);
  const auto from_first = [&](const MacAddress& destination) {
    return places.receivers(to(destination), kFirst, kNow);
  };
  const auto of_lan = [&](const MacAddress& destination) {
    return places.receivers_of_lan(to(destination), kFirst, kNow);
  };
  const UnitSet first = just(kFirst);
  const UnitSet second = just(kSecond);
  const UnitSet third = just(kThird);
  CHECK(from_first(address(2)) == Receivers{.units = second, .addressed = kSecond});
  CHECK(from_first(address(4)) == Receivers{.units = third, .addressed = kThird});
  CHECK(from_first(address(3)) == Receivers{.lan = true});
  CHECK(from_first(address(9)) == Receivers{.lan = true});
  CHECK(from_first(address(1)) == Receivers{.lan = true});  // in a VLAN in which the host is not
  CHECK(from_first(kBroadcastMac) == Receivers{.lan = true});
  CHECK(of_lan(address(2)) == Receivers{.units = second, .addressed = kSecond});
  CHECK(of_lan(address(1)) == Receivers{.units = first});
  CHECK(of_lan(address(3)) == Receivers{.units = first});
  CHECK(of_lan(address(9)) == Receivers{.units = first});
  places.set_wants(kFirst, {.groups = true, .unicast = true});
  places.set_wants(kSecond, {.groups = true});
  places.set_wants(kThird, {.groups = true, .unknown = true});
  CHECK(from_first(kBroadcastMac) == Receivers{.lan = true, .units = second | third});
  CHECK(from_first(address(9)) == Receivers{.lan = true, .units = third});
  CHECK(from_first(address(3)) == Receivers{.lan = true});
  CHECK(of_lan(kBroadcastMac) == Receivers{.units = first | second | third});
  CHECK(of_lan(address(2)) == Receivers{.units = first | second, .addressed = kSecond});
  CHECK(places.receivers(to(address(3)), kSecond, kNow) == Receivers{.lan = true, .units = first});
  CHECK(places.receivers(to(address(4)), kSecond, kNow) == Receivers{.units = first | third, .addressed = kThird});
  places.set_wants(kFirst, {});
  CHECK(places.receivers(to(address(3)), kSecond, kNow) == Receivers{.lan = true});
  places.forget_learned(kThird);
  CHECK(from_first(address(4)) == Receivers{.lan = true, .units = third});
}

}  // namespace
}  // namespace splitnic::iounit::test::shared_places_test
