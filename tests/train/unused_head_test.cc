// SPDX-License-Identifier: Apache-2.0
#include "fullshard/train/unused_head.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/files.h"
#include "tests/train/fixture_models.h"
#include "tests/train/folder_tensors.h"

namespace fullshard::testing {
namespace {

using ::testing::ElementsAre;

struct TiedFixture {
  std::string name, embedding, head;
};

const std::vector<TiedFixture> kTied = {
    {"gpt2", "transformer.wte.weight", "lm_head.weight"},
    {"llama_tied", "model.embed_tokens.weight", "lm_head.weight"},
    {"bert", "bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight"}};

std::vector<std::string> warnings_of(const std::string& folder) {
  const ModelSource source = find_model(folder);
  return train::unused_head_warnings(source, *make_deferred_model(source));
}

// The fixture's folder, with a head beside the embedding.
std::vector<std::string> warnings_with_head(const TiedFixture& fixture, const std::string& folder,
                                            double difference) {
  Tensors tensors = tensors_in(kModels + fixture.name);
  tensors[fixture.head] = tensors.at(fixture.embedding).clone();
  tensors[fixture.head][-1][-1] += difference;
  std::ofstream(folder + "/config.json") << read_file(kModels + fixture.name + "/config.json");
  write_tensors(folder, tensors);
  return warnings_of(folder);
}

TEST(UnusedHead, IsNamedWithItsFileAndWhatIsUsedInItsPlace) {
  for (const TiedFixture& fixture : kTied) {
    const TemporaryFolder folder;
    EXPECT_THAT(warnings_with_head(fixture, folder.path(), 1),
                ElementsAre(fmt::format(
                    "{0}/model.safetensors: '{2}' has other values than '{1}' and is not used: "
                    "{0}/config.json says tie_word_embeddings, so that '{1}' is used in its place; "
                    "write false there if the other values are meant",
                    folder.path(), fixture.embedding, fixture.head)));
  }
}

TEST(UnusedHead, IsNoneWhereItIsTheEmbedding) {
  for (const TiedFixture& fixture : kTied) {
    const TemporaryFolder folder;
    EXPECT_THAT(warnings_with_head(fixture, folder.path(), 0), ElementsAre()) << fixture.name;
  }
}

TEST(UnusedHead, IsNoneWhereItIsUsedOrNotThere) {
  for (const std::string name :
       {"gpt2", "llama", "llama_tied", "bert", "bert_untied", "t5", "t5_v1_1", "t5_v1_1_tied"}) {
    EXPECT_THAT(warnings_of(kModels + name), ElementsAre()) << name;
  }
}

}  // namespace
}  // namespace fullshard::testing
