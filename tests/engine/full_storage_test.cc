// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/storage/full_storage.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <memory>

#include "fullshard/comm/world/world.h"

namespace fullshard::engine {
namespace {

// One group of 21 elements on one rank, as ParamGroup puts it together, without a module.
class StoredGroup {
 public:
  StoredGroup(const World& world, FullPlacement placement, at::ScalarType master_dtype = at::kFloat)
      : mesh_(world, world.size()),
        traffic_(mesh_, {}),
        layout_({{"weight", {3, 7}}}, mesh_.num_shards(), 4) {
    pool_ = std::make_shared<memory::Pool>(
        [everyone = mesh_.everyone()](int64_t bytes) {
          return everyone.allocate(bytes, at::kByte);
        },
        ledger_, tiers::Tier::device);
    tiers_ =
        std::make_unique<TierMemory>(pool_, world.device(), world.rank(), tiers::TierOptions{});
    context_ = {&mesh_, &traffic_, &draining_, pool_, tiers_.get(), &counters_};
    context_.one_copy = placement == FullPlacement::host_copy;
    spec_.master_dtype = master_dtype;
    spec_.sharding.parameters =
        placement == FullPlacement::replicated ? Placement::replicated : Placement::sharded;
    storage_ = make_full_storage(context_, spec_, layout_, "unit 'a'");
    master_ = make_master({.parameter_pool = pool_,
                           .state_pool = pool_,
                           .scratch_pool = pool_,
                           .numel = layout_.shard_numel(),
                           .dtype = master_dtype,
                           .compute_dtype = at::kFloat,
                           .resting = storage_->resting_slice()},
                          false);
    storage_->fill(*master_,
                   {.write_full = [this](const at::Tensor& full) { full.copy_(values(0)); },
                    .write_own = [this](const at::Tensor& own) { own.copy_(own_of(values(0))); }});
    // Publishes the first version, so after the values.
    if (context_.one_copy) storage_->use_counters(mesh_.shards().make_counters(1), 0);
  }

  // 0, 1, 2, … plus `first`, and what lies beside the tensor.
  at::Tensor values(int64_t first) const {
    return at::arange(first, first + layout_.numel(), at::kFloat);
  }
  at::Tensor own_of(const at::Tensor& full) const {
    return full.narrow(0, mesh_.shard() * layout_.shard_numel(), layout_.shard_numel());
  }
  // What computation would see.
  at::Tensor gathered() {
    if (!storage_->is_released_at_rest()) return storage_->full().clone();
    storage_->begin_gather(*master_, {});
    storage_->finish_gather();
    auto seen = storage_->full().clone();
    storage_->release();
    mesh_.everyone().barrier("seen");
    return seen;
  }
  void update(int64_t first) {
    mesh_.everyone().barrier("nobody reads any more");
    master_->values(0, layout_.shard_numel()).copy_(own_of(values(first)));
    master_->finish_update(false);
    storage_->begin_publish();
    storage_->finish_publish();
  }
  int64_t shard_bytes(int64_t element) const { return layout_.shard_numel() * element; }

  Mesh mesh_;
  Traffic traffic_;
  Draining draining_;
  ShardCounters counters_;
  std::shared_ptr<Ledger> ledger_ = std::make_shared<Ledger>();
  std::shared_ptr<memory::Pool> pool_;
  std::unique_ptr<TierMemory> tiers_;
  GroupContext context_;
  GroupSpec spec_;
  Layout layout_;
  std::unique_ptr<FullStorage> storage_;
  std::unique_ptr<Master> master_;
};

using Body = std::function<void(const World&, FullPlacement)>;

void for_each_storage(const Body& body) {
  for (const int ranks : {2, 3}) {
    for (const auto placement :
         {FullPlacement::replicated, FullPlacement::gathered, FullPlacement::host_copy}) {
      SCOPED_TRACE(::testing::Message()
                   << ranks << " ranks, placement " << static_cast<int>(placement));
      run_ranks({.ranks = ranks}, [&](const World& world) { body(world, placement); });
    }
  }
}

TEST(FullStorage, IsReplicatedWhereOneRankHoldsAll) {
  run_ranks({.ranks = 1}, [](const World& world) {
    StoredGroup group(world, FullPlacement::gathered);
    EXPECT_EQ(full_placement(group.context_, group.spec_), FullPlacement::replicated);
    group.update(7);
    EXPECT_TRUE(at::equal(group.gathered(), group.values(7)));
    EXPECT_EQ(world.recorder().totals(Operation::all_gather).calls, 0);
  });
}

TEST(FullStorage, ShowsEveryRanksMasters) {
  for (const auto master_dtype : {at::kFloat, at::kDouble}) {
    for_each_storage([&](const World& world, FullPlacement placement) {
      StoredGroup group(world, placement, master_dtype);
      EXPECT_EQ(full_placement(group.context_, group.spec_), placement);
      EXPECT_TRUE(at::equal(group.gathered(), group.values(0)));
      group.update(100);
      EXPECT_TRUE(at::equal(group.gathered(), group.values(100)));
      group.update(1000);
      EXPECT_TRUE(at::equal(group.gathered(), group.values(1000)));
    });
  }
}

TEST(FullStorage, HoldsWhatItsPlacementSays) {
  for_each_storage([](const World& world, FullPlacement placement) {
    StoredGroup group(world, placement);
    const int64_t shard = group.shard_bytes(4);
    const auto& ledger = *group.ledger_;
    const bool is_replicated = placement == FullPlacement::replicated;
    EXPECT_EQ(ledger.held(tiers::Purpose::parameters), is_replicated ? world.size() * shard : 0);
    EXPECT_EQ(ledger.held(tiers::Purpose::master), is_replicated ? 0 : shard);
    EXPECT_EQ(group.storage_->resting_slice().defined(), placement != FullPlacement::gathered);
    if (is_replicated) return;
    group.storage_->begin_gather(*group.master_, {});
    const bool is_gathered = placement == FullPlacement::gathered;
    EXPECT_EQ(ledger.held(tiers::Purpose::parameters), is_gathered ? world.size() * shard : 0);
    group.storage_->finish_gather();
    group.storage_->release();
    EXPECT_EQ(ledger.held(tiers::Purpose::parameters), 0);
  });
}

TEST(FullStorage, SendsWhatItsPlacementSays) {
  for_each_storage([](const World& world, FullPlacement placement) {
    StoredGroup group(world, placement);
    world.recorder().reset_totals();
    (void)group.gathered();
    const auto calls = [&](Operation operation) {
      return world.recorder().totals(operation).calls;
    };
    EXPECT_EQ(calls(Operation::all_gather), placement == FullPlacement::gathered ? 1 : 0);
    EXPECT_EQ(calls(Operation::share), placement == FullPlacement::host_copy ? 1 : 0);
    world.recorder().reset_totals();
    group.update(1);
    EXPECT_EQ(calls(Operation::all_gather), placement == FullPlacement::replicated ? 1 : 0);
  });
}

TEST(FullStorage, CountsShardsThatAreCastForAGather) {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    run_ranks({.ranks = 2}, [&](const World& world) {
      StoredGroup group(world, FullPlacement::gathered, dtype);
      (void)group.gathered();
      const bool is_cast = dtype != at::kFloat;
      EXPECT_EQ(group.counters_.copied_for_gathers, is_cast ? group.shard_bytes(4) : 0);
    });
  }
}

TEST(FullStorage, TakesWhatAScopeWrote) {
  for (const auto master_dtype : {at::kFloat, at::kDouble}) {
    for_each_storage([&](const World& world, FullPlacement placement) {
      StoredGroup group(world, placement, master_dtype);
      auto& storage = *group.storage_;
      if (storage.is_released_at_rest()) {
        storage.begin_gather(*group.master_, {});
        storage.finish_gather();
      }
      storage.begin_write();
      storage.full().copy_(group.values(50));
      storage.take_written(*group.master_);
      storage.end_write();
      storage.release();
      EXPECT_TRUE(at::equal(group.gathered(), group.values(50)));
      const auto own = group.master_->values(0, group.layout_.shard_numel());
      EXPECT_TRUE(at::equal(own.to(at::kFloat), group.own_of(group.values(50))));
    });
  }
}

TEST(FullStorage, ForgetsAScopeThatFails) {
  for_each_storage([](const World& world, FullPlacement placement) {
    StoredGroup group(world, placement);
    auto& storage = *group.storage_;
    const int64_t at_rest = group.ledger_->held_total();
    storage.end_write();  // before it began
    if (storage.is_released_at_rest()) {
      storage.begin_gather(*group.master_, {});
      storage.finish_gather();
    }
    storage.begin_write();
    storage.full().copy_(group.values(50));
    storage.end_write();
    storage.release();
    EXPECT_EQ(group.ledger_->held_total(), at_rest);
    EXPECT_TRUE(at::equal(group.gathered(), group.values(0)));
  });
}

}  // namespace
}  // namespace fullshard::engine
