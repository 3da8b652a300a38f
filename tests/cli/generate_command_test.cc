// SPDX-License-Identifier: Apache-2.0
// `generate` as a user types it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "tests/cli/long_runs.h"
#include "tests/launch/shell.h"

namespace fullshard::cli {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kModelFolders = FULLSHARD_SOURCE_DIR "/tests/fixtures/models/";

// A Llama that reads and writes bytes; its weights are random.
constexpr const char* kByteLlama = R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
  "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 2, "vocab_size": 259, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
  "initializer_range": 0.3, "tie_word_embeddings": true, "eos_token_id": 257})";

class Generation : public ::testing::Test {
 protected:
  launch::Ended run(const std::string& words, const std::string& before = "") {
    return launch::shell("cd " + folder_.path() +
                         "; unset XDG_CONFIG_HOME FULLSHARD_CONFIG; export HOME=" + folder_.path() +
                         " OMP_NUM_THREADS=1; " + before + "fullshard generate " + words);
  }

  static std::vector<json> lines_of(const std::string& text) {
    std::vector<json> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) {
      if (line.starts_with("{")) lines.push_back(json::parse(line));
    }
    return lines;
  }

  // Removes what depends on ranks and clocks.
  static std::vector<json> comparable(const std::string& text) {
    auto lines = lines_of(text);
    for (json& line : lines) {
      line.erase("rank");
      line.erase("seconds");
    }
    return lines;
  }

  void write_byte_llama() {
    std::filesystem::create_directories(folder_ / "bytes-llama");
    folder_.write("bytes-llama/config.json", kByteLlama);
  }

  // A copy of the fixture with one value of a tensor in fp32 that is NaN.
  void write_broken_llama(const std::string& tensor, uint64_t place) {
    std::filesystem::create_directories(folder_ / "broken");
    for (const char* name : {"config.json", "model.safetensors"}) {
      std::filesystem::copy_file(kModelFolders + "llama/" + name, folder_ / "broken/" + name,
                                 std::filesystem::copy_options::overwrite_existing);
    }
    std::fstream file(folder_ / "broken/model.safetensors",
                      std::ios::in | std::ios::out | std::ios::binary);
    uint64_t size = 0;
    file.read(reinterpret_cast<char*>(&size), sizeof size);
    std::string header(size, ' ');
    file.read(header.data(), static_cast<std::streamsize>(size));
    const auto first = json::parse(header)[tensor]["data_offsets"][0].get<uint64_t>();
    const float nan = std::numeric_limits<float>::quiet_NaN();
    file.seekp(static_cast<std::streamoff>(sizeof size + size + first + place * sizeof nan));
    file.write(reinterpret_cast<const char*>(&nan), sizeof nan);
  }

  // A tokenizer_config.json.
  static std::string byte_tokenizer(const std::string& chat_template) {
    json config = {{"tokenizer_class", "FullshardByteTokenizer"}};
    if (!chat_template.empty()) config["chat_template"] = chat_template;
    return config.dump();
  }

  launch::TemporaryFolder folder_;
};

TEST_F(Generation, WritesALineForEveryPrompt) {
  folder_.write("p.jsonl",
                "{\"tokens\": [7, 9, 11]}\n{\"tokens\": [5]}\n\n{\"tokens\": [20, 21, 22, 23]}\n");
  const auto ended =
      run("--model " + kModelFolders + "llama --prompts p.jsonl --max-new-tokens 6 --logprobs");
  ASSERT_EQ(ended.status, 0) << ended.output;
  const auto lines = lines_of(ended.output);
  ASSERT_EQ(lines.size(), 3u) << ended.output;
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(lines[i]["index"], i);
    EXPECT_EQ(lines[i]["rank"], 0);
    EXPECT_EQ(lines[i]["finish"], "length");
    EXPECT_EQ(lines[i]["tokens"].size(), 6u);
    EXPECT_EQ(lines[i]["logprobs"].size(), 6u);
    EXPECT_TRUE(lines[i]["text"].is_null());  // the folder has no tokenizer
    EXPECT_GE(lines[i]["seconds"].get<double>(), 0.0);
  }
  EXPECT_EQ(lines[2]["prompt"], json({20, 21, 22, 23}));
}

// Two flags give the same setting in another way: the fixture's tokens are those of transformers.
TEST_F(Generation, GivesTheTokensOfTransformers) {
  const json found = json::parse(
      std::ifstream(FULLSHARD_SOURCE_DIR "/tests/fixtures/generation/generation.json"))["mistral"];
  std::string prompts;
  for (const json& tokens : found["prompts"]) prompts += json{{"tokens", tokens}}.dump() + "\n";
  folder_.write("p.jsonl", prompts);
  const auto tokens_by = [&](const std::string& flags) {
    const auto ended = run("--model " + kModelFolders +
                           "mistral --prompts p.jsonl "
                           "--max-new-tokens 10 --json " +
                           flags);
    EXPECT_EQ(ended.status, 0) << ended.output;
    json tokens = json::array();
    for (const json& line : lines_of(ended.output)) tokens.push_back(line["tokens"]);
    return tokens;
  };
  // The model's own end tokens were not at work in the fixture.
  const auto is_prefix = [](const json& found_tokens, const json& expected) {
    return std::equal(found_tokens.begin(), found_tokens.end(), expected.begin());
  };
  const json greedy = tokens_by("--greedy");
  ASSERT_EQ(greedy.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(is_prefix(greedy[i], found["cases"][0]["results"][i])) << greedy[i];
  }
}

TEST_F(Generation, GivesTheSameTextOnAnyNumberOfRanks) {
  write_byte_llama();
  std::string prompts;
  for (int i = 0; i < 7; ++i) prompts += "prompt number " + std::to_string(i) + "\n";
  folder_.write("p.txt", prompts);
  for (const std::string how : {"--greedy", "--temperature 0.8 --top-k 0 --seed 3",
                                "--num-beams 3 --num-return-sequences 2"}) {
    const std::string flags =
        "--model bytes-llama --tokenizer bytes --prompts p.txt "
        "--max-new-tokens 12 --batch 2 " +
        how;
    const auto alone = run(flags);
    ASSERT_EQ(alone.status, 0) << alone.output;
    const auto expected = comparable(alone.output);
    EXPECT_EQ(expected.size(), how.starts_with("--num-beams") ? 14u : 7u) << alone.output;
    for (const std::string ranks : {"2", "3"}) {
      const auto ended = run(flags + " --ranks " + ranks);
      ASSERT_EQ(ended.status, 0) << ended.output;
      EXPECT_EQ(comparable(ended.output), expected) << ranks << " ranks, " << how;
    }
  }
}

TEST_F(Generation, WorksWithFewerPromptsThanRanks) {
  folder_.write("p.jsonl", "{\"tokens\": [7, 9, 11]}\n{\"tokens\": [5]}\n");
  const std::string flags =
      "--model " + kModelFolders + "gpt2 --prompts p.jsonl --max-new-tokens 9 ";
  const auto alone = run(flags);
  const auto ended = run(flags + "--ranks 3");
  ASSERT_EQ(ended.status, 0) << ended.output;
  EXPECT_EQ(comparable(ended.output), comparable(alone.output));
  const auto lines = lines_of(ended.output);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0]["rank"], 0);
  EXPECT_EQ(lines[1]["rank"], 1);
}

TEST_F(Generation, ReadsStandardInput) {
  write_byte_llama();
  const std::string flags = "--model bytes-llama --tokenizer bytes --max-new-tokens 4 ";
  for (const std::string ranks : {"", "--ranks 2"}) {
    const auto ended = run(flags + ranks, "printf 'one\\ntwo\\nthree\\n' | ");
    ASSERT_EQ(ended.status, 0) << ended.output;
    const auto lines = lines_of(ended.output);
    ASSERT_EQ(lines.size(), 3u) << ended.output;
    EXPECT_EQ(lines[2]["prompt"], "three");
  }
}

TEST_F(Generation, WritesItsFileAndKeepsStandardOutputFree) {
  write_byte_llama();
  const auto ended =
      run("--model bytes-llama --tokenizer bytes --prompt hello --max-new-tokens 4 "
          "--output out.jsonl 2>/dev/null");
  ASSERT_EQ(ended.status, 0) << ended.output;
  EXPECT_EQ(ended.output, "");
  const auto lines = lines_of(folder_.read("out.jsonl"));
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0]["prompt"], "hello");
}

TEST_F(Generation, DoesNotCutOffAnEarlierAnswer) {
  write_byte_llama();
  const std::string flags =
      "--model bytes-llama --tokenizer bytes --prompt hello --max-new-tokens 4 --output out.jsonl ";
  folder_.write("out.jsonl", "of an earlier run\n");
  const auto refused = run(flags);
  EXPECT_EQ(refused.status, 2) << refused.output;
  EXPECT_THAT(refused.output, HasSubstr("--output out.jsonl: already holds 18 bytes"));
  EXPECT_EQ(folder_.read("out.jsonl"), "of an earlier run\n");
  EXPECT_EQ(run(flags + "--overwrite").status, 0);
  EXPECT_EQ(lines_of(folder_.read("out.jsonl")).size(), 1u);
  EXPECT_THAT(folder_.read("out.jsonl"), Not(HasSubstr("earlier")));
}

TEST_F(Generation, GivesTheSameTextFromADiskAndUnitByUnit) {
  write_byte_llama();
  folder_.write("p.txt", "one\ntwo and more\nthree\n");
  folder_.write("zero3.json", R"({"train_micro_batch_size_per_gpu": 1, "zero_optimization": {
      "stage": 3, "offload_param": {"device": "nvme", "nvme_path": ".", "max_in_cpu": 0}}})");
  const std::string flags =
      "--model bytes-llama --tokenizer bytes --prompts p.txt --max-new-tokens 9 --batch 1 "
      "--temperature 0.9 ";
  const auto alone = run(flags);
  ASSERT_EQ(alone.status, 0) << alone.output;
  EXPECT_THAT(alone.output, HasSubstr(", whole; a step takes at least "));
  EXPECT_THAT(alone.output, HasSubstr("; reading the weights at full memory bandwidth takes "));
  for (const std::string how :
       {"--offload param:.", "--offload param:. --ranks 2", "--config zero3.json",
        "--resident-share 0 --ranks 2", "--resident-share 0.5 --ranks 3",
        "--offload param:. --resident-share 0.5"}) {
    const auto ended = run(flags + how);
    ASSERT_EQ(ended.status, 0) << how << ": " << ended.output;
    EXPECT_EQ(comparable(ended.output), comparable(alone.output)) << how;
    EXPECT_THAT(ended.output, HasSubstr("although all of them would fit")) << how;
    EXPECT_THAT(ended.output, HasSubstr(" in every step")) << how;
  }
  for (const std::string how : {"--cache host", "--cache host --ranks 2"}) {
    const auto ended = run(flags + how);
    ASSERT_EQ(ended.status, 0) << how << ": " << ended.output;
    EXPECT_EQ(comparable(ended.output), comparable(alone.output)) << how;
    EXPECT_THAT(ended.output, HasSubstr("; keys and values in host memory")) << how;
  }
  const auto quiet = run(flags + "--quiet");
  EXPECT_THAT(quiet.output, Not(HasSubstr("weights:")));
}

TEST_F(Generation, ReadsWeightsWhereTheModelsFilesAre) {
  folder_.write("p.jsonl", "{\"tokens\": [7, 9, 1]}\n{\"tokens\": [5]}\n");
  folder_.write("zero3.json", R"({"train_micro_batch_size_per_gpu": 1, "zero_optimization": {
      "stage": 3, "offload_param": {"device": "nvme", "nvme_path": ".", "max_in_cpu": 0}}})");
  const std::string flags =
      "--model " + kModelFolders + "llama --prompts p.jsonl --max-new-tokens 6 --greedy ";
  const auto whole = run(flags);
  ASSERT_EQ(whole.status, 0) << whole.output;
  for (const std::string how : {"--config zero3.json", "--config zero3.json --ranks 2"}) {
    const auto ended = run(flags + how);
    ASSERT_EQ(ended.status, 0) << how << ": " << ended.output;
    EXPECT_EQ(comparable(ended.output), comparable(whole.output)) << how;
    EXPECT_THAT(ended.output, HasSubstr("are fetched from the model's files in every step")) << how;
  }
}

TEST_F(Generation, SaysBeforeTheStartWhatDoesNotFit) {
  folder_.write("p.jsonl", "{\"tokens\": [7, 9, 1]}\n");
  const auto ended =
      run("--model " + kModelFolders + "t5 --prompts p.jsonl --max-new-tokens 1000000000000");
  EXPECT_EQ(ended.status, 3) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("the keys and values of a batch"));
  EXPECT_TRUE(lines_of(ended.output).empty());
}

// A terminal of its own, which `script` makes; Debian and Ubuntu always have it.
TEST_F(Generation, ShowsTextOnATerminalAsItComes) {
  write_byte_llama();
  const auto ended = launch::shell(
      "cd " + folder_.path() + "; export HOME=" + folder_.path() +
      " OMP_NUM_THREADS=1; script -qec 'fullshard generate --model bytes-llama --tokenizer bytes "
      "--prompt hello --max-new-tokens 12 --min-new-tokens 12' shown.txt </dev/null >/dev/null");
  EXPECT_EQ(ended.status, 0) << ended.output;
  auto shown = folder_.read("shown.txt");
  EXPECT_THAT(shown, Not(HasSubstr("\"tokens\"")));
  std::erase(shown, '\r');  // a terminal's end of a line has one
  const auto line =
      lines_of(run("--model bytes-llama --tokenizer bytes --prompt hello --max-new-tokens 12 "
                   "--min-new-tokens 12 --quiet")
                   .output);
  ASSERT_EQ(line.size(), 1u);
  EXPECT_EQ(line[0]["tokens"].size(), 12u);
  auto text = line[0]["text"].get<std::string>();
  std::erase(text, '\r');
  EXPECT_THAT(shown, HasSubstr(text));
}

TEST_F(Generation, RendersChats) {
  write_byte_llama();
  const std::string flags = "--model bytes-llama --max-new-tokens 2 --prompt hi ";
  folder_.write("bytes-llama/tokenizer_config.json", byte_tokenizer(""));
  const auto none = run(flags + "--chat");
  EXPECT_EQ(none.status, 4) << none.output;
  EXPECT_THAT(none.output, HasSubstr("--prompt: has messages, but the tokenizer has no"));
  folder_.write("bytes-llama/tokenizer_config.json",
                byte_tokenizer("<{{ messages[0]['role'] }}>{{ messages[0]['content'] }}"));
  EXPECT_EQ(lines_of(run(flags + "--chat").output).at(0)["prompt"], "<user>hi");
  EXPECT_EQ(lines_of(run(flags).output).at(0)["prompt"], "hi");
  folder_.write("bytes-llama/tokenizer_config.json", byte_tokenizer("{% import 'x' %}"));
  const auto unsupported = run(flags + "--chat");
  EXPECT_EQ(unsupported.status, 4) << unsupported.output;
  EXPECT_THAT(unsupported.output, HasSubstr("the statement 'import' is not supported"));
}

TEST_F(Generation, RefusesStagesThatShardNoParameters) {
  folder_.write("p.jsonl", "{\"tokens\": [7]}\n");
  for (const std::string how : {"--zero-stage 1", "--zero-stage 2", "--strategy SHARD_GRAD_OP"}) {
    const auto ended = run("--model " + kModelFolders + "llama --prompts p.jsonl " + how);
    EXPECT_EQ(ended.status, 2) << ended.output;
    EXPECT_THAT(ended.output, HasSubstr("generation has neither"));
    EXPECT_THAT(ended.output, HasSubstr("use stage 3"));
  }
  folder_.write("zero3.json", R"({"train_micro_batch_size_per_gpu": 1,
                                  "zero_optimization": {"stage": 3}})");
  for (const std::string how : {"--config zero3.json --ranks 2", "--strategy NO_SHARD --ranks 2"}) {
    const auto ended =
        run("--model " + kModelFolders + "llama --prompts p.jsonl --max-new-tokens 2 " + how);
    EXPECT_EQ(ended.status, 0) << ended.output;
    EXPECT_EQ(lines_of(ended.output).size(), 1u) << ended.output;
  }
}

TEST_F(Generation, SaysWhatIsWrongAtOnce) {
  folder_.write(
      "long.jsonl", "{\"tokens\": [5]}\n{\"tokens\": [" + [] {
        std::string tokens = "4";
        for (int i = 0; i < 23; ++i) tokens += ", 4";
        return tokens;
      }() + "]}\n");
  folder_.write("bad.jsonl", "{\"tokens\": [5]}\n{\"tokens\": [");
  const std::string gpt2 = "--model " + kModelFolders + "gpt2 ";
  const auto expect = [&](const std::string& words, int status, const std::string& text) {
    const auto ended = run(words);
    EXPECT_EQ(ended.status, status) << words << ": " << ended.output;
    EXPECT_THAT(ended.output, HasSubstr(text)) << words;
    EXPECT_TRUE(lines_of(ended.output).empty()) << words;
  };
  expect(gpt2 + "--prompts long.jsonl", 4,
         "prompt 1: has 24 tokens, but the model has 24 positions");
  expect(gpt2 + "--prompts long.jsonl --ranks 2", 4, "prompt 1: has 24 tokens");
  expect(gpt2 + "--prompts bad.jsonl", 4, "bad.jsonl, line 2: is not valid JSON");
  expect(gpt2 + "--prompts none.jsonl", 4, "none.jsonl: cannot be read");
  expect(gpt2 + "--prompt hello", 4, "has no tokenizer");
  expect(gpt2 + "--prompt a --prompts b", 2, "--prompt");
  expect(gpt2 + "--prompt a --greedy --temperature 2", 2, "--greedy");
  expect(gpt2 + "--prompts long.jsonl --stop x", 2, "--stop: the model's folder has no tokenizer");
  expect(gpt2 + "--prompts long.jsonl --num-return-sequences 2", 2, "all would be the same");
  expect(gpt2 + "--prompts long.jsonl --num-beams 1000000000", 2,
         "num_beams is 1000000000, expected from 1 to 16384");
  expect(gpt2 + "--prompts long.jsonl --temperature 1 --num-return-sequences 1000000000", 2,
         "num_return_sequences is 1000000000, expected from 1 to 16384");
  folder_.write("twice.jsonl", "{\"prompt\": \"a\", \"prompt\": \"b\"}\n");
  expect(gpt2 + "--prompts twice.jsonl", 4,
         "twice.jsonl, line 1: has the key \"prompt\" twice, again at column 17");
  expect("--model " + kModelFolders + "bert --prompt a --tokenizer bytes", 4, "makes no text");
  expect(gpt2 + "--prompts long.jsonl --max-new-token 3", 2, "--max-new-tokens");
}

TEST_F(Generation, ReadsTheFoldersGenerationConfig) {
  write_byte_llama();
  folder_.write("bytes-llama/generation_config.json",
                R"({"max_new_tokens": 3, "eos_token_id": 300, "top_g": 1})");
  const std::string flags = "--model bytes-llama --tokenizer bytes --prompt hello ";
  const auto ended = run(flags);
  ASSERT_EQ(ended.status, 0) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("warning: "));
  EXPECT_THAT(ended.output, HasSubstr("top_g is unknown"));
  EXPECT_EQ(lines_of(ended.output)[0]["tokens"].size(), 3u);
  EXPECT_EQ(lines_of(run(flags + "--max-new-tokens 5").output)[0]["tokens"].size(), 5u);
  folder_.write("bytes-llama/generation_config.json", "{\"top_k\": \"x\"}");
  const auto broken = run(flags);
  EXPECT_EQ(broken.status, 4);
  EXPECT_THAT(broken.output, HasSubstr("generation_config.json: top_k is \"x\""));
}

TEST_F(Generation, LooksAtTheFoldersConfigTogetherWithTheFlags) {
  write_byte_llama();
  const std::string flags =
      "--model bytes-llama --tokenizer bytes --prompt hello --max-new-tokens 3 ";
  const auto expect = [&](const std::string& config, const std::string& more, int status,
                          const std::string& text) {
    folder_.write("bytes-llama/generation_config.json", config);
    const auto ended = run(flags + more);
    EXPECT_EQ(ended.status, status) << config << more << ": " << ended.output;
    EXPECT_THAT(ended.output, HasSubstr(text)) << config << more;
  };
  const std::string beams = R"({"do_sample": true, "num_beams": 2})";
  expect(beams, "", 4, "bytes-llama/generation_config.json: generate: beam search does not sample");
  expect(beams, "--greedy", 0, "\"score\":");
  expect(beams, "--num-beams 3", 0, "\"score\":");
  const std::string several = R"({"do_sample": false, "num_return_sequences": 2})";
  expect(several, "", 4, "generation_config.json: generate: num_return_sequences is 2");
  expect(several, "--temperature 1", 0, "\"sequence\":1");
  expect(several, "--num-return-sequences 3", 2, "error: generate: num_return_sequences is 3");
  const std::string cold = R"({"do_sample": false, "temperature": 0.0})";
  expect(cold, "", 0, "\"tokens\":");
  expect(cold, "--top-k 5", 4, "generation_config.json: generate: temperature is 0");
}

TEST_F(Generation, TellsOfFlagsOfBeamsWithoutBeams) {
  write_byte_llama();
  const std::string flags =
      "--model bytes-llama --tokenizer bytes --prompt hello --max-new-tokens 3 "
      "--length-penalty 3 --early-stopping true ";
  const auto greedy = run(flags);
  EXPECT_EQ(greedy.status, 0) << greedy.output;
  for (const std::string flag : {"--length-penalty", "--early-stopping"}) {
    EXPECT_THAT(greedy.output,
                HasSubstr("warning: " + flag + ": has no effect without beams; add --num-beams\n"));
  }
  EXPECT_THAT(run(flags + "--num-beams 2").output, Not(HasSubstr("has no effect")));
}

TEST_F(Generation, RefusesPromptsThatAreNoUtf8) {
  write_byte_llama();
  folder_.write("p.txt", "one\nHel\xFFlo\n");
  const std::string flags = "--model bytes-llama --tokenizer bytes --max-new-tokens 3 ";
  for (const auto& [words, place] : std::vector<std::pair<std::string, std::string>>{
           {"--prompts p.txt", "p.txt, line 2"},
           {"--prompts p.txt --ranks 2", "p.txt, line 2"},
           {"--chat --prompt \"$(printf 'Hel\\377lo')\"", "--prompt"}}) {
    const auto ended = run(flags + words);
    EXPECT_EQ(ended.status, 4) << words << ": " << ended.output;
    EXPECT_THAT(ended.output, HasSubstr(place + ": byte 3 is 0xff, which is no UTF-8")) << words;
  }
}

TEST_F(Generation, FailsWhereWeightsAreNotFinite) {
  write_broken_llama("model.norm.weight", 5);
  folder_.write("p.jsonl", "{\"tokens\": [7]}\n{\"tokens\": [5]}\n");
  for (const std::string how : {"--greedy", "--temperature 1 --logprobs", "--num-beams 2"}) {
    const auto ended = run("--model broken --prompts p.jsonl --max-new-tokens 4 " + how);
    EXPECT_EQ(ended.status, 1) << how << ": " << ended.output;
    EXPECT_THAT(ended.output,
                HasSubstr("error: prompt 0: after 0 new tokens the model's logits are NaN or "
                          "infinite: its weights are not finite, or too large for their dtype"))
        << how;
    EXPECT_TRUE(lines_of(ended.output).empty()) << how;
  }
}

// One rank's prompt alone holds the token whose embedding is broken; the last rank has no prompt.
TEST_F(Generation, FailsOnAllRanksWhereOneRanksLogitsAreNotFinite) {
  const uint64_t width = 32;
  write_broken_llama("model.embed_tokens.weight", 7 * width);
  folder_.write("p.jsonl", "{\"tokens\": [7]}\n{\"tokens\": [5]}\n");
  for (const std::string how : {"", "--resident-share 0"}) {
    const auto ended =
        run("--model broken --prompts p.jsonl --max-new-tokens 12 --ranks 3 " + how, "timeout 60 ");
    EXPECT_EQ(ended.status, 1) << how << ": " << ended.output;
    EXPECT_THAT(ended.output, HasSubstr("rank 0: prompt 0: after 0 new tokens")) << how;
    EXPECT_TRUE(lines_of(ended.output).empty()) << how;
  }
}

// A limit on the size of files stands for a full disk.
TEST_F(Generation, CutsOffThePartOfALineThatAFullDiskTook) {
  write_byte_llama();
  std::string prompts;
  for (int i = 0; i < 40; ++i) prompts += "prompt " + std::to_string(i) + "\n";
  folder_.write("p.txt", prompts);
  const auto ended =
      run("--model bytes-llama --tokenizer bytes --prompts p.txt --batch 40 --max-new-tokens 5 "
          "--output out.jsonl",
          "trap '' XFSZ; ulimit -f 4; ");
  EXPECT_EQ(ended.status, 1) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("out.jsonl: cannot be written: File too large"));
  const std::string text = folder_.read("out.jsonl");
  EXPECT_TRUE(text.ends_with("\n")) << text;
  const auto lines = lines_of(text);
  EXPECT_GT(lines.size(), 3u);
  EXPECT_LT(lines.size(), 40u);
}

class GenerationLife : public LongRuns {};

// Ranks make steps of their own, or every step together.
TEST_F(GenerationLife, NamesARankThatStandsStill) {
  std::filesystem::create_directories(folder_ / "bytes-llama");
  folder_.write("bytes-llama/config.json", kByteLlama);
  std::string prompts;
  for (int i = 0; i < 20000; ++i) prompts += "p" + std::to_string(i) + "\n";
  folder_.write("p.txt", prompts);
  for (const std::string how : {"", "--resident-share 0 "}) {
    const auto ended = run_and(
        "generate --model bytes-llama --tokenizer bytes --prompts p.txt --batch 4 "
        "--max-new-tokens 30 --output out.jsonl --overwrite --ranks 2 --step-timeout 3 --grace 1 " +
            how,
        "until [ -s out.jsonl ] || ! kill -0 $launcher; do sleep 0.05; done; set -- $(ranks); "
        "kill -STOP $2");
    EXPECT_EQ(ended.status, 1) << how << ended.output;
    EXPECT_THAT(ended.output, HasSubstr("rank 1")) << how;
    EXPECT_THAT(ended.output, HasSubstr("--step-timeout")) << how;
    std::filesystem::remove(folder_ / "out.jsonl");
  }
}

TEST_F(Generation, KeepsEveryLineThatWasWrittenWhenInterrupted) {
  write_byte_llama();
  std::string prompts;
  for (int i = 0; i < 20000; ++i) prompts += "p" + std::to_string(i) + "\n";
  folder_.write("p.txt", prompts);
  // Interrupted as soon as a line is there.
  const auto ended = launch::shell(
      "cd " + folder_.path() + "; export HOME=" + folder_.path() + " OMP_NUM_THREADS=1; " +
      launch::kHearsInterrupts +
      "fullshard generate --model bytes-llama --tokenizer bytes --prompts p.txt --batch 4 "
      "--max-new-tokens 30 --output out.jsonl & pid=$!; "
      "until [ -s out.jsonl ]; do sleep 0.05; done; kill -INT $pid; wait $pid");
  EXPECT_EQ(ended.status, 130);
  EXPECT_THAT(ended.output, HasSubstr("of 20000 prompts are done"));
  const std::string text = folder_.read("out.jsonl");
  EXPECT_TRUE(text.ends_with("\n"));
  const auto lines = lines_of(text);
  ASSERT_FALSE(lines.empty());
  EXPECT_EQ(lines.size() % 4, 0u);
  for (size_t i = 0; i < lines.size(); ++i) EXPECT_EQ(lines[i]["index"], i);
}

}  // namespace
}  // namespace fullshard::cli
