// SPDX-License-Identifier: Apache-2.0
#include "fullshard/worker/compare_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "fullshard/base/error.h"
#include "fullshard/base/printable.h"
#include "fullshard/formats/weights/open_weights.h"
#include "fullshard/train/compare.h"
#include "fullshard/worker/rank_model.h"

namespace fullshard::worker {
namespace {

bool is_within(const Comparison& found, double tolerance) {
  return std::isfinite(found.relative) && found.relative <= tolerance;
}

void print_table(const std::vector<Comparison>& results, double tolerance) {
  size_t width = 8;
  for (const Comparison& found : results)
    width = std::max(width, base::printable(found.name).size());
  fmt::print("{:<{}}  {:>12}  {:>12}\n", "tensor", width, "absolute", "relative");
  for (const Comparison& found : results) {
    fmt::print("{:<{}}  {:>12.3e}  {:>12.3e}{}\n", base::printable(found.name), width,
               found.absolute, found.relative, is_within(found, tolerance) ? "" : "  differs");
  }
}

void print_comparison(const std::vector<Comparison>& results, double tolerance, bool ok) {
  nlohmann::json all = nlohmann::json::array();
  for (const Comparison& found : results) {
    all.push_back({{"name", found.name},
                   {"absolute", found.absolute},
                   {"relative", found.relative},
                   {"ok", is_within(found, tolerance)}});
  }
  fmt::print("{}\n", nlohmann::json{{"ok", ok}, {"tolerance", tolerance}, {"results", all}}.dump());
}

}  // namespace

int run_compare(const cli::RunArguments& arguments) {
  const RunOptions& options = arguments.options();
  const RankModel run(options, /*is_trained=*/false);
  const auto reference = open_weights(options.reference);
  const World world = meet_ranks(arguments);
  const Plan plan = arguments.plan(world.size(), run.auto_inputs(), world.rank() != 0);
  ShardedModel sharded = run.shard(world, plan, options);
  if (world.rank() == 0) run.warn_of_weights();
  const std::vector<Comparison> results = compare_model(*run.model, sharded, *reference);
  const bool ok =
      !results.empty() && std::all_of(results.begin(), results.end(), [&](const Comparison& found) {
        return is_within(found, options.tolerance);
      });
  if (world.rank() != 0) return 0;
  if (options.json) {
    print_comparison(results, options.tolerance, ok);
  } else {
    print_table(results, options.tolerance);
  }
  std::fflush(stdout);
  if (results.empty()) {
    fail_as(ErrorKind::input, "{}: has neither logits, hidden, loss nor gradients",
            options.reference);
  }
  if (ok && !options.json) fmt::print("equal within {}\n", options.tolerance);
  if (!ok) fail("compare: differs by more than {}", options.tolerance);
  return 0;
}

}  // namespace fullshard::worker
