// SPDX-License-Identifier: Apache-2.0
#include "fullshard/cli/flags/checkpoint_arguments.h"

#include <gtest/gtest.h>

#include <CLI/CLI.hpp>

#include "fullshard/base/error.h"
#include "fullshard/cli/flags/words.h"

namespace fullshard::cli {
namespace {

CheckpointCommandOptions parse(const std::vector<std::string>& words) {
  CLI::App app;
  CheckpointArguments arguments(app);
  app.parse(words_for_parser(words));
  EXPECT_TRUE(arguments.was_chosen());
  return arguments.options();
}

TEST(CheckpointArguments, TakesTheWordsOfZeroToFp32) {
  const auto options =
      parse({"checkpoint", "to-fp32", "dir", "out", "--max_shard_size", "1GB",
             "--safe_serialization", "-t", "global_step5", "--exclude_frozen_parameters", "-d"});
  EXPECT_EQ(options.action, CheckpointAction::to_fp32);
  EXPECT_EQ(options.path, "dir");
  EXPECT_EQ(options.output, "out");
  EXPECT_EQ(options.tag, "global_step5");
  EXPECT_EQ(options.max_file_bytes, 1'000'000'000);
  EXPECT_TRUE(options.safetensors);
  EXPECT_FALSE(options.with_frozen);
}

TEST(CheckpointArguments, KnowsEveryAction) {
  EXPECT_EQ(parse({"checkpoint", "inspect", "a"}).action, CheckpointAction::inspect);
  EXPECT_EQ(parse({"checkpoint", "verify", "a", "--json"}).action, CheckpointAction::verify);
  EXPECT_TRUE(parse({"checkpoint", "verify", "a", "--json"}).json);
  const auto diff = parse({"checkpoint", "diff", "a", "b", "--tolerance", "0.5"});
  EXPECT_EQ(diff.action, CheckpointAction::diff);
  EXPECT_EQ(diff.other, "b");
  EXPECT_EQ(diff.tolerance, 0.5);
  const auto convert = parse({"checkpoint", "convert", "a", "b", "--to", "bin"});
  EXPECT_EQ(convert.action, CheckpointAction::convert);
  EXPECT_EQ(convert.form, "bin");
  EXPECT_EQ(convert.dtype, "fp32");
  EXPECT_EQ(parse({"checkpoint", "export", "a", "b", "--dtype", "bf16"}).dtype, "bf16");
  const auto merge =
      parse({"checkpoint", "merge-lora", "--model", "a", "--adapter", "b", "--output", "c"});
  EXPECT_EQ(merge.action, CheckpointAction::merge_lora);
  EXPECT_EQ(merge.model, "a");
  EXPECT_EQ(merge.adapter, "b");
  EXPECT_EQ(merge.output, "c");
  EXPECT_EQ(merge.dtype, "keep");
  EXPECT_THROW(parse({"checkpoint", "merge-lora", "--model", "a"}), CLI::ParseError);
  EXPECT_THROW(parse({"checkpoint"}), CLI::ParseError);
  EXPECT_THROW(parse({"checkpoint", "to-fp32", "a"}), CLI::ParseError);
  EXPECT_THROW(parse({"checkpoint", "convert", "a", "b", "--to", "rar"}), CLI::ParseError);
}

TEST(ParseFileSize, CountsAsHuggingFaceDoes) {
  EXPECT_EQ(parse_file_size("5GB", "f"), 5'000'000'000);
  EXPECT_EQ(parse_file_size("500mb", "f"), 500'000'000);
  EXPECT_EQ(parse_file_size("1.5KiB", "f"), 1536);
  EXPECT_EQ(parse_file_size("77", "f"), 77);
  for (const auto* wrong : {"", "GB", "5 GB", "0GB", "-1GB", "5XB", "1e30TB", "nan"}) {
    try {
      parse_file_size(wrong, "--max-shard-size");
      ADD_FAILURE() << wrong;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      EXPECT_EQ(std::string(error.what()), "--max-shard-size: is '" + std::string(wrong) +
                                               "', expected a size such as 5GB or 500MB");
    }
  }
}

}  // namespace
}  // namespace fullshard::cli
