// toml++ 3.0 asserts that a table's header starts with a key, and assumes it if assertions are off. "[[[" in a user's
// file is not a bug of ours. With the assertion disabled toml++ reports a parse error with its line.
#undef NDEBUG
#define TOML_ASSERT(condition) static_cast<void>(condition)
#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 0
#include "common/os/toml_config.h"

#include <toml++/toml.h>

#include <algorithm>
#include <utility>

#include "common/os/read_file.h"

namespace splitnic::os {
namespace {

constexpr std::size_t kMaxFileBytes = std::size_t{1} << 20U;

/// Converts the parsed tree to entries.
class Flattener {
 public:
  Flattener(const std::string& path, ConfigTables tables) : path_(path), tables_(tables) {}

  Result<void> table(const std::string& section, const toml::table& table) {
    for (const auto& [key, node] : table) {
      const std::string name(key.str());
      if (const auto* nested = node.as_table(); nested != nullptr && section.empty()) {
        if (auto done = this->table(name, *nested); !done) return done;
        continue;
      }
      if (const auto* list = node.as_array();
          list != nullptr && list->is_array_of_tables() && section.empty() && tables_ == ConfigTables::kRepeated) {
        if (auto done = repeated(name, *list); !done) return done;
        continue;
      }
      if (const auto* list = node.as_array()) {
        if (list->empty()) {
          const auto position = node.source().begin;
          placed_.push_back({{position.line, position.column},
                             {section, name, {}, ConfigEntry::Kind::kEmptyList, position.line, table_}});
        }
        for (const auto& element : *list) {
          if (auto done = value(section, name, element); !done) return done;
        }
        continue;
      }
      if (auto done = value(section, name, node); !done) return done;
    }
    return {};
  }

  // The library sorts tables by key.
  std::vector<ConfigEntry> in_file_order() {
    std::stable_sort(placed_.begin(), placed_.end(),
                     [](const Placed& left, const Placed& right) { return left.at < right.at; });
    std::vector<ConfigEntry> entries;
    entries.reserve(placed_.size());
    for (auto& placed : placed_) entries.push_back(std::move(placed.entry));
    return entries;
  }

 private:
  struct Placed {
    std::pair<unsigned, unsigned> at;
    ConfigEntry entry;
  };

  Result<void> repeated(const std::string& section, const toml::array& tables) {
    for (const auto& each : tables) {
      ++table_;
      const auto position = each.source().begin;
      placed_.push_back(
          {{position.line, position.column}, {section, {}, {}, ConfigEntry::Kind::kTable, position.line, table_}});
      if (auto done = table(section, *each.as_table()); !done) return done;
    }
    table_ = 0;
    return {};
  }

  Result<void> value(const std::string& section, const std::string& key, const toml::node& node) {
    const auto position = node.source().begin;
    ConfigEntry entry{section, key, {}, ConfigEntry::Kind::kText, position.line, table_};
    if (const auto* text = node.as_string()) {
      entry.value = text->get();
      if (entry.value.find('\0') != std::string::npos) {
        return fail("{}:{}: {}: a text can't hold a zero character", path_, entry.line, key);
      }
    } else if (const auto* whole = node.as_integer()) {
      entry.value = fmt::format("{}", whole->get());
    } else if (const auto* real = node.as_floating_point()) {
      entry.value = fmt::format("{}", real->get());
    } else if (const auto* flag = node.as_boolean()) {
      entry.value = flag->get() ? "true" : "false";
      entry.kind = ConfigEntry::Kind::kFlag;
    } else {
      return fail("{}:{}: {}: must be a text, a number, true or false, or a list of these", path_, entry.line, key);
    }
    placed_.push_back({{position.line, position.column}, std::move(entry)});
    return {};
  }

  const std::string& path_;
  ConfigTables tables_;
  std::size_t table_ = 0;  // of repeated tables, the number of the present one
  std::vector<Placed> placed_;
};

}  // namespace

Result<std::vector<ConfigEntry>> parse_config(std::string_view text, const std::string& path, ConfigTables tables) {
  const toml::parse_result parsed = toml::parse(text);
  if (!parsed) {
    return fail("{}:{}: {}", path, parsed.error().source().begin.line, parsed.error().description());
  }
  Flattener flattener(path, tables);
  if (auto done = flattener.table({}, parsed.table()); !done) return tl::unexpected(done.error());
  return flattener.in_file_order();
}

Result<std::vector<ConfigEntry>> read_config(const std::string& path, ConfigTables tables) {
  const auto text = read_file(path, kMaxFileBytes);
  if (!text) return tl::unexpected(text.error());
  return parse_config(*text, path, tables);
}

std::string toml_string(std::string_view text) {
  std::string quoted = "\"";
  for (const char character : text) {
    if (character == '"' || character == '\\') quoted += '\\';
    quoted += character;
  }
  return quoted + '"';
}

}  // namespace splitnic::os
