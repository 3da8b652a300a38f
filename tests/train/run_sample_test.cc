// SPDX-License-Identifier: Apache-2.0
#include "fullshard/train/run/run_sample.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/files.h"

namespace fullshard::train {
namespace {

class Tokens : public Dataset {
 public:
  explicit Tokens(std::vector<int64_t> ids) : ids_(std::move(ids)) {}
  int64_t size() const override { return static_cast<int64_t>(ids_.size()); }
  TokenBatch batch(std::span<const int64_t> examples, uint64_t, int64_t) const override {
    const int64_t id = ids_.at(static_cast<size_t>(examples[0]));
    return {.rows = 1, .columns = 1, .input_ids = {id}, .labels = {id}};
  }
  int64_t max_token() const override { return -1; }
  std::string describe() const override { return "tokens"; }

 private:
  std::vector<int64_t> ids_;
};

TEST(RunSample, TellsDataOfOneSizeApart) {
  const std::vector<int64_t> ids(100, 7);
  auto others = ids;
  others.back() = 8;
  EXPECT_EQ(sample_of(Tokens(ids)), sample_of(Tokens(ids)));
  EXPECT_NE(sample_of(Tokens(ids)), sample_of(Tokens(others)));
  EXPECT_EQ(sample_of(Tokens({3})), sample_of(Tokens({3})));
}

TEST(RunSample, TellsWeightsOfOneSizeApart) {
  const testing::TemporaryFolder folder;
  const std::string model = FULLSHARD_SOURCE_DIR "/tests/fixtures/models/llama";
  const std::string copy = folder.file("model.safetensors");
  std::filesystem::copy_file(model + "/model.safetensors", copy);
  EXPECT_EQ(sample_of_weights(folder.path()), sample_of_weights(model));
  std::fstream file(copy, std::ios::in | std::ios::out | std::ios::binary);
  uint64_t header = 0;
  file.read(reinterpret_cast<char*>(&header), sizeof header);
  file.seekp(static_cast<std::streamoff>(sizeof header + header));
  file.write("\1\2\3\4", 4);  // the first value of the first tensor
  file.close();
  EXPECT_NE(sample_of_weights(folder.path()), sample_of_weights(model));
}

}  // namespace
}  // namespace fullshard::train
