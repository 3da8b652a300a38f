// SPDX-License-Identifier: Apache-2.0
#include "fullshard/stored/any_checkpoint.h"

#include <gmock/gmock.h>

#include "fullshard/checkpoint/diff_checkpoints.h"
#include "fullshard/checkpoint/verify_checkpoint.h"
#include "fullshard/formats/safetensors/safetensors_writer.h"
#include "fullshard/tensor_io/write_tensor.h"
#include "tests/formats/checkpoint_fixture.h"

namespace fullshard::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Kind {
  std::string path;
  std::string kind;
  size_t num_weights;
  size_t num_states;
};

class EveryKind : public ::testing::TestWithParam<Kind> {};

TEST_P(EveryKind, IsKnownByItsContents) {
  const stored::AnyCheckpoint opened = stored::open_any(checkpoint_fixture(GetParam().path));
  EXPECT_EQ(opened.kind, GetParam().kind);
  EXPECT_EQ(opened.weights->tensors().size(), GetParam().num_weights);
  EXPECT_EQ(opened.states.size(), GetParam().num_states);
}

TEST_P(EveryKind, IsWhole) {
  const stored::AnyCheckpoint opened = stored::open_any(checkpoint_fixture(GetParam().path));
  const checkpoint::VerifyResult result = checkpoint::verify_checkpoint(opened);
  EXPECT_EQ(result.num_tensors, static_cast<int64_t>(GetParam().num_weights) +
                                    4 * static_cast<int64_t>(GetParam().num_states));
  EXPECT_TRUE(result.not_finite.empty());
  EXPECT_EQ(result.has_sums, GetParam().kind != "weights file");
}

INSTANTIATE_TEST_SUITE_P(AnyCheckpoint, EveryKind,
                         ::testing::Values(Kind{"zero1", "DeepSpeed ZeRO-1", 8, 2},
                                           Kind{"zero2", "DeepSpeed ZeRO-2", 8, 2},
                                           Kind{"zero2_bf16/global_step2", "DeepSpeed ZeRO-2", 8,
                                                2},
                                           Kind{"zero3", "DeepSpeed ZeRO-3", 8, 2},
                                           Kind{"dcp", "torch.distributed.checkpoint", 8, 2},
                                           Kind{"accelerate", "Accelerate FSDP", 7, 2},
                                           Kind{"zero3.safetensors", "weights file", 8, 0}),
                         [](const auto& test) { return "Number" + std::to_string(test.index); });

TEST(AnyCheckpoint, ListsTiedTensorsOnce) {
  const stored::AnyCheckpoint opened = stored::open_any(checkpoint_fixture("zero2"));
  EXPECT_EQ(opened.distinct_weights().size(), 7);
  EXPECT_EQ(opened.tied.at("head.weight"), "emb.weight");
}

TEST(AnyCheckpoint, SaysThatNothingIsThere) {
  EXPECT_EQ(input_error("-", [] { stored::open_any("absent"); }), "absent: does not exist");
  EXPECT_EQ(input_error("-", [] { stored::open_any(checkpoint_fixture("dcp"), {.tag = "a"}); }),
            checkpoint_fixture("dcp") + ": has no checkpoint 'a'");
}

std::string verify_error(const std::string& folder) {
  return input_error(folder, [&] { checkpoint::verify_checkpoint(stored::open_any(folder)); });
}

// Some bytes of a zip archive mean nothing: dates, padding. Of the values every bit is noticed.
void expect_flips_are_noticed(const std::string& folder, const std::string& name, int least) {
  const FolderCopy original(folder);
  const std::string bytes = original.bytes(name);
  int noticed = 0;
  for (int i = 0; i < 24; ++i) {
    FolderCopy copy(folder);
    std::string damaged = bytes;
    const size_t at = bytes.size() * static_cast<size_t>(2 * i + 1) / 48;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << i % 8));
    write_file(copy.file(name), damaged);
    const std::string found = verify_error(copy.path());
    if (found == "no error") continue;
    EXPECT_THAT(found, HasSubstr(name));
    ++noticed;
  }
  EXPECT_GE(noticed, least) << name;
}

TEST(VerifyCheckpoint, NoticesFlippedBits) {
  const std::string deepspeed = checkpoint_fixture("zero2/global_step2");
  expect_flips_are_noticed(deepspeed, "mp_rank_00_model_states.pt", 10);
  expect_flips_are_noticed(deepspeed, "zero_pp_rank_1_mp_rank_00_optim_states.pt", 10);
}

TEST(VerifyCheckpoint, NamesTheTensorOfADamagedItem) {
  FolderCopy copy(checkpoint_fixture("dcp"));
  std::string bytes = copy.bytes("__0_0.distcp");
  // The first value of 'columns' on rank 0: 0, 1, 2 in its first row, then 5.
  const float row[] = {0, 1, 2, 5};
  const size_t at = bytes.find(std::string(reinterpret_cast<const char*>(row), sizeof row));
  ASSERT_NE(at, std::string::npos);
  bytes[at + 5] = static_cast<char>(bytes[at + 5] ^ 1);
  write_file(copy.file("__0_0.distcp"), bytes);
  EXPECT_THAT(verify_error(copy.path()),
              StartsWith("__0_0.distcp: tensor 'model.columns': entry 'archive/data/0' has the "
                         "checksum "));
}

// Values of one tensor are changed in a file of torch.save that holds several.
std::string verify_after_flip(const std::string& folder, const std::string& name) {
  FolderCopy copy(checkpoint_fixture(folder));
  std::string bytes = copy.bytes(name);
  // The bytes after the local header of the second storage.
  const size_t header = bytes.find("/data/1FB");
  EXPECT_NE(header, std::string::npos) << folder;
  bytes[header + 80] = static_cast<char>(bytes[header + 80] ^ 4);
  write_file(copy.file(name), bytes);
  return verify_error(copy.path());
}

TEST(VerifyCheckpoint, NamesTheTensorOfEveryFileThatCarriesChecksums) {
  const std::string part = "zero_pp_rank_1_mp_rank_00_optim_states.pt";
  EXPECT_THAT(
      verify_after_flip("zero2/global_step2", part),
      StartsWith(part + ": tensor 'optimizer_state_dict.base_optimizer_state.state.0.exp_avg"
                        "': entry 'zero_pp_rank_1_mp_rank_00_optim_states/data/1' has the "
                        "checksum "));
  EXPECT_THAT(
      verify_after_flip("zero3/global_step2", part),
      StartsWith(part + ": tensor 'optimizer_state_dict.optimizer_state_dict.state.0.exp_avg"
                        "': entry "));
  EXPECT_THAT(
      verify_after_flip("resumable/accelerate_full", "pytorch_model_fsdp.bin"),
      StartsWith("pytorch_model_fsdp.bin: tensor 'model.layers.0.self_attn.q_proj.weight'"));
  EXPECT_THAT(verify_after_flip("resumable/accelerate_full", "optimizer.bin"),
              StartsWith("optimizer.bin: tensor 'state.model.embed_tokens.weight.exp_avg'"));
  EXPECT_THAT(verify_after_flip("resumable/trainer", "optimizer.pt"),
              StartsWith("optimizer.pt: tensor 'state.0.exp_avg'"));
}

TEST(VerifyCheckpoint, SaysWhichFilesCarryNoChecksums) {
  const checkpoint::VerifyResult result = checkpoint::verify_checkpoint(
      stored::open_any(checkpoint_fixture("resumable/accelerate_state")));
  EXPECT_TRUE(result.has_sums);
  EXPECT_EQ(result.without_sums, (std::vector<std::string>{checkpoint_fixture(
                                     "resumable/accelerate_state/model.safetensors")}));
  EXPECT_EQ(result.num_tensors, 11 + 2 * 11);
}

TEST(VerifyCheckpoint, CountsValuesThatAreNotFinite) {
  FolderCopy copy(checkpoint_fixture("zero1/global_step2"));
  const TemporaryFolder folder;
  SafetensorsWriter writer(folder.file("a.safetensors"), {{"a", {4}, at::kFloat}});
  tensor_io::write_tensor(writer, "a", at::tensor({1.0F, INFINITY, NAN, -INFINITY}));
  writer.finish();
  const checkpoint::VerifyResult result =
      checkpoint::verify_checkpoint(stored::open_any(folder.file("a.safetensors")));
  ASSERT_EQ(result.not_finite.size(), 1);
  EXPECT_EQ(result.not_finite[0].tensor, "a");
  EXPECT_EQ(result.not_finite[0].count, 3);
}

TEST(DiffCheckpoints, FindsEqualValuesInDifferentLayouts) {
  const stored::AnyCheckpoint first = stored::open_any(checkpoint_fixture("zero2"));
  const checkpoint::CheckpointDiff same =
      checkpoint::diff_checkpoints(first, stored::open_any(checkpoint_fixture("zero3")), 1e-6);
  EXPECT_EQ(same.num_compared, 8 + 2 * 4);
  EXPECT_TRUE(same.differences.empty());
}

TEST(DiffCheckpoints, MindsNoSecondNameOfATiedTensor) {
  const stored::AnyCheckpoint tied = stored::open_any(checkpoint_fixture("zero2"));
  const stored::AnyCheckpoint single = stored::open_any(checkpoint_fixture("accelerate"));
  EXPECT_TRUE(checkpoint::diff_checkpoints(tied, single, 1e-6).differences.empty());
  EXPECT_TRUE(checkpoint::diff_checkpoints(single, tied, 1e-6).differences.empty());
}

TEST(DiffCheckpoints, SaysInWhatTwoDiffer) {
  const TemporaryFolder folder;
  const auto write = [&](const char* name,
                         const std::vector<std::pair<std::string, at::Tensor>>& all) {
    std::vector<TensorPlan> plans;
    for (const auto& [key, values] : all) {
      plans.push_back({key, values.sizes().vec(), values.scalar_type()});
    }
    SafetensorsWriter writer(folder.file(name), plans);
    for (const auto& [key, values] : all) tensor_io::write_tensor(writer, key, values);
    writer.finish();
    return stored::open_any(folder.file(name));
  };
  const auto first = write("a.safetensors", {{"gone", ramp({2})},
                                             {"same", at::tensor({1.0F, NAN, INFINITY})},
                                             {"shape", ramp({2, 3})},
                                             {"values", at::tensor({1.0F, 2.0F, NAN})}});
  const auto second = write("b.safetensors", {{"new", ramp({2})},
                                              {"same", at::tensor({1.0F, NAN, INFINITY})},
                                              {"shape", ramp({3, 2})},
                                              {"values", at::tensor({1.25F, 2.0F, 3.0F})}});
  const checkpoint::CheckpointDiff diff = checkpoint::diff_checkpoints(first, second, 0.1);
  EXPECT_EQ(diff.num_compared, 2);
  ASSERT_EQ(diff.differences.size(), 4);
  EXPECT_EQ(diff.differences[0].tensor + ": " + diff.differences[0].what,
            "gone: only in the first");
  EXPECT_EQ(diff.differences[1].tensor + ": " + diff.differences[1].what,
            "shape: shape [2, 3] and [3, 2]");
  EXPECT_EQ(diff.differences[2].tensor + ": " + diff.differences[2].what, "values: values");
  EXPECT_EQ(diff.differences[2].num_different, 2);
  EXPECT_EQ(diff.differences[2].largest, INFINITY);
  EXPECT_EQ(diff.differences[3].tensor + ": " + diff.differences[3].what,
            "new: only in the second");
  EXPECT_EQ(checkpoint::diff_checkpoints(first, second, 0.5).differences[2].num_different, 1);
}

}  // namespace
}  // namespace fullshard::testing
