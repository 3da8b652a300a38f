// SPDX-License-Identifier: Apache-2.0
// After a collective between GPUs was given up, memory holds garbage: no step counts and nothing is
// saved. What a transport says then is said here by the test.
#include <gtest/gtest.h>

#include "fullshard/checkpoint/async_saver.h"
#include "fullshard/comm/self_backend.h"
#include "fullshard/comm/world/world_impl.h"
#include "fullshard/optim/stepper.h"
#include "tests/checkpoint/fake_device.h"
#include "tests/checkpoint/saved_state.h"
#include "tests/files.h"

namespace fullshard::testing {
namespace {

class LosableTransport : public comm::Transport {
 public:
  std::string_view name() const override { return "self"; }
  std::shared_ptr<comm::Backend> make_backend(const std::vector<std::vector<int>>&,
                                              const std::string&) override {
    return std::make_shared<comm::SelfBackend>();
  }
  void leave(const std::string&) noexcept override {}
  void check_sound() const override { check(!is_lost, "nccl: rank 1 died"); }

  bool is_lost = false;
};

struct LosableWorld {
  std::shared_ptr<LosableTransport> transport = std::make_shared<LosableTransport>();
  World world{std::make_shared<World::Impl>(0, std::vector<int>{0}, Timeouts{},
                                            std::make_shared<Recorder>(0), transport)};
};

TEST(UnsoundWorld, SavesNoCheckpoint) {
  const LosableWorld losable;
  const CheckpointsFolder folder;
  RankRun run(losable.world, plain_way(1).options, false);
  run.train(0, 1);
  losable.transport->is_lost = true;
  const auto error = error_of_call(
      [&] { save_checkpoint(folder / "one", run.sharded, run.optimizer, {.step = 1}); });
  EXPECT_STREQ(error.what(), "nccl: rank 1 died");
  EXPECT_TRUE(entries_of(folder.path()).empty());
}

// A device is read while files are written.
TEST(UnsoundWorld, GivesNoNameToWhatWasReadFromADeviceAfterTheLoss) {
  const LosableWorld losable;
  const CheckpointsFolder folder;
  RankRun run(losable.world, plain_way(1).options, false);
  FakeDevice device(true);
  AsyncSaver saver(std::move(device.snapshot));
  saver.start(folder / "one", run.sharded, run.optimizer, {.step = 1});
  losable.transport->is_lost = true;
  device.copies->be_late(false);
  const auto error = error_of_call([&] { saver.finish(); });
  EXPECT_STREQ(error.what(), "nccl: rank 1 died");
  EXPECT_TRUE(entries_of(folder.path()).empty());
}

TEST(UnsoundWorld, MakesNoStep) {
  const LosableWorld losable;
  RankRun run(losable.world, plain_way(1).options, false);
  run.train(0, 1);
  Stepper stepper(run.sharded, run.optimizer, {.max_grad_norm = 1});
  const auto before = run.optimizer.num_steps();
  stepper.backward(run.model(small_batch(1, 0)));
  losable.transport->is_lost = true;
  const auto error = error_of_call([&] { stepper.step(); });
  EXPECT_STREQ(error.what(), "nccl: rank 1 died");
  EXPECT_EQ(run.optimizer.num_steps(), before);
  EXPECT_EQ(stepper.num_steps(), 0);
}

}  // namespace
}  // namespace fullshard::testing
