// SPDX-License-Identifier: Apache-2.0
#include "fullshard/cli/flags/trainer_line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <optional>

#include "fullshard/base/error.h"
#include "fullshard/cli/flags/trainer_values.h"

namespace fullshard::cli {
namespace {

struct SplitWord {
  std::string name{};  // "--lr"
  std::optional<std::string> value{};
};

SplitWord split(const std::string& word) {
  const size_t equals = word.find('=');
  if (equals == std::string::npos) return {word, std::nullopt};
  return {word.substr(0, equals), word.substr(equals + 1)};
}

bool is_flag(const std::string& word) { return word.size() > 2 && word.starts_with("--"); }

// Only our own flags have short names: -n, -o.
bool is_short_flag(const std::string& word) {
  return word.size() == 2 && word[0] == '-' && std::isalpha(static_cast<unsigned char>(word[1]));
}

std::string own_name(const std::string& word) {
  std::string name = word == "-o" ? "--output" : split(word).name;
  std::ranges::replace(name, '_', '-');
  if (name == "--gradient-checkpointing") return "--recompute";
  return name;
}

// A list extends to the next flag, as for our own flags.
bool takes_another(const GivenFlag& given) {
  const std::string_view name = given.flag->name;
  const bool is_list = given.flag->kind == TrainerFlagKind::no_effect || name == "report_to" ||
                       name == "train_file" || name == "validation_file" ||
                       name == "lora_target_modules";
  return is_list || given.values.empty();
}

void keep(TrainerLine& line, const std::string& word, size_t at) {
  if (is_flag(word) || is_short_flag(word)) {
    line.own.push_back({own_name(word), split(word).value.value_or(""), {word}, at});
  } else if (line.own.empty()) {
    line.command.push_back(word);
  } else {
    OwnFlag& flag = line.own.back();
    flag.value += (flag.value.empty() ? "" : " ") + word;
    flag.words.push_back(word);
  }
}

// Replaces the same flag given before.
void add(TrainerLine& line, GivenFlag given) {
  const auto before = std::ranges::find(line.given, given.flag, &GivenFlag::flag);
  if (before != line.given.end()) {
    if (before->values != given.values) {
      line.notes.push_back(fmt::format("{}: is given several times; the last counts: {}",
                                       given.typed, fmt::join(given.values, " ")));
    }
    line.given.erase(before);
  }
  line.given.push_back(std::move(given));
}

}  // namespace

const std::string& GivenFlag::value() const {
  if (values.empty()) fail_as(ErrorKind::usage, "{}: has no value", typed);
  return values.front();
}

bool GivenFlag::is_true() const {
  if (values.empty()) return true;
  const auto truth = truth_of(values.front());
  if (!truth) {
    fail_as(ErrorKind::usage, "{}: is '{}', expected true or false", typed, values.front());
  }
  return *truth;
}

const GivenFlag* TrainerLine::find(std::string_view name) const {
  const auto found =
      std::ranges::find_if(given, [&](const GivenFlag& one) { return one.flag->name == name; });
  return found == given.end() ? nullptr : &*found;
}

TrainerLine read_trainer_line(
    const std::vector<std::string>& words,
    const std::function<bool(const std::string& typed, const TrainerFlag& flag)>& is_own) {
  TrainerLine line;
  for (size_t i = 0; i < words.size(); ++i) {
    const SplitWord word = split(words[i]);
    const TrainerFlag* flag =
        is_flag(words[i]) ? find_trainer_flag(std::string_view(word.name).substr(2)) : nullptr;
    if (flag == nullptr || is_own(word.name, *flag)) {
      keep(line, words[i], i);
      continue;
    }
    GivenFlag given{flag, word.name, {}, i};
    if (word.value) given.values.push_back(*word.value);
    while (!word.value && i + 1 < words.size() && !is_flag(words[i + 1]) && takes_another(given)) {
      given.values.push_back(words[++i]);
    }
    add(line, std::move(given));
  }
  return line;
}

}  // namespace fullshard::cli
