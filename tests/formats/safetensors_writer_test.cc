// SPDX-License-Identifier: Apache-2.0
#include "fullshard/formats/safetensors/safetensors_writer.h"

#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <csignal>

#include "fullshard/formats/safetensors/safetensors_file.h"
#include "fullshard/formats/weights/split_files.h"
#include "fullshard/tensor_io/read_tensor.h"
#include "fullshard/tensor_io/write_tensor.h"
#include "tests/formats/fixture.h"

namespace fullshard::testing {
namespace {

std::vector<TensorPlan> plan_of(const std::vector<Expected>& tensors) {
  std::vector<TensorPlan> plan;
  for (const auto& [name, values] : tensors) {
    plan.push_back({name, values.sizes().vec(), values.scalar_type()});
  }
  return plan;
}

TEST(SafetensorsWriter, WritesTheBytesOfThePackage) {
  const TemporaryFolder folder;
  const auto tensors = expected_tensors();
  SafetensorsWriter writer(folder.file("f"), plan_of(tensors));
  for (const auto& [name, values] : tensors) tensor_io::write_tensor(writer, name, values);
  EXPECT_EQ(entries_of(folder.path()), std::vector<std::string>{"f.part"});
  writer.finish();
  EXPECT_EQ(entries_of(folder.path()), std::vector<std::string>{"f"});
  EXPECT_EQ(read_file(folder.file("f")), read_file(fixture("written.safetensors")));
}

TEST(SafetensorsWriter, CastsTransposesAndTakesRangesInAnyOrder) {
  const TemporaryFolder folder;
  const at::Tensor wide = at::arange(1100 * 700).remainder(509).reshape({700, 1100}).to(at::kFloat);
  const at::Tensor deep = at::arange(3 * 1000 * 1000).remainder(101).reshape({1000, 3, 1000});
  SafetensorsWriter writer(folder.file("f"), {{"wide", {1100, 700}, at::kBFloat16},
                                              {"deep", {3, 1000, 1000}, at::kInt},
                                              {"ranges", {10}, at::kHalf},
                                              {"parameter", {2}, at::kFloat}});
  writer.write_range("ranges", 7, ramp({3}));
  tensor_io::write_tensor(writer, "wide", wide.t());
  tensor_io::write_tensor(writer, "deep", deep.transpose(0, 1));
  writer.write_range("ranges", 0, ramp({7}));
  writer.write_range("ranges", 5, ramp({0}));
  tensor_io::write_tensor(writer, "parameter",
                          at::ones({2}, at::TensorOptions().requires_grad(true)));
  writer.finish();
  const formats::SafetensorsFile file(folder.file("f"));
  EXPECT_TRUE(tensor_io::read_tensor(file, "wide").equal(wide.t().to(at::kBFloat16)));
  EXPECT_TRUE(tensor_io::read_tensor(file, "deep").equal(deep.transpose(0, 1).to(at::kInt)));
  EXPECT_TRUE(
      tensor_io::read_tensor(file, "ranges").equal(at::cat({ramp({7}), ramp({3})}).to(at::kHalf)));
  EXPECT_TRUE(tensor_io::read_tensor(file, "parameter").equal(at::ones({2})));
}

TEST(SafetensorsWriter, NamesWhatDoesNotFitThePlan) {
  const TemporaryFolder folder;
  SafetensorsWriter writer(folder.file("f"), {{"a", {2, 3}, at::kFloat}, {"b", {4}, at::kFloat}});
  const auto error = [&](const std::function<void()>& action) {
    return input_error(folder.path(), action);
  };
  EXPECT_EQ(error([&] { tensor_io::write_tensor(writer, "c", ramp({1})); }),
            "f: tensor 'c' was not planned");
  EXPECT_EQ(error([&] {
              tensor_io::write_tensor(writer, "a", ramp({3, 2}));
            }),
            "f: tensor 'a' has shape [3, 2], expected [2, 3]");
  EXPECT_EQ(error([&] { writer.write_range("a", 5, ramp({2})); }),
            "f: tensor 'a' has 6 elements, 2 from 5 on were given");
  writer.write_range("a", 1, ramp({4}));
  EXPECT_EQ(error([&] { writer.write_range("a", 4, ramp({2})); }),
            "f: tensor 'a': elements 4 to 6 were already written");
  EXPECT_EQ(error([&] { writer.write_range("a", 0, ramp({2})); }),
            "f: tensor 'a': elements 0 to 2 were already written");
  EXPECT_EQ(error([&] { writer.finish(); }), "f: 2 tensors were not written completely: 'a', 'b'");
  tensor_io::write_tensor(writer, "b", ramp({4}));
  writer.write_range("a", 0, ramp({1}));
  writer.write_range("a", 5, ramp({1}));
  writer.finish();
  EXPECT_EQ(error([&] { writer.finish(); }), "f: is already finished");
  EXPECT_EQ(error([&] { tensor_io::write_tensor(writer, "b", ramp({4})); }),
            "f: tensor 'b' is written after finish()");
}

TEST(SafetensorsWriter, RefusesPlansThatAreNoFile) {
  const TemporaryFolder folder;
  const auto error = [&](std::vector<TensorPlan> plan) {
    return input_error(folder.path(), [&] { SafetensorsWriter(folder.file("f"), plan); });
  };
  EXPECT_EQ(error({{"a", {1}, at::kFloat}, {"a", {1}, at::kHalf}}),
            "f: tensor 'a' is planned twice");
  EXPECT_EQ(error({{"a", {-1}, at::kFloat}}), "f: tensor 'a': its shape [-1] is impossible");
  EXPECT_EQ(error({{"a", {1}, at::ScalarType::ComplexFloat}}),
            "f: tensor 'a': unsupported dtype ComplexFloat");
  EXPECT_EQ(error({{"__metadata__", {1}, at::kFloat}}),
            "f: tensor '__metadata__': this name is reserved by the format");
  EXPECT_EQ(error({{"\xff", {1}, at::kFloat}}), "f: a tensor has a name that is not UTF-8");
  const auto too_large = [&] {
    SafetensorsWriter(folder.file("f"), {{"a", {int64_t{1} << 50}, at::kFloat}});
  };
  EXPECT_THAT(error_of_kind(ErrorKind::failed, folder.path(), too_large),
              ::testing::MatchesRegex("f: needs .*iB on disk, .* are free there"));
  EXPECT_TRUE(entries_of(folder.path()).empty());
}

TEST(SafetensorsWriter, LeavesNothingUntilItIsFinished) {
  const TemporaryFolder folder;
  write_file(folder.file("f"), "the file of before");
  {
    SafetensorsWriter writer(folder.file("f"), {{"a", {2}, at::kFloat}});
    EXPECT_EQ(input_error(folder.path(),
                          [&] {
                            SafetensorsWriter(folder.file("f"), {{"a", {2}, at::kFloat}});
                          }),
              "f.part: already exists; remove it unless another program is still writing it");
    EXPECT_TRUE(file_exists(folder.file("f.part")));
  }
  EXPECT_EQ(entries_of(folder.path()), std::vector<std::string>{"f"});
  EXPECT_EQ(read_file(folder.file("f")), "the file of before");
  EXPECT_EQ(input_error(folder.path(),
                        [&] {
                          SafetensorsWriter(folder.file("no/f"), {{"a", {2}, at::kFloat}});
                        }),
            "no/f.part: cannot be created: No such file or directory");
}

// In a process of its own: the limit on the size of files holds for all of a process.
TEST(SafetensorsWriter, LeavesNothingOnAFullDisk) {
  const TemporaryFolder folder;
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{4096, 4096};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    std::string text = "no error";
    try {
      SafetensorsWriter writer(folder.file("f"), {{"a", {3000}, at::kFloat}});
      tensor_io::write_tensor(writer, "a", ramp({3000}));
    } catch (const Error& error) {
      text = std::string(error.what()).substr(folder.path().size() + 1);
    }
    write_file(folder.file("said"), text);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(
      read_file(folder.file("said")),
      "f.part: cannot be written at byte 4096: File too large; the whole file needs 11.8 KiB");
  EXPECT_EQ(entries_of(folder.path()), std::vector<std::string>{"said"});
}

std::vector<TensorPlan> parts_plan() {
  std::vector<TensorPlan> plan;
  for (const auto* layer : {"layer.0", "layer.1", "layer.2"}) {
    plan.push_back({std::string(layer) + ".weight", {4, 5}, at::kFloat});
    plan.push_back({std::string(layer) + ".bias", {4}, at::kFloat});
  }
  plan.push_back({"head", {40}, at::kFloat});
  return plan;
}

TEST(SplitFiles, SplitsAsHuggingfaceHubDoes) {
  const TemporaryFolder folder;
  const formats::SplitFiles split = formats::split_into_files(parts_plan(), 120);
  ASSERT_EQ(split.files.size(), 4);
  for (const auto& file : split.files) {
    SafetensorsWriter writer(folder.file(file.name), file.tensors);
    for (const auto& tensor : file.tensors)
      tensor_io::write_tensor(writer, tensor.name, ramp(tensor.shape));
    writer.finish();
    EXPECT_EQ(read_file(folder.file(file.name)), read_file(fixture("split/" + file.name)));
  }
  EXPECT_EQ(split.index_json(), R"({
  "metadata": {
    "total_parameters": 112,
    "total_size": 448
  },
  "weight_map": {
    "head": "model-00003-of-00004.safetensors",
    "layer.0.bias": "model-00001-of-00004.safetensors",
    "layer.0.weight": "model-00001-of-00004.safetensors",
    "layer.1.bias": "model-00002-of-00004.safetensors",
    "layer.1.weight": "model-00002-of-00004.safetensors",
    "layer.2.bias": "model-00004-of-00004.safetensors",
    "layer.2.weight": "model-00004-of-00004.safetensors"
  }
}
)");
}

TEST(SplitFiles, NeedsNoIndexForOneFile) {
  const formats::SplitFiles split = formats::split_into_files(parts_plan(), 448);
  ASSERT_EQ(split.files.size(), 1);
  EXPECT_EQ(split.files[0].name, "model.safetensors");
  EXPECT_EQ(split.files[0].tensors.size(), 7);
  EXPECT_FALSE(split.needs_index());
  EXPECT_EQ(formats::split_into_files(parts_plan(), 447).files.size(), 2);
  EXPECT_EQ(formats::split_into_files({}, 1).files.size(), 1);
}

}  // namespace
}  // namespace fullshard::testing
