// SPDX-License-Identifier: Apache-2.0
#include "fullshard/train/run/resume_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <mutex>

#include "fullshard/base/error.h"
#include "fullshard/checkpoint/checkpoint.h"
#include "fullshard/train/apply_plan.h"
#include "fullshard/train/model_source.h"
#include "fullshard/train/model_weights.h"
#include "tests/train/fixture_models.h"

namespace fullshard::testing {
namespace {

using ::testing::HasSubstr;

// One disk per rank, and checkpoints of one small model.
class ResumeChoices : public ::testing::Test {
 protected:
  ResumeChoices() {
    char name[] = "/tmp/fullshard-resume-XXXXXX";
    root_ = ::mkdtemp(name);
    for (const int rank : {0, 1}) ::mkdir(disk(rank).c_str(), 0700);
  }
  ~ResumeChoices() override {
    [[maybe_unused]] const int gone = std::system(("rm -rf " + root_).c_str());
  }

  std::string disk(int rank) const { return root_ + "/" + std::to_string(rank); }

  void save(int rank, int64_t step) const {
    const Plan plan =
        Plan::parse("distributed_type: FSDP\nfsdp_config: {}\n", "test", {.ranks = 1});
    const auto model = make_deferred_model(find_model(kModels + "llama"));
    ShardOptions options = shard_options_of(plan);
    options.sync_module_states = false;
    ShardedModel sharded(model, World::single(), options);
    make_new_weights(*model, sharded, 1);
    save_checkpoint(disk(rank) + "/" + stored::checkpoint_name(step), sharded, {.step = step});
  }

  // One save, on both disks.
  void share(int64_t step) const {
    save(0, step);
    const std::string name = "/" + stored::checkpoint_name(step);
    EXPECT_EQ(std::system(("cp -r " + disk(0) + name + " " + disk(1)).c_str()), 0);
  }

  // What each of two ranks goes on from, or the error, which is the same.
  std::map<int, std::string> choose(const std::string& wanted,
                                    const std::vector<std::string>& passed_over = {}) {
    std::map<int, std::string> chosen;
    std::mutex mutex;
    run_ranks({.ranks = 2}, [&](const World& world) {
      std::string found;
      try {
        const train::ResumeChoice choice = train::choose_checkpoint(
            world, wanted, disk(world.rank()), passed_over, std::chrono::milliseconds(0));
        if (choice.checkpoint) found = choice.checkpoint->path();
        if (world.rank() == 0) skipped_ = choice.skipped;
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::input);
        found = error.what();
      }
      const std::lock_guard lock(mutex);
      chosen[world.rank()] = found;
    });
    return chosen;
  }

  std::string root_;
  std::vector<std::string> skipped_;  // as rank 0 says it
};

TEST_F(ResumeChoices, AreRankZerosAlsoWhereAnotherHasANewerOne) {
  share(2);
  save(1, 4);
  const auto chosen = choose("auto");
  EXPECT_EQ(chosen.at(0), disk(0) + "/step-000002");
  EXPECT_EQ(chosen.at(1), disk(1) + "/step-000002");
}

TEST_F(ResumeChoices, AreNoneWhereRankZeroHasNone) {
  save(1, 2);
  const auto chosen = choose("auto");
  EXPECT_EQ(chosen.at(0), "");
  EXPECT_EQ(chosen.at(1), "");
}

std::string own_host() {
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  return host;
}

TEST_F(ResumeChoices, AreTheNewestThatAllHave) {
  for (const int64_t step : {2, 4}) share(step);
  save(0, 6);
  const auto chosen = choose("auto");
  EXPECT_EQ(chosen.at(0), disk(0) + "/step-000004");
  EXPECT_EQ(chosen.at(1), disk(1) + "/step-000004");
  ASSERT_EQ(skipped_.size(), 1u);
  EXPECT_THAT(skipped_[0],
              HasSubstr(fmt::format("step-000006: not all ranks have it (rank 1 on host {}: {}",
                                    own_host(), disk(1) + "/step-000006")));
}

// A host that died before it had the second of two saves under one name.
TEST_F(ResumeChoices, AreOfOneSave) {
  for (const int64_t step : {2, 4}) share(step);
  save(0, 4);
  const auto chosen = choose("auto");
  EXPECT_EQ(chosen.at(0), disk(0) + "/step-000002");
  EXPECT_EQ(chosen.at(1), disk(1) + "/step-000002");
  ASSERT_EQ(skipped_.size(), 1u);
  EXPECT_THAT(skipped_[0], HasSubstr("step-000004: belongs to another save"));
}

TEST_F(ResumeChoices, AreNoneOfThosePassedOver) {
  for (const int64_t step : {2, 4, 6}) share(step);
  const auto chosen = choose("auto", {"step-000006"});
  EXPECT_EQ(chosen.at(0), disk(0) + "/step-000004");
  EXPECT_EQ(chosen.at(1), disk(1) + "/step-000004");
}

TEST_F(ResumeChoices, SayWhatIsDamagedOnAllRanks) {
  save(0, 2);
  const std::string folder = disk(0) + "/step-000002", file = folder + "/weights-00000.bin";
  const auto damage = [&] {
    std::map<int, std::string> found;
    std::mutex mutex;
    run_ranks({.ranks = 2}, [&](const World& world) {
      const std::string text = train::damage_in(world, folder);
      const std::lock_guard lock(mutex);
      found[world.rank()] = text;
    });
    EXPECT_EQ(found[0], found[1]);
    return found[0];
  };
  EXPECT_EQ(damage(), "");
  std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
  bytes.seekg(100);
  const char old = static_cast<char>(bytes.get());
  bytes.seekp(100);
  bytes.put(static_cast<char>(old ^ 4));
  bytes.close();
  EXPECT_THAT(damage(), HasSubstr(file + ": bytes 0 to "));
  EXPECT_THAT(damage(), HasSubstr("the file is damaged"));
}

TEST_F(ResumeChoices, NameTheRankAndHostThatDoNotHaveIt) {
  save(0, 4);
  const std::string host = own_host();
  const auto chosen = choose("auto");
  EXPECT_EQ(chosen.at(0), chosen.at(1));
  EXPECT_THAT(chosen.at(0), HasSubstr(fmt::format(
                                "resume: rank 0 goes on from step-000004, which not all ranks have "
                                "(rank 1 on host {}: {}/step-000004",
                                host, disk(1))));
  EXPECT_THAT(chosen.at(0), HasSubstr("; copy it there, or name one that all have with --resume"));
}

TEST_F(ResumeChoices, OfAFolderOfSeveralAreRankZerosToo) {
  save(0, 2);
  const auto chosen = choose(disk(0));
  EXPECT_EQ(chosen.at(0), disk(0) + "/step-000002");
  EXPECT_EQ(chosen.at(1), disk(0) + "/step-000002");
}

// DeepSpeed's file `latest` names one of several: rank 0 reads it, and tells the folder.
TEST_F(ResumeChoices, OfAnotherProgramsFolderAreRankZerosToo) {
  for (const std::string tag : {"global_step2", "global_step4"}) {
    const std::string folder = disk(0) + "/" + tag;
    ::mkdir(folder.c_str(), 0700);
    std::ofstream(folder + "/mp_rank_00_model_states.pt") << "states";
  }
  std::ofstream(disk(0) + "/latest") << "global_step2\n";
  for (const std::string& path : {disk(0), disk(0) + "/global_step2"}) {
    const auto chosen = choose(path);
    EXPECT_EQ(chosen.at(0), disk(0) + "/global_step2");
    EXPECT_EQ(chosen.at(1), disk(0) + "/global_step2");
  }
  std::ofstream(disk(0) + "/latest") << "global_step6\n";
  const auto refused = choose(disk(0));
  EXPECT_EQ(refused.at(0), refused.at(1));
  EXPECT_EQ(refused.at(0),
            fmt::format("rank 0: {0}/global_step6: does not exist; {0}/latest names it", disk(0)));
}

TEST_F(ResumeChoices, RefuseAPathThatIsNotThere) {
  const auto chosen = choose("nowhere");
  EXPECT_EQ(chosen.at(0), chosen.at(1));
  EXPECT_THAT(chosen.at(0), HasSubstr("nowhere: is not there"));
}

}  // namespace
}  // namespace fullshard::testing
