// SPDX-License-Identifier: Apache-2.0
#include "tests/layers/include_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

namespace fullshard::layers {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const Layers& example() {
  static const Layers layers =
      parse_layers("base torch_free:\ntensor: base\ncomm: tensor\nnn: tensor\n");
  return layers;
}

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> violations_of_tree(const Layers& layers,
                                            const std::filesystem::path& root) {
  std::vector<std::string> result;
  for (const char* top : {"fullshard", "tests", "bench", "examples"}) {
    if (!std::filesystem::exists(root / top)) continue;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root / top)) {
      const auto path = std::filesystem::relative(entry.path(), root).generic_string();
      const bool is_ours = path.ends_with(".h") || path.ends_with(".cc");
      if (!is_ours || path.find("/gloo_declarations/") != std::string::npos) continue;
      const auto found = violations(layers, path, read(entry.path()));
      result.insert(result.end(), found.begin(), found.end());
    }
  }
  return result;
}

TEST(Layers, AreTransitive) {
  EXPECT_THAT(example().at("comm").may_include, ElementsAre("base", "tensor"));
  EXPECT_TRUE(example().at("base").torch_free);
  EXPECT_FALSE(example().at("comm").torch_free);
}

TEST(Layers, RefuseAFolderThatComesLater) {
  EXPECT_THROW(parse_layers("tensor: base\nbase:\n"), std::runtime_error);
}

TEST(IncludeRules, AcceptOwnAndAllowedFolders) {
  EXPECT_THAT(violations(example(), "fullshard/comm/world/mesh.cc",
                         "#include \"fullshard/comm/world/mesh.h\"\n\n#include <vector>\n"
                         "#include <ATen/ops/empty.h>\n#include \"fullshard/base/error.h\"\n"),
              IsEmpty());
}

TEST(IncludeRules, NameTheLineOfAForbiddenFolder) {
  EXPECT_THAT(violations(example(), "fullshard/tensor/storage.cc",
                         "\n  #include \"fullshard/comm/world/mesh.h\"\n"),
              ElementsAre("fullshard/tensor/storage.cc:2: tensor/ may not include comm/; it may "
                          "include: base"));
}

TEST(IncludeRules, FollowTheOrderOfRooms) {
  const Layers layers = parse_layers("base:\ncomm: base | . store shm\n");
  EXPECT_THAT(layers.at("comm").rooms, ElementsAre(".", "store", "shm"));
  const auto of = [&](const char* path, const char* included) {
    return violations(layers, path, std::string("#include \"") + included + "\"\n");
  };
  EXPECT_THAT(of("fullshard/comm/shm/arena.cc", "fullshard/comm/store/keys.h"), IsEmpty());
  EXPECT_THAT(of("fullshard/comm/shm/arena.cc", "fullshard/comm/backend.h"), IsEmpty());
  EXPECT_THAT(of("fullshard/comm/shm/arena.cc", "fullshard/base/error.h"), IsEmpty());
  EXPECT_THAT(of("fullshard/comm/backend.h", "fullshard/comm/shm/arena.h"),
              ElementsAre("fullshard/comm/backend.h:1: ./ may not include shm/, which comes later: "
                          "., store, shm"));
  EXPECT_THAT(of("fullshard/comm/attic/old.cc", "fullshard/comm/backend.h"),
              ElementsAre("fullshard/comm/attic/old.cc:1: attic/ is not among the rooms of its "
                          "folder: ., store, shm"));
}

TEST(IncludeRules, RefuseAFolderThatCMakeDoesNotKnow) {
  EXPECT_THAT(
      violations(example(), "fullshard/other/file.cc", ""),
      ElementsAre("fullshard/other/file.cc: no fullshard_library(other) in CMakeLists.txt"));
}

TEST(IncludeRules, KeepUmbrellaHeadersForUsers) {
  const std::string text = "#include \"fullshard/fullshard.h\"\n";
  EXPECT_EQ(violations(example(), "fullshard/nn/unit.cc", text).size(), 1U);
  EXPECT_THAT(
      violations(example(), "fullshard/nn/unit.cc", "#include \"fullshard/models.h\"\n"),
      ElementsAre("fullshard/nn/unit.cc:1: includes fullshard/models.h, which is for users; "
                  "include the single headers"));
  EXPECT_THAT(violations(example(), "examples/demo.cc", text), IsEmpty());
}

TEST(IncludeRules, RefuseTorchTorchEverywhere) {
  const std::string text = "#include <torch/torch.h>\n";
  EXPECT_EQ(violations(example(), "fullshard/nn/unit.cc", text).size(), 1U);
  EXPECT_EQ(violations(example(), "tests/nn/unit_test.cc", text).size(), 1U);
}

TEST(IncludeRules, KeepTorchOutOfTorchFreeFolders) {
  EXPECT_EQ(
      violations(example(), "fullshard/base/error.cc", "#include <c10/util/Exception.h>\n"),
      std::vector<std::string>{"fullshard/base/error.cc:1: includes c10/util/Exception.h in a "
                               "folder without libtorch"});
}

TEST(IncludeRules, KeepAllButDtypesOutOfFoldersThatDoNotLinkTorch) {
  const Layers layers = parse_layers("base torch_free:\nformats dtypes: base\n");
  EXPECT_THAT(
      violations(layers, "fullshard/formats/element_span.h", "#include <c10/core/ScalarType.h>\n"),
      IsEmpty());
  EXPECT_THAT(
      violations(layers, "fullshard/formats/element_span.h", "#include <ATen/core/Tensor.h>\n"),
      ElementsAre("fullshard/formats/element_span.h:1: includes ATen/core/Tensor.h in a folder "
                  "that does not link libtorch; c10/core/ScalarType.h, c10/util/BFloat16.h, "
                  "c10/util/Half.h at most"));
}

TEST(IncludeRules, KeepHeadersLight) {
  const auto count = [](std::string_view path, std::string_view text) {
    return violations(example(), path, text).size();
  };
  EXPECT_EQ(count("fullshard/nn/unit.h", "#include <ATen/core/Tensor.h>\n"), 0U);
  EXPECT_EQ(count("fullshard/nn/unit.h", "#include <ATen/ATen.h>\n"), 1U);
  EXPECT_EQ(count("fullshard/nn/unit.cc", "#include <ATen/ATen.h>\n"), 0U);
  EXPECT_EQ(count("fullshard/nn/unit.h", "#include <torch/nn/module.h>\n"), 1U);
  EXPECT_EQ(count("fullshard/nn/unit.h",
                  "#include <torch/nn/module.h>\nclass Unit : public torch::nn::Module {};\n"),
            0U);
}

TEST(IncludeRules, HoldForThisTree) {
  const auto layers = parse_layers(read(FULLSHARD_LAYERS_FILE));
  EXPECT_GE(layers.size(), 9U);
  EXPECT_THAT(violations_of_tree(layers, FULLSHARD_SOURCE_ROOT), IsEmpty());
}

}  // namespace
}  // namespace fullshard::layers
