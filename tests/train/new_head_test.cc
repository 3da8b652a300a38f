// SPDX-License-Identifier: Apache-2.0
// Files of bare models, as transformers' BertModel, GPT2Model and LlamaModel write them, for models
// with a head.
#include "fullshard/train/new_head.h"

#include <ATen/CPUGeneratorImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "fullshard/base/error.h"
#include "fullshard/checkpoint/model_io.h"
#include "fullshard/comm/world/world.h"
#include "fullshard/train/model_weights.h"
#include "tests/files.h"
#include "tests/train/fixture_models.h"
#include "tests/train/folder_tensors.h"

namespace fullshard::train {
namespace {

using ::testing::ElementsAre;
using testing::kModels;
using testing::TemporaryFolder;
using testing::Tensors;
using testing::tensors_in;

// A fixture's folder under another architecture. `name_of` gives a tensor's name; empty: it goes.
void write_folder(const std::string& fixture, const std::string& architecture,
                  const std::string& folder,
                  const std::function<std::string(const std::string&)>& name_of) {
  auto config = nlohmann::json::parse(testing::read_file(kModels + fixture + "/config.json"));
  config["architectures"] = {architecture};
  std::ofstream(folder + "/config.json") << config.dump();
  Tensors tensors;
  for (const auto& [name, tensor] : tensors_in(kModels + fixture)) {
    if (!name_of(name).empty()) tensors[name_of(name)] = tensor;
  }
  testing::write_tensors(folder, tensors);
}

std::string without(const std::string& name, const std::string& prefix) {
  return name.starts_with(prefix) ? name.substr(prefix.size()) : "";
}

at::Tensor drawn(const LanguageModel& model, const std::string& name, uint64_t seed,
                 at::IntArrayRef shape) {
  auto values = at::empty(shape);
  model.initialise(name, values,
                   at::make_generator<at::CPUGeneratorImpl>(seed_of_tensor(seed, name)));
  return values;
}

// Loads for training and gives what is saved then.
Tensors trained_from(const std::string& folder, int ranks, bool asked = false) {
  const TemporaryFolder saved;
  run_ranks({.ranks = ranks}, [&](const World& world) {
    const ModelSource source = find_model(folder);
    const auto model = make_deferred_model(source, /*needs_head=*/true);
    ShardedModel sharded(model, world, ShardOptions{});
    load_model_weights(folder, *model, sharded,
                       {.names = new_head(source, *model, asked), .seed = 7});
    save_weights(saved.path(), sharded, {.names = [&](const std::string& name) {
                   const auto file = model->file_name(name);
                   return stored::NameInFile{file.name, file.transposed, file.others};
                 }});
  });
  return tensors_in(saved.path());
}

std::string refused(const std::string& folder, bool asked, ErrorKind kind,
                    bool has_weights = true) {
  ModelSource source = find_model(folder);
  source.has_weights = source.has_weights && has_weights;
  const auto model = make_deferred_model(source, /*needs_head=*/true);
  try {
    new_head(source, *model, asked);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind);
    return error.what();
  }
  return "";
}

const std::vector<std::string> kBertHead = {
    "cls.predictions.bias", "cls.predictions.transform.dense.weight",
    "cls.predictions.transform.dense.bias", "cls.predictions.transform.LayerNorm.weight",
    "cls.predictions.transform.LayerNorm.bias"};

TEST(NewHead, OfABareBertIsDrawnAndTheRestIsLoaded) {
  const std::string folder = kModels + "bert_bare";
  const ModelSource source = find_model(folder);
  const auto model = make_deferred_model(source, /*needs_head=*/true);
  EXPECT_EQ(model->architecture(), "BertForMaskedLM");
  EXPECT_THAT(new_head(source, *model, false), ::testing::UnorderedElementsAreArray(kBertHead));
  const Tensors bare = tensors_in(folder);
  for (const int ranks : {1, 2, 3}) {
    SCOPED_TRACE(ranks);
    size_t num_loaded = 0;
    for (const auto& [name, values] : trained_from(folder, ranks)) {
      SCOPED_TRACE(name);
      if (name.starts_with("cls.")) {
        EXPECT_TRUE(values.equal(drawn(*model, name, 7, values.sizes())));
      } else {
        EXPECT_TRUE(values.equal(bare.at(name.substr(std::string("bert.").size()))));
        ++num_loaded;
      }
    }
    EXPECT_EQ(num_loaded, bare.size() - 2);  // the pooler has no place
  }
}

TEST(NewHead, ABareBertStaysBareWhereItIsNotTrained) {
  EXPECT_EQ(make_deferred_model(find_model(kModels + "bert_bare"))->architecture(), "BertModel");
}

TEST(NewHead, OfABareLlamaIsDrawnAndPrefixesAreFound) {
  const TemporaryFolder folder;
  write_folder("llama", "LlamaModel", folder.path(),
               [](const std::string& name) { return without(name, "model."); });
  const Tensors expected = tensors_in(kModels + "llama");
  const auto model = make_deferred_model(find_model(folder.path()), true);
  for (const int ranks : {1, 2, 3}) {
    const Tensors found = trained_from(folder.path(), ranks);
    ASSERT_EQ(found.size(), expected.size());
    for (const auto& [name, values] : found) {
      const bool is_head = name == "lm_head.weight";
      EXPECT_TRUE(
          values.equal(is_head ? drawn(*model, name, 7, values.sizes()) : expected.at(name)))
          << name << " on " << ranks;
    }
  }
}

TEST(NewHead, OfABareGpt2IsItsEmbedding) {
  const TemporaryFolder folder;
  write_folder("gpt2", "GPT2Model", folder.path(),
               [](const std::string& name) { return without(name, "transformer."); });
  const ModelSource source = find_model(folder.path());
  const auto model = make_deferred_model(source, true);
  EXPECT_THAT(new_head(source, *model, false), ElementsAre());
  const Tensors expected = tensors_in(kModels + "gpt2");
  const Tensors found = trained_from(folder.path(), 2);
  ASSERT_EQ(found.size(), expected.size());
  for (const auto& [name, values] : found) EXPECT_TRUE(values.equal(expected.at(name))) << name;
}

TEST(NewHead, AskedForReplacesTheOneOfTheFile) {
  const std::string folder = kModels + "bert";
  const auto model = make_deferred_model(find_model(folder), true);
  const Tensors expected = tensors_in(folder);
  for (const auto& [name, values] : trained_from(folder, 2, /*asked=*/true)) {
    const bool is_head = name.starts_with("cls.");
    EXPECT_TRUE(values.equal(is_head ? drawn(*model, name, 7, values.sizes()) : expected.at(name)))
        << name;
    EXPECT_EQ(values.equal(expected.at(name)), !is_head) << name;
  }
}

TEST(NewHead, HalfOfOneIsAnError) {
  const TemporaryFolder folder;
  write_folder("bert", "BertForMaskedLM", folder.path(), [](const std::string& name) {
    return name.ends_with("transform.dense.bias") ? std::string() : name;
  });
  EXPECT_EQ(refused(folder.path(), false, ErrorKind::input),
            folder.path() +
                ": holds a part of the head only; missing: cls.predictions.transform.dense.bias; "
                "to draw all of the head anew add --new-head");
  EXPECT_EQ(refused(folder.path(), true, ErrorKind::input), "");
}

TEST(NewHead, AskedForWithoutEffectIsAnError) {
  EXPECT_EQ(refused(kModels + "gpt2", true, ErrorKind::usage),
            "--new-head: the head of GPT2LMHeadModel is its embedding, which cannot be drawn anew "
            "alone; leave the flag out, or add --from-scratch");
  EXPECT_EQ(
      refused(kModels + "bert", true, ErrorKind::usage, /*has_weights=*/false),
      "--new-head: " + kModels + "bert has no weights to keep: all of them are new without it");
}

TEST(NewHead, IsAnnouncedByName) {
  EXPECT_EQ(new_head_warning({.name = "m", .folder = "m"}, {"lm_head.weight"}),
            "m: has no weights for the head (lm_head.weight); they are drawn anew and must be "
            "trained (--new-head says that this is meant)");
}

TEST(ModelSource, SizesOfTheConfigurationAreThoseOfTheWeights) {
  const TemporaryFolder folder;
  write_folder("bert", "BertForMaskedLM", folder.path(),
               [](const std::string& name) { return name; });
  auto config = nlohmann::json::parse(testing::read_file(folder.file("config.json")));
  config["num_hidden_layers"] = 1'000'000;
  config["vocab_size"] = int64_t{1} << 40;
  std::ofstream(folder.file("config.json")) << config.dump();
  ModelSource source = find_model(folder.path());
  const auto message = [&] {
    try {
      make_deferred_model(source);
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_status(), 4);
      return std::string(error.what());
    }
    return std::string();
  };
  const std::string head = folder.path() + "/config.json: no BERT model can be made of it:\n";
  EXPECT_EQ(message(), head +
                           "  vocab_size is 1099511627776: the weights beside it have 96\n"
                           "  num_hidden_layers is 1000000: the weights beside it have 2");
  source.has_weights = false;  // from scratch
  EXPECT_EQ(message(), head +
                           "  vocab_size is 1099511627776: expected at most 268435456\n"
                           "  num_hidden_layers is 1000000: expected at most 10000");
}

}  // namespace
}  // namespace fullshard::train
