// The parts that the command lines of both programs share.
#include "tools/command_help.h"

#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "common/result.h"
#include "fabric/wire/cell.h"

namespace splitnic::tools {

namespace {

constexpr std::size_t kHelpColumn = 32;
constexpr std::size_t kHelpWidth = 100;

/// Breaks `text` into lines of at most `width` columns.
std::string wrapped(const std::string& text, std::size_t width) {
  std::string lines;
  std::size_t column = 0;
  for (const auto& word : CLI::detail::split(text, ' ')) {
    if (column != 0) {
      const bool fits = column + 1 + word.size() <= width;
      lines += fits ? ' ' : '\n';
      column = fits ? column + 1 : 0;
    }
    lines += word;
    column += word.size();
  }
  return lines;
}

class HelpFormatter final : public CLI::Formatter {
 public:
  HelpFormatter() {
    column_width(kHelpColumn);
    label("SUBCOMMAND", "COMMAND");
  }
  std::string make_option_name(const CLI::Option* option, bool) const override { return facts_of(*option).flags; }
  std::string make_option_opts(const CLI::Option* option) const override {
    const auto facts = facts_of(*option);
    return facts.value.empty() ? "" : " " + facts.value + (facts.repeatable ? " ..." : "");
  }
  std::string make_option_desc(const CLI::Option* option) const override {
    const auto facts = facts_of(*option);
    std::string text = option->get_description();
    if (facts.required) text += " (required)";
    if (!facts.allowed.empty() && !facts.default_value.empty()) {
      text += fmt::format(" ({}; default {})", facts.allowed, facts.default_value);
    } else if (!facts.allowed.empty()) {
      text += fmt::format(" ({})", facts.allowed);
    } else if (!facts.default_value.empty()) {
      text += fmt::format(" (default {})", facts.default_value);
    }
    return wrapped(text, kHelpWidth - kHelpColumn);
  }
  /// CLI11 does not name the words of the program that a prefix command runs.
  std::string make_usage(const CLI::App* app, std::string name) const override {
    std::string usage = CLI::Formatter::make_usage(app, std::move(name));
    if (!app->get_prefix_command()) return usage;
    usage.erase(usage.find_last_not_of('\n') + 1);
    return usage + " PROGRAM [ARGUMENTS...]\n";
  }
};

/// The command that the first words choose, or app. at: behind these words.
const CLI::App* chosen_command(const CLI::App& app, const std::vector<std::string>& words, std::size_t& at) {
  const CLI::App* chosen = &app;
  for (at = 0; at < words.size(); ++at) {
    const auto found =
        chosen->get_subcommands([&](const CLI::App* command) { return command->get_name() == words[at]; });
    if (found.empty()) break;
    chosen = found.front();
  }
  return chosen;
}

/// CLI11 would take the word after "--name=" for the value, and an empty word for an option that is not given. The
/// words of a program that a prefix command runs are the program's.
void refuse_empty_values(const CLI::App& app, const std::vector<std::string>& words) {
  std::size_t at = 0;
  const CLI::App* command = chosen_command(app, words, at);
  const bool runs_program = command->get_prefix_command();
  const CLI::Option* option = nullptr;  // that takes the next word
  for (; at < words.size() && words[at] != "--"; ++at) {
    const std::string& word = words[at];
    if (word.empty() && option != nullptr) throw CLI::ArgumentMismatch(option->get_name() + " needs a value");
    if (word.starts_with('-')) {
      if (word.starts_with("--") && word.find('=') == word.size() - 1) {
        throw CLI::ArgumentMismatch(fmt::format("{} needs a value", word.substr(0, word.size() - 1)));
      }
      option = command->get_option_no_throw(word);
      if (option != nullptr && option->get_type_size() == 0) option = nullptr;
      continue;
    }
    if (runs_program && option == nullptr) return;  // the program
    if (word.empty()) throw CLI::ArgumentMismatch(fmt::format("word {} of the command line is empty", at + 1));
    if (option != nullptr && option->get_items_expected_max() == 1) option = nullptr;
  }
}

}  // namespace

CLI::Validator cell_bytes() {
  return {[](std::string& text) {
            std::uint32_t bytes = 0;
            const bool fits = CLI::detail::lexical_cast(text, bytes) && bytes >= fabric::kMinCellPayload &&
                              bytes <= fabric::kMaxCellPayload && bytes % 16 == 0;
            return fits ? std::string()
                        : fmt::format("{} is not a multiple of 16 from {} to {}", text, fabric::kMinCellPayload,
                                      fabric::kMaxCellPayload);
          },
          fmt::format("a multiple of 16, {} to {}", fabric::kMinCellPayload, fabric::kMaxCellPayload)};
}

std::shared_ptr<CLI::FormatterBase> make_help_formatter() { return std::make_shared<HelpFormatter>(); }

void check_command_name(const CLI::App& app, std::span<const std::string> words) {
  const auto commands = app.get_subcommands([](const CLI::App*) { return true; });
  if (words.empty() || commands.empty()) return;
  const std::string& word = words.front();
  if (word.starts_with('-')) {
    if (app.get_option_no_throw(word) == nullptr)
      throw UsageError{fmt::format("unknown option: {} (see --help)", word)};
    return;
  }
  std::string known;
  for (const auto* command : commands) {
    if (command->get_name() == word) return check_command_name(*command, words.subspan(1));
    known += (known.empty() ? "" : ", ") + command->get_name();
  }
  throw UsageError{fmt::format("unknown command: {} (there are {})", word, known)};
}

void parse_words(CLI::App& app, const std::vector<std::string>& words) {
  refuse_empty_values(app, words);
  std::vector<std::string> reversed(words.rbegin(), words.rend());  // CLI11 takes them in this order
  app.parse(std::move(reversed));
}

int print_text(const CLI::App& app, const CLI::Success& asked) {
  std::ostringstream text;
  const int code = app.exit(asked, text, text);
  fmt::print("{}", text.str());
  return code;
}

OptionFacts facts_of(const CLI::Option& option) {
  OptionFacts facts;
  facts.flags = option.get_name(false, true);
  constexpr std::string_view kNegative = "{false}";  // how CLI11 marks the flag that switches off
  if (const auto at = facts.flags.find(kNegative); at != std::string::npos) facts.flags.erase(at, kNegative.size());
  facts.required = option.get_required();
  facts.positional = !facts.flags.starts_with('-');
  if (option.get_type_size() == 0) return facts;
  // CLI11 appends the descriptions of its checks to the type's name, behind colons.
  const std::string type = option.get_type_name();
  const bool scheme = type.starts_with("shm:");
  const auto colon = scheme ? std::string::npos : type.find(':');
  facts.value = type.substr(0, colon);
  if (colon != std::string::npos) facts.allowed = type.substr(colon + 1);
  facts.default_value = option.get_default_str();
  facts.repeatable = option.get_items_expected_max() > 1;
  return facts;
}

}  // namespace splitnic::tools
