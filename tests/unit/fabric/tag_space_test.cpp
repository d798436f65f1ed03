#include "fabric/memory/tag_space.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <vector>

#include <catch2/catch.hpp>

namespace splitnic::fabric::tag_space_test {

TEST_CASE("tags are distinct, never index 0, and end with the capacity", "[fabric][memory]") {
  SeededRandom random(1);
  TagSpace tags(100, random);
  std::set<std::uint32_t> seen;
  for (int i = 0; i < 100; ++i) {
    const auto tag = tags.allocate();
    REQUIRE(tag.has_value());
    CHECK(tag->index() != 0);
    CHECK(tag->index() < tags.slots());
    CHECK(seen.insert(tag->index()).second);
  }
  CHECK_FALSE(tags.allocate().has_value());
}

TEST_CASE("tags handed out one after the other do not follow one another", "[fabric][memory]") {
  SeededRandom random(2);
  TagSpace tags(1000, random);
  int neighbours = 0;
  std::uint32_t last = 0;
  for (int i = 0; i < 1000; ++i) {
    const auto tag = tags.allocate();
    if (tag->index() == last + 1 || last == tag->index() + 1) ++neighbours;
    last = tag->index();
  }
  CHECK(neighbours < 20);
}

TEST_CASE("a released index rests while a quarter of the table is released after it", "[fabric][memory]") {
  SeededRandom random(3);
  TagSpace tags(64, random);
  const std::size_t rest = tags.slots() / 4;
  std::vector<std::uint32_t> released;
  for (int i = 0; i < 10'000; ++i) {
    const auto tag = tags.allocate();
    REQUIRE(tag.has_value());
    const auto from = released.size() > rest ? released.end() - static_cast<std::ptrdiff_t>(rest) : released.begin();
    REQUIRE(std::find(from, released.end(), tag->index()) == released.end());
    tags.release(*tag);
    released.push_back(tag->index());
  }
}

TEST_CASE("an index goes through all its instances", "[fabric][memory]") {
  SeededRandom random(4);
  TagSpace tags(1, random);
  std::map<std::uint32_t, std::vector<std::uint8_t>> instances;
  for (int i = 0; i < 4000; ++i) {
    const auto tag = tags.allocate();
    instances[tag->index()].push_back(tag->instance());
    tags.release(*tag);
  }
  for (const auto& [index, used] : instances) {
    INFO("index " << index);
    CHECK(std::set(used.begin(), used.end()).size() == 256);
    for (std::size_t i = 1; i < used.size(); ++i) {
      REQUIRE(used[i] == static_cast<std::uint8_t>(used[i - 1] + 1));
    }
  }
}

TEST_CASE("a full table keeps working: resting costs no tag", "[fabric][memory]") {
  SeededRandom random(5);
  TagSpace tags(31, random);
  std::vector<Stag> live;
  for (int i = 0; i < 31; ++i) live.push_back(*tags.allocate());
  for (int i = 0; i < 5000; ++i) {
    const auto victim = static_cast<std::size_t>(random.below(live.size()));
    tags.release(live[victim]);
    const auto tag = tags.allocate();
    REQUIRE(tag.has_value());
    live[victim] = *tag;
  }
}

TEST_CASE("the index after an index is no easier to guess than any other", "[fabric][memory]") {
  SeededRandom random(5);
  constexpr int kTags = 100'000;
  TagSpace tags(kTags, random);
  int next = 0;
  int near = 0;
  int up = 0;
  std::uint32_t last = tags.allocate()->index();
  for (int i = 1; i < kTags; ++i) {
    const std::uint32_t index = tags.allocate()->index();
    next += index == last + 1 ? 1 : 0;
    near += index - last + 50 <= 100 ? 1 : 0;
    up += index > last ? 1 : 0;
    last = index;
  }
  // Of 262 144 indices: expected 0.4 successors, 38 within 50, half of all upwards (deviation 91).
  CHECK(next < 8);
  CHECK(near < 80);
  CHECK(std::abs(up - kTags / 2) < 600);
}

TEST_CASE("a renewed tag keeps its index, and its next instances follow, chosen ones too", "[fabric][memory]") {
  SeededRandom random(6);
  TagSpace tags(1, random);
  const Stag first = *tags.allocate();
  CHECK(tags.left() == 0);
  std::set<std::uint8_t> instances;
  Stag tag = first;
  for (int i = 0; i < 256; ++i) {
    CHECK(instances.insert(tag.instance()).second);
    tag = tags.renew(tag);
    CHECK(tag.index() == first.index());
  }
  CHECK(tag == first);
  tag = tags.rename(tag, 200);
  CHECK(tag == Stag::from(first.index(), 200));
  CHECK(tags.renew(tag).instance() == 201);
}

}  // namespace splitnic::fabric::tag_space_test
