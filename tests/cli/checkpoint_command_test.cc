// SPDX-License-Identifier: Apache-2.0
// `fullshard checkpoint` as a user types it.
#include <gmock/gmock.h>

#include "tests/cli/checkpoint_runs.h"

namespace fullshard::cli {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class CheckpointCommand : public CheckpointRuns {};

TEST_F(CheckpointCommand, InspectsEveryKind) {
  const std::vector<std::pair<std::string, std::string>> kinds = {
      {"zero1", "DeepSpeed ZeRO-1"},
      {"zero2_bf16", "DeepSpeed ZeRO-2"},
      {"zero3", "DeepSpeed ZeRO-3"},
      {"dcp", "torch.distributed.checkpoint"},
      {"accelerate", "Accelerate FSDP"},
      {"resumable/accelerate_full", "Hugging Face"},
      {"zero1.safetensors", "weights file"},
      {"resumable/trainer", "Trainer"},
      {"resumable/accelerate_state", "Accelerate"}};
  for (const auto& [name, kind] : kinds) {
    const json found = run_json("checkpoint inspect " + kFixtures + name);
    EXPECT_EQ(found["kind"], kind) << name;
    EXPECT_GT(found["parameters"].get<int64_t>(), 90) << name;
  }
  const launch::Ended table = run("checkpoint inspect " + kFixtures + "zero3");
  EXPECT_EQ(table.status, 0);
  EXPECT_THAT(table.output, HasSubstr("zero3/global_step2: DeepSpeed ZeRO-3\n"
                                      "step         2\n"
                                      "ranks        3\n"));
  EXPECT_THAT(table.output,
              HasSubstr("head.weight    F32         140 B  [7, 5]  tied to emb.weight\n"));
}

TEST_F(CheckpointCommand, VerifiesAndNamesWhatIsDamaged) {
  const json whole = run_json("checkpoint verify " + kFixtures + "zero2");
  EXPECT_TRUE(whole["ok"].get<bool>());
  EXPECT_TRUE(whole["checksums"].get<bool>());
  ASSERT_EQ(launch::shell("cp -r " + kFixtures + "zero2 " + folder_.path()).status, 0);
  const std::string file = folder_ / "zero2/global_step2/zero_pp_rank_1_mp_rank_00_optim_states.pt";
  ASSERT_EQ(launch::shell("printf X | dd of=" + file + " bs=1 seek=9000 conv=notrunc 2> /dev/null")
                .status,
            0);
  const launch::Ended damaged = run("checkpoint verify zero2");
  EXPECT_EQ(damaged.status, 4) << damaged.output;
  EXPECT_THAT(damaged.output, StartsWith("error: "));
  EXPECT_THAT(damaged.output, HasSubstr("zero_pp_rank_1_mp_rank_00_optim_states.pt"));
  EXPECT_EQ(run("checkpoint verify nowhere").status, 4);
  // Safetensors cannot show it, and a message says so.
  EXPECT_EQ(run("checkpoint verify " + kResumable + "trainer").output,
            kResumable + "trainer: whole: 33 tensors, 32.4 KiB, all checksums right; " +
                kResumable + "trainer/model.safetensors carries none\n");
}

// A checkpoint to resume from is checked before it is used.
TEST_F(CheckpointCommand, AChangedManifestIsNoCheckpoint) {
  ASSERT_EQ(run(train_words("run", 2) + "--ranks 1 --save-every 2").status, 0);
  const std::string folder = "run/checkpoints/step-000002";
  const std::string manifest = folder + "/manifest.json";
  EXPECT_THAT(run("checkpoint verify " + folder).output, HasSubstr("all checksums right\n"));
  const std::string whole = folder_.read(manifest);
  const std::string refusal =
      ": its checksum does not match its contents; the file is damaged or was changed: copy it "
      "again or use another checkpoint\n";
  for (const std::string field : {"\"num_steps\":2", "\"beta2\":0.999", "\"momentum\":0.9",
                                  "\"scheduler_steps\":2", "\"step\":2"}) {
    std::string changed = whole;
    const size_t place = changed.find(field);
    ASSERT_NE(place, std::string::npos) << field;
    changed[place + field.size() - 1] = '1';
    folder_.write(manifest, changed);
    const launch::Ended verified = run("checkpoint verify " + folder);
    EXPECT_EQ(verified.status, 4) << field;
    EXPECT_EQ(verified.output, "error: " + manifest + refusal) << field;
    EXPECT_EQ(run("checkpoint to-fp32 " + folder + " out").status, 4) << field;
  }
  const launch::Ended resumed =
      run(train_words("other", 3) + "--ranks 1 --resume " + folder_ / folder + " 2>&1");
  EXPECT_EQ(resumed.status, 4) << resumed.output;
  EXPECT_THAT(resumed.output, HasSubstr("manifest.json" + refusal));
  std::filesystem::remove(folder_ / manifest);
  EXPECT_EQ(run("checkpoint verify " + folder).output,
            "error: " + folder +
                ": has no manifest.json, which describes the contents of its files; the checkpoint "
                "is incomplete: copy it again or use another\n");
  // From before manifests had a checksum.
  std::string old = whole.substr(0, whole.rfind(",\"manifest_checksum\"")) + "}\n";
  old.replace(old.find("\"version\":2"), 11, "\"version\":1");
  folder_.write(manifest, old);
  EXPECT_THAT(run("checkpoint verify " + folder).output,
              HasSubstr("all checksums right; " + manifest + " carries none\n"));
  const launch::Ended gone_on =
      run(train_words("third", 3) + "--ranks 1 --resume " + folder + " 2>&1");
  EXPECT_EQ(gone_on.status, 0) << gone_on.output;
  EXPECT_THAT(gone_on.output, HasSubstr("written by an older Fullshard and carries no checksum"));
}

std::string with_flipped_bit(std::string bytes) {
  bytes[bytes.size() * 3 / 4] = static_cast<char>(bytes[bytes.size() * 3 / 4] ^ 2);
  return bytes;
}

// What other programs read, next to the weights that have checksums.
TEST_F(CheckpointCommand, VerifiesTheFilesForOtherPrograms) {
  ASSERT_EQ(run(train_words("run", 2) + "--ranks 2 --save-every 2").status, 0);
  ASSERT_EQ(run(train_words("lora", 2) + "--ranks 2 --save-every 2 --lora-rank 2").status, 0);
  for (const std::string path :
       {"run/checkpoints/step-000002/model.safetensors", "run/checkpoints/step-000002/config.json",
        "lora/checkpoints/step-000002/adapter_model.safetensors",
        "lora/checkpoints/step-000002/adapter_config.json"}) {
    const std::string folder = path.substr(0, path.rfind('/'));
    const std::string whole = folder_.read(path);
    EXPECT_EQ(run("checkpoint verify " + folder).status, 0) << path;
    for (const std::string& damaged : {with_flipped_bit(whole), whole.substr(0, 100)}) {
      folder_.write(path, damaged);
      const launch::Ended ended = run("checkpoint verify " + folder);
      EXPECT_EQ(ended.status, 4) << path;
      EXPECT_THAT(ended.output, StartsWith("error: " + path + ": ")) << path;
    }
    std::filesystem::remove(folder_ / path);
    const launch::Ended gone = run("checkpoint verify " + folder);
    EXPECT_EQ(gone.status, 4) << path;
    EXPECT_THAT(gone.output, StartsWith("error: " + path + ": cannot be found")) << path;
    // None of them is needed to resume.
    const std::string more = path.starts_with("lora") ? " --lora-rank 2" : "";
    EXPECT_EQ(run(train_words("other", 3) + "--overwrite --resume " + folder + more).status, 0);
    folder_.write(path, whole);
  }
}

TEST_F(CheckpointCommand, ComparesTheWeightsOfOlderCheckpointsByValue) {
  ASSERT_EQ(run(train_words("run", 2) + "--ranks 2 --save-every 2").status, 0);
  const std::string folder = "run/checkpoints/step-000002", file = folder + "/model.safetensors";
  // A manifest from before there were checksums of these files, or of manifests.
  json manifest = json::parse(folder_.read(folder + "/manifest.json"));
  ASSERT_EQ(manifest["side_files"].size(), 2u);
  manifest.erase("side_files");
  manifest.erase("manifest_checksum");
  manifest["version"] = 1;
  folder_.write(folder + "/manifest.json", manifest.dump());
  EXPECT_EQ(run("checkpoint verify " + folder).status, 0);
  const std::string whole = folder_.read(file);
  folder_.write(file, with_flipped_bit(whole));
  const launch::Ended ended = run("checkpoint verify " + folder);
  EXPECT_EQ(ended.status, 4);
  EXPECT_THAT(ended.output, StartsWith("error: " + file + ": tensor 'model."));
  EXPECT_THAT(ended.output, HasSubstr("differs from the checkpoint"));
  std::filesystem::remove(folder_ / file);
  EXPECT_EQ(run("checkpoint verify " + folder).status, 0);
}

TEST_F(CheckpointCommand, AModelOfACheckpointHasTheWeightsThatWereChecked) {
  ASSERT_EQ(run(train_words("run", 2, "--lr 1e-2") + "--ranks 2 --save-every 2").status, 0);
  const std::string folder = "run/checkpoints/step-000002";
  const std::string words = "eval --data " + kResumable +
                            "tokens.bin --sequence-length 8 --micro-batch 2 --ranks 2 --model ";
  const json expected = run_json(words + folder);
  EXPECT_EQ(expected["loss"], run_json(words + "run/model")["loss"]);
  const std::string file = folder + "/model.safetensors", whole = folder_.read(file);
  folder_.write(file, with_flipped_bit(whole));
  EXPECT_EQ(run_json(words + folder)["loss"], expected["loss"]);
  std::filesystem::remove(folder_ / file);
  EXPECT_EQ(run_json(words + folder)["loss"], expected["loss"]);
  // Without the files that are checked in reading, that one is read whole before.
  std::filesystem::create_directory(folder_ / "copied");
  for (const std::string name : {"manifest.json", "config.json"}) {
    std::filesystem::copy(folder_ / folder + "/" + name, folder_ / "copied/" + name);
  }
  folder_.write("copied/model.safetensors", whole);
  EXPECT_EQ(run_json(words + "copied")["loss"], expected["loss"]);
  folder_.write("copied/model.safetensors", with_flipped_bit(whole));
  const launch::Ended damaged = run(words + "copied");
  EXPECT_EQ(damaged.status, 4) << damaged.output;
  EXPECT_THAT(damaged.output, HasSubstr("copied/model.safetensors: bytes 0 to "));
  const std::string config = folder_.read(folder + "/config.json");
  folder_.write(folder + "/config.json", with_flipped_bit(config));
  const launch::Ended refused = run(words + folder);
  EXPECT_EQ(refused.status, 4) << refused.output;
  EXPECT_THAT(refused.output, HasSubstr(folder + "/config.json: bytes 0 to "));
}

TEST_F(CheckpointCommand, DamagedWeightsAreNotConverted) {
  ASSERT_EQ(launch::shell("cp -r " + kFixtures + "zero2 " + folder_.path()).status, 0);
  const std::string name = "zero2/global_step2/zero_pp_rank_0_mp_rank_00_optim_states.pt";
  const std::string whole = folder_.read(name);
  int refused = 0, harmless = 0;
  ASSERT_EQ(run("checkpoint to-fp32 zero2 right.bin").status, 0);
  for (size_t at = 50; at < whole.size(); at += whole.size() / 40) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    folder_.write(name, damaged);
    const launch::Ended ended = run("checkpoint to-fp32 zero2 out.bin");
    if (ended.status == 0) {
      EXPECT_EQ(folder_.read("out.bin"), folder_.read("right.bin")) << at;
      ++harmless;
    } else {
      EXPECT_EQ(ended.status, 4) << ended.output;
      EXPECT_FALSE(std::filesystem::exists(folder_ / "out.bin")) << at;
      ++refused;
    }
    std::filesystem::remove(folder_ / "out.bin");
  }
  EXPECT_GT(refused, 5);
  EXPECT_GT(harmless, 5);
}

// A tensor's name in a file may be anything; a terminal must not interpret it.
TEST_F(CheckpointCommand, PrintsNamesEscaped) {
  const auto make = [&](const std::string& file, char value) {
    const std::string header = R"({"a\u001b[31m\n\u009b\u0000b":{"dtype":"F32","shape":[1],)"
                               R"("data_offsets":[0,4]}})";
    std::string bytes(8, '\0');
    bytes[0] = static_cast<char>(header.size());
    folder_.write(file, bytes + header + std::string("\0\0\0", 3) + value);
  };
  make("one.safetensors", '\x3f');
  make("two.safetensors", '\x40');
  const std::string name = "a\\x1b[31m\\n\\xc2\\x9b\\x00b";
  const launch::Ended table = run("checkpoint inspect one.safetensors");
  EXPECT_EQ(table.status, 0) << table.output;
  EXPECT_THAT(table.output, HasSubstr(name + "  F32 "));
  EXPECT_EQ(table.output.find('\x1b'), std::string::npos);
  const launch::Ended diff = run("checkpoint diff one.safetensors two.safetensors");
  EXPECT_EQ(diff.status, 1);
  EXPECT_THAT(diff.output, HasSubstr("weights " + name + " "));
  EXPECT_EQ(diff.output.find('\x1b'), std::string::npos);
}

TEST_F(CheckpointCommand, MakesTheFoldersOfItsOutput) {
  EXPECT_EQ(run("checkpoint to-fp32 " + kFixtures + "zero3 a/b/fp32").output,
            "a/b/fp32/pytorch_model.bin\n");
}

TEST_F(CheckpointCommand, FindsDifferences) {
  EXPECT_EQ(run("checkpoint diff " + kFixtures + "zero1 " + kFixtures + "zero3").output,
            "equal: 16 tensors\n");
  const json found = run_json("checkpoint diff " + kFixtures + "zero1 " + kFixtures + "dcp", 1);
  EXPECT_FALSE(found["equal"].get<bool>());
  ASSERT_EQ(found["differences"].size(), 1u);
  EXPECT_EQ(found["differences"][0]["tensor"], "columns");
  EXPECT_EQ(found["differences"][0]["what"], "only in the second");
}

TEST_F(CheckpointCommand, WritesEveryFormAndReadsItAgain) {
  const std::string zero3 = kFixtures + "zero3 ";
  EXPECT_EQ(run("checkpoint to-fp32 " + zero3 + "fp32").output, "fp32/pytorch_model.bin\n");
  EXPECT_EQ(run("checkpoint to-fp32 " + zero3 + "one.safetensors").output, "./one.safetensors\n");
  EXPECT_EQ(run("checkpoint export " + zero3 + "hf").output, "hf/model.safetensors\n");
  EXPECT_EQ(run("checkpoint convert " + zero3 + "ds --to deepspeed").status, 0);
  EXPECT_EQ(run("checkpoint convert " + zero3 + "dcp --to dcp").output, "dcp/model.safetensors\n");
  for (const std::string made : {"fp32", "one.safetensors", "hf", "ds", "dcp"}) {
    const launch::Ended ended = run("checkpoint diff " + zero3 + made);
    EXPECT_EQ(ended.status, 0) << made << ended.output;
  }
}

TEST_F(CheckpointCommand, ReplacesNothingUnlessTold) {
  const std::string zero3 = kFixtures + "zero3 ", zero2 = kFixtures + "zero2 ";
  ASSERT_EQ(run("checkpoint export " + zero3 + "shards --max-shard-size 160").status, 0);
  ASSERT_EQ(run("checkpoint to-fp32 " + zero3 + "one.bin").status, 0);
  ASSERT_EQ(run("checkpoint convert " + zero3 + "ds --to deepspeed").status, 0);
  const std::string sums = "cd " + folder_.path() + "; find . -type f | sort | xargs sha256sum";
  const std::string before = launch::shell(sums).output;
  for (const std::string& words :
       {"export " + zero2 + "shards", "to-fp32 " + zero2 + "shards", "to-fp32 " + zero2 + "one.bin",
        "convert " + zero2 + "shards --to safetensors", "convert " + zero2 + "shards --to bin",
        "convert " + zero2 + "one.bin --to bin", "convert " + zero2 + "shards --to dcp",
        "convert " + zero2 + "ds --to deepspeed", "export " + zero2 + "one.bin/x.safetensors"}) {
    const launch::Ended ended = run("checkpoint " + words);
    EXPECT_NE(ended.status, 0) << words;
    if (words.find("/x.") == std::string::npos) {
      EXPECT_EQ(ended.status, 2) << words;
      EXPECT_THAT(ended.output, HasSubstr("name another place, or add --overwrite")) << words;
    }
    EXPECT_EQ(launch::shell(sums).output, before) << words;
  }
  EXPECT_EQ(run("checkpoint export " + zero2 + "shards --overwrite").output,
            "shards/model.safetensors\n");
  EXPECT_EQ(launch::shell("ls " + folder_ / "shards").output, "model.safetensors\n");
  EXPECT_EQ(run("checkpoint to-fp32 " + zero2 + "one.bin --overwrite").status, 0);
  EXPECT_EQ(run("checkpoint convert " + zero2 + "ds --to deepspeed --overwrite").status, 0);
  EXPECT_EQ(run("checkpoint diff " + zero2 + "ds").status, 0);
}

// The states lie next to the weights there, but are not weights.
TEST_F(CheckpointCommand, ReadsTheSafetensorsOfTorchDistributedCheckpoint) {
  ASSERT_EQ(run(train_words("run", 2) + "--ranks 1 --save-every 2").status, 0);
  ASSERT_EQ(run("checkpoint convert run dcp --to dcp").status, 0);
  EXPECT_THAT(run("checkpoint diff run dcp").output, StartsWith("equal: "));
  const json found = run_json("checkpoint inspect dcp");
  EXPECT_EQ(found["kind"], "DCP safetensors");
  ASSERT_EQ(run("checkpoint to-fp32 dcp of_dcp.safetensors").status, 0);
  EXPECT_THAT(run("checkpoint diff run of_dcp.safetensors").output, StartsWith("equal: "));
  EXPECT_EQ(run("checkpoint verify dcp/model.safetensors").status, 0);
  const launch::Ended onto = run("checkpoint export dcp dcp");
  EXPECT_EQ(onto.status, 2) << onto.output;
  // With the number of steps, so that the averages are those of as many.
  ASSERT_EQ(run(train_words("whole", 4) + "--ranks 1").status, 0);
  const launch::Ended resumed = run(train_words("other", 4) + "--ranks 1 --resume dcp 2>&1");
  EXPECT_EQ(resumed.status, 0) << resumed.output;
  EXPECT_THAT(resumed.output, Not(HasSubstr("anew")));
  const auto whole = losses_of("whole"), gone_on = losses_of("other");
  ASSERT_EQ(gone_on.size(), 2u);
  EXPECT_NEAR(gone_on[0], whole[2], 1e-6);
  EXPECT_NEAR(gone_on[1], whole[3], 1e-6);
  // In another dtype as well: a count is not one of the values that are cast.
  ASSERT_EQ(run("checkpoint convert run half --to dcp --dtype bf16").status, 0);
  const json half = run_json("checkpoint inspect half/model.safetensors");
  EXPECT_EQ(half["kind"], "DCP safetensors");
  EXPECT_EQ(run(train_words("third", 3) + "--ranks 1 --resume half").status, 0);
}

// The names that the model's load_state_dict() expects: a head tied to the embedding has both
// names.
TEST_F(CheckpointCommand, WritesSecondNamesForTorch) {
  ASSERT_EQ(run(train_words("run", 2) + "--ranks 2 --save-every 2").status, 0);
  const auto names_in = [&](const std::string& path) {
    std::vector<std::string> names;
    const json found = run_json("checkpoint inspect " + path);
    for (const auto& tensor : found["weights"]) names.push_back(tensor["name"]);
    return names;
  };
  const std::string table = "model.embed_tokens.weight", head = "lm_head.weight";
  ASSERT_EQ(run("checkpoint to-fp32 run one.bin").status, 0);
  EXPECT_THAT(names_in("one.bin"), AllOf(Contains(table), Contains(head)));
  for (const std::string form : {"bin", "dcp", "deepspeed"}) {
    ASSERT_EQ(run("checkpoint convert run " + form + " --to " + form).status, 0);
    EXPECT_THAT(names_in(form), AllOf(Contains(table), Contains(head))) << form;
    ASSERT_EQ(run("checkpoint to-fp32 " + form + " from_" + form + ".bin").status, 0);
    EXPECT_THAT(names_in("from_" + form + ".bin"), AllOf(Contains(table), Contains(head))) << form;
    EXPECT_EQ(run("checkpoint diff run " + form).status, 0) << form;
  }
  // Hugging Face's files have it once.
  ASSERT_EQ(run("checkpoint export run hf").status, 0);
  EXPECT_THAT(names_in("hf"), AllOf(Contains(table), Not(Contains(head))));
}

TEST_F(CheckpointCommand, WarnsOfStatesThatAFormCannotTake) {
  for (const std::string form : {"dcp", "deepspeed"}) {
    for (const std::string from : {"trainer", "accelerate_state"}) {
      const std::string out = from + "-" + form;
      const launch::Ended ended =
          run("checkpoint convert " + kResumable + from + " " + out + " --to " + form + " 2>&1");
      EXPECT_EQ(ended.status, 0) << ended.output;
      EXPECT_THAT(ended.output,
                  StartsWith("warning: " + kResumable + from +
                             ": its optimizer numbers its parameters instead of naming them; " +
                             out + " gets the weights without the optimizer's states\n"));
    }
  }
  EXPECT_EQ(run("checkpoint convert " + kResumable + "trainer hf --to safetensors 2>&1").output,
            "hf/model.safetensors\n");
}

TEST_F(CheckpointCommand, DoesNotWriteWeightsOverThemselves) {
  ASSERT_EQ(run(train_words("run", 2, "--lr 1e-2") + "--ranks 1").status, 0);
  const std::string before = folder_.read("run/model/model.safetensors");
  ASSERT_EQ(launch::shell("ln -s model " + folder_ / "run/same").status, 0);
  for (const std::string words :
       {"export run/model run/model --dtype bf16", "export run/model run/same --dtype bf16",
        "export run/model run/model --overwrite",
        "to-fp32 run/model/model.safetensors run/model/model.safetensors",
        "export run/model run/model/model.safetensors"}) {
    const launch::Ended ended = run("checkpoint " + words);
    EXPECT_EQ(ended.status, 2) << words;
    EXPECT_THAT(ended.output,
                HasSubstr("the weights are read from there; choose another destination"))
        << words;
  }
  EXPECT_EQ(folder_.read("run/model/model.safetensors"), before);
  EXPECT_EQ(run("checkpoint to-fp32 run/model run/model/pytorch_model.bin").status, 0);
}

TEST_F(CheckpointCommand, RefusesWhatMakesNoSense) {
  const std::string words =
      "choose one of inspect, verify, to-fp32, export, convert, diff, save, merge-lora\n";
  const launch::Ended nothing = run("checkpoint");
  EXPECT_EQ(nothing.status, 2);
  EXPECT_EQ(nothing.output, "error: fullshard checkpoint: missing subcommand; " + words);
  const launch::Ended unknown = run("checkpoint explode x");
  EXPECT_EQ(unknown.status, 2);
  EXPECT_EQ(unknown.output, "error: fullshard checkpoint: no command 'explode'; " + words);
  EXPECT_EQ(run("checkpoint verfy x").output,
            "error: fullshard checkpoint: no command 'verfy', did you mean 'verify'?; " + words);
  EXPECT_EQ(run("checkpoint --help").status, 0);
  EXPECT_EQ(run("checkpoint convert a b --to rar").status, 2);
  EXPECT_EQ(run("checkpoint to-fp32 a b --max-shard-size lots").status, 2);
  const launch::Ended tag = run("checkpoint inspect " + kFixtures + "zero2 -t global_step9");
  EXPECT_EQ(tag.status, 4);
  EXPECT_THAT(tag.output, HasSubstr("global_step9: does not exist"));
}

// A run's own checkpoints: saved on demand under a name, and converted to other programs' forms.
TEST_F(CheckpointCommand, AsksARunForACheckpointAndExportsItForHuggingFace) {
  const std::string gpt2 = FULLSHARD_SOURCE_DIR "/tests/fixtures/models/gpt2";
  const std::string words = "train --quiet --model " + gpt2 + " --data " + kResumable +
                            "tokens.bin --sequence-length 8 --micro-batch 2 --output run ";
  ASSERT_EQ(run(words + "--ranks 1 --steps 1 --no-save-model").status, 0);
  EXPECT_EQ(run("checkpoint save run before").output,
            "requested run/checkpoints/before; no run is active there: the next run with this "
            "--output writes it after its first step\n");
  EXPECT_EQ(folder_.read("run/checkpoints/request"), "before");
  ASSERT_EQ(run(words + "--ranks 2 --steps 1 --overwrite").status, 0);
  EXPECT_EQ(folder_.read("run/checkpoints/latest"), "before\n");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run/checkpoints/request"));
  // GPT-2's files hold its matrices transposed.
  ASSERT_EQ(run("checkpoint export run out").output, "out/model.safetensors\nout/config.json\n");
  EXPECT_EQ(run("checkpoint diff out run/model").status, 0);
  EXPECT_EQ(folder_.read("out/config.json"), folder_.read("run/model/config.json"));
  EXPECT_EQ(run("checkpoint diff run run/model").status, 0);
  EXPECT_EQ(run("checkpoint save run ../away").status, 2);
  ASSERT_EQ(launch::shell("mkdir " + folder_ / "run/checkpoints/mine" + "; touch " +
                          folder_ / "run/checkpoints/mine/notes")
                .status,
            0);
  const launch::Ended taken = run("checkpoint save run mine");
  EXPECT_EQ(taken.status, 2);
  EXPECT_THAT(taken.output, HasSubstr("run/checkpoints/mine exists and is not a checkpoint"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run/checkpoints/request"));
  // As if the folder had appeared after the request.
  folder_.write("run/checkpoints/request", "mine");
  const launch::Ended warned = run(words + "--ranks 2 --steps 1 --overwrite 2>&1");
  EXPECT_EQ(warned.status, 0) << warned.output;
  EXPECT_THAT(warned.output, HasSubstr("run/checkpoints/mine exists and is not a checkpoint, so "
                                       "nothing is saved there"));
  EXPECT_EQ(run("checkpoint save nowhere name").status, 4);
}

TEST_F(CheckpointCommand, Stage3WritesAModelIn16BitOrSaysHowToGetOne) {
  for (const std::string gathers : {"false", "true"}) {
    folder_.write(gathers + ".json",
                  R"({"train_micro_batch_size_per_gpu": 2, "bf16": {"enabled": true},
                      "zero_optimization": {"stage": 3,
                      "stage3_gather_16bit_weights_on_model_save": )" +
                      gathers + "}}");
    const launch::Ended ended = run("train --model " + kResumable + "model --data " + kResumable +
                                    "tokens.bin --sequence-length 8 --ranks 2 --steps 1 --config " +
                                    gathers + ".json --output " + gathers);
    ASSERT_EQ(ended.status, 0) << ended.output;
    EXPECT_EQ(std::filesystem::exists(folder_ / gathers + "/model"), gathers == "true");
    if (gathers == "true") continue;
    EXPECT_THAT(ended.output, HasSubstr("fullshard checkpoint to-fp32 false/checkpoints OUT"));
  }
  EXPECT_EQ(run("checkpoint to-fp32 false/checkpoints OUT").output, "OUT/pytorch_model.bin\n");
  const auto inspected = run_json("checkpoint inspect true/model");
  for (const auto& tensor : inspected["weights"]) {
    EXPECT_EQ(tensor["dtype"], "BF16") << tensor;
  }
}

// Space for one or two checkpoints.
TEST_F(CheckpointCommand, AFullDiskLeavesTheCheckpointBefore) {
  const launch::Ended probe = launch::shell("unshare -rm mount -t tmpfs -o size=200k none /mnt");
  if (probe.status != 0) GTEST_SKIP() << "no small disk can be made here: " << probe.output;
  const launch::Ended ended = launch::shell(
      "cd " + folder_.path() + "; export HOME=$PWD OMP_NUM_THREADS=1; mkdir -p run/checkpoints; " +
      "unshare -rm bash -c 'mount -t tmpfs -o size=200k none run/checkpoints; fullshard " +
      train_words("run", 9) +
      "--ranks 2 --save-every 3; echo status $?; fullshard checkpoint verify run'");
  EXPECT_EQ(ended.status, 0) << ended.output;  // of verify
  EXPECT_THAT(ended.output, HasSubstr(".part/"));
  EXPECT_THAT(ended.output,
              ::testing::AnyOf(HasSubstr("No space left on device"), HasSubstr("are free there")));
  EXPECT_THAT(ended.output, HasSubstr("status 1"));
  EXPECT_THAT(ended.output, HasSubstr(": whole: "));
}

}  // namespace
}  // namespace fullshard::cli
