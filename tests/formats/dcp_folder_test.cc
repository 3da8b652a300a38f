// SPDX-License-Identifier: Apache-2.0
#include "fullshard/formats/foreign/dcp_folder.h"

#include <gmock/gmock.h>

#include "fullshard/formats/box_runs.h"
#include "fullshard/formats/weights/open_weights.h"
#include "fullshard/tensor_io/read_tensor.h"
#include "tests/formats/checkpoint_fixture.h"

namespace fullshard::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string dcp_error_of(const FolderCopy& copy) {
  return input_error(copy.path(), [&] {
    const auto weights = formats::DcpFolder(copy.path()).weights();
    for (const auto& tensor : weights->tensors()) tensor_io::read_tensor(*weights, tensor.name);
  });
}

void expect_trained(const TensorSource& weights) {
  const formats::SafetensorsFile plain(checkpoint_fixture("trained.safetensors"));
  for (const auto* name : {"emb.weight", "wide.weight", "frozen.weight", "bias.weight",
                           "last.weight", "scale", "count"}) {
    SCOPED_TRACE(name);
    ASSERT_NE(weights.find(name), nullptr);
    const at::Tensor found = tensor_io::read_tensor(weights, name);
    const at::Tensor expected = tensor_io::read_tensor(plain, std::string("weights.") + name);
    EXPECT_EQ(found.sizes(), expected.sizes());
    EXPECT_EQ(found.scalar_type(), expected.scalar_type());
    EXPECT_TRUE(found.allclose(expected, 1e-6, 1e-7));
  }
}

TEST(DcpFolder, ReadsTheWeightsUnderTheirOwnNames) {
  const auto weights = formats::DcpFolder(checkpoint_fixture("dcp")).weights();
  EXPECT_EQ(weights->tensors().size(), 8);
  expect_trained(*weights);
  expect_trained(*open_weights(checkpoint_fixture("dcp")));
}

TEST(DcpFolder, ReadsAnyRangeOfATensorCutInItsLastDimension) {
  const auto weights = formats::DcpFolder(checkpoint_fixture("dcp")).weights();
  const at::Tensor whole = at::arange(30, at::kFloat);
  EXPECT_EQ(weights->find("columns")->shape, (std::vector<int64_t>{2, 3, 5}));
  for (int64_t begin = 0; begin <= 30; ++begin) {
    for (int64_t end = begin; end <= 30; ++end) {
      const at::Tensor part = at::empty({end - begin});
      weights->read("columns", begin, part);
      ASSERT_TRUE(part.equal(whole.slice(0, begin, end))) << begin << ' ' << end;
    }
  }
  const at::Tensor doubles = at::empty({30}, at::kDouble);
  weights->read("columns", 0, doubles);
  EXPECT_TRUE(doubles.equal(whole.to(at::kDouble)));
}

TEST(DcpFolder, GivesTheStatesOfTheOptimizer) {
  const formats::SafetensorsFile plain(checkpoint_fixture("trained.safetensors"));
  for (const auto* name : {"dcp", "accelerate/optimizer_0"}) {
    const formats::DcpFolder folder(checkpoint_fixture(name));
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
}

TEST(DcpFolder, OpensWhatAccelerateSaved) {
  expect_trained(*open_weights(checkpoint_fixture("accelerate")));
  EXPECT_FALSE(formats::DcpFolder(checkpoint_fixture("accelerate/optimizer_0")).has_weights());
  EXPECT_EQ(input_error("-", [] { open_weights(checkpoint_fixture("accelerate/optimizer_0")); }),
            checkpoint_fixture("accelerate/optimizer_0") +
                ": holds the state of an optimizer and no weights");
}

TEST(DcpFolder, NamesWhatAFileLacks) {
  FolderCopy copy(checkpoint_fixture("dcp"));
  copy.truncate("__1_0.distcp", 1000);
  EXPECT_THAT(dcp_error_of(copy), HasSubstr("of __1_0.distcp, which has 1000; the file is "
                                            "truncated, or belongs to another checkpoint"));
  copy.remove("__1_0.distcp");
  EXPECT_THAT(dcp_error_of(copy), HasSubstr("__1_0.distcp, which does not exist"));
}

TEST(DcpFolder, NoticesExchangedFiles) {
  FolderCopy copy(checkpoint_fixture("dcp"));
  const std::string longer = copy.bytes("__1_0.distcp");
  copy.move("__0_0.distcp", "kept");
  write_file(copy.file("__0_0.distcp"), longer);
  EXPECT_NE(dcp_error_of(copy), "no error");
}

TEST(DcpFolder, TakesNoFileOutsideTheFolder) {
  FolderCopy copy(checkpoint_fixture("dcp"));
  copy.replace_first(".metadata", "__1_0.distcp", "../../passwd");
  EXPECT_THAT(dcp_error_of(copy),
              HasSubstr("is stored in '../../passwd', expected a file of this folder"));
}

TEST(DcpFolder, ReadsNothingButMetadata) {
  FolderCopy copy(checkpoint_fixture("dcp"));
  copy.replace_first(".metadata", "Metadata", "Metamata");
  EXPECT_THAT(dcp_error_of(copy),
              HasSubstr("expected torch.distributed.checkpoint.metadata.Metadata"));
  write_file(copy.file(".metadata"), "cos\nsystem\n(S'touch ran'\ntR.");
  EXPECT_NE(dcp_error_of(copy), "no error");
  EXPECT_FALSE(file_exists("ran"));
}

std::string cover_error(const std::vector<formats::DcpChunk>& chunks) {
  return input_error("-", [&] { formats::check_cover({4, 6}, chunks, "f"); });
}

TEST(CheckCover, AsksForEveryElementOnce) {
  EXPECT_EQ(cover_error({{{0, 0}, {4, 3}}, {{0, 3}, {4, 3}}}), "no error");
  EXPECT_EQ(cover_error({{{0, 0}, {4, 3}}}), "f: has 24 elements, the files hold only 12");
  EXPECT_EQ(cover_error({{{0, 0}, {4, 3}}, {{0, 2}, {4, 3}}}),
            "f: its boxes at [0, 0] and [0, 2] overlap");
  EXPECT_EQ(cover_error({{{0, 0}, {4, 7}}}),
            "f: its box at [0, 0] of [4, 7] is not inside its shape [4, 6]");
  EXPECT_EQ(cover_error({{{3, 0}, {INT64_MAX, 6}}}),
            "f: its box at [3, 0] of [9223372036854775807, 6] is not inside its shape [4, 6]");
  EXPECT_EQ(cover_error({{{0}, {4}}}), "f: its box at [0] of [4] is not inside its shape [4, 6]");
}

TEST(BoxRuns, JoinsWhatIsWhole) {
  const formats::BoxRuns rows({4, 3, 5}, {1, 0, 0}, {2, 3, 5});
  EXPECT_EQ(rows.count(), 1);
  EXPECT_EQ(rows.length(), 30);
  EXPECT_EQ(rows.begin_of(0), 15);
  const formats::BoxRuns columns({2, 3, 5}, {0, 1, 2}, {2, 2, 3});
  EXPECT_EQ(columns.count(), 4);
  EXPECT_EQ(columns.length(), 3);
  EXPECT_EQ(columns.begin_of(0), 7);
  EXPECT_EQ(columns.begin_of(1), 12);
  EXPECT_EQ(columns.begin_of(3), 27);
  EXPECT_EQ(columns.first_after(9), 0);
  EXPECT_EQ(columns.first_after(10), 1);
  EXPECT_EQ(columns.first_after(30), 4);
  const formats::BoxRuns scalar({}, {}, {});
  EXPECT_EQ(scalar.count() * scalar.length(), 1);
}

}  // namespace
}  // namespace fullshard::testing
