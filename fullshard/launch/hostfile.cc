// SPDX-License-Identifier: Apache-2.0
#include "fullshard/launch/hostfile.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <numeric>
#include <optional>
#include <sstream>

#include "fullshard/base/closest.h"
#include "fullshard/base/error.h"
#include "fullshard/base/text_file.h"

namespace fullshard::launch {
namespace {

constexpr int kMostSlots = 4096;

std::optional<int> to_number(std::string_view text) {
  int number = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (problem != std::errc() || end != text.data() + text.size() || number < 0) return {};
  return number;
}

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::string> words;
  for (std::string word; stream >> word && !word.starts_with('#');) words.push_back(word);
  return words;
}

// What is wrong with a line of words; empty when nothing is. Open MPI's files also say max_slots.
std::string problem_of(const std::vector<std::string>& words, std::vector<Host>& hosts) {
  if (words.size() < 2 || !words[1].starts_with("slots=")) {
    return fmt::format("'{}', expected 'HOST slots=N'", fmt::join(words, " "));
  }
  for (size_t place = 2; place < words.size(); ++place) {
    if (!words[place].starts_with("max_slots=") && !words[place].starts_with("max-slots=")) {
      return fmt::format("'{}' after the slots, expected the end of the line", words[place]);
    }
  }
  const std::string& name = words[0];
  const std::string count = words[1].substr(std::strlen("slots="));
  const auto slots = to_number(count);
  if (!slots || *slots < 1 || *slots > kMostSlots) {
    return fmt::format("host {} has slots={}, expected 1 to {}", name, count, kMostSlots);
  }
  if (name.starts_with('-')) return fmt::format("'{}' is not a host name", name);
  if (std::any_of(hosts.begin(), hosts.end(),
                  [&](const Host& host) { return host.name == name; })) {
    return fmt::format("host {} is listed twice; list it once, with all its slots", name);
  }
  Host host{name, std::vector<int>(static_cast<size_t>(*slots))};
  std::iota(host.slots.begin(), host.slots.end(), 0);
  hosts.push_back(std::move(host));
  return {};
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

const Host& find_host(const std::vector<Host>& hosts, const std::string& name,
                      const std::string& flag) {
  std::vector<std::string> names;
  for (const Host& host : hosts) {
    if (host.name == name) return host;
    names.push_back(host.name);
  }
  const auto near = base::closest(name, names);
  fail_as(ErrorKind::usage, "launch: {}: no host '{}' in the hostfile{}", flag, name,
          near ? fmt::format(", did you mean '{}'?", *near)
               : fmt::format("; it has {}", fmt::join(names, ", ")));
}

// The slots that "NAME[:SLOT,SLOT]@…" names, by host.
std::map<std::string, std::vector<int>> named_slots(const std::vector<Host>& hosts,
                                                    const std::string& text,
                                                    const std::string& flag) {
  std::map<std::string, std::vector<int>> named;
  for (const std::string& entry : split(text, '@')) {
    const size_t colon = entry.find(':');
    const std::string name = entry.substr(0, colon);
    const Host& host = find_host(hosts, name, flag);
    std::vector<int>& slots = named[host.name];
    if (colon == std::string::npos) slots.insert(slots.end(), host.slots.begin(), host.slots.end());
    for (const std::string& word : colon == std::string::npos
                                       ? std::vector<std::string>{}
                                       : split(entry.substr(colon + 1), ',')) {
      const auto slot = to_number(word);
      const bool known =
          slot && std::find(host.slots.begin(), host.slots.end(), *slot) != host.slots.end();
      if (!known) {
        fail_as(ErrorKind::usage, "launch: {}: host {} has no slot '{}', only {}", flag, host.name,
                word, fmt::join(host.slots, ", "));
      }
      slots.push_back(*slot);
    }
  }
  return named;
}

}  // namespace

std::vector<Host> parse_hostfile(std::string_view text, const std::string& path) {
  std::istringstream lines{std::string(text)};
  std::vector<Host> hosts;
  std::vector<std::string> problems;
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const auto words = words_of(line);
    if (words.empty()) continue;
    const std::string problem = problem_of(words, hosts);
    if (!problem.empty()) problems.push_back(fmt::format("{}:{}: {}", path, number, problem));
  }
  if (problems.empty() && hosts.empty()) {
    problems.push_back(fmt::format("{}:1: no host; expected lines 'HOST slots=N'", path));
  }
  if (!problems.empty()) fail_as(ErrorKind::usage, "{}", fmt::join(problems, "\nerror: "));
  return hosts;
}

std::vector<Host> read_hostfile(const std::string& path) {
  try {
    return parse_hostfile(
        base::read_text_file(path, base::kMostTextBytes, base::TextFrom::anything), path);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::input) throw;
    fail_as(ErrorKind::usage, "hostfile {}", error.what());
  }
}

std::vector<Host> filter_hosts(const std::vector<Host>& hosts, const std::string& include,
                               const std::string& exclude) {
  if (include.empty() && exclude.empty()) return hosts;
  if (!include.empty() && !exclude.empty()) {
    fail_as(ErrorKind::usage, "launch: --include and --exclude are both given; use one of them");
  }
  const bool takes_in = !include.empty();
  const std::string flag = takes_in ? "--include" : "--exclude";
  const auto named = named_slots(hosts, takes_in ? include : exclude, flag);
  std::vector<Host> left;
  for (Host host : hosts) {
    const auto found = named.find(host.name);
    std::erase_if(host.slots, [&](int slot) {
      const bool is_named =
          found != named.end() &&
          std::find(found->second.begin(), found->second.end(), slot) != found->second.end();
      return is_named != takes_in;
    });
    if (!host.slots.empty()) left.push_back(std::move(host));
  }
  if (left.empty()) {
    fail_as(ErrorKind::usage, "launch: {} leaves no host", flag);
  }
  return left;
}

}  // namespace fullshard::launch
