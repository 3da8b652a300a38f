// SPDX-License-Identifier: Apache-2.0
#include "fullshard/generation/generation_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/errors.h"
#include "tests/files.h"

namespace fullshard::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(GenerationConfig, IsReadWholly) {
  const auto config = read_generation_config(
      R"({"_from_model_config": true, "bos_token_id": 1, "eos_token_id": [2, 7], "pad_token_id": null,
          "do_sample": true, "temperature": 0.6, "top_k": 40, "top_p": 0.9, "min_p": 0.05,
          "repetition_penalty": 1.1, "no_repeat_ngram_size": 3, "max_new_tokens": 77,
          "min_new_tokens": 2, "num_return_sequences": 3, "length_penalty": 0.5,
          "early_stopping": "never", "stop_strings": ["A", "B"], "decoder_start_token_id": 5,
          "typical_p": 1.0, "max_length": 20, "transformers_version": "5.0.0"})",
      "g.json");
  EXPECT_THAT(config.warnings, IsEmpty());
  const GenerateOptions& options = config.options;
  EXPECT_TRUE(options.do_sample);
  EXPECT_EQ(options.temperature, 0.6);
  EXPECT_EQ(options.top_k, 40);
  EXPECT_EQ(options.top_p, 0.9);
  EXPECT_EQ(options.min_p, 0.05);
  EXPECT_EQ(options.repetition_penalty, 1.1);
  EXPECT_EQ(options.no_repeat_ngram_size, 3);
  EXPECT_EQ(options.max_new_tokens, 77);
  EXPECT_EQ(options.min_new_tokens, 2);
  EXPECT_EQ(options.num_return_sequences, 3);
  EXPECT_EQ(options.length_penalty, 0.5);
  EXPECT_EQ(options.early_stopping, EarlyStopping::never);
  EXPECT_THAT(options.eos_tokens, ElementsAre(2, 7));
  EXPECT_THAT(options.stop, ElementsAre("A", "B"));
  EXPECT_EQ(config.start_token, 5);
}

TEST(GenerationConfig, WarnsOfKeysThatDoNothing) {
  const auto config = read_generation_config(
      R"({"temprature": 0.5, "typical_p": 0.9, "max_length": 4096, "bad_words_ids": [[3]],
          "num_beam_groups": 1, "guidance_scale": null})",
      "g.json");
  EXPECT_THAT(config.warnings,
              ::testing::UnorderedElementsAre(
                  "g.json: temprature is unknown and has no effect; did you mean temperature?",
                  "g.json: typical_p is not honoured", "g.json: bad_words_ids is not honoured",
                  "g.json: max_length is not honoured; max_new_tokens counts new tokens instead"));
}

TEST(GenerationConfig, RefusesWhatMakesNoSense) {
  const auto said = [](const std::string& text) {
    return message_of([&] { read_generation_config(text, "g.json"); });
  };
  EXPECT_EQ(said(R"({"top_k": "many", "do_sample": 1})"),
            "g.json: do_sample is 1, expected true or false; top_k is \"many\", expected a whole "
            "number");
  EXPECT_THAT(said(R"({"temperature": -1})"), HasSubstr("g.json: generate: temperature is -1"));
  EXPECT_EQ(said(R"({"num_beams": 1000000000})"),
            "g.json: generate: num_beams is 1000000000, expected from 1 to 16384");
  EXPECT_EQ(said(R"({"do_sample": true, "num_return_sequences": 1000000000})"),
            "g.json: generate: num_return_sequences is 1000000000, expected from 1 to 16384");
  EXPECT_EQ(said(R"({"num_beams": 2, "num_beams": 3})"),
            "g.json: has the key \"num_beams\" twice, again at column 18");
  EXPECT_THAT(said(R"({"eos_token_id": ["a"]})"), HasSubstr("a token or a list of them"));
  EXPECT_THAT(said("{"), HasSubstr("g.json: is not valid JSON"));
  EXPECT_THAT(said("[]"), HasSubstr("expected a JSON object"));
}

TEST(GenerationConfig, LeavesToFlagsWhatMakesNoSenseTogether) {
  for (const char* text :
       {R"({"do_sample": true, "num_beams": 2})", R"({"num_return_sequences": 2})",
        R"({"num_beams": 2, "num_return_sequences": 3})", R"({"min_new_tokens": 200})",
        R"({"do_sample": false, "temperature": 0.0})"}) {
    EXPECT_EQ(message_of([&] { read_generation_config(text, "g.json"); }), "no error") << text;
  }
}

TEST(GenerationConfig, TakesTheEndFromTheModelWhereTheFolderNamesNone) {
  TemporaryFolder folder;
  const std::string model = R"({"eos_token_id": [3, 4]})";
  EXPECT_THAT(load_generation_config(folder.path(), model).options.eos_tokens, ElementsAre(3, 4));
  EXPECT_EQ(load_generation_config(folder.path(), model).path, "");
  std::ofstream(folder.file("generation_config.json")) << R"({"eos_token_id": 9})";
  EXPECT_THAT(load_generation_config(folder.path(), model).options.eos_tokens, ElementsAre(9));
  EXPECT_EQ(load_generation_config(folder.path(), model).path,
            folder.file("generation_config.json"));
  EXPECT_THAT(load_generation_config("", "{}").options.eos_tokens, IsEmpty());
}

}  // namespace
}  // namespace fullshard::testing
