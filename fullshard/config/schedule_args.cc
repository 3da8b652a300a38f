// SPDX-License-Identifier: Apache-2.0
#include "fullshard/config/schedule_args.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <utility>
#include <variant>
#include <vector>

#include "fullshard/base/error.h"
#include "fullshard/base/json_text.h"

namespace fullshard::config {
namespace {

using Args = TrainerScheduleArgs;
using ArgPlace = std::variant<std::optional<double> Args::*, std::optional<int64_t> Args::*,
                              std::optional<std::string> Args::*>;

struct ArgRow {
  std::string_view name;
  ArgPlace place;
  std::string_view schedules;  // with a space around each
};

const std::array<ArgRow, 12> kArgRows = {{
    {"num_cycles", &Args::num_cycles,
     " cosine cosine_with_restarts cosine_with_min_lr cosine_warmup_with_min_lr "
     "warmup_stable_decay "},
    {"power", &Args::power, " polynomial "},
    {"lr_end", &Args::lr_end, " polynomial "},
    {"timescale", &Args::timescale, " inverse_sqrt "},
    {"min_lr", &Args::min_lr, " cosine_with_min_lr cosine_warmup_with_min_lr "},
    {"min_lr_rate", &Args::min_lr_rate, " cosine_with_min_lr cosine_warmup_with_min_lr "},
    {"warmup_lr_rate", &Args::warmup_lr_rate, " cosine_warmup_with_min_lr "},
    {"num_decay_steps", &Args::num_decay_steps, " warmup_stable_decay "},
    {"num_stable_steps", &Args::num_stable_steps, " warmup_stable_decay "},
    {"warmup_type", &Args::warmup_type, " warmup_stable_decay "},
    {"decay_type", &Args::decay_type, " warmup_stable_decay "},
    {"min_lr_ratio", &Args::min_lr_ratio, " warmup_stable_decay "},
}};

bool is_taken(const ArgRow& row, std::string_view type) {
  return row.schedules.find(fmt::format(" {} ", type)) != std::string_view::npos;
}

std::string names_of(std::string_view type) {
  std::string names;
  for (const ArgRow& row : kArgRows) {
    if (is_taken(row, type)) names += (names.empty() ? "" : ", ") + std::string(row.name);
  }
  return names.empty() ? "none" : names;
}

using ArgTexts = std::vector<std::pair<std::string, std::string>>;

ArgTexts texts_of_object(std::string_view text) {
  nlohmann::json object;
  try {
    object = base::parse_json(text);
  } catch (const base::JsonError& error) {
    fail_as(ErrorKind::usage, "{}", error.what());
  }
  if (!object.is_object())
    fail_as(ErrorKind::usage, "is {}, expected an object", object.type_name());
  ArgTexts texts;
  for (const auto& [name, value] : object.items()) {
    texts.emplace_back(name, value.is_string() ? value.get<std::string>() : value.dump());
  }
  return texts;
}

ArgTexts texts_of_list(std::string_view text) {
  ArgTexts texts;
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find(','));
    text.remove_prefix(std::min(part.size() + 1, text.size()));
    const size_t equals = part.find('=');
    if (equals == std::string_view::npos) {
      fail_as(ErrorKind::usage, "'{}' has no value; expected name=value,… or a JSON object", part);
    }
    texts.emplace_back(part.substr(0, equals), part.substr(equals + 1));
  }
  return texts;
}

template <class T>
T number_in(const std::string& name, const std::string& text, std::string_view what) {
  T value{};
  const char* const end = text.data() + text.size();
  const auto [stop, problem] = std::from_chars(text.data(), end, value);
  if (problem != std::errc() || stop != end) {
    fail_as(ErrorKind::usage, "{} is '{}', expected {}", name, text, what);
  }
  return value;
}

void put_arg(Args& args, const ArgRow& row, const std::string& text) {
  const std::string name(row.name);
  if (const auto* place = std::get_if<std::optional<double> Args::*>(&row.place)) {
    args.*(*place) = number_in<double>(name, text, "a number");
  } else if (const auto* steps = std::get_if<std::optional<int64_t> Args::*>(&row.place)) {
    args.*(*steps) = number_in<int64_t>(name, text, "a whole number");
  } else {
    args.*std::get<std::optional<std::string> Args::*>(row.place) = text;
  }
}

}  // namespace

TrainerScheduleArgs parse_schedule_args(std::string_view text, std::string_view type) {
  const size_t first = text.find_first_not_of(" \t\n");
  const bool is_object = first != std::string_view::npos && text[first] == '{';
  Args args{.text = std::string(text)};
  for (const auto& [name, value] : is_object ? texts_of_object(text) : texts_of_list(text)) {
    const auto row = std::ranges::find(kArgRows, name, &ArgRow::name);
    if (row == kArgRows.end() || !is_taken(*row, type)) {
      fail_as(ErrorKind::usage, "'{}' is not an argument of {}; it takes {}", name, type,
              names_of(type));
    }
    put_arg(args, *row, value);
  }
  return args;
}

}  // namespace fullshard::config
