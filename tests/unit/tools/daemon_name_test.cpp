#include <catch2/catch.hpp>
#include <string>

#include "messaging/wire/cfgutil.h"
#include "tools/daemon.h"

namespace splitnic::tools::daemon_name_test {
namespace {

TEST_CASE("a long default name loses its beginning, in whole characters", "[tools]") {
  for (const std::string character : {"x", "\u00fc", "\u20ac", "\U0001f980"}) {
    std::string characters;
    while (characters.size() < 2 * messaging::wire::kMaxNameBytes) characters += character;
    for (const std::string end : {"", "a", "ab", "abc"}) {
      const std::string name = daemon_name({}, characters + end);
      CHECK(messaging::wire::is_valid_name(name));
      CHECK(name.size() > messaging::wire::kMaxNameBytes - character.size());
      CHECK(name.ends_with(character + end));
    }
  }
  CHECK(daemon_name({}, "eth0").ends_with("-eth0"));
}

}  // namespace
}  // namespace splitnic::tools::daemon_name_test
