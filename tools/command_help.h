#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <span>
#include <string>
#include <vector>

/// The parts that the command lines of `splitnic` and `splitnic-bench` share: checks of values, the layout of --help,
/// the facts about options that manual pages and completion repeat.
namespace splitnic::tools {

/// Accepts numbers from least to most.
template <class Number>
CLI::Validator between(Number least, Number most) {
  return {[least, most](std::string& text) {
            Number number{};
            const bool fits = CLI::detail::lexical_cast(text, number) && number >= least && number <= most;
            return fits ? std::string() : fmt::format("{} is no number from {} to {}", text, least, most);
          },
          fmt::format("{} to {}", least, most)};
}

/// Accepts payload sizes of a cell, in bytes.
CLI::Validator cell_bytes();

std::shared_ptr<CLI::FormatterBase> make_help_formatter();

/// Throws UsageError if a word that should choose a command is neither an option nor a command of app, or of a command
/// that has commands itself: CLI11 would only miss a command.
void check_command_name(const CLI::App& app, std::span<const std::string> words);

/// Parses the words, without the program's name, with `app`. Throws CLI::ParseError, also for an empty value
/// ("--name=", or an empty word): it comes from a script whose variable is not set, and would switch the option off.
void parse_words(CLI::App& app, const std::vector<std::string>& words);

/// Prints the text of --help or --version. Returns the exit code. Throws std::system_error if it can't be written.
int print_text(const CLI::App& app, const CLI::Success& asked);

/// What documentation says about one option, in addition to its description.
struct OptionFacts {
  std::string flags;          ///< "--mtu", or "--spin,--sleep" for a flag and its opposite
  std::string value;          ///< "BYTES"; empty for a flag
  std::string allowed;        ///< "68 to 65535", "{r,s}"; empty if any text is allowed
  std::string default_value;  ///< empty if the description names it, or if there is none
  bool required = false;
  bool repeatable = false;
  bool positional = false;  ///< a word without dashes; flags is what documentation calls it
};
OptionFacts facts_of(const CLI::Option& option);

}  // namespace splitnic::tools
