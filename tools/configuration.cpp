// Configuration files: the options of a command, from a TOML file. The command line overrides them.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "common/os/toml_config.h"
#include "common/result.h"
#include "tools/command_help.h"
#include "tools/command_line.h"

namespace splitnic::tools {

namespace {

struct Setting {
  std::vector<std::string> values;
  unsigned line = 0;
  bool in_table = false;
};

/// The settings of one command: those in its table, and those at the file's top that the table does not have.
std::map<std::string, Setting> read_settings(const std::string& path, const std::string& command_name) {
  const auto entries = os::read_config(path);
  if (!entries) throw UsageError{entries.error().message};
  std::map<std::string, Setting> settings;
  for (const auto& entry : *entries) {
    if (!entry.section.empty() && entry.section != "host" && entry.section != "iounit") {
      throw UsageError{
          fmt::format("{}:{}: no such table: [{}] (there are [host] and [iounit])", path, entry.line, entry.section)};
    }
    const bool in_table = !entry.section.empty();
    if (in_table && entry.section != command_name) continue;
    auto& setting = settings[entry.key];
    if (setting.in_table && !in_table) continue;  // the table can come first: "host.tap = ..."
    if (in_table && !setting.in_table) setting = {.values = {}, .in_table = true};
    if (setting.line == 0) setting.line = entry.line;
    if (entry.kind != os::ConfigEntry::Kind::kEmptyList) setting.values.push_back(entry.value);
  }
  return settings;
}

void require_nothing(CLI::App& app) {
  for (auto* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    for (auto* option : command->get_options()) option->required(false);
  }
}

/// Parses the words with an app of its own (still empty), in which no option is required.
void parse_apart(CLI::App& app, CommandLine& asked, const std::vector<std::string>& words) {
  define_command_line(app, asked);
  require_nothing(app);
  parse_words(app, words);
}

}  // namespace

// CLI11's own configuration files do not report the line of a wrong setting. So this function first parses each setting
// alone.
ConfiguredWords with_configuration(const std::vector<std::string>& words) {
  CommandLine given;
  CLI::App app;
  try {
    parse_apart(app, given, words);
  } catch (const CLI::ParseError&) {
    return {words};
  }
  const CLI::App* command = app.get_subcommands().front();
  const std::string& name = command->get_name();
  const std::string path = name == "host"     ? given.host.daemon.config
                           : name == "iounit" ? given.unit.daemon.config
                                              : std::string();
  ConfiguredWords merged{words};
  if (path.empty()) return merged;
  for (const auto& [key, setting] : read_settings(path, name)) {
    const auto where = fmt::format("{}:{}", path, setting.line);
    const auto* option = command->get_option_no_throw("--" + key);
    if (option == nullptr || key == "config" || key == "help") {
      throw UsageError{fmt::format("{}: no such option: {}", where, key)};
    }
    std::vector<std::string> alone{name};
    for (const auto& value : setting.values) alone.push_back(fmt::format("--{}={}", key, value));
    try {
      CommandLine unused;
      CLI::App single;
      parse_apart(single, unused, alone);
    } catch (const CLI::ParseError& error) {
      throw UsageError{fmt::format("{}: {}", where, error.what())};
    }
    if (option->count() != 0) continue;
    merged.words.insert(merged.words.end(), alone.begin() + 1, alone.end());
    merged.places["--" + key] = where;
    if (key == "policy" && !setting.values.empty()) merged.places[setting.values.front()] = where + ": --policy";
  }
  return merged;
}

UsageError with_place(const UsageError& error, const ConfiguredWords& words) {
  for (const auto& [what, place] : words.places) {
    const bool meant = error.message.starts_with(what + ":") || error.message.starts_with(what + " ");
    if (meant) return UsageError{fmt::format("{}: {}", place, error.message)};
  }
  return error;
}

}  // namespace splitnic::tools
