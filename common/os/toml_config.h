#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"

namespace splitnic::os {

/// One setting of a configuration file, in the form of the command line.
struct ConfigEntry {
  enum class Kind { kText, kFlag, kTable, kEmptyList };
  std::string section;  ///< the table of the setting; empty at the top
  std::string key;      ///< empty for kTable: the beginning of one of several tables [[section]]
  std::string value;    ///< strings unchanged, numbers in decimal; "true" or "false" for a flag; else empty
  Kind kind = Kind::kText;
  unsigned line = 0;
  std::size_t table = 0;  ///< counts the tables [[section]] from 1; 0 elsewhere
  friend bool operator==(const ConfigEntry&, const ConfigEntry&) = default;
};

/// Whether a file may contain several tables of one name, [[section]].
enum class ConfigTables { kSingle, kRepeated };

/// Reads TOML with keys at the top and in tables one level deep, in the order of the file. A list gives one entry per
/// element, an empty list one of kEmptyList. Errors: "FILE:LINE: ..." for wrong syntax, duplicate keys and values that
/// no option accepts (dates, nested tables); "FILE: ..." if the file can't be read.
Result<std::vector<ConfigEntry>> read_config(const std::string& path, ConfigTables tables = ConfigTables::kSingle);

/// The same for a text; path appears in messages.
Result<std::vector<ConfigEntry>> parse_config(std::string_view text, const std::string& path,
                                              ConfigTables tables = ConfigTables::kSingle);

/// text (UTF-8 without control characters) as a string of TOML, with its quotes.
std::string toml_string(std::string_view text);

}  // namespace splitnic::os
