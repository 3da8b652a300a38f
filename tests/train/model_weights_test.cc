// SPDX-License-Identifier: Apache-2.0
// Hugging Face folders in and out: what transformers wrote comes back byte for byte.
#include "fullshard/train/model_weights.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "fullshard/checkpoint/numbered_parameters.h"
#include "fullshard/comm/world/world.h"
#include "fullshard/train/apply_plan.h"
#include "fullshard/train/model_source.h"
#include "tests/files.h"
#include "tests/train/fixture_models.h"

namespace fullshard::train {
namespace {

using testing::kModels;
using testing::read_file;

void remove_model(const std::string& folder) {
  for (const auto& name : testing::entries_of(folder)) ::unlink((folder + "/" + name).c_str());
  ::rmdir(folder.c_str());
}

class Folders : public ::testing::TestWithParam<std::string> {};

TEST_P(Folders, ComeBackByteForByteFromAnyNumberOfRanks) {
  const testing::TemporaryFolder folder;
  const std::string saved = folder.file("model");
  for (const int ranks : {1, 2, 3}) {
    run_ranks({.ranks = ranks}, [&](const World& world) {
      const ModelSource source = find_model(kModels + GetParam());
      const auto model = make_deferred_model(source);
      ShardedModel sharded(model, world, ShardOptions{});
      load_model_weights(source.folder, *model, sharded);
      save_model_folder(saved, *model, sharded);
    });
    for (const char* name : {"config.json", "model.safetensors"}) {
      EXPECT_EQ(read_file(saved + "/" + name), read_file(kModels + GetParam() + "/" + name))
          << name << " from " << ranks << " ranks";
    }
    remove_model(saved);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Folders,
                         ::testing::Values("gpt2", "llama", "llama_tied", "mistral", "qwen2",
                                           "bert", "bert_bare", "t5", "t5_v1_1", "t5_v1_1_tied"),
                         [](const auto& which) { return which.param; });

// Optimizers of other programs number parameters: our trees have the order of theirs, and what
// decays there is known (parameter_order.json, which transformers wrote).
TEST(LoadOptions, OrderParametersAsTransformersDoes) {
  const auto orders = nlohmann::json::parse(
      read_file(FULLSHARD_SOURCE_DIR "/tests/fixtures/checkpoints/parameter_order.json"));
  for (const auto& [name, expected] : orders.items()) {
    SCOPED_TRACE(name);
    const auto model = make_deferred_model(find_model(kModels + name));
    const auto parameters = model->named_parameters();
    std::set<const void*> seen;
    auto found = nlohmann::json::array();
    for (const auto& own : load_options_of(*model).order) {
      const at::Tensor& values = parameters[own];
      if (!seen.insert(values.unsafeGetTensorImpl()).second) continue;
      const std::string in_file = model->file_name(own).name;
      found.push_back({in_file, checkpoint::decays_in_trainer({in_file, values.sizes().vec()})});
    }
    EXPECT_EQ(found, expected);
  }
}

// Those that transformers' state_dict() has besides those of its files, and load_state_dict() asks
// for.
TEST(ModelRecord, NamesWhatIsTied) {
  using Names = std::map<std::string, std::string>;
  const std::string words = "bert.embeddings.word_embeddings.weight";
  const Names bert = {{"cls.predictions.decoder.weight", words},
                      {"cls.predictions.decoder.bias", "cls.predictions.bias"}};
  for (const auto& [name, tied] : std::vector<std::pair<std::string, Names>>{
           {"llama", {}},
           {"llama_tied", {{"lm_head.weight", "model.embed_tokens.weight"}}},
           {"gpt2", {{"lm_head.weight", "transformer.wte.weight"}}},
           {"gpt2_options", {}},
           {"t5",
            {{"lm_head.weight", "shared.weight"},
             {"encoder.embed_tokens.weight", "shared.weight"},
             {"decoder.embed_tokens.weight", "shared.weight"}}},
           {"bert", bert},
           {"bert_untied", {{"cls.predictions.bias", "cls.predictions.decoder.bias"}}},
           {"bert_bare", {}},
           {"bert_classes", {}}}) {
    const auto model = make_deferred_model(find_model(kModels + name));
    EXPECT_EQ(record_of(*model).tied, tied) << name;
  }
}

TEST(NewWeights, DependOnSeedAndNameOnly) {
  const testing::TemporaryFolder folder;
  std::string first;
  for (const int ranks : {1, 2, 3}) {
    const std::string saved = folder.file("model");
    run_ranks({.ranks = ranks}, [&](const World& world) {
      const auto model = make_deferred_model(find_model(kModels + "llama"));
      ShardedModel sharded(model, world, ShardOptions{});
      make_new_weights(*model, sharded, 7);
      save_model_folder(saved, *model, sharded);
    });
    const std::string bytes = read_file(saved + "/model.safetensors");
    if (first.empty()) first = bytes;
    EXPECT_EQ(bytes, first) << ranks;
    remove_model(saved);
  }
}

TEST(SaveModelFolder, NamesTheDtypeItWrote) {
  const testing::TemporaryFolder folder;
  const std::string saved = folder.file("model");
  run_ranks({.ranks = 2}, [&](const World& world) {
    const ModelSource source = find_model(kModels + "llama");
    const auto model = make_deferred_model(source);
    ShardedModel sharded(model, world, ShardOptions{});
    load_model_weights(source.folder, *model, sharded);
    save_model_folder(saved, *model, sharded, {.dtype = at::kBFloat16});
  });
  EXPECT_EQ(find_model(saved).dtype(), "bfloat16");
  remove_model(saved);
}

}  // namespace
}  // namespace fullshard::train
