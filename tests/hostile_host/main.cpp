// hostile_host: attacks an I/O unit as one of its hosts, and prints what it did as one line of JSON.
#include <fmt/format.h>

#include <charconv>
#include <cstring>
#include <string_view>
#include <vector>

#include "tests/hostile_host/ends.h"

namespace splitnic::hostile {
namespace {

constexpr const char* kUsage =
    "hostile_host --list\n"
    "hostile_host ATTACK --socket PATH [--seconds S] [--name NAME] [--victim NAME] [--station MAC]\n"
    "                    [--seed N]\n"
    "Exit code 1: the attack did not do what it should.\n";

std::vector<Attack> all_attacks() {
  std::vector<Attack> all;
  for (const auto attacks : {connection_attacks(), session_attacks(), frame_attacks(), identity_attacks()}) {
    all.insert(all.end(), attacks.begin(), attacks.end());
  }
  return all;
}

unsigned number(std::string_view text) {
  unsigned value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

int run(const Attack& attack, Target& target) {
  Counts counts;
  attack.run(target, counts);
  std::string fields;
  bool idle = counts.empty();
  for (const auto& [what, count] : counts) {
    fields += fmt::format(", \"{}\": {}", what, count);
    idle = idle || count == 0;
  }
  fmt::print("{{\"attack\": \"{}\"{}}}\n", attack.name, fields);
  if (idle) fmt::print(stderr, "hostile_host: {} did nothing of one kind\n", attack.name);
  return idle ? 1 : 0;
}

int main_of(const std::vector<std::string_view>& words) {
  const auto attacks = all_attacks();
  if (words.size() == 1 && words[0] == "--list") {
    for (const auto& attack : attacks) fmt::print("{:16} {}\n", attack.name, attack.about);
    return 0;
  }
  const auto option = [&](std::string_view name, std::string_view otherwise) {
    for (std::size_t at = 1; at + 1 < words.size(); ++at) {
      if (words[at] == name) return words[at + 1];
    }
    return otherwise;
  };
  for (const auto& attack : attacks) {
    if (words.empty() || words[0] != attack.name || option("--socket", "").empty()) continue;
    Target target{.socket = std::string(option("--socket", "")),
                  .name = std::string(option("--name", "hostile")),
                  .victim = std::string(option("--victim", "h1")),
                  .station = parse_mac(option("--station", "")).value_or(kNobody),
                  .random = SeededRandom(number(option("--seed", "1"))),
                  .until = monotonic_now() + std::chrono::seconds(number(option("--seconds", "2")))};
    return run(attack, target);
  }
  fmt::print(stderr, "{}", kUsage);
  return 2;
}

}  // namespace
}  // namespace splitnic::hostile

int main(int argc, char** argv) {
  return splitnic::hostile::main_of(std::vector<std::string_view>(argv + 1, argv + argc));
}
