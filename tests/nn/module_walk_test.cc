// SPDX-License-Identifier: Apache-2.0
#include "fullshard/nn/module_walk.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <set>

#include "fullshard/nn/class_name.h"
#include "fullshard/nn/unit.h"

namespace fullshard::nn {
namespace {

struct LayerImpl : Unit {
  LayerImpl() {
    register_buffer("table", at::ones({2}));
    scale = register_parameter("scale", at::ones({3}));
    linear = register_module("linear", torch::nn::Linear(3, 3));
  }
  at::Tensor forward(at::Tensor x) { return linear(x * scale); }
  at::Tensor scale;
  torch::nn::Linear linear{nullptr};
};
FULLSHARD_UNIT(Layer);

struct NetImpl : Unit {
  NetImpl() {
    layers = register_module("layers", torch::nn::Sequential(Layer(), Layer()));
    again = register_module("again", layers[1]);
    register_parameter("absent", at::Tensor(), false);
  }
  at::Tensor forward(at::Tensor x) { return layers->forward(x); }
  torch::nn::Sequential layers{nullptr};
  std::shared_ptr<torch::nn::Module> again;
};
FULLSHARD_UNIT(Net);

TEST(ModuleWalk, GivesPathsAndClassesInOrderOfRegistration) {
  Net net;
  std::vector<std::string> found;
  for_each_node(walk_modules(*net), [&](const ModuleNode& node) {
    found.push_back(node.path + ":" + node.class_name);
  });
  EXPECT_EQ(found, (std::vector<std::string>{":Net", "layers:Sequential", "layers.0:Layer",
                                             "layers.0.linear:Linear", "layers.1:Layer",
                                             "layers.1.linear:Linear"}));
}

TEST(ModuleWalk, GivesOwnParametersAndBuffers) {
  Net net;
  const ModuleNode root = walk_modules(*net);
  EXPECT_TRUE(root.parameters.empty());
  const ModuleNode& layer = root.children.at(0).children.at(0);
  ASSERT_EQ(layer.parameters.size(), 1);
  EXPECT_EQ(layer.parameters[0].name, "scale");
  EXPECT_TRUE(layer.parameters[0].tensor.is_same(layer.module->as<LayerImpl>()->scale));
  ASSERT_EQ(layer.buffers.size(), 1);
  EXPECT_EQ(layer.buffers[0].name, "table");
  EXPECT_EQ(layer.children.at(0).parameters.size(), 2);
  EXPECT_EQ(join_path("layers.0", "scale"), "layers.0.scale");
  EXPECT_EQ(join_path("", "scale"), "scale");
}

TEST(ParameterPrint, ChangesWithEveryParameterOfTheTree) {
  Net net;
  std::set<uint64_t> prints{parameter_print(*net)};
  EXPECT_EQ(parameter_print(*net), *prints.begin());
  EXPECT_NE(parameter_print(*Net()), *prints.begin());
  const auto changed = [&] { return prints.insert(parameter_print(*net)).second; };
  const auto kept = net->named_children().front().value()->named_children().front().value();
  kept->register_parameter("late", at::zeros({3}));
  EXPECT_TRUE(changed());
  net->register_module("more", torch::nn::Linear(2, 2));
  EXPECT_TRUE(changed());
  const auto held = net->named_children()["more"];
  net->replace_module("more", torch::nn::Linear(2, 2));
  EXPECT_TRUE(changed());
  net->register_buffer("table", at::zeros({3}));
  EXPECT_FALSE(changed());
}

TEST(ClassName, DropsNamespacesAndImpl) {
  EXPECT_EQ(plain_class_name("torch::nn::LinearImpl"), "Linear");
  EXPECT_EQ(plain_class_name("a::(anonymous namespace)::BlockImpl"), "Block");
  EXPECT_EQ(plain_class_name("f(std::vector<int>)::BlockImpl"), "Block");
  EXPECT_EQ(plain_class_name("a::Outer<b::C>::BlockImpl<b::D>"), "Block<b::D>");
  EXPECT_EQ(plain_class_name("Impl"), "Impl");
  EXPECT_EQ(plain_class_name("Plain"), "Plain");
}

}  // namespace
}  // namespace fullshard::nn
