// SPDX-License-Identifier: Apache-2.0
#include "fullshard/formats/foreign/deepspeed_folder.h"

#include <gmock/gmock.h>

#include "fullshard/formats/weights/open_weights.h"
#include "fullshard/tensor_io/read_tensor.h"
#include "tests/formats/checkpoint_fixture.h"

namespace fullshard::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::string kZero2 = "zero2/global_step2";
const std::string kRank0 = "zero_pp_rank_0_mp_rank_00_optim_states.pt";
const std::string kRank1 = "zero_pp_rank_1_mp_rank_00_optim_states.pt";
const std::string kModel = "mp_rank_00_model_states.pt";

std::string deepspeed_error_of(const FolderCopy& copy) {
  return input_error(copy.path(), [&] {
    const formats::DeepSpeedFolder folder(copy.path());
    folder.weights();
    for (const auto& name : folder.states()) folder.state(name);
  });
}

void exchange(FolderCopy& copy, const std::string& one, const std::string& other) {
  copy.move(one, "kept");
  copy.move(other, one);
  copy.move("kept", other);
}

// As if the file, which another name was given to, had been saved under that name.
void save_under_own_name(const FolderCopy& copy, const std::string& name, const std::string& old) {
  const std::string from = old.substr(0, old.size() - 3), to = name.substr(0, name.size() - 3);
  std::string bytes = copy.bytes(name);
  for (size_t at = bytes.find(from + "/"); at != std::string::npos; at = bytes.find(from + "/")) {
    bytes.replace(at, from.size(), to);
  }
  write_file(copy.file(name), bytes);
}

struct Fixture {
  std::string name;
  int stage;
  int num_ranks;
};

class EveryStage : public ::testing::TestWithParam<Fixture> {};

// The expectation is what DeepSpeed's own zero_to_fp32 made. Of stage 1 it loses frozen parameters.
TEST_P(EveryStage, GivesTheWeightsThatZeroToFp32Gives) {
  const formats::DeepSpeedFolder folder(checkpoint_fixture(GetParam().name));
  EXPECT_EQ(folder.stage(), GetParam().stage);
  EXPECT_EQ(folder.num_ranks(), GetParam().num_ranks);
  EXPECT_EQ(folder.num_steps(), 2);
  EXPECT_EQ(folder.tag(), "global_step2");
  EXPECT_EQ(folder.version(), "0.19.8");
  const formats::SafetensorsFile expected(checkpoint_fixture(GetParam().name + ".safetensors"));
  expect_same_tensors(*folder.weights(folder.stage() != 1), expected);
  expect_same_tensors(*open_weights(checkpoint_fixture(GetParam().name)), *folder.weights());
}

TEST_P(EveryStage, HasFrozenParametersAndBuffers) {
  const formats::DeepSpeedFolder folder(checkpoint_fixture(GetParam().name));
  const formats::SafetensorsFile plain(checkpoint_fixture("trained.safetensors"));
  const auto weights = folder.weights();
  for (const auto* name : {"frozen.weight", "scale", "count"}) {
    SCOPED_TRACE(name);
    const at::Tensor expected = tensor_io::read_tensor(plain, std::string("weights.") + name);
    EXPECT_TRUE(tensor_io::read_tensor(*weights, name).to(expected.scalar_type()).equal(expected));
  }
  EXPECT_EQ(folder.weights(false)->find("frozen.weight"), nullptr);
}

TEST_P(EveryStage, GivesTheStatesOfTheOptimizer) {
  const formats::DeepSpeedFolder folder(checkpoint_fixture(GetParam().name));
  const formats::SafetensorsFile plain(checkpoint_fixture("trained.safetensors"));
  ASSERT_THAT(folder.states(), ElementsAre("exp_avg", "exp_avg_sq"));
  for (const auto& state : folder.states()) {
    const auto source = folder.state(state);
    EXPECT_EQ(source->tensors().size(), 4);
    for (const auto& tensor : source->tensors()) {
      SCOPED_TRACE(tensor.name);
      const at::Tensor expected = tensor_io::read_tensor(plain, state + "." + tensor.name);
      EXPECT_TRUE(tensor_io::read_tensor(*source, tensor.name).allclose(expected, 1e-6, 1e-9));
    }
  }
}

TEST_P(EveryStage, ReadsAnyRangeOfATiedParameter) {
  const formats::DeepSpeedFolder folder(checkpoint_fixture(GetParam().name));
  const auto weights = folder.weights();
  EXPECT_THAT(folder.tied(), ElementsAre(std::pair("head.weight", "emb.weight")));
  const at::Tensor whole = tensor_io::read_tensor(*weights, "emb.weight").view(-1);
  for (int64_t begin = 0; begin <= whole.numel(); ++begin) {
    for (int64_t end = begin; end <= whole.numel(); ++end) {
      const at::Tensor part = at::empty({end - begin});
      weights->read("head.weight", begin, part);
      ASSERT_TRUE(part.equal(whole.slice(0, begin, end))) << begin << ' ' << end;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(DeepSpeed, EveryStage,
                         ::testing::Values(Fixture{"zero1", 1, 2}, Fixture{"zero2", 2, 2},
                                           Fixture{"zero2_bf16", 2, 2}, Fixture{"zero3", 3, 3}),
                         [](const auto& which) { return which.param.name; });

TEST(DeepSpeedFolder, TakesTheTagThatIsAskedFor) {
  EXPECT_EQ(formats::DeepSpeedFolder(checkpoint_fixture("zero2"), "global_step2").num_steps(), 2);
  EXPECT_EQ(
      input_error(checkpoint_fixture("zero2"),
                  [] { formats::DeepSpeedFolder(checkpoint_fixture("zero2"), "global_step3"); }),
      "global_step3: does not exist");
  EXPECT_EQ(input_error(checkpoint_fixture("x"),
                        [] { formats::DeepSpeedFolder(checkpoint_fixture("zero2"), "../zero1"); }),
            checkpoint_fixture("zero2") + ": invalid tag '../zero1'");
}

TEST(DeepSpeedFolder, FollowsLatestOnlyInsideTheFolder) {
  const TemporaryFolder folder;
  write_file(folder.file("latest"), "../../etc");
  EXPECT_EQ(input_error(folder.path(), [&] { formats::DeepSpeedFolder{folder.path()}; }),
            "latest: holds '../../etc', expected the name of a folder next to it");
  write_file(folder.file("latest"), "global_step7\n");
  EXPECT_EQ(input_error(folder.path(), [&] { formats::DeepSpeedFolder{folder.path()}; }),
            "global_step7: does not exist; latest names it");
}

TEST(DeepSpeedFolder, NamesMissingFiles) {
  FolderCopy copy(checkpoint_fixture(kZero2));
  copy.remove(kRank0);
  EXPECT_EQ(deepspeed_error_of(copy),
            copy.path() + ": the optimizer file of rank 0 is missing, rank 1 has one");
  copy.move(kRank1, kRank0);
  EXPECT_EQ(deepspeed_error_of(copy),
            kRank0 + ": was saved as " + kRank1 +
                "; files of two ranks were exchanged or renamed: copy the checkpoint again");
  save_under_own_name(copy, kRank0, kRank1);
  EXPECT_EQ(deepspeed_error_of(copy),
            kRank0 +
                ": optimizer_state_dict: partition_count says 2 ranks, there are 1 "
                "*_optim_states.pt; some were not copied, or belong to another checkpoint");
  copy.remove(kModel);
  EXPECT_EQ(deepspeed_error_of(copy), copy.path() + ": has no *_model_states.pt");
}

TEST(DeepSpeedFolder, RefusesTwoFilesOfOneRank) {
  FolderCopy copy(checkpoint_fixture(kZero2));
  write_file(copy.file("bf16_" + kRank0), copy.bytes(kRank0));
  EXPECT_EQ(deepspeed_error_of(copy), copy.path() + ": has two files of rank 0: bf16_" + kRank0 +
                                          " and " + kRank0 + "; one belongs to another checkpoint");
}

TEST(DeepSpeedFolder, NoticesExchangedFiles) {
  FolderCopy copy(checkpoint_fixture("zero1/global_step2"));
  exchange(copy, kRank0, kRank1);
  save_under_own_name(copy, kRank0, kRank1);
  save_under_own_name(copy, kRank1, kRank0);
  EXPECT_EQ(deepspeed_error_of(copy),
            kRank0 +
                ": optimizer_state_dict: records 1 elements of 'emb.weight' from its element 0 on, "
                "expected 34 from 0 on; files of two ranks or checkpoints were exchanged");
}

// Of stage 3 all shapes are alike, and every checksum is right.
TEST(DeepSpeedFolder, NoticesExchangedFilesByTheNamesTheyWereSavedUnder) {
  for (const std::string kind : {"optim", "model"}) {
    const auto file_of = [&](int rank) {
      return "zero_pp_rank_" + std::to_string(rank) + "_mp_rank_00_" + kind + "_states.pt";
    };
    FolderCopy copy(checkpoint_fixture("zero3/global_step2"));
    exchange(copy, file_of(0), file_of(1));
    EXPECT_EQ(deepspeed_error_of(copy),
              file_of(0) + ": was saved as " + file_of(1) +
                  "; files of two ranks were exchanged or renamed: copy the checkpoint again");
    exchange(copy, file_of(0), file_of(1));
    EXPECT_EQ(deepspeed_error_of(copy), "no error");
  }
}

TEST(DeepSpeedFolder, RefusesFilesOfAnotherModelOrStage) {
  FolderCopy copy(checkpoint_fixture("zero3/global_step2"));
  write_file(copy.file(kRank1), read_file(checkpoint_fixture(kZero2 + "/" + kRank1)));
  EXPECT_EQ(deepspeed_error_of(copy),
            kRank1 + ": optimizer_state_dict: zero_stage is 2, rank 0 has 3");
  FolderCopy shapes(checkpoint_fixture("zero1/global_step2"));
  // The shape (3, 11) becomes (3, 12).
  shapes.replace_last(kModel, std::string("K\x03K\x0b"), std::string("K\x03K\x0c"));
  EXPECT_EQ(deepspeed_error_of(shapes), shapes.path() +
                                            ": group 0 has 68 elements in all files, its "
                                            "parameters have 71; the files belong to two models");
}

TEST(DeepSpeedFolder, RefusesModelParallelFiles) {
  FolderCopy copy(checkpoint_fixture(kZero2));
  write_file(copy.file("mp_rank_01_model_states.pt"), "");
  EXPECT_EQ(deepspeed_error_of(copy),
            "mp_rank_01_model_states.pt: belongs to a model-parallel or mixture-of-experts run, "
            "which is not supported");
}

TEST(DeepSpeedFolder, EndsInAnErrorWhereverAFileIsCut) {
  for (const auto& name : {kRank0, kModel}) {
    FolderCopy copy(checkpoint_fixture(kZero2));
    const size_t bytes = copy.bytes(name).size();
    for (size_t left = 0; left < bytes; left += 509) {
      FolderCopy cut(checkpoint_fixture(kZero2));
      cut.truncate(name, left);
      EXPECT_THAT(deepspeed_error_of(cut), StartsWith(name)) << left;
    }
  }
}

}  // namespace
}  // namespace fullshard::testing
