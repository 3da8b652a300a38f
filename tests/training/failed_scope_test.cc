// SPDX-License-Identifier: Apache-2.0
// A gather_full scope that ends with an error leaves the model as it was before it.
#include <ATen/ops/ones_like.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "fullshard/engine/engine_access.h"
#include "fullshard/engine/sharded_model.h"
#include "fullshard/optim/adamw.h"
#include "tests/errors.h"
#include "tests/training/expectations.h"
#include "tests/training/tiny_training.h"

namespace fullshard::testing {
namespace {

using ::testing::HasSubstr;

struct ScopeSetting {
  int ranks = 1;
  int stage = 3;
  bool share = true;
  bool bf16 = false;
  bool halves = false;

  std::string text() const {
    return fmt::format("{} ranks, stage {}, share {}, bf16 {}, halves {}", ranks, stage, share,
                       bf16, halves);
  }
  ShardOptions options() const {
    ShardOptions options;
    options.sharding.zero_stage = stage;
    options.share_host_copy = share;
    if (bf16) options.param_dtype = at::kBFloat16;
    options.master_in_halves = halves;
    return options;
  }
};

std::vector<ScopeSetting> scope_settings() {
  std::vector<ScopeSetting> settings;
  for (const int ranks : {1, 2, 3}) {
    for (const int stage : {0, 2, 3}) {
      for (const bool share : {true, false}) {
        settings.push_back({ranks, stage, share});
        if (ranks != 2) continue;
        settings.push_back({ranks, stage, share, /*bf16=*/true});
        settings.push_back({ranks, stage, share, /*bf16=*/true, /*halves=*/true});
      }
    }
  }
  return settings;
}

using Between = std::function<void(TinyTransformer&, ShardedModel&, const World&)>;

// Four steps of rank 0, with `between` in their middle.
Outcome train_around(const ScopeSetting& setting, const ShardOptions& options,
                     const Between& between) {
  Outcome outcome;
  run_ranks({.ranks = setting.ranks}, [&](const World& world) {
    auto model = make_model({});
    auto sharded = shard(model, world, options);
    AdamW optimizer(sharded, {.lr = 1e-2});
    std::vector<double> losses;
    for (int step = 0; step < 4; ++step) {
      if (step == 2) between(model, sharded, world);
      auto loss = model(make_batch({}, step, 0, world.rank()));
      losses.push_back(loss.item<double>());
      loss.backward();
      optimizer.step();
      optimizer.zero_grad();
    }
    auto full = sharded.gather_full();
    if (world.rank() != 0) return;
    outcome.losses = losses;
    for (const auto& item : model->named_parameters()) {
      outcome.parameters[item.key()] = item.value().detach().clone();
    }
  });
  return outcome;
}

void write_anything(TinyTransformer& model, double value) {
  at::NoGradGuard no_grad;
  for (auto& parameter : model->parameters()) parameter.fill_(value);
}

// What must be as before: nothing gathered, no copy held, no scope open.
struct AtRest {
  explicit AtRest(ShardedModel& sharded)
      : held(sharded.ledger().held_total()), live(sharded.counters().live_numel) {}
  bool operator==(const AtRest&) const = default;
  int64_t held;
  int64_t live;
};

TEST(FailedScope, DropsWhatAllRanksWroteBeforeTheyThrew) {
  for (const auto& setting : scope_settings()) {
    SCOPED_TRACE(setting.text());
    const auto undisturbed = train_around(setting, setting.options(), [](auto&&...) {});
    const auto actual =
        train_around(setting, setting.options(),
                     [](TinyTransformer& model, ShardedModel& sharded, const World& world) {
                       const AtRest before(sharded);
                       try {
                         auto full = sharded.gather_full({.write_back = true});
                         write_anything(model, 7.0 + world.rank());
                         throw std::runtime_error("no such file");
                       } catch (const std::runtime_error&) {
                       }
                       EXPECT_EQ(AtRest(sharded), before);
                     });
    expect_same_bits(actual, undisturbed, setting.text());
  }
}

// A small parameter that stays whole is written without a scope, which the second unit's turn
// finds: the first one has been gathered by then.
TEST(FailedScope, ThatCouldNotBeOpenedLeavesNothingGathered) {
  for (const auto& setting : scope_settings()) {
    SCOPED_TRACE(setting.text());
    auto options = setting.options();
    options.param_persistence_threshold = 10;
    const auto undisturbed = train_around(setting, options, [](auto&&...) {});
    const auto actual = train_around(
        setting, options, [](TinyTransformer& model, ShardedModel& sharded, const World&) {
          const AtRest before(sharded);
          {
            at::NoGradGuard no_grad;
            model->blocks[1]->down->bias.mul_(1);
          }
          EXPECT_THAT(message_of([&] { auto full = sharded.gather_full({.write_back = true}); }),
                      HasSubstr("parameter 'block1.down.bias' of unit 'block1' was written in "
                                "place outside gather_full"));
          EXPECT_EQ(AtRest(sharded), before);
          EXPECT_EQ(engine::EngineAccess::of(sharded).open_scopes, 0);
        });
    expect_same_bits(actual, undisturbed, setting.text());
  }
}

TEST(FailedScope, WhoseEndFindsForeignMemoryTakesNothing) {
  for (const auto& setting : scope_settings()) {
    SCOPED_TRACE(setting.text());
    const auto undisturbed = train_around(setting, setting.options(), [](auto&&...) {});
    const auto actual = train_around(
        setting, setting.options(),
        [](TinyTransformer& model, ShardedModel& sharded, const World&) {
          auto& weight = model->blocks[2]->up->weight;
          auto full = sharded.gather_full({.write_back = true});
          write_anything(model, 7.0);
          const auto own = weight.detach();
          weight.set_data(at::ones_like(own));
          EXPECT_EQ(message_of([&] { full.close(); }),
                    "parameter 'block2.up.weight' of unit 'block2' was given other memory inside "
                    "gather_full; write its values in place (copy_, fill_) instead of set_data or "
                    "Module::to");
          weight.set_data(own);
        });
    expect_same_bits(actual, undisturbed, setting.text());
  }
}

}  // namespace
}  // namespace fullshard::testing
