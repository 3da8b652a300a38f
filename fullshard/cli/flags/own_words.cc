// SPDX-License-Identifier: Apache-2.0
#include "fullshard/cli/flags/own_words.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "fullshard/base/error.h"
#include "fullshard/cli/flags/flag_names.h"
#include "fullshard/cli/flags/trainer_values.h"

namespace fullshard::cli {
namespace {

// Flags with another name in `train` than in a command that only computes.
struct Renamed {
  RunKind kind;
  std::string_view train, own;
};
constexpr std::array kRenamed = {
    Renamed{RunKind::eval, "--eval-data", "--data"},
    Renamed{RunKind::eval, "--max-eval-samples", "--max-samples"},
    Renamed{RunKind::eval, "--eval-micro-batch", "--micro-batch"},
    Renamed{RunKind::generate, "--eval-micro-batch", "--batch"},
};

std::string name_in_train(RunKind kind, const std::string& own) {
  for (const Renamed& flag : kRenamed) {
    if (flag.kind == kind && flag.own == own) return std::string(flag.train);
  }
  return own;
}

std::string with_dashes(std::string name) {
  std::ranges::replace(name, '_', '-');
  return name;
}

// Whether the flag sets a single value, so that the last of several counts.
bool gives_way(const GivenFlag& given) {
  return given.values.size() <= 1 && given.flag->own.find(' ') == std::string_view::npos &&
         given.flag->own != "--data" && given.flag->own != "--eval-data";
}

}  // namespace

bool only_computes(RunKind kind) { return kind == RunKind::eval || kind == RunKind::generate; }

OwnWords::OwnWords(const std::vector<std::string>& words, RunKind kind) : kind_(kind) {
  if (only_computes(kind_)) names_ = flag_names(kind_);
  line_ = read_trainer_line(words, [&](const std::string& typed, const TrainerFlag& flag) {
    if (only_computes(kind_)) return names_.contains(with_dashes(typed));
    return flag.kind == TrainerFlagKind::same || typed == "--report-to";  // these keep our messages
  });
  if (only_computes(kind_)) {
    for (OwnFlag& flag : line_.own) flag.name = name_in_train(kind_, flag.name);
  } else if (only_evaluates()) {
    is_switched_ = true;
    kind_ = RunKind::eval;
    names_ = flag_names(kind_);
    line_.command.front() = "eval";
  }
}

// Like the Trainer's scripts, which train only with --do_train.
bool OwnWords::only_evaluates() const {
  const GivenFlag* evaluates = line_.find("do_eval");
  const GivenFlag* trains = line_.find("do_train");
  return kind_ == RunKind::train && !line_.command.empty() && evaluates != nullptr &&
         evaluates->is_true() && (trains == nullptr || !trains->is_true());
}

// Empty: the command lacks this flag, or has another meaning for it.
std::string OwnWords::name_in_command(const std::string& train) const {
  if (!only_computes(kind_)) return train;
  for (const Renamed& flag : kRenamed) {
    if (flag.kind != kind_) continue;
    if (flag.train == train) return std::string(flag.own);
    if (flag.own == train) return "";
  }
  return names_.contains(train) ? train : "";
}

std::string OwnWords::shown(const std::string& own, const std::string& value) const {
  const std::string name = name_in_command(own);
  return fmt::format("{}{}{}", name.empty() ? own : name, value.empty() ? "" : " ", value);
}

void OwnWords::note_both(const std::string& one, const std::string& other,
                         const std::string& last) {
  notes_.push_back(fmt::format("{} and {} are both given; the last counts: {}", one, other, last));
}

bool OwnWords::put(const GivenFlag& given, const std::string& own, const std::string& value) {
  for (OwnFlag& flag : line_.own) {
    if (flag.name != own || flag.words.empty()) continue;
    if (is_same_text(flag.value, value)) return false;
    if (!gives_way(given)) {
      fail_as(ErrorKind::usage, "{}: stands for {}, but {} is given too; keep one of them",
              given.typed, shown(own, value), shown(own, flag.value));
    }
    const bool is_later = given.at > flag.at;
    note_both(given.typed, shown(own, ""), is_later ? value : flag.value);
    if (!is_later) return false;
    flag.words.clear();
  }
  const auto before = std::ranges::find(put_, own, &Put::own);
  if (before != put_.end()) {
    if (is_same_text(before->value, value)) return false;
    if (!gives_way(given) || !gives_way(*before->given)) {
      fail_as(ErrorKind::usage, "{}: stands for {}, but {} stands for {}; keep one of them",
              given.typed, shown(own, value), before->given->typed, shown(own, before->value));
    }
    const bool is_later = given.at > before->given->at;
    note_both(before->given->typed, given.typed, is_later ? value : before->value);
    if (!is_later) return false;
    put_.erase(before);
  }
  put_.push_back({&given, own, value, {}});
  return true;
}

void OwnWords::put_list(const GivenFlag& given, const std::string& own) {
  if (put(given, own, given.value())) {
    put_.back().more.assign(given.values.begin() + 1, given.values.end());
  }
}

bool OwnWords::is_said(const std::string& own) const {
  return std::ranges::find(put_, own, &Put::own) != put_.end() ||
         std::ranges::find(line_.own, own, &OwnFlag::name) != line_.own.end();
}

void OwnWords::drop(const std::string& typed) {
  if (std::ranges::find(dropped_, typed) == dropped_.end()) dropped_.push_back(typed);
}

// Handles our own flags of `train` on a line that only evaluates.
void OwnWords::leave_out_training() {
  notes_.push_back(
      "--do_eval without --do_train: the model is evaluated, as by `fullshard eval`, and not "
      "trained");
  const auto trains = flag_names(RunKind::train);
  for (OwnFlag& flag : line_.own) {
    if (flag.words.empty() || !trains.contains(flag.name)) continue;
    const std::string own = name_in_command(flag.name);
    if (own.empty()) {
      drop(flag.name);
      flag.words.clear();
    } else if (own != flag.name) {
      const std::string& typed = flag.words.front();
      flag.words.front() = own + typed.substr(std::min(typed.find('='), typed.size()));
    }
  }
}

void OwnWords::finish(TrainerWords& result) {
  result.words = line_.command;
  if (is_switched_) leave_out_training();
  for (const OwnFlag& flag : line_.own) {
    result.words.insert(result.words.end(), flag.words.begin(), flag.words.end());
  }
  for (const Put& put : put_) {
    const std::string own = name_in_command(put.own);
    if (own.empty()) {
      drop(put.given->typed);
      continue;
    }
    result.aliases.push_back({put.given->typed, own});
    result.words.push_back(own);
    if (!put.value.empty()) result.words.push_back(put.value);
    result.words.insert(result.words.end(), put.more.begin(), put.more.end());
  }
  result.notes = line_.notes;
  result.notes.insert(result.notes.end(), notes_.begin(), notes_.end());
  if (!dropped_.empty()) {
    result.warnings.push_back(fmt::format("{}: without effect: {} does not train",
                                          fmt::join(dropped_, ", "),
                                          kind_ == RunKind::eval ? "eval" : "generate"));
  }
}

}  // namespace fullshard::cli
