// SPDX-License-Identifier: Apache-2.0
#include "fullshard/data/text/hub_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "fullshard/data/open_data.h"
#include "fullshard/data/text/data_file_kind.h"
#include "tests/data/data_files.h"
#include "tests/data/toy_tokenizer.h"

namespace fullshard::data {
namespace {

using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;

class HubDatasets : public ::testing::Test {
 protected:
  void SetUp() override {
    snapshot_ = folder_.path() + "/datasets--org--pairs/snapshots/" + std::string(40, 'a');
    std::filesystem::create_directories(folder_.path() + "/datasets--org--pairs/refs");
    std::ofstream(folder_.path() + "/datasets--org--pairs/refs/main") << std::string(40, 'a');
    ::setenv("HF_HUB_CACHE", folder_.path().c_str(), 1);
  }
  void TearDown() override {
    ::unsetenv("HF_HUB_CACHE");
    std::filesystem::remove_all(folder_.path());
  }

  void add(const std::string& path, const std::string& text = "x\n") {
    std::filesystem::create_directories(
        std::filesystem::path(snapshot_ + "/" + path).parent_path());
    std::ofstream(snapshot_ + "/" + path) << text;
  }
  std::vector<std::string> found(const std::string& name, const std::string& split) {
    std::vector<std::string> files = list_files({name}, split);
    for (std::string& file : files) file = file.substr(snapshot_.size() + 1);
    return files;
  }
  std::string refusal(const std::string& name, const std::string& split = "train") {
    return error_of([&] { found(name, split); }, folder_);
  }

  testing::DataFolder folder_;
  std::string snapshot_;
};

TEST_F(HubDatasets, HaveSplitsAndConfigurationsByTheNamesOfFiles) {
  for (const char* path :
       {"README.md", "dataset_infos.json", "ro-en/train-00000-of-00001.jsonl", "ro-en/test.jsonl",
        "ro-en/validation.jsonl.gz", "de-en/train.jsonl", "de-en/dev.jsonl"}) {
    add(path);
  }
  EXPECT_THAT(found("org/pairs:ro-en", "train"), ElementsAre("ro-en/train-00000-of-00001.jsonl"));
  EXPECT_THAT(found("org/pairs:ro-en", "validation"), ElementsAre("ro-en/validation.jsonl.gz"));
  EXPECT_THAT(found("org/pairs:de-en", "validation"), ElementsAre("de-en/dev.jsonl"));
  EXPECT_THAT(found("org/pairs", "train"),
              ElementsAre("de-en/train.jsonl", "ro-en/train-00000-of-00001.jsonl"));
  EXPECT_THAT(refusal("org/pairs:fr-en"), HasSubstr("has no files of the split train and the "
                                                    "configuration fr-en"));
}

TEST_F(HubDatasets, OfDocumentsAndLabelsHaveSplitsToo) {
  add("train.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\", \"text\": \"a\", \"label\": 0}\n");
  add("validation.jsonl",
      "{\"prompt\": \"\", \"completion\": \"xyz\", \"text\": \"abc\", \"label\": 1}\n");
  const testing::ToyTokenizer tokenizer;
  for (const Task task : {Task::causal_lm, Task::classification}) {
    const auto data = open_data({.paths = {"org/pairs"},
                                 .split = "validation",
                                 .task = task,
                                 .sequence_length = 8,
                                 .classes = {"no", "yes"}},
                                &tokenizer);
    EXPECT_EQ(data->batch(std::vector<int64_t>{0}, 0, 0).num_tokens(),
              task == Task::causal_lm ? 3 : 5);
  }
}

TEST_F(HubDatasets, WithoutNamesOfSplitsAreForTraining) {
  add("corpus.txt");
  EXPECT_THAT(found("org/pairs", "train"), ElementsAre("corpus.txt"));
  EXPECT_THAT(refusal("org/pairs", "validation"),
              HasSubstr("has no files of the split validation"));
}

TEST_F(HubDatasets, InParquetAreConvertedByOneCommand) {
  add("ro-en/train-00000-of-00001.parquet");
  EXPECT_THAT(refusal("org/pairs:ro-en"),
              HasSubstr("convert them to JSON: python3 -c \"import datasets; "
                        "datasets.load_dataset('org/pairs', 'ro-en', "
                        "split='train').to_json('train.jsonl')\""));
}

TEST_F(HubDatasets, ThatAreNotThereAreDownloadedByOneCommand) {
  EXPECT_THAT(refusal("wmt/wmt16:ro-en"),
              HasSubstr("wmt/wmt16: is not a file, a folder, or a data set in the Hugging Face "
                        "cache ("));
  EXPECT_THAT(refusal("wmt/wmt16:ro-en"),
              HasSubstr("); download it: hf download --repo-type dataset wmt/wmt16"));
  // A file is not mistaken for a name.
  EXPECT_EQ(refusal("corpus.jsonl"), "corpus.jsonl: cannot be read (No such file or directory)");
}

}  // namespace
}  // namespace fullshard::data
