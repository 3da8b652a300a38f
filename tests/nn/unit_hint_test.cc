// SPDX-License-Identifier: Apache-2.0
#include "fullshard/nn/unit_hint.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/moduledict.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/rnn.h>

#include "fullshard/nn/unit.h"

namespace fullshard::nn {
namespace {

// What the hint tells the user to write compiles, and is a unit that runs its hooks.
template <class Holder, class... Options>
void expect_wrap(const std::string& written, Options... options) {
  EXPECT_EQ(how_to_make_unit(*Holder(options...)), "hold it as fullshard::" + written);
  EXPECT_TRUE(Wrap<Holder>(options...)->runs_hooks());
}

TEST(UnitHint, NamesAWrapThatCompilesForModulesOfTorch) {
  expect_wrap<torch::nn::Linear>("Wrap<torch::nn::Linear>", 2, 3);
  expect_wrap<torch::nn::Embedding>("Wrap<torch::nn::Embedding>", 2, 3);
  expect_wrap<torch::nn::BatchNorm1d>("Wrap<torch::nn::BatchNorm1d>", 4);
  expect_wrap<torch::nn::LayerNorm>("Wrap<torch::nn::LayerNorm>", torch::nn::LayerNormOptions({3}));
  expect_wrap<torch::nn::Conv2d>("Wrap<torch::nn::Conv2d>", torch::nn::Conv2dOptions(1, 2, 3));
  expect_wrap<torch::nn::LSTM>("Wrap<torch::nn::LSTM>", torch::nn::LSTMOptions(2, 3));
}

TEST(UnitHint, DoesNotTellToWrapAContainer) {
  static_assert(!HasOneForward<torch::nn::SequentialImpl>);
  const auto hint = [](const std::string& name) {
    return "a " + name +
           " has no forward to surround: hold its modules in a class of your own that derives from "
           "fullshard::Unit, with FULLSHARD_UNIT in place of TORCH_MODULE";
  };
  EXPECT_EQ(how_to_make_unit(*torch::nn::Sequential()), hint("Sequential"));
  EXPECT_EQ(how_to_make_unit(*torch::nn::ModuleList()), hint("ModuleList"));
  EXPECT_EQ(how_to_make_unit(*torch::nn::ModuleDict()), hint("ModuleDict"));
}

struct MineImpl : torch::nn::Module {
  at::Tensor forward(at::Tensor x) { return x; }
};

TEST(UnitHint, NamesTheMacroForAClassOfTheUsers) {
  EXPECT_EQ(how_to_make_unit(MineImpl()),
            "derive it from fullshard::Unit and write FULLSHARD_UNIT(Mine) in place of "
            "TORCH_MODULE(Mine), or, where you cannot edit it, hold it as fullshard::Wrap<Mine>");
  EXPECT_TRUE(Wrap<MineImpl>()->runs_hooks());
}

}  // namespace
}  // namespace fullshard::nn
