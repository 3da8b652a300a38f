#include "fullshard/config/explain.h"

#include <fmt/format.h>

#include <algorithm>

#include "fullshard/config/memory_effect.h"
#include "fullshard/config/value_check.h"

namespace fullshard {
namespace {

class Explainer {
 public:
  Explainer(const Plan& plan, int64_t ranks) : plan_(plan), ranks_(ranks) {}

  Explanation run() {
    if (plan_.settings() != nullptr) add_all(*plan_.settings());
    if (plan_.deepspeed() != nullptr) add_all(*plan_.deepspeed());
    return std::move(result_);
  }

 private:
  void add_all(const Settings& settings) {
    for (const SchemaKey* key : settings.schema().keys()) {
      const bool counts = covers(key->when, settings.variant_of(key->path));
      if (counts && !is_beside_the_point(settings, key->path)) add(settings, *key);
    }
  }
  // Parameters of a schedule that is not there.
  static bool is_beside_the_point(const Settings& settings, std::string_view path) {
    return path.starts_with("scheduler.params.") && !settings.has("scheduler.type");
  }

  void add(const Settings& settings, const SchemaKey& key) {
    ExplainedKey row{.path = std::string(key.path), .effect = std::string(key.meaning)};
    const Settings::Entry* entry = settings.find(key.path);
    if (entry != nullptr) {
      row.value = entry->value;
      row.origin = entry->origin.text();
      if (!entry->origin.note.empty() && entry->origin.from == Origin::From::derived) {
        row.effect += fmt::format(" (from {})", entry->origin.note);
      }
    } else {
      row.value = check_value(fallback_of(key), key.type, true).value.value_or(fallback_of(key));
      row.origin = "default";
      derive(settings, key, row);
    }
    if (settings.is_auto(key.path) && key.fallback != "auto") row.effect += "; " + waits_for(key);
    if (key.standing.support != Support::honoured) {
      row.effect +=
          fmt::format("; {}{}", key.standing.support == Support::refused ? "not supported: " : "",
                      key.standing.note);
    }
    if (auto memory = memory_effect(plan_, key.path, ranks_);
        !memory.empty() && !settings.is_auto(key.path)) {
      row.effect += "; " + memory;
    }
    row.is_worth_a_line = row.origin != "default" || key.standing.support == Support::honoured;
    result_.keys.push_back(std::move(row));
  }
  static std::string waits_for(const SchemaKey& key) {
    return key.path == "scheduler.params.total_num_steps" ? "known when the run's steps are"
           : key.path.starts_with("zero_optimization")    ? "known when the model's hidden_size is"
                                                          : "known when the ranks are";
  }

  // Defaults that depend on others.
  void derive(const Settings& settings, const SchemaKey& key, ExplainedKey& row) {
    if (key.path == "zero_optimization.overlap_comm") {
      row.value = ConfigNode::of_boolean(plan_.sharding.overlap_comm.value);
      row.origin = "derived";
    }
    if (key.path == "optimizer.params.lr" && !settings.has("optimizer.type")) {
      row.value = ConfigNode::of_number(plan_.optimizer.lr.value);
    }
  }

  const Plan& plan_;
  int64_t ranks_;
  Explanation result_;
};

}  // namespace

std::string Explanation::text() const {
  size_t key_width = 0;
  size_t value_width = 0;
  size_t origin_width = 0;
  for (const ExplainedKey& key : keys) {
    if (!key.is_worth_a_line) continue;
    key_width = std::max(key_width, key.path.size());
    value_width = std::max(value_width, std::min<size_t>(24, to_json(key.value).size()));
    origin_width = std::max(origin_width, key.origin.size());
  }
  std::string text;
  for (const ExplainedKey& key : keys) {
    if (!key.is_worth_a_line) continue;
    text += fmt::format("{:<{}}  {:<{}}  {:<{}}  {}\n", key.path, key_width, to_json(key.value),
                        value_width, key.origin, origin_width, key.effect);
  }
  return text;
}

std::string Explanation::json() const {
  std::string text = "{";
  for (const ExplainedKey& key : keys) {
    text += fmt::format("{}\n  {}: {{\"value\": {}, \"origin\": {}, \"effect\": {}}}",
                        text.size() > 1 ? "," : "", quote_json(key.path), to_json(key.value),
                        quote_json(key.origin), quote_json(key.effect));
  }
  return text + "\n}";
}

Explanation explain(const Plan& plan, std::optional<int64_t> ranks) {
  if (!ranks) ranks = plan.launch.ranks.value;
  return Explainer(plan, ranks.value_or(1)).run();
}

}  // namespace fullshard
