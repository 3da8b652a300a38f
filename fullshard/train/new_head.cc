// SPDX-License-Identifier: Apache-2.0
#include "fullshard/train/new_head.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "fullshard/base/error.h"

namespace fullshard::train {
namespace {

struct HeadParameters {
  std::vector<std::string> all;
  std::vector<std::string> missing;  // in the file
};

HeadParameters head_of(const LanguageModel& model, const StoredWeights& stored) {
  HeadParameters head;
  for (const auto& item : model.named_parameters()) {
    if (!model.is_head(item.key())) continue;
    head.all.push_back(item.key());
    const auto file = model.file_name(item.key());
    const auto is_there = [&](const std::string& name) { return stored.has(name); };
    if (is_there(file.name) || std::ranges::any_of(file.others, is_there)) continue;
    head.missing.push_back(item.key());
  }
  return head;
}

void check_asked(const ModelSource& source, const LanguageModel& model,
                 const HeadParameters& head) {
  if (!source.has_weights) {
    fail_as(ErrorKind::usage,
            "--new-head: {} has no weights to keep: all of them are new without it", source.name);
  }
  if (head.all.empty()) {
    fail_as(ErrorKind::usage,
            "--new-head: the head of {} is its embedding, which cannot be drawn anew alone; leave "
            "the flag out, or add --from-scratch",
            model.architecture());
  }
}

}  // namespace

std::vector<std::string> new_head(const ModelSource& source, const LanguageModel& model,
                                  bool is_asked_for) {
  const StoredWeights stored = source.stored_weights();
  const HeadParameters head = head_of(model, stored);
  if (is_asked_for) {
    check_asked(source, model, head);
    return head.all;
  }
  if (!source.has_weights || head.missing.empty()) return {};
  if (head.missing.size() < head.all.size()) {
    fail_as(ErrorKind::input,
            "{}: holds a part of the head only; missing: {}; to draw all of the head anew add "
            "--new-head",
            source.folder, fmt::join(head.missing, ", "));
  }
  return head.all;
}

std::string new_head_warning(const ModelSource& source, const std::vector<std::string>& head) {
  return fmt::format(
      "{}: has no weights for the head ({}); they are drawn anew and must be trained (--new-head "
      "says that this is meant)",
      source.folder, fmt::join(head, ", "));
}

}  // namespace fullshard::train
