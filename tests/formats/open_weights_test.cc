// SPDX-License-Identifier: Apache-2.0
#include "fullshard/formats/weights/open_weights.h"

#include <gmock/gmock.h>

#include "fullshard/tensor_io/read_tensor.h"
#include "tests/formats/fixture.h"

namespace fullshard::testing {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> names_of(const TensorSource& source) {
  std::vector<std::string> names;
  for (const auto& tensor : source.tensors()) names.push_back(tensor.name);
  return names;
}

void copy_file(const std::string& from, const std::string& to) { write_file(to, read_file(from)); }

void expect_parts(const TensorSource& source) {
  EXPECT_THAT(names_of(source),
              ElementsAre("head", "layer.0.bias", "layer.0.weight", "layer.1.bias",
                          "layer.1.weight", "layer.2.bias", "layer.2.weight"));
  expect_equal(tensor_io::read_tensor(source, "head"), ramp({40}));
  expect_equal(tensor_io::read_tensor(source, "layer.2.weight"), ramp({4, 5}));
  const at::Tensor out = at::empty({3}, at::kDouble);
  source.read("layer.1.weight", 15, out);
  expect_equal(out, ramp({20}, at::kDouble).narrow(0, 15, 3));
}

class OpenWeights : public ::testing::Test {
 protected:
  std::string error_of(const std::string& name) {
    return input_error(folder_.path(), [&] { open_weights(folder_.file(name)); });
  }
  void write_index(std::string_view map) {
    write_file(folder_.file("model.safetensors.index.json"),
               "{\"metadata\":{},\"weight_map\":" + std::string(map) + "}");
  }
  std::string index_error(std::string_view map) {
    write_index(map);
    return error_of("model.safetensors.index.json");
  }

  TemporaryFolder folder_;
};

TEST_F(OpenWeights, OpensFoldersSplitByThePackage) {
  expect_parts(*open_weights(fixture("split")));
  expect_parts(*open_weights(fixture("split_bin")));
  expect_parts(*open_weights(fixture("split/model.safetensors.index.json")));
  const auto source = open_weights(fixture("split"));
  EXPECT_EQ(source->find("head")->file, fixture("split/model-00003-of-00004.safetensors"));
}

TEST_F(OpenWeights, PrefersSafetensorsAndWholeFiles) {
  copy_file(fixture("checkpoint.pt"), folder_.file("pytorch_model.bin"));
  EXPECT_THAT(names_of(*open_weights(folder_.path())), ElementsAre("a"));
  copy_file(fixture("split/model-00003-of-00004.safetensors"), folder_.file("part"));
  write_index(R"({"head":"part"})");
  EXPECT_THAT(names_of(*open_weights(folder_.path())), ElementsAre("head"));
  copy_file(fixture("written.safetensors"), folder_.file("model.safetensors"));
  EXPECT_EQ(open_weights(folder_.path())->tensors().size(), 13);
}

TEST_F(OpenWeights, KnowsAFileByItsNameOrItsFirstBytes) {
  copy_file(fixture("checkpoint.pt"), folder_.file("a"));
  copy_file(fixture("written.safetensors"), folder_.file("b"));
  EXPECT_EQ(open_weights(folder_.file("a"))->tensors().size(), 1);
  EXPECT_EQ(open_weights(folder_.file("b"))->tensors().size(), 13);
}

TEST_F(OpenWeights, SaysWhatAFolderLacks) {
  EXPECT_EQ(input_error(folder_.path() + "x", [&] { open_weights(folder_.path()); }),
            folder_.path() +
                ": holds no weights; expected one of model.safetensors, "
                "model.safetensors.index.json, pytorch_model.bin, pytorch_model.bin.index.json, "
                "pytorch_model_fsdp.bin, or a checkpoint of DeepSpeed or "
                "torch.distributed.checkpoint");
  EXPECT_EQ(error_of("absent"), "absent: cannot be opened: No such file or directory");
}

TEST_F(OpenWeights, ListsWhatAnIndexPromisesInVain) {
  copy_file(fixture("split/model-00003-of-00004.safetensors"), folder_.file("part"));
  EXPECT_EQ(index_error(R"({"head":"part","neck":"part","knee":"part"})"),
            "model.safetensors.index.json: lists 2 tensors that their files do not have: 'knee' "
            "(part), 'neck' (part)");
  EXPECT_EQ(index_error(R"({"head":"part","neck":"other","knee":"third"})"),
            "model.safetensors.index.json: names 3 files, 2 of them are missing, first other");
}

TEST_F(OpenWeights, ListsWhatAnIndexDoesNotMention) {
  copy_file(fixture("split/model-00001-of-00004.safetensors"), folder_.file("one"));
  write_index(R"({"layer.0.bias":"one"})");
  EXPECT_THAT(names_of(*open_weights(folder_.path())),
              ElementsAre("layer.0.bias", "layer.0.weight"));
  copy_file(fixture("split/model-00001-of-00004.safetensors"), folder_.file("two"));
  copy_file(fixture("split/model-00003-of-00004.safetensors"), folder_.file("three"));
  EXPECT_EQ(index_error(R"({"layer.0.bias":"one","layer.0.weight":"two"})"), "no error");
  copy_file(fixture("split/model-00003-of-00004.safetensors"), folder_.file("four"));
  EXPECT_EQ(index_error(R"({"head":"three","layer.0.bias":"one","layer.0.weight":"two"})"),
            "no error");
  copy_file(fixture("written.safetensors"), folder_.file("five"));
  copy_file(fixture("written.safetensors"), folder_.file("six"));
  EXPECT_EQ(index_error(R"({"f32":"five","f64":"six"})"),
            "model.safetensors.index.json: does not say which of two files holds tensor 'bf16'");
}

TEST_F(OpenWeights, RefusesNamesThatLeaveTheFolder) {
  for (const std::string name :
       {"../part", "/etc/passwd", "..", ".", "", "a/b", "a\\\\b", "a\\u0000b", "a\\nb"}) {
    EXPECT_EQ(index_error("{\"a\":\"" + name + "\"}"),
              "model.safetensors.index.json: tensor 'a' is assigned to \"" + name +
                  "\", expected the name of a file in the folder of the index");
  }
}

TEST_F(OpenWeights, SaysWhatIsWrongWithAnIndex) {
  const std::string name = "model.safetensors.index.json";
  EXPECT_EQ(index_error("{}"), name + ": has no \"weight_map\" of tensors to files");
  EXPECT_EQ(index_error("[]"), name + ": has no \"weight_map\" of tensors to files");
  EXPECT_EQ(index_error(R"({"a":1})"), name + ": the file of tensor 'a' is not a string");
  EXPECT_EQ(index_error(R"({"a":"x","a":"y"})"), name + ": has the key 'a' twice");
  EXPECT_EQ(index_error("{"), name + ": invalid JSON at byte 31");
  write_file(folder_.file(name), "[1]");
  EXPECT_EQ(error_of(name), name + ": has no \"weight_map\" of tensors to files");
  write_file(folder_.file(name), "");
  EXPECT_EQ(error_of(name), name + ": invalid JSON at byte 1");
}

}  // namespace
}  // namespace fullshard::testing
