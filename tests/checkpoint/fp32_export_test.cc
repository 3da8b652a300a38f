// SPDX-License-Identifier: Apache-2.0
#include "fullshard/stored/fp32_export.h"

#include <gmock/gmock.h>

#include <atomic>
#include <fstream>
#include <nlohmann/json.hpp>

#include "fullshard/base/bytes.h"
#include "fullshard/checkpoint/deepspeed_export.h"
#include "fullshard/checkpoint/diff_checkpoints.h"
#include "fullshard/checkpoint/verify_checkpoint.h"
#include "fullshard/formats/torch/torch_source.h"
#include "fullshard/formats/weights/open_weights.h"
#include "fullshard/stored/flat_checkpoint.h"
#include "fullshard/tensor_io/read_tensor.h"
#include "tests/formats/checkpoint_fixture.h"

namespace fullshard::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

class ExportEveryKind : public ::testing::TestWithParam<std::string> {
 protected:
  stored::AnyCheckpoint checkpoint_ = stored::open_any(checkpoint_fixture(GetParam()));
  TemporaryFolder folder_;
};

TEST_P(ExportEveryKind, WritesAllNamesForTorchLoad) {
  const stored::ExportResult result = stored::export_weights(checkpoint_, folder_.path());
  EXPECT_THAT(result.files, ElementsAre(folder_.file("pytorch_model.bin")));
  EXPECT_THAT(entries_of(folder_.path()), ElementsAre("pytorch_model.bin"));
  const auto written = open_weights(folder_.path());
  expect_same_tensors(*written, *checkpoint_.weights);
  for (const auto& tensor : written->tensors()) {
    EXPECT_EQ(tensor.dtype, tensor.name == "count" ? at::kLong : at::kFloat) << tensor.name;
  }
  formats::TorchFile(folder_.file("pytorch_model.bin")).check_sums("file");
}

TEST_P(ExportEveryKind, WritesTiedTensorsOnceIntoSafetensors) {
  const stored::ExportResult result =
      stored::export_weights(checkpoint_, folder_.path(), {.safetensors = true, .num_threads = 1});
  EXPECT_THAT(result.files, ElementsAre(folder_.file("model.safetensors")));
  const formats::SafetensorsFile written(folder_.file("model.safetensors"));
  EXPECT_EQ(written.find("head.weight"), nullptr);
  EXPECT_EQ(written.tensors().size(), checkpoint_.distinct_weights().size());
  for (const auto& tensor : written.tensors()) {
    const at::Tensor expected = tensor_io::read_tensor(*checkpoint_.weights, tensor.name);
    EXPECT_TRUE(
        tensor_io::read_tensor(written, tensor.name).to(expected.scalar_type()).equal(expected));
  }
}

INSTANTIATE_TEST_SUITE_P(Fp32Export, ExportEveryKind,
                         ::testing::Values("zero1", "zero2_bf16", "zero3", "dcp", "accelerate"),
                         [](const auto& test) { return test.param; });

TEST(Fp32Export, SplitsIntoFilesWithAnIndex) {
  const stored::AnyCheckpoint checkpoint = stored::open_any(checkpoint_fixture("zero3"));
  const TemporaryFolder folder;
  const stored::ExportResult result =
      stored::export_weights(checkpoint, folder.path(), {.max_file_bytes = 160});
  EXPECT_EQ(result.bytes, 4 * (35 + 33 + 15 + 1 + 12 + 3) + 8);
  EXPECT_THAT(
      entries_of(folder.path()),
      UnorderedElementsAre("pytorch_model-00001-of-00003.bin", "pytorch_model-00002-of-00003.bin",
                           "pytorch_model-00003-of-00003.bin", "pytorch_model.bin.index.json"));
  const auto index = nlohmann::json::parse(read_file(folder.file("pytorch_model.bin.index.json")));
  EXPECT_EQ(index["weight_map"]["head.weight"], index["weight_map"]["emb.weight"]);
  expect_same_tensors(*open_weights(folder.path()), *checkpoint.weights);
  // One file takes the place of several.
  stored::export_weights(checkpoint, folder.path());
  EXPECT_THAT(entries_of(folder.path()), ElementsAre("pytorch_model.bin"));
}

TEST(Fp32Export, TakesAFileAndTheFormOfItsEnding) {
  const stored::AnyCheckpoint checkpoint = stored::open_any(checkpoint_fixture("zero2"));
  const TemporaryFolder folder;
  stored::export_weights(checkpoint, folder.file("a.safetensors"), {.max_file_bytes = 10});
  stored::export_weights(checkpoint, folder.file("b.bin"), {.safetensors = true});
  EXPECT_EQ(formats::SafetensorsFile(folder.file("a.safetensors")).tensors().size(), 7);
  EXPECT_EQ(formats::TorchSource(folder.file("b.bin")).tensors().size(), 8);
  EXPECT_THAT(entries_of(folder.path()), UnorderedElementsAre("a.safetensors", "b.bin"));
}

TEST(Fp32Export, CastsOrKeepsFloatingTensorsOnly) {
  const stored::AnyCheckpoint checkpoint = stored::open_any(checkpoint_fixture("zero2_bf16"));
  const TemporaryFolder folder;
  stored::export_weights(checkpoint, folder.file("half.safetensors"), {.dtype = at::kHalf});
  stored::export_weights(checkpoint, folder.file("kept.safetensors"), {.dtype = std::nullopt});
  const formats::SafetensorsFile half(folder.file("half.safetensors"));
  const formats::SafetensorsFile kept(folder.file("kept.safetensors"));
  EXPECT_EQ(half.find("emb.weight")->dtype, at::kHalf);
  EXPECT_EQ(half.find("count")->dtype, at::kLong);
  EXPECT_EQ(kept.find("emb.weight")->dtype, at::kFloat);
  EXPECT_EQ(kept.find("frozen.weight")->dtype, at::kBFloat16);
}

// Element i is i modulo 65,536; and how many bytes were being read at one time.
class LargeSource : public TensorSource {
 public:
  explicit LargeSource(int64_t numel) {
    for (const auto* name : {"a", "b", "c"}) tensors_.push_back({name, {numel}, at::kFloat, "f"});
  }
  const std::vector<StoredTensor>& tensors() const override { return tensors_; }
  void read(const std::string&, int64_t begin, ElementSpan out) const override {
    largest_ = std::max(largest_.load(), out.bytes());
    auto* values = static_cast<float*>(out.data);
    for (int64_t i = 0; i < out.numel; ++i) values[i] = static_cast<float>((begin + i) & 0xFFFF);
  }
  int64_t largest() const { return largest_; }

 private:
  std::vector<StoredTensor> tensors_;
  mutable std::atomic<int64_t> largest_ = 0;
};

int64_t peak_resident_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::stoll(line.substr(6)) * kKiB;
  }
  return -1;
}

TEST(Fp32Export, HoldsBlocksAndNeverATensor) {
  constexpr int64_t kNumel = 8 << 20;  // 32 MiB each
  auto source = std::make_unique<LargeSource>(kNumel);
  const LargeSource& watched = *source;
  stored::AnyCheckpoint checkpoint{.kind = "test", .path = "test", .weights = std::move(source)};
  const TemporaryFolder folder;
  std::ofstream("/proc/self/clear_refs") << 5;  // the peak begins anew
  const int64_t before = peak_resident_bytes();
  const stored::ExportResult result = stored::export_weights(checkpoint, folder.file("a.bin"));
  EXPECT_LE(watched.largest(), 4 * kMiB);
  EXPECT_EQ(result.block_bytes, 4 * 4 * kMiB);
  EXPECT_EQ(result.bytes, 3 * kNumel * 4);
  EXPECT_LE(peak_resident_bytes() - before, 64 * kMiB);
  const at::Tensor part = at::empty({2});
  formats::TorchSource(folder.file("a.bin")).read("c", kMiB - 1, part);
  EXPECT_TRUE(part.equal(at::tensor({65535.0F, 0.0F})));
  formats::TorchFile(folder.file("a.bin")).check_sums("file");
}

TEST(FlatCheckpoint, HasTheNamesThatTorchGives) {
  const stored::AnyCheckpoint checkpoint = stored::open_any(checkpoint_fixture("zero3"));
  const stored::AnyCheckpoint flat = stored::flatten(checkpoint);
  EXPECT_EQ(flat.weights->tensors().size(), 8 + (2 + 1) * 4);
  expect_equal(tensor_io::read_tensor(*flat.weights, "model.head.weight"),
               tensor_io::read_tensor(*checkpoint.weights, "emb.weight"));
  expect_equal(tensor_io::read_tensor(*flat.weights, "optim.state.last.weight.exp_avg_sq"),
               tensor_io::read_tensor(*checkpoint.states[1].tensors, "last.weight"));
  const at::Tensor part = at::empty({1});
  EXPECT_EQ(input_error("-", [&] { flat.weights->read("model.x", 0, part); }),
            checkpoint.path + ": has no tensor 'model.x' among its 20");
  // Counted for each parameter, as torch does, and exact in whatever dtype the rest is written.
  const at::Tensor steps = at::empty({1});
  flat.weights->read("optim.state.last.weight.step", 0, steps);
  EXPECT_EQ(steps.item<float>(), 2);
  EXPECT_TRUE(flat.exact.contains("optim.state.last.weight.step"));
}

class DeepSpeedExport : public ::testing::TestWithParam<std::string> {};

TEST_P(DeepSpeedExport, IsReadAsDeepSpeedsOwn) {
  const stored::AnyCheckpoint checkpoint = stored::open_any(checkpoint_fixture(GetParam()));
  const TemporaryFolder folder;
  const auto files = checkpoint::export_deepspeed(checkpoint, folder.path(), "global_step2");
  EXPECT_EQ(read_file(folder.file("latest")), "global_step2");
  const stored::AnyCheckpoint written = stored::open_any(folder.path());
  EXPECT_EQ(written.kind, "DeepSpeed ZeRO-2");
  EXPECT_EQ(written.tied, checkpoint.tied);
  expect_same_tensors(*written.weights, *checkpoint.weights);
  EXPECT_TRUE(checkpoint::diff_checkpoints(written, checkpoint, 0).differences.empty());
  EXPECT_EQ(checkpoint::verify_checkpoint(written).num_tensors,
            checkpoint::verify_checkpoint(checkpoint).num_tensors);
  EXPECT_NE(
      input_error("-",
                  [&] { checkpoint::export_deepspeed(checkpoint, folder.path(), "global_step2"); }),
      "no error");
  for (const auto& file : files) ::unlink(file.c_str());
  ::rmdir(folder.file("global_step2").c_str());
}

// What is there under the tag stays until all of the new one is written.
TEST(Fp32Export, OfDeepSpeedGetsItsNameWhenItIsComplete) {
  FolderCopy copy(checkpoint_fixture("dcp"));
  const stored::AnyCheckpoint checkpoint = stored::open_any(copy.path());
  const TemporaryFolder folder;
  ::mkdir(folder.file("tag.part").c_str(), 0755);  // of a command that was killed
  write_file(folder.file("tag.part") + "/mp_rank_00_model_states.pt", "half");
  checkpoint::export_deepspeed(checkpoint, folder.path(), "tag");
  EXPECT_THAT(entries_of(folder.path()), UnorderedElementsAre("tag", "latest"));
  const std::string model = folder.file("tag") + "/mp_rank_00_model_states.pt";
  const std::string whole = read_file(model);
  write_file(model, "older");
  const stored::AnyCheckpoint opened = stored::open_any(copy.path());
  const std::string item = copy.bytes("__1_0.distcp");
  copy.truncate("__1_0.distcp", 100);
  EXPECT_NE(input_error("-",
                        [&] {
                          checkpoint::export_deepspeed(opened, folder.path(), "tag",
                                                       /*overwrites=*/true);
                        }),
            "no error");
  EXPECT_EQ(read_file(model), "older");
  EXPECT_THAT(entries_of(folder.path()), UnorderedElementsAre("tag", "latest"));
  write_file(copy.file("__1_0.distcp"), item);
  checkpoint::export_deepspeed(stored::open_any(copy.path()), folder.path(), "tag",
                               /*overwrites=*/true);
  EXPECT_EQ(read_file(model), whole);
  EXPECT_THAT(entries_of(folder.path()), UnorderedElementsAre("tag", "latest"));
  for (const auto& name : entries_of(folder.file("tag"))) {
    ::unlink((folder.file("tag") + "/" + name).c_str());
  }
  ::rmdir(folder.file("tag").c_str());
}

INSTANTIATE_TEST_SUITE_P(Fp32Export, DeepSpeedExport,
                         ::testing::Values("zero1", "zero2_bf16", "zero3", "dcp", "accelerate"),
                         [](const auto& test) { return test.param; });

TEST(Fp32Export, LeavesNothingBehindWhenReadingFails) {
  FolderCopy copy(checkpoint_fixture("dcp"));
  const stored::AnyCheckpoint checkpoint = stored::open_any(copy.path());
  copy.truncate("__1_0.distcp", 100);
  const TemporaryFolder folder;
  EXPECT_NE(input_error("-", [&] { stored::export_weights(checkpoint, folder.path()); }),
            "no error");
  EXPECT_TRUE(entries_of(folder.path()).empty());
  // Nor folders that were made for it.
  for (const std::string out : {"a", "a/b/c", "a/b.bin"}) {
    EXPECT_NE(input_error("-", [&] { stored::export_weights(checkpoint, folder.file(out)); }),
              "no error");
    EXPECT_TRUE(entries_of(folder.path()).empty()) << out;
  }
  EXPECT_NE(input_error(
                "-", [&] { checkpoint::export_deepspeed(checkpoint, folder.file("ds"), "step"); }),
            "no error");
  EXPECT_TRUE(entries_of(folder.path()).empty());
}

TEST(Fp32Export, ReplacesNothingThatItMustNot) {
  const stored::AnyCheckpoint checkpoint = stored::open_any(checkpoint_fixture("zero3"));
  const TemporaryFolder folder;
  const auto refusal = [&](const std::string& out) {
    return error_of_kind(ErrorKind::usage, folder.path(),
                         [&] { stored::export_weights(checkpoint, out, {.overwrites = false}); });
  };
  write_file(folder.file("a.bin"), "mine");
  EXPECT_EQ(refusal(folder.file("a.bin")), "a.bin: exists; name another place, or add --overwrite");
  EXPECT_THAT(refusal(folder.path()), HasSubstr("exists and is not empty; name another place"));
  EXPECT_THAT(entries_of(folder.path()), ElementsAre("a.bin"));
  EXPECT_EQ(read_file(folder.file("a.bin")), "mine");
  ::unlink(folder.file("a.bin").c_str());
  // What a command that was killed has left is not in the way.
  write_file(folder.file("pytorch_model.bin.part"), "half");
  EXPECT_EQ(refusal(folder.path()), "no error");
  EXPECT_THAT(entries_of(folder.path()), ElementsAre("pytorch_model.bin"));
}

}  // namespace
}  // namespace fullshard::testing
