// SPDX-License-Identifier: Apache-2.0
#include "tests/checkpoint/saved_state.h"

#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

#include "fullshard/checkpoint/model_tensors.h"
#include "fullshard/engine/engine_access.h"
#include "tests/files.h"

namespace fullshard::testing {
namespace {

SmallModel make_model(bool is_deferred) {
  if (is_deferred) return deferred<SmallModel>();
  SmallModel model;
  at::NoGradGuard no_grad;
  const auto values = small_values();
  for (auto& item : model->named_parameters()) {
    if (item.key() != "head.weight") item.value().copy_(values.at(item.key()));
  }
  model->scale.copy_(values.at("scale"));
  return model;
}

void put(WholeState& state, const std::string& key, int64_t numel, int64_t begin,
         const at::Tensor& values) {
  auto& whole = state.tensors[key];
  if (!whole.defined()) whole = at::zeros({numel}, values.scalar_type());
  whole.narrow(0, begin, values.numel()).copy_(values);
}

}  // namespace

RankRun::RankRun(const World& in_world, const ShardOptions& options, bool is_deferred)
    : world(in_world),
      model(make_model(is_deferred)),
      sharded(shard(model, world, options)),
      optimizer(sharded, {.lr = 0.05}) {}

void RankRun::train(int first, int last, WholeState* state) {
  for (int step = first; step < last; ++step) {
    auto loss = model(small_batch(step, world.rank()).to(world.device()));
    if (state != nullptr && world.rank() == 0) state->losses.push_back(loss.item<float>());
    loss.backward();
    sharded.clip_grad_norm(0.5);
    optimizer.step();
    optimizer.zero_grad();
  }
}

void RankRun::collect(WholeState& state, std::mutex& mutex) const {
  at::NoGradGuard no_grad;
  const std::lock_guard lock(mutex);
  state.optimizer_steps = optimizer.num_steps();
  for (const auto& tensor : checkpoint::model_tensors(engine::EngineAccess::of(sharded))) {
    const auto part = tensor.own_part();
    if (!part) continue;
    put(state, "weights of " + tensor.names.front(), tensor.numel(), part->begin, part->values);
  }
  for (const auto& piece : sharded.pieces()) {
    int64_t numel = 1;
    for (const auto size : piece.shape) numel *= size;
    for (size_t k = 0; k < optimizer.state_names().size(); ++k) {
      const auto& values = optimizer.state(piece.group, static_cast<int>(k));
      put(state, fmt::format("{} of {}", optimizer.state_names()[k], piece.name), numel,
          piece.begin, values.narrow(0, piece.offset, piece.numel()));
    }
  }
}

WholeState train_and_save(const Way& way, const std::string& folder, int steps,
                          const CheckpointOptions& options) {
  WholeState state;
  std::mutex mutex;
  run_ranks({.ranks = way.ranks}, [&](const World& world) {
    RankRun run(world, way.options, false);
    run.train(0, steps);
    Progress progress;
    progress.step = steps;
    save_checkpoint(folder, run.sharded, run.optimizer, progress, options);
    run.collect(state, mutex);
  });
  return state;
}

WholeState load_whole(const Way& way, const std::string& folder) {
  WholeState state;
  std::mutex mutex;
  run_ranks({.ranks = way.ranks}, [&](const World& world) {
    RankRun run(world, way.options, true);
    load_checkpoint(folder, run.sharded, run.optimizer);
    run.collect(state, mutex);
  });
  return state;
}

void expect_same_state(const WholeState& actual, const WholeState& expected) {
  EXPECT_EQ(actual.optimizer_steps, expected.optimizer_steps);
  ASSERT_EQ(actual.tensors.size(), expected.tensors.size());
  for (const auto& [name, tensor] : expected.tensors) {
    const auto& found = actual.tensors.at(name);
    EXPECT_TRUE(at::equal(found, tensor.to(found.scalar_type()))) << name;
  }
}

Error error_of_call(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error";
  return Error("no error");
}

// In memory where that can be had: flushing many small files to a busy disk takes seconds.
CheckpointsFolder::CheckpointsFolder() {
  const std::string base = ::access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
  std::string name = base + "/fullshard-test-XXXXXX";
  if (const char* made = ::mkdtemp(name.data())) path_ = made;
}

CheckpointsFolder::~CheckpointsFolder() {
  for (const auto& name : entries_of(path_)) {
    const auto inner = path_ + "/" + name;
    for (const auto& file : entries_of(inner)) ::unlink((inner + "/" + file).c_str());
    ::rmdir(inner.c_str());
    ::unlink(inner.c_str());
  }
  ::rmdir(path_.c_str());
}

Way plain_way(int ranks, Strategy strategy) {
  Way way{fmt::format("{} on {} ranks", name_of(strategy), ranks), ranks, {}};
  way.options.sharding.strategy = strategy;
  way.options.ignored_modules = "aside";
  return way;
}

}  // namespace fullshard::testing
