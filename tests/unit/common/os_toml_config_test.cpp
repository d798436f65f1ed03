#include <catch2/catch.hpp>
#include <fstream>

#include "common/os/toml_config.h"
#include "os_temporary_directory.h"

namespace splitnic::os::os_toml_config_test {
namespace {

using Kind = ConfigEntry::Kind;

std::string error_of(std::string_view text) {
  const auto parsed = parse_config(text, "f.toml");
  return parsed ? "none" : parsed.error().message;
}

TEST_CASE("a configuration file gives its settings in order, with lines", "[common][config]") {
  const auto entries = parse_config(
      "tap = 'web0'   # the NIC\n"
      "mtu = 9000\n"
      "\n"
      "no-data-channel = true\n"
      "verbose = false\n"
      "allow-uid = [ 1000,\n  'daemon' ]\n"
      "ratio = 0.5\n"
      "[host]\n"
      "connect = \"shm:/run/x\"\n"
      "[a]\n"
      "b = 1\n",
      "f.toml");
  REQUIRE(entries);
  CHECK(*entries == std::vector<ConfigEntry>{{"", "tap", "web0", Kind::kText, 1},
                                             {"", "mtu", "9000", Kind::kText, 2},
                                             {"", "no-data-channel", "true", Kind::kFlag, 4},
                                             {"", "verbose", "false", Kind::kFlag, 5},
                                             {"", "allow-uid", "1000", Kind::kText, 6},
                                             {"", "allow-uid", "daemon", Kind::kText, 7},
                                             {"", "ratio", "0.5", Kind::kText, 8},
                                             {"host", "connect", "shm:/run/x", Kind::kText, 10},
                                             {"a", "b", "1", Kind::kText, 12}});
}

TEST_CASE("every fault of a configuration file is told with its line", "[common][config]") {
  CHECK(error_of("a = 1\nb = = 2\n").starts_with("f.toml:2: "));
  CHECK(error_of("a = 1\n\na = 2\n").starts_with("f.toml:3: "));
  CHECK(error_of("[t]\n[t]\n").starts_with("f.toml:2: "));
  CHECK(error_of("a = 'x\n").starts_with("f.toml:1: "));
  CHECK(error_of("a = 1\nb = \"\xff\"\n").starts_with("f.toml:2: "));
  const std::string wrong = ": must be a text, a number, true or false, or a list of these";
  CHECK(error_of("a = 1\nwhen = 2024-01-01\n") == "f.toml:2: when" + wrong);
  CHECK(error_of("[t]\nu = { v = 1 }\n") == "f.toml:2: u" + wrong);
  CHECK(error_of("a = [1, [2]]\n") == "f.toml:1: a" + wrong);
  CHECK(error_of("[[hosts]]\nname = 'x'\n") == "f.toml:1: hosts" + wrong);
  CHECK(error_of("a = \"x\\u0000y\"\n") == "f.toml:1: a: a text can't hold a zero character");
}

TEST_CASE("tables of one name are numbered where the caller permits them, empty ones too", "[common][config]") {
  const auto entries =
      parse_config("[policy]\na = 1\n[[host]]\nname = 'x'\nl = [1, 2]\n[[host]]\n[[host]]\nname = 'y'\n", "f.toml",
                   ConfigTables::kRepeated);
  REQUIRE(entries);
  CHECK(*entries == std::vector<ConfigEntry>{{"policy", "a", "1", Kind::kText, 2},
                                             {"host", "", "", Kind::kTable, 3, 1},
                                             {"host", "name", "x", Kind::kText, 4, 1},
                                             {"host", "l", "1", Kind::kText, 5, 1},
                                             {"host", "l", "2", Kind::kText, 5, 1},
                                             {"host", "", "", Kind::kTable, 6, 2},
                                             {"host", "", "", Kind::kTable, 7, 3},
                                             {"host", "name", "y", Kind::kText, 8, 3}});
}

TEST_CASE("a text written as TOML is read back", "[common][config]") {
  const std::string text = "a \"quoted\" \\ name, \xc3\xa4 'too'";
  const auto entries = parse_config("name = " + toml_string(text), "f.toml");
  REQUIRE(entries);
  CHECK(entries->front().value == text);
}

TEST_CASE("an empty configuration file has no settings, and an empty list is one without a value", "[common][config]") {
  CHECK(parse_config("", "f.toml")->empty());
  CHECK(*parse_config("b = 1\na = []\n[t]\n", "f.toml") ==
        std::vector<ConfigEntry>{{"", "b", "1", Kind::kText, 1}, {"", "a", "", Kind::kEmptyList, 2}});
}

TEST_CASE("a configuration file that can't be read is an error with its name", "[common][config]") {
  const TemporaryDirectory directory;
  const auto missing = read_config(directory.path("none.toml"));
  REQUIRE_FALSE(missing);
  CHECK(missing.error().message == directory.path("none.toml") + ": No such file or directory");
  const auto not_a_file = read_config(directory.path());
  REQUIRE_FALSE(not_a_file);
  CHECK(not_a_file.error().message == directory.path() + ": Is a directory");
  std::ofstream(directory.path("big.toml")) << std::string((1U << 20U) + 1, '#');
  CHECK_FALSE(read_config(directory.path("big.toml")));
  std::ofstream(directory.path("good.toml")) << "a = 1\n";
  CHECK(read_config(directory.path("good.toml"))->size() == 1);
}

}  // namespace
}  // namespace splitnic::os::os_toml_config_test
