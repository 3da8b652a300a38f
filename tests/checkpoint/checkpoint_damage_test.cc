// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "fullshard/stored/any_checkpoint.h"
#include "fullshard/stored/manifest.h"
#include "fullshard/stored/manifest_checksum.h"
#include "tests/checkpoint/saved_state.h"
#include "tests/checkpoint/small_disk.h"
#include "tests/files.h"

namespace fullshard::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

void write_text(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::trunc) << text;
}

void flip_bit(const std::string& path, int64_t offset) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(offset);
  const int byte = file.get();
  file.seekp(offset);
  file.put(static_cast<char>(byte ^ 0x10));
}

// A checkpoint of two ranks, damaged by `damage`, loaded by two ranks: the error that all throw.
class Damaged {
 public:
  Damaged() { state_ = train_and_save(plain_way(2), folder_ / "one", 1); }

  std::string file(const std::string& name) const { return folder_ / "one/" + name; }

  void edit(const std::function<void(json&)>& change) const {
    auto manifest = json::parse(read_file(file(stored::kManifestName)));
    manifest.erase(stored::kManifestChecksum);
    change(manifest);
    write_text(file(stored::kManifestName), stored::with_manifest_checksum(manifest.dump()));
  }

  // Before anything was changed, unless the contents are damaged.
  std::string load(bool changes_nothing = true) const {
    std::string what;
    run_ranks({.ranks = 2}, [&](const World& world) {
      RankRun run(world, plain_way(2).options, false);
      const auto before = master_values(run.sharded);
      const auto error =
          error_of_call([&] { load_checkpoint(folder_ / "one", run.sharded, run.optimizer); });
      EXPECT_EQ(error.kind(), ErrorKind::input);
      if (changes_nothing) {
        for (const auto& [name, values] : master_values(run.sharded)) {
          EXPECT_TRUE(at::equal(values, before.at(name))) << name;
        }
        EXPECT_NO_THROW(run.train(0, 1));
      } else {
        EXPECT_THAT(error_of_call([&] { run.train(0, 1); }).what(), HasSubstr("no values yet"));
      }
      if (world.rank() == 0) what = error.what();
    });
    return what;
  }

 private:
  CheckpointsFolder folder_;
  WholeState state_;
};

TEST(CheckpointDamage, ATruncatedFileIsNamedWithItsSizes) {
  const Damaged damaged;
  ASSERT_EQ(::truncate(damaged.file("exp_avg-00001.bin").c_str(), 100), 0);
  const auto what = damaged.load();
  EXPECT_THAT(what, HasSubstr("exp_avg-00001.bin: has 100 bytes, the checkpoint's manifest says "));
  EXPECT_THAT(what, HasSubstr("truncated"));
}

TEST(CheckpointDamage, AMissingFileIsNamed) {
  const Damaged damaged;
  ::unlink(damaged.file("exp_avg_sq-00000.bin").c_str());
  EXPECT_THAT(damaged.load(), HasSubstr("exp_avg_sq-00000.bin: cannot be found: No such file or "
                                        "directory; rank 0 wrote it"));
}

TEST(CheckpointDamage, AMissingManifestIsNamed) {
  const Damaged damaged;
  ::unlink(damaged.file("manifest.json").c_str());
  EXPECT_THAT(
      damaged.load(),
      HasSubstr("/one: has no manifest.json: it is not a checkpoint, or an incomplete one"));
}

TEST(CheckpointDamage, AFlippedBitInAnyFileIsFoundAndTheTensorNamed) {
  for (const auto* name : {"weights-00000.bin", "weights-00001.bin", "exp_avg-00000.bin",
                           "exp_avg-00001.bin", "exp_avg_sq-00000.bin", "exp_avg_sq-00001.bin"}) {
    const Damaged damaged;
    flip_bit(damaged.file(name), 5);
    const auto what = damaged.load(false);
    EXPECT_THAT(what, HasSubstr(std::string(name) + ": bytes 0 to "));
    EXPECT_THAT(what, HasSubstr(" of 'embedding.weight'"));
    EXPECT_THAT(what, HasSubstr("the checksum is "));
  }
}

TEST(CheckpointDamage, SwappedFilesAreFound) {
  const Damaged damaged;
  const auto a = damaged.file("exp_avg-00000.bin"), b = damaged.file("exp_avg-00001.bin");
  std::rename(a.c_str(), (a + ".x").c_str());
  std::rename(b.c_str(), a.c_str());
  std::rename((a + ".x").c_str(), b.c_str());
  EXPECT_THAT(damaged.load(false), HasSubstr("the file is damaged"));
}

TEST(CheckpointDamage, AnotherVersionIsRefused) {
  const Damaged damaged;
  damaged.edit([](json& manifest) { manifest["version"] = 7; });
  EXPECT_THAT(damaged.load(),
              HasSubstr("manifest.json: has version 7, but this program reads versions 1 to 2"));
}

TEST(CheckpointDamage, AChangedManifestIsFound) {
  const Damaged damaged;
  auto text = read_file(damaged.file(stored::kManifestName));
  const auto place = text.find("\"num_steps\":1");
  ASSERT_NE(place, std::string::npos);
  write_text(damaged.file(stored::kManifestName), text.replace(place, 13, "\"num_steps\":9"));
  EXPECT_THAT(damaged.load(), HasSubstr("manifest.json: its checksum does not match its contents"));
}

// Of the version before manifests had a checksum.
TEST(CheckpointDamage, AnOldManifestIsReadWithANote) {
  const CheckpointsFolder folder;
  const auto saved = train_and_save(plain_way(2), folder / "one", 1);
  auto manifest = json::parse(read_file(folder / "one/manifest.json"));
  manifest.erase(stored::kManifestChecksum);
  manifest["version"] = 1;
  write_text(folder / "one/manifest.json", manifest.dump() + "\n");
  expect_same_state(load_whole(plain_way(2), folder / "one"), saved);
  RankRun run(World::single(), plain_way(1).options, true);
  EXPECT_THAT(load_checkpoint(folder / "one", run.sharded, run.optimizer).notes,
              ::testing::ElementsAre(stored::kNoManifestChecksum));
  const auto checkpoint = stored::open_any(folder / "one");
  EXPECT_THAT(checkpoint.without_sums, ::testing::ElementsAre(folder / "one/manifest.json"));
  save_checkpoint(folder / "two", run.sharded, run.optimizer, {});
  EXPECT_TRUE(load_checkpoint(folder / "two", run.sharded, run.optimizer).notes.empty());
}

TEST(CheckpointDamage, AWrongNumberOfRanksIsFound) {
  const Damaged damaged;
  damaged.edit([](json& manifest) { manifest["num_ranks"] = 1; });
  EXPECT_THAT(damaged.load(), HasSubstr("manifest.json: rank 1 wrote 'weights-00001.bin', but 1 "
                                        "rank saved the checkpoint"));
}

TEST(CheckpointDamage, SomethingElseIsNotACheckpoint) {
  const Damaged damaged;
  write_text(damaged.file("manifest.json"), R"({"version": 1})");
  EXPECT_THAT(damaged.load(), HasSubstr("is not from a Fullshard checkpoint"));
  write_text(damaged.file("manifest.json"), "{\"version\": 1");
  EXPECT_THAT(damaged.load(), HasSubstr("manifest.json: invalid JSON"));
}

json& first_interval(json& manifest) { return manifest["tensors"][0]["weights"]["intervals"][0]; }

TEST(CheckpointDamage, OffsetsBeyondTheFileAreFound) {
  for (const int64_t offset : {int64_t{1} << 20, int64_t{1} << 60, INT64_MAX - 3}) {
    const Damaged damaged;
    damaged.edit([&](json& manifest) { first_interval(manifest)[3] = offset; });
    const auto what = damaged.load();
    EXPECT_THAT(what, HasSubstr("weights of 'embedding.weight'"));
    EXPECT_THAT(what, HasSubstr(fmt::format("begin at byte {} of 'weights-00000.bin' and reach "
                                            "beyond its end",
                                            offset)));
  }
}

TEST(CheckpointDamage, ElementsTwiceOrNowhereAreFound) {
  const Damaged damaged;
  damaged.edit([](json& manifest) {
    auto& intervals = manifest["tensors"][0]["weights"]["intervals"];
    intervals.push_back(intervals[0]);
  });
  EXPECT_THAT(damaged.load(), HasSubstr("weights of 'embedding.weight': elements 0 to "));
  const Damaged other;
  other.edit([](json& manifest) { first_interval(manifest)[0 + 1] = 1; });
  EXPECT_THAT(other.load(), HasSubstr("'embedding.weight': elements 0 to 1 are missing"));
}

TEST(CheckpointDamage, PiecesThatShareBytesAreFound) {
  const Damaged damaged;
  damaged.edit([](json& manifest) {
    auto& tensors = manifest["tensors"];
    // The first part of the second tensor that lies in the first one's file.
    const auto place = first_interval(manifest);
    for (auto& interval : tensors[1]["weights"]["intervals"]) {
      if (interval[0] == place[0]) interval[3] = place[3];
    }
  });
  EXPECT_THAT(damaged.load(), HasSubstr("share bytes 0 to "));
}

TEST(CheckpointDamage, FieldsOfAWrongKindAreNamedByTheirPlace) {
  const std::pair<std::function<void(json&)>, std::string> cases[] = {
      {[](json& m) { m.erase("files"); }, "manifest.json: has no field 'files'"},
      {[](json& m) { m["files"][0]["bytes"] = "many"; }, "files[0].bytes: is \"many\", expected"},
      {[](json& m) { m["files"][0]["name"] = "../x"; }, "files[0].name: is \"../x\", expected"},
      {[](json& m) { m["files"][0]["name"] = "below/x"; },
       "files[0].name: is \"below/x\", expected"},
      {[](json& m) { m["files"][0]["checksums"] = "12"; }, "files[0].checksums: is \"12\""},
      {[](json& m) { m["files"][0]["checksums"] = ""; }, "has 0 checksums, expected 1"},
      {[](json& m) { m["tensors"][0]["shape"][0] = -1; }, "tensors[0].shape[0]: is -1"},
      {[](json& m) {
         m["tensors"][0]["shape"] = {1l << 40, 1l << 40};
       },
       "invalid shape"},
      {[](json& m) { m["tensors"][0]["weights"]["dtype"] = "F9"; }, "weights.dtype: is \"F9\""},
      {[](json& m) { first_interval(m)[0] = 99; }, "is in file number 99, but there are 6"},
      {[](json& m) { first_interval(m)[3] = 2; }, "is not a multiple of 4"},
      {[](json& m) { m["checksum"]["kind"] = "md5"; }, "checksum.kind: is \"md5\""},
  };
  const Damaged damaged;
  const auto text = read_file(damaged.file("manifest.json"));
  for (const auto& [change, expected] : cases) {
    auto manifest = json::parse(text);
    manifest.erase(stored::kManifestChecksum);
    change(manifest);
    const auto changed = stored::with_manifest_checksum(manifest.dump());
    EXPECT_THAT(error_of_call([&] { stored::parse_manifest(changed, "manifest.json"); }).what(),
                HasSubstr(expected));
  }
}

struct OtherModelImpl : Unit {
  OtherModelImpl() {
    embedding = register_module("embedding", torch::nn::Embedding(12, 5));
    register_module("block0", SmallBlock());
    fresh = register_parameter("fresh", at::ones({3}));
  }
  at::Tensor forward(at::Tensor ids) { return embedding(ids); }
  torch::nn::Embedding embedding{nullptr};
  at::Tensor fresh;
};
FULLSHARD_UNIT(OtherModel);

TEST(CheckpointDamage, AnotherModelIsDescribedByAllDifferences) {
  const CheckpointsFolder folder;
  train_and_save(plain_way(2), folder / "one", 1);
  run_ranks({.ranks = 2}, [&](const World& world) {
    OtherModel model;  // its threads' own random numbers
    auto sharded = shard(model, world, {.sync_module_states = true});
    const auto error = error_of_call([&] { load_checkpoint(folder / "one", sharded); });
    EXPECT_EQ(error.kind(), ErrorKind::input);
    EXPECT_EQ(std::string(error.what()),
              folder / "one" +
                  ": is a checkpoint of another model\n"
                  "  not in the checkpoint: fresh [3]\n"
                  "  tied otherwise: [embedding.weight] in the model, [embedding.weight, "
                  "head.weight] in the checkpoint\n"
                  "  another shape: embedding.weight is [12, 5], in the checkpoint [11, 5]\n"
                  "  not in the model: block1.gate [5]\n"
                  "  not in the model: block1.up.weight [7, 5]\n"
                  "  not in the model: block1.up.bias [7]\n"
                  "  not in the model: block1.down.weight [5, 7]\n"
                  "  not in the model: block1.down.bias [5]\n"
                  "  not in the model: aside.weight [5, 5]\n"
                  "  not in the model: aside.bias [5]\n"
                  "  not in the model: scale [5]\n"
                  "  not in the model: table [5]");
  });
}

TEST(CheckpointDamage, AParameterThatWasFrozenHasNoStatesToGoOnWith) {
  const CheckpointsFolder folder;
  train_and_save(plain_way(1), folder / "one", 1);
  SmallModel model;
  model->blocks[0]->gate.set_requires_grad(true);
  auto options = plain_way(1).options;
  auto sharded = shard(model, World::single(), options);
  AdamW optimizer(sharded, {});
  EXPECT_THAT(
      error_of_call([&] { load_checkpoint(folder / "one", sharded, optimizer); }).what(),
      HasSubstr("no state exp_avg: block0.gate was frozen when it was saved, and is trained "
                "now"));
}

// Rank 0 alone writes buffers and ignored modules: of the two only its file is too long.
TEST(CheckpointDamage, AFullDiskLeavesTheOldOneAndNothingElse) {
  const CheckpointsFolder folder;
  const auto way = plain_way(2);
  const auto before = train_and_save(way, folder / "step-000001", 1);
  int64_t other_file = 0;
  for (const auto& file : stored::read_manifest(folder / "step-000001").files) {
    if (file.rank == 1) other_file = std::max(other_file, file.bytes);
  }
  for (const auto* name : {"step-000001", "step-000002"}) {
    run_ranks({.ranks = 2}, [&](const World& world) {
      RankRun run(world, way.options, false);
      run.train(0, 2);
      world.communicator().barrier("limit");
      std::optional<SmallDisk> disk;
      if (world.rank() == 0) disk.emplace(other_file);
      world.communicator().barrier("limited");
      const auto error =
          error_of_call([&] { save_checkpoint(folder / name, run.sharded, run.optimizer, {}); });
      world.communicator().barrier("done");
      EXPECT_EQ(error.kind(), ErrorKind::failed);
      EXPECT_THAT(error.what(), HasSubstr("rank 0: "));
      EXPECT_THAT(error.what(), HasSubstr(".part/weights-00000.bin: cannot be written at byte "));
    });
  }
  EXPECT_THAT(entries_of(folder.path()), UnorderedElementsAre("step-000001", "latest"));
  expect_same_state(load_whole(way, folder / "step-000001"), before);
}

}  // namespace
}  // namespace fullshard::testing
