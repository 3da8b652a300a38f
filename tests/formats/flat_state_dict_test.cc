// SPDX-License-Identifier: Apache-2.0
#include "fullshard/formats/weights/flat_state_dict.h"

#include <gmock/gmock.h>

#include "fullshard/formats/weights/open_weights.h"
#include "fullshard/tensor_io/read_tensor.h"
#include "fullshard/tensor_io/write_tensor.h"
#include "tests/formats/checkpoint_fixture.h"

namespace fullshard::testing {
namespace {

using ::testing::ElementsAre;

class FlatStateDict : public ::testing::Test {
 protected:
  // Every tensor holds its place in the list.
  std::string write(const std::vector<std::string>& names) const {
    std::vector<TensorPlan> plans;
    for (const auto& name : names) plans.push_back({name, {2}});
    const std::string path = folder_.file("model.safetensors");
    SafetensorsWriter writer(path, plans);
    for (size_t i = 0; i < names.size(); ++i) {
      tensor_io::write_tensor(writer, names[i], at::full({2}, static_cast<double>(i)));
    }
    writer.finish();
    return path;
  }
  static std::vector<std::string> names_of(const TensorSource& source) {
    std::vector<std::string> names;
    for (const auto& tensor : source.tensors()) names.push_back(tensor.name);
    return names;
  }

  TemporaryFolder folder_;
};

TEST_F(FlatStateDict, HasWeightsAndStatesUnderTheModelsNames) {
  write({"model.model.a", "model.b", "optim.state.model.a.exp_avg", "optim.state.b.exp_avg",
         "optim.param_groups.b.lr"});
  std::unique_ptr<TensorSource> all = open_tensors(folder_.path());
  ASSERT_TRUE(formats::FlatStateDict::is_one(*all));
  const formats::FlatStateDict dict(std::move(all));
  const auto weights = dict.weights();
  EXPECT_THAT(names_of(*weights), ElementsAre("b", "model.a"));
  EXPECT_EQ(tensor_io::read_tensor(*weights, "model.a")[0].item<float>(), 0);
  EXPECT_TRUE(weights->place_of("b").has_value());
  EXPECT_FALSE(weights->place_of("model.b").has_value());
  ASSERT_THAT(dict.states(), ElementsAre("exp_avg"));
  const auto averages = dict.state("exp_avg");
  EXPECT_THAT(names_of(*averages), ElementsAre("b", "model.a"));
  EXPECT_EQ(tensor_io::read_tensor(*averages, "b")[0].item<float>(), 3);
  EXPECT_EQ(dict.num_steps(), std::nullopt);
  // Whoever asks for weights gets no states.
  EXPECT_THAT(names_of(*open_weights(folder_.path())), ElementsAre("b", "model.a"));
}

TEST_F(FlatStateDict, SaysHowManyStepsItsOptimizerCounted) {
  const std::string path = folder_.file("model.safetensors");
  SafetensorsWriter writer(path, {{"model.a", {2}}, {"optim.state.a.step", {}}});
  tensor_io::write_tensor(writer, "model.a", at::zeros({2}));
  tensor_io::write_tensor(writer, "optim.state.a.step", at::scalar_tensor(7));
  writer.finish();
  const formats::FlatStateDict dict(open_tensors(path));
  EXPECT_EQ(dict.num_steps(), 7);
  EXPECT_THAT(dict.states(), ElementsAre());
}

// A Llama whose head is tied has no other names.
TEST_F(FlatStateDict, IsNoModelWhoseNamesBeginAlike) {
  for (const auto& names : {std::vector<std::string>{"model.embed_tokens.weight", "model.norm"},
                            {"lm_head.weight", "model.a", "optim.state.a.exp_avg"}}) {
    const std::string path = write(names);
    EXPECT_FALSE(formats::FlatStateDict::is_one(*open_tensors(path)));
    EXPECT_EQ(names_of(*open_weights(path)), names);
  }
}

TEST_F(FlatStateDict, OfAnOptimizerAloneHasNoWeights) {
  const std::string path = write({"optim.state.a.exp_avg"});
  EXPECT_EQ(input_error(folder_.path(), [&] { open_weights(path); }),
            "model.safetensors: holds the state of an optimizer and no weights");
}

}  // namespace
}  // namespace fullshard::testing
