// Makes the manual pages and the shell completion from the definition of the command line, so that they can't differ
// from `--help`. Run by the build:
//   page TEMPLATE DATE     the manual page with each @...@ line of the template replaced
//   completion             the completion for bash
#include "tools/package/documents.h"

#include <fmt/format.h>

#include <cstdio>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "tools/command_help.h"

namespace splitnic::tools {

namespace {

/// text as roff prints it unchanged, in running text or at the start of a line.
std::string roff(std::string_view text) {
  std::string out;
  for (const char character : text) {
    if (character == '\\') {
      out += "\\e";
    } else if (character == '-') {
      out += "\\-";
    } else if (character == '\n') {
      out += ' ';
    } else if (character == '\'' && out.empty()) {
      out += "\\(aq";
    } else {
      if (character == '.' && out.empty()) out += "\\&";
      out += character;
    }
  }
  return out;
}

/// What CLI11 leaves to the caller: every command and option that `--help` shows.
std::vector<const CLI::App*> commands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App* command) { return !command->get_group().empty(); });
}

std::vector<const CLI::Option*> options_of(const CLI::App& app) {
  return app.get_options([](const CLI::Option* option) { return !option->get_group().empty(); });
}

std::vector<std::string> names_of(const CLI::Option& option) { return CLI::detail::split(facts_of(option).flags, ','); }

/// The command that `path` ("stats", empty: the program) names below app. Throws CLI::OptionNotFound.
const CLI::App& find_command(const CLI::App& app, const std::string& path) {
  const CLI::App* command = &app;
  if (!path.empty()) {
    for (const auto& name : CLI::detail::split(path, ' ')) command = command->get_subcommand(name);
  }
  return *command;
}

std::string option_list(const CLI::App& app, const CLI::App& command) {
  const auto* formatter = dynamic_cast<const CLI::Formatter*>(app.get_formatter().get());
  if (formatter == nullptr) throw std::logic_error("--help is not made by a CLI::Formatter");
  std::string out;
  for (const auto* option : options_of(command)) {
    const auto facts = facts_of(*option);
    std::string names;
    for (const auto& name : names_of(*option)) {
      names += fmt::format("{}\\fB{}\\fR", names.empty() ? "" : ", ", roff(name));
    }
    const auto value = facts.value.empty() || facts.positional ? "" : fmt::format(" \\fI{}\\fR", roff(facts.value));
    out += fmt::format(".TP 4\n{}{}{}\n{}\n", names, value, facts.repeatable ? " ..." : "",
                       roff(formatter->make_option_desc(option)));
  }
  return out;
}

std::string command_list(const CLI::App& app) {
  std::string out;
  for (const auto* command : commands_of(app)) {
    out += fmt::format(".TP 12\n\\fB{}\\fR\n{}.\n", roff(command->get_name()), roff(command->get_description()));
  }
  return out;
}

/// A line per command, with the options that it can't do without.
std::string synopsis(const CLI::App& command, const std::string& words) {
  const auto below = commands_of(command);
  std::string out;
  for (const auto* app : below) {
    out += (out.empty() ? "" : ".br\n") + synopsis(*app, words + " " + app->get_name());
  }
  if (!below.empty()) return out;
  std::string line = fmt::format("\\fB{}\\fR", roff(words));
  for (const auto* option : options_of(command)) {
    const auto facts = facts_of(*option);
    if (!facts.required) continue;
    if (!facts.positional) line += fmt::format(" \\fB{}\\fR", roff(facts.flags));
    line += fmt::format(" \\fI{}\\fR", roff(facts.value));
  }
  const char* program = command.get_prefix_command() ? " \\fIprogram\\fR [\\fIarguments\\fR...]" : "";
  return line + " [\\fIoptions\\fR]" + program + '\n';
}

/// The text that replaces one @...@ line of a template. Throws for an unknown line.
std::string expansion(const CLI::App& app, const std::string& line) {
  const std::string words = line.substr(1, line.size() - 2);
  const auto space = words.find(' ');
  const std::string what = words.substr(0, space);
  const std::string path = space == std::string::npos ? "" : words.substr(space + 1);
  const auto& command = find_command(app, path);
  if (what == "OPTIONS") return option_list(app, command);
  if (what == "COMMANDS") return command_list(command);
  if (what == "SYNOPSIS") return synopsis(command, path.empty() ? app.get_name() : app.get_name() + " " + path);
  throw std::invalid_argument("no such mark: " + line);
}

void print_page(const CLI::App& app, const char* path, const std::string& date) {
  std::ifstream page(path);
  if (!page) throw std::invalid_argument(std::string(path) + ": can't be read");
  for (std::string line; std::getline(page, line);) {
    if (line.size() > 2 && line.front() == '@' && line.back() == '@') {
      fmt::print("{}", expansion(app, line));
      continue;
    }
    line = CLI::detail::find_and_replace(line, "@DATE@", date);
    fmt::print("{}\n", CLI::detail::find_and_replace(line, "@VERSION@", SPLITNIC_VERSION));
  }
}

/// The words with which bash completes the value of an option, as bash evaluates them.
std::string completion_of(const OptionFacts& facts) {
  if (facts.allowed.starts_with('{')) {
    return "'" + CLI::detail::find_and_replace(facts.allowed.substr(1, facts.allowed.size() - 2), ",", " ") + "'";
  }
  if (facts.value == "IFNAME" || facts.value == "LAN") return "\"$(command ls /sys/class/net)\"";
  if (facts.value == "NAMESPACE") return "\"$(command ls /run/netns 2>/dev/null)\"";
  return "";
}

void for_each_command(const CLI::App& app, const std::string& path,
                      const std::function<void(const CLI::App&, const std::string&)>& visit) {
  visit(app, path);
  for (const auto* command : commands_of(app)) for_each_command(*command, path + " " + command->get_name(), visit);
}

void print_completion(const CLI::App& app) {
  std::string commands, values, words;
  for_each_command(app, app.get_name(), [&](const CLI::App& command, const std::string& path) {
    std::string here;
    bool file_here = false;  // as a word without dashes
    for (const auto* below : commands_of(command)) {
      commands += fmt::format("      '{} {}') command+=\" $word\" ;;\n", path, below->get_name());
      here += (here.empty() ? "" : " ") + below->get_name();
    }
    for (const auto* option : options_of(command)) {
      const auto facts = facts_of(*option);
      file_here = file_here || (facts.positional && facts.value == "FILE");
      if (facts.positional) continue;
      for (const auto& name : names_of(*option)) {
        here += (here.empty() ? "" : " ") + name;
        if (facts.value.empty()) continue;
        const bool file = facts.value.ends_with("PATH") || facts.value == "FILE";
        values += fmt::format("    '{} {}') words={} value={} ;;\n", path, name, completion_of(facts),
                              file ? "file" : "text");
      }
    }
    words += fmt::format("    '{}') words='{}'{} ;;\n", path, here, file_here ? " value=file" : "");
  });
  fmt::print(
      R"(# bash completion for {0}, made from its command line
_{1}() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD - 1]}}
  local command={0} words= value= word
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case "$command $word" in
{2}    esac
  done
  case "$command $previous" in
{3}  esac
  [ -n "$value" ] || case "$command" in
{4}  esac
  [ "$value" != file ] || compopt -o default
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}}
complete -F _{1} {0}
)",
      app.get_name(), CLI::detail::find_and_replace(app.get_name(), "-", "_"), commands, values, words);
}

void print(const CLI::App& app, const std::vector<std::string>& arguments) {
  if (arguments.size() == 3 && arguments[0] == "page") {
    print_page(app, arguments[1].c_str(), arguments[2]);
  } else if (arguments.size() == 1 && arguments[0] == "completion") {
    print_completion(app);
  } else {
    throw std::invalid_argument("usage: page TEMPLATE DATE | completion");
  }
}

}  // namespace

int print_documents(const CLI::App& app, int argc, const char* const* argv) {
  try {
    print(app, {argv + 1, argv + argc});
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s-documents: %s\n", app.get_name().c_str(), error.what());
    return 1;
  }
}

}  // namespace splitnic::tools
