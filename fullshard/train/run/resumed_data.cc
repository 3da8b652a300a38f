// SPDX-License-Identifier: Apache-2.0
#include "fullshard/train/run/resumed_data.h"

#include <fmt/format.h>

#include <utility>

namespace fullshard::train {
namespace {

std::string order_name(Order order) { return order == Order::shuffled ? "shuffled" : "sequential"; }

std::string mixture_text(const std::string& mixture) {
  return mixture.empty() ? "one data set" : mixture;
}

// "0.5 of 10 (1f3c9a02)": checkpoints of older versions do not say which data sets they were.
bool tells_identities(const std::string& mixture) { return mixture.ends_with(')'); }

std::string without_identities(const std::string& mixture) {
  std::string text;
  bool is_inside = false;
  for (const char letter : mixture) {
    is_inside |= letter == '(';
    if (!is_inside) text += letter;
    if (letter != ')') continue;
    is_inside = false;
    text.pop_back();  // the space before it
  }
  return text;
}

}  // namespace

DataPlace data_place(const ExampleOrder& order, int64_t steps, std::optional<std::string> mixture) {
  const ExamplePlace place = order.place_of(steps);
  return {.epoch = place.epoch,
          .example = place.example,
          .num_examples = order.num_examples(),
          .order = order_name(order.order()),
          .seed = order.seed(),
          .mixture = std::move(mixture)};
}

ExamplePlace data_start(const Progress& progress) {
  if (!progress.data || !progress.data->place) return {};
  const DataPlace& place = *progress.data->place;
  return {progress.step, place.epoch, place.example};
}

std::vector<std::string> changes_of_data(const Progress& progress, const ExampleOrder& order,
                                         const std::optional<std::string>& mixture) {
  std::vector<std::string> changes;
  if (!progress.data || !progress.data->place) return changes;
  const DataPlace& before = *progress.data->place;
  const auto add = [&](const std::string& what, const auto& now, const auto& then) {
    if (now == then) return;
    changes.push_back(fmt::format(
        "{}: is {}, but the {} steps before were trained with {}; from here on other examples come "
        "than without the interruption",
        what, now, progress.step, then));
  };
  add("--seed", order.seed(), before.seed);
  add("--order", order_name(order.order()), before.order);
  add("--data: number of examples", order.num_examples(), before.num_examples);
  if (mixture && before.mixture) {
    const bool compares_all = before.mixture->empty() || tells_identities(*before.mixture);
    add("--data: shares", mixture_text(compares_all ? *mixture : without_identities(*mixture)),
        mixture_text(*before.mixture));
  }
  return changes;
}

}  // namespace fullshard::train
