// SPDX-License-Identifier: Apache-2.0
#include "fullshard/checkpoint/fp32_state.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "fullshard/formats/zip_archive.h"
#include "fullshard/stored/fp32_export.h"
#include "fullshard/tensor_io/read_tensor.h"
#include "tests/checkpoint/saved_state.h"
#include "tests/formats/checkpoint_fixture.h"

namespace fullshard::testing {
namespace {

TEST(Fp32State, IsWhatDeepSpeedsOwnFunctionGives) {
  const auto state = fp32_state(checkpoint_fixture("zero3"));
  const formats::SafetensorsFile expected(checkpoint_fixture("zero3.safetensors"));
  ASSERT_EQ(state.size(), expected.tensors().size());
  for (const auto& tensor : expected.tensors()) {
    SCOPED_TRACE(tensor.name);
    expect_equal(state.at(tensor.name), tensor_io::read_tensor(expected, tensor.name));
  }
  EXPECT_TRUE(state.at("head.weight").is_alias_of(state.at("emb.weight")));
}

TEST(Fp32State, GoesFromALiveModelIntoAnotherAndBothTrainOn) {
  const CheckpointsFolder folder;
  WholeState saved, loaded;
  std::mutex mutex;
  run_ranks({.ranks = 2}, [&](const World& world) {
    RankRun run(world, plain_way(2).options, false);
    run.train(0, 2);
    save_model(folder / "model", run.sharded);
    run.collect(saved, mutex);
    EXPECT_NO_THROW(run.train(2, 3));
  });
  run_ranks({.ranks = 3}, [&](const World& world) {
    RankRun run(world, plain_way(3).options, true);
    load_fp32(run.sharded, folder / "model");
    run.collect(loaded, mutex);
    EXPECT_NO_THROW(run.train(0, 1));
  });
  for (const auto& [name, values] : saved.tensors) {
    if (!name.starts_with("weights")) continue;
    EXPECT_TRUE(at::equal(loaded.tensors.at(name), values)) << name;
  }
}

TEST(Fp32State, ASavedModelsFoldersAreMade) {
  const TemporaryFolder folder;
  run_ranks({.ranks = 2}, [&](const World& world) {
    RankRun run(world, plain_way(2).options, false);
    save_model(folder.file("a/b/model"), run.sharded);
    EXPECT_TRUE(file_exists(folder.file("a/b/model/model.safetensors")));
    world.communicator().barrier("looked at");
    std::ofstream(folder.file("file")) << "x";
    EXPECT_EQ(std::string(error_of_call([&] {
                            save_model(folder.file("file/model"), run.sharded);
                          }).what()),
              "rank 0: " + folder.file("file") + ": is a file, expected a folder");
  });
  for (const auto* name : {"a/b/model", "a/b", "a"}) {
    for (const auto& entry : entries_of(folder.file(name))) {
      ::unlink((folder.file(name) + "/" + entry).c_str());
    }
    ::rmdir(folder.file(name).c_str());
  }
}

// Where an exact reason is lost, errno was read before the call that sets it.
TEST(Fp32State, AFolderThatCannotBeMadeSaysWhy) {
  RankRun run(World::single(), plain_way(1).options, false);
  EXPECT_EQ(std::string(error_of_call([&] { save_model("/proc/none/model", run.sharded); }).what()),
            "/proc/none: cannot be made: No such file or directory");
}

TEST(Fp32State, ADamagedStorageIsRefused) {
  const FolderCopy copy(checkpoint_fixture("zero2/global_step2"));
  const std::string name = "zero_pp_rank_1_mp_rank_00_optim_states.pt";
  const std::string path = copy.file(name);
  const formats::FileHandle file = formats::FileHandle::open(path);
  const std::string bytes = read_file(path);
  int refused = 0, harmless = 0;
  const auto whole = fp32_state(copy.path());
  const formats::ZipArchive archive(file, 0, file.size());
  for (const auto& [entry, place] : archive.entries()) {
    if (place.bytes == 0) continue;
    std::string flipped = bytes;
    flipped[static_cast<size_t>(place.offset + place.bytes / 2)] ^= 0x40;
    write_file(path, flipped);
    try {
      const auto state = fp32_state(copy.path());
      for (const auto& [tensor, values] : whole) expect_equal(state.at(tensor), values);
      ++harmless;  // states of the optimizer, which nobody reads here
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::input);
      ++refused;
    }
  }
  EXPECT_GE(refused, 2);
  EXPECT_GE(harmless, 2);
}

// Of a storage every rank reads a part; whoever compares its checksum, all ranks hear of it.
TEST(Fp32State, ADamagedStorageIsRefusedByAllRanks) {
  const CheckpointsFolder folder;
  train_and_save(plain_way(1), folder / "one", 1);
  const std::string path = folder / "whole.bin";
  stored::export_weights(stored::open_any(folder / "one"), path);
  const std::string bytes = read_file(path);
  const formats::FileHandle file = formats::FileHandle::open(path);
  int num_storages = 0;
  const formats::ZipArchive archive(file, 0, file.size());
  for (const auto& [entry, place] : archive.entries()) {
    if (entry.find("/data/") == std::string::npos || place.bytes == 0) continue;
    ++num_storages;
    for (const int64_t at : {int64_t{0}, place.bytes - 1}) {
      std::string flipped = bytes;
      flipped[static_cast<size_t>(place.offset + at)] ^= 0x08;
      write_file(path, flipped);
      run_ranks({.ranks = 3}, [&](const World& world) {
        RankRun run(world, plain_way(3).options, true);
        const auto error = error_of_call([&] { load_fp32(run.sharded, path); });
        EXPECT_EQ(error.kind(), ErrorKind::input);
        EXPECT_NE(std::string(error.what()).find("the file is damaged: copy it again"),
                  std::string::npos)
            << error.what();
      });
    }
  }
  EXPECT_GT(num_storages, 10);
  write_file(path, bytes);
  run_ranks({.ranks = 3}, [&](const World& world) {
    RankRun run(world, plain_way(3).options, true);
    EXPECT_NO_THROW(load_fp32(run.sharded, path));
  });
}

}  // namespace
}  // namespace fullshard::testing
