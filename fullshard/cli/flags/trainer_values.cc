// SPDX-License-Identifier: Apache-2.0
#include "fullshard/cli/flags/trainer_values.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "fullshard/base/error.h"

namespace fullshard::cli {
namespace {

std::string lower_case(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) {
    return static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  });
  return text;
}

}  // namespace

std::optional<bool> truth_of(const std::string& text) {
  const std::string word = lower_case(text);
  for (const char* yes : {"true", "yes", "t", "y", "1", "on"}) {
    if (word == yes) return true;
  }
  for (const char* no : {"false", "no", "f", "n", "0", "off"}) {
    if (word == no) return false;
  }
  return std::nullopt;
}

std::optional<double> number_of(const std::string& text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, problem] = std::from_chars(text.data(), end, value);
  return problem == std::errc() && stop == end ? std::optional(value) : std::nullopt;
}

bool is_same_text(const std::string& one, const std::string& other) {
  if (one == other) return true;
  const auto number = number_of(one);
  return number && number == number_of(other);
}

std::optional<std::string_view> optimizer_named(const std::string& name) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 9> kNames = {
      {{"adamw_torch", "AdamW"},
       {"adamw_torch_fused", "AdamW"},
       {"adamw_hf", "AdamW"},
       {"adamw_apex_fused", "AdamW"},
       {"paged_adamw_32bit", "AdamW"},
       {"sgd", "SGD"},
       {"adagrad", "Adagrad"},
       {"lion_32bit", "Lion"},
       {"paged_lion_32bit", "Lion"}}};
  for (const auto& [theirs, ours] : kNames) {
    if (name == theirs) return ours;
  }
  return std::nullopt;
}

std::string report_target(const std::string& flag, const std::vector<std::string>& names) {
  std::string target = "none";
  for (const std::string& name : names) {
    if (name != "none" && name != "tensorboard" && name != "csv" && name != "all") {
      fail_as(ErrorKind::usage,
              "{}: is '{}', expected none, tensorboard, csv or all; every run leaves "
              "metrics.jsonl and report.html",
              flag, name);
    }
    if (name == "none" || name == target) continue;
    target = target == "none" ? name : "all";
  }
  return target;
}

}  // namespace fullshard::cli
