// SPDX-License-Identifier: Apache-2.0
// What `compare` lets pass and what it refuses of a reference.
#include "fullshard/train/compare.h"

#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "fullshard/comm/world/world.h"
#include "fullshard/train/model_source.h"
#include "fullshard/train/model_weights.h"
#include "tests/errors.h"
#include "tests/files.h"
#include "tests/train/fixture_models.h"
#include "tests/train/folder_tensors.h"

namespace fullshard::testing {
namespace {

using ::testing::HasSubstr;

struct ComparedFolders {
  std::string weights, reference;
};

// On rank 0; the parameter that files call `frozen` is not trained.
std::vector<Comparison> compared_on(int ranks, const std::string& name,
                                    const ComparedFolders& folders,
                                    const std::string& frozen = "") {
  std::vector<Comparison> results;
  run_ranks({.ranks = ranks}, [&](const World& world) {
    auto model = make_deferred_model(find_model(kModels + name));
    for (auto& item : model->named_parameters()) {
      if (model->file_name(item.key()).name == frozen) item.value().set_requires_grad(false);
    }
    ShardedModel sharded(model, world, {});
    load_model_weights(folders.weights, *model, sharded);
    const auto found = compare_model(*model, sharded, *open_weights(folders.reference));
    if (world.rank() == 0) results = found;
  });
  return results;
}

Tensors reference_of(const std::string& name) {
  return tensors_in(kModels + name + "/reference.safetensors");
}

TEST(Compare, FailsWhereTheModelGivesNaN) {
  const TemporaryFolder folder;
  Tensors weights = tensors_in(kModels + "llama");
  weights.at("model.norm.weight").fill_(std::numeric_limits<float>::quiet_NaN());
  write_tensors(folder.path(), weights);
  for (const int ranks : {1, 2, 3}) {
    const auto results =
        compared_on(ranks, "llama", {folder.path(), kModels + "llama/reference.safetensors"});
    EXPECT_GT(results.size(), 10u);
    for (const Comparison& found : results) {
      EXPECT_FALSE(std::isfinite(found.relative)) << found.name << ", " << ranks << " ranks";
    }
  }
}

TEST(Compare, FailsOnlyTheGradientWhoseReferenceIsInfinite) {
  const TemporaryFolder folder;
  Tensors reference = reference_of("llama");
  reference.at("grad.model.norm.weight").fill_(std::numeric_limits<float>::infinity());
  reference.at("grad.lm_head.weight").mul_(2);
  write_tensors(folder.path(), reference);
  for (const Comparison& found : compared_on(1, "llama", {kModels + "llama", folder.path()})) {
    const bool is_changed =
        found.name == "grad.model.norm.weight" || found.name == "grad.lm_head.weight";
    EXPECT_EQ(std::isfinite(found.relative) && found.relative < 1e-5, !is_changed) << found.name;
  }
}

TEST(Compare, RefusesTheGradientOfWhatIsFrozen) {
  const ComparedFolders folders = {kModels + "llama", kModels + "llama/reference.safetensors"};
  for (const int ranks : {1, 2}) {
    EXPECT_THAT(
        message_of([&] { compared_on(ranks, "llama", folders, "model.norm.weight"); }),
        HasSubstr("reference: grad.model.norm.weight is the gradient of a parameter that is "
                  "frozen here"));
  }
}

TEST(Compare, NamesWhatIsOfAnotherShape) {
  const auto said = [](const char* name, const at::Tensor& tensor) {
    const TemporaryFolder folder;
    Tensors reference = reference_of("gpt2");
    reference[name] = tensor;
    write_tensors(folder.path(), reference);
    return message_of([&] { compared_on(1, "gpt2", {kModels + "gpt2", folder.path()}); });
  };
  const Tensors good = reference_of("gpt2");
  const char* const weight = "grad.transformer.h.0.mlp.c_fc.weight";
  EXPECT_THAT(said(weight, at::ones({3})),
              HasSubstr("reference: grad.transformer.h.0.mlp.c_fc.weight is of shape [3], expected "
                        "[24, 96]"));
  EXPECT_THAT(said(weight, good.at(weight).t().contiguous()),
              HasSubstr("is of shape [96, 24], expected [24, 96]"));
  EXPECT_THAT(said("logits", good.at("logits").reshape({32, 50})),
              HasSubstr("reference: logits is of shape [32, 50], expected [2, 16, 50]"));
  EXPECT_THAT(said("loss", at::ones({2})),
              HasSubstr("reference: loss is of shape [2], expected []"));
  EXPECT_THAT(said("attention_mask", at::ones({2, 8})),
              HasSubstr("reference: attention_mask is of shape [2, 8], expected [2, 16]"));
}

TEST(Compare, RefusesPositions) {
  const TemporaryFolder folder;
  Tensors reference = reference_of("llama");
  reference["position_ids"] = at::ones({2, 16});
  write_tensors(folder.path(), reference);
  EXPECT_THAT(message_of([&] {
                compared_on(1, "llama", {kModels + "llama", folder.path()});
              }),
              HasSubstr("reference: has position_ids, which are not supported; write one of a "
                        "forward without them"));
}

}  // namespace
}  // namespace fullshard::testing
