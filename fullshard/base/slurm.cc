// SPDX-License-Identifier: Apache-2.0
#include "fullshard/base/slurm.h"

#include <charconv>
#include <cstdint>

#include "fullshard/base/error.h"

namespace fullshard::base {
namespace {

constexpr int kMostHosts = 100'000;  // of one range; more is a typing error

int to_number(std::string_view text, std::string_view what) {
  int number = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (problem != std::errc() || end != text.data() + text.size() || number < 0) {
    fail_as(ErrorKind::usage, "environment: {} is '{}', expected a number", what, text);
  }
  return number;
}

// "01-03" is 01, 02, 03: the first number's width is kept.
void expand_range(std::string_view range, std::string_view head,
                  const std::vector<std::string>& tails, std::vector<std::string>& hosts) {
  const size_t dash = range.find('-');
  const std::string_view first = range.substr(0, dash);
  const std::string_view last = dash == std::string_view::npos ? first : range.substr(dash + 1);
  const int begin = to_number(first, "a host list's range");
  const int end = to_number(last, "a host list's range");
  if (end < begin || end - begin >= kMostHosts) {
    fail_as(ErrorKind::usage, "environment: a host list's range is '{}', expected LOW-HIGH", range);
  }
  for (int number = begin; number <= end; ++number) {
    for (const std::string& tail : tails) {
      hosts.push_back(fmt::format("{}{:0{}}{}", head, number, first.size(), tail));
    }
  }
}

// At separators outside brackets.
std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  int depth = 0;
  size_t begin = 0;
  for (size_t place = 0; place <= text.size(); ++place) {
    if (place == text.size() || (text[place] == separator && depth == 0)) {
      if (place > begin) parts.push_back(text.substr(begin, place - begin));
      begin = place + 1;
    } else {
      depth += text[place] == '[' ? 1 : text[place] == ']' ? -1 : 0;
    }
  }
  return parts;
}

}  // namespace

std::vector<std::string> expand_host_list(std::string_view list) {
  std::vector<std::string> hosts;
  for (const std::string_view entry : split(list, ',')) {
    const size_t open = entry.find('[');
    const size_t close = entry.find(']', open == std::string_view::npos ? 0 : open);
    if (open == std::string_view::npos) {
      hosts.emplace_back(entry);
      continue;
    }
    if (close == std::string_view::npos) {
      fail_as(ErrorKind::usage, "environment: '{}' is no list of hosts: ']' is missing", list);
    }
    auto tails = expand_host_list(entry.substr(close + 1));  // "r[1-2]n[1-4]"
    if (tails.empty()) tails.emplace_back();
    for (const std::string_view range : split(entry.substr(open + 1, close - open - 1), ',')) {
      expand_range(range, entry.substr(0, open), tails, hosts);
    }
  }
  return hosts;
}

std::vector<int> expand_counts(std::string_view list) {
  std::vector<int> counts;
  for (const std::string_view entry : split(list, ',')) {
    const size_t open = entry.find("(x");
    const int count = to_number(entry.substr(0, open), "SLURM_TASKS_PER_NODE");
    const int times =
        open == std::string_view::npos
            ? 1
            : to_number(entry.substr(open + 2, entry.size() - open - 3), "SLURM_TASKS_PER_NODE");
    counts.insert(counts.end(), static_cast<size_t>(times), count);
  }
  return counts;
}

int port_of_job(std::string_view job) {
  uint32_t hash = 2166136261U;  // FNV-1a
  for (const char letter : job) hash = (hash ^ static_cast<unsigned char>(letter)) * 16777619U;
  return 20000 + static_cast<int>(hash % 10000);
}

}  // namespace fullshard::base
