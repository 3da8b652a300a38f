// SPDX-License-Identifier: Apache-2.0
// What every residence moves in a step and holds on each tier, to the byte (docs/memory_layout.md,
// "Elsewhere than on the device"); and what it takes of memory, which is nothing after two steps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <mutex>
#include <sstream>

#include "fullshard/engine/engine_access.h"
#include "fullshard/engine/plan/group_residence.h"
#include "fullshard/optim/adamw.h"
#include "tests/files.h"
#include "tests/offload_options.h"
#include "tests/training/expectations.h"

namespace fullshard::testing {
namespace {

using ::testing::HasSubstr;
using tiers::Purpose;
using tiers::Tier;

struct CountedRun {
  CountedRun(const World& whole, const ShardOptions& options)
      : world(whole),
        model(make_model(training)),
        sharded(shard(model, whole, options)),
        optimizer(sharded, {.lr = 1e-2}) {}

  void train(int first, int last) {
    for (int step = first; step < last; ++step) {
      model(make_batch(training, step, 0, world.rank())).backward();
      sharded.clip_grad_norm(0.5);
      optimizer.step();
      optimizer.zero_grad();
    }
    sharded.settle();
  }
  const engine::Engine& engine() const { return engine::EngineAccess::of(sharded); }

  TrainingOptions training{};
  World world;
  TinyTransformer model;
  ShardedModel sharded;
  AdamW optimizer;
};

// AdamW in fp32, where the master is the parameter: 8 bytes of states, 4 of it, 4 of gradient.
struct StepBytes {
  int64_t in = 0, out = 0, gradients_out = 0, disk = 0;
};

StepBytes planned_bytes(const CountedRun& run) {
  StepBytes bytes;
  for (const auto* group : run.engine().trainable_groups()) {
    const auto& residence = group->spec().residence;
    const int64_t numel = group->layout().shard_numel();
    int64_t own = 0;
    for (const auto& piece : group->pieces()) own += piece.numel();
    const int64_t states = residence.states != Tier::device ? 8 * numel : 0;
    const int64_t parameters = residence.parameters != Tier::device ? 4 * numel : 0;
    const bool has_gradients = residence.gradients != Tier::device;
    // What the host updates passes through no window, and of a CPU device lies on the host anyway.
    if (residence.stepped_on == Tier::device) {
      bytes.in += states + parameters + (has_gradients ? 4 * numel : 0);
      bytes.out += states + parameters;
    }
    bytes.gradients_out += has_gradients ? 4 * own : 0;
    bytes.disk += residence.states == Tier::disk ? states : 0;
    bytes.disk += residence.parameters == Tier::disk ? parameters : 0;
  }
  return bytes;
}

// Each unit is gathered in forward and again in backward, the root once.
int64_t gathered_bytes(const CountedRun& run, std::initializer_list<Tier> from) {
  int64_t bytes = 0;
  for (const auto& unit : run.engine().units()) {
    for (const auto& group : unit->groups()) {
      const auto tier = group->spec().residence.parameters;
      if (std::find(from.begin(), from.end(), tier) == from.end()) continue;
      bytes += (unit->path().empty() ? 1 : 2) * 4 * group->layout().shard_numel();
    }
  }
  return bytes;
}

void expect_moves(CountedRun& run) {
  const auto expected = planned_bytes(run);
  const bool in_place = !run.engine().options().offload.streams_on_cpu;
  run.train(0, 1);
  for (int step = 1; step < 3; ++step) {
    const auto before = run.sharded.counters();
    run.train(step, step + 1);
    const auto& after = run.sharded.counters();
    EXPECT_EQ(after.states_copied_in - before.states_copied_in, in_place ? 0 : expected.in);
    EXPECT_EQ(after.states_copied_out - before.states_copied_out, in_place ? 0 : expected.out);
    EXPECT_EQ(after.gradients_copied_out - before.gradients_copied_out, expected.gradients_out);
    EXPECT_EQ(after.gradients_copied_in, 0);
    EXPECT_EQ(after.parameters_copied_in - before.parameters_copied_in,
              gathered_bytes(run, {Tier::host, Tier::disk}));
    EXPECT_EQ(after.disk_bytes_read - before.disk_bytes_read,
              expected.disk + gathered_bytes(run, {Tier::disk}));
    EXPECT_EQ(after.disk_bytes_written - before.disk_bytes_written, expected.disk);
  }
}

TEST(Residences, MoveWhatTheTableSaysInEveryStep) {
  const TemporaryFolder folder;
  for (const int ranks : {1, 3}) {
    for (const auto& [name, offload] : residences(folder.path())) {
      SCOPED_TRACE(name + ", " + std::to_string(ranks) + " ranks");
      const ShardOptions options{.offload = offload, .share_host_copy = false};
      run_ranks({.ranks = ranks}, [&](const World& world) {
        CountedRun run(world, options);
        expect_moves(run);
      });
    }
  }
}

// Of all purposes, as the plan has them.
int64_t planned_bytes(const CountedRun& run, Tier tier) {
  std::vector<tiers::GroupSize> sizes;
  for (const auto& unit : run.engine().units()) {
    for (const auto& group : unit->groups()) {
      sizes.push_back(engine::size_of(group->spec(), run.sharded.mesh().num_shards()));
    }
  }
  int64_t bytes = 0;
  for (const auto purpose :
       {Purpose::parameters, Purpose::gradients, Purpose::master, Purpose::optimizer}) {
    bytes += run.engine().residence().bytes(sizes, purpose, tier);
  }
  return bytes;
}

TEST(Residences, HoldOnEachTierWhatThePlanSays) {
  const TemporaryFolder folder;
  for (const int ranks : {1, 2}) {
    for (const auto& [name, offload] : residences(folder.path())) {
      SCOPED_TRACE(name + ", " + std::to_string(ranks) + " ranks");
      const ShardOptions options{.offload = offload, .share_host_copy = false};
      run_ranks({.ranks = ranks}, [&](const World& world) {
        CountedRun run(world, options);
        run.train(0, 2);
        auto& ledger = run.sharded.ledger();
        ledger.reset_peaks();
        run.train(2, 4);
        EXPECT_EQ(ledger.peak_total(Tier::disk), planned_bytes(run, Tier::disk));
        EXPECT_EQ(ledger.held_total(Tier::disk), planned_bytes(run, Tier::disk));
        if (options.offload.uses_disk()) return;  // whose buffers are in host memory
        EXPECT_EQ(ledger.peak_total(Tier::host), planned_bytes(run, Tier::host));
        EXPECT_EQ(ledger.held_total(Tier::host), planned_bytes(run, Tier::host));
      });
    }
  }
}

struct Taken {
  int64_t device = 0, host = 0, staging = 0, pageable = 0;
  int64_t disk = 0;
  int pinned = 0;

  bool operator==(const Taken&) const = default;
};

Taken taken_by(const CountedRun& run, int pinned) {
  const auto& tiers = run.engine().tiers();
  Taken taken{run.sharded.num_allocations(),
              tiers.host()->num_allocations(),
              tiers.staging()->num_allocations(),
              tiers.pageable()->num_allocations(),
              0,
              pinned};
  for (auto* disk : {tiers.disk_of_parameters(), tiers.disk_of_states()}) {
    if (disk != nullptr) taken.disk += disk->file().num_slots();
  }
  return taken;
}

TEST(Residences, TakeAndPinNothingAfterTheSecondStep) {
  const TemporaryFolder folder;
  for (const auto& [name, offload] : residences(folder.path())) {
    for (const auto compute : {at::kFloat, at::kBFloat16}) {
      SCOPED_TRACE(name);
      int pinned = 0;
      ShardOptions options{.param_dtype = compute, .offload = offload};
      options.offload.pin = [&](void*, int64_t) {
        ++pinned;
        return std::string();
      };
      CountedRun run(World::single(), options);
      run.train(0, 2);
      const auto before = taken_by(run, pinned);
      run.train(2, 6);
      EXPECT_EQ(taken_by(run, pinned), before);
    }
  }
}

// As a machine without enough lockable memory answers.
TEST(Residences, GoOnInPageableMemoryWithOneWarningWhereNothingCanBePinned) {
  const TemporaryFolder folder;
  for (const auto& [name, offload] : residences(folder.path())) {
    SCOPED_TRACE(name);
    std::ostringstream text;
    const auto before = spdlog::default_logger();
    spdlog::set_default_logger(std::make_shared<spdlog::logger>(
        "test", std::make_shared<spdlog::sinks::ostream_sink_mt>(text)));
    ShardOptions options{.offload = offload};
    int asked = 0;
    options.offload.pin = [&](void*, int64_t) {
      ++asked;
      return std::string("out of lockable memory");
    };
    const auto pageable = train_on_threads({.ranks = 1}, options, {.steps = 3});
    spdlog::set_default_logger(before);
    options.offload.pin = {};
    expect_same_bits(pageable, train_on_threads({.ranks = 1}, options, {.steps = 3}), name);
    if (asked == 0) continue;  // of a CPU device nothing is in host memory but beside a disk
    const auto said = text.str();
    const std::string warning = "could not be pinned (out of lockable memory)";
    ASSERT_THAT(said, HasSubstr(warning));
    EXPECT_EQ(said.find(warning), said.rfind(warning)) << said;
    EXPECT_THAT(said, HasSubstr("two to four times as long"));
    EXPECT_THAT(said, HasSubstr("ulimit -l"));
  }
}

}  // namespace
}  // namespace fullshard::testing
