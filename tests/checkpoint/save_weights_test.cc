// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <optional>

#include "fullshard/base/bytes.h"
#include "fullshard/base/error.h"
#include "fullshard/checkpoint/checkpoint.h"
#include "fullshard/checkpoint/model_io.h"
#include "fullshard/engine/engine.h"
#include "fullshard/formats/weights/open_weights.h"
#include "fullshard/optim/sgd.h"
#include "fullshard/tensor_io/read_tensor.h"
#include "tests/checkpoint/memory_source.h"
#include "tests/checkpoint/small_model.h"
#include "tests/errors.h"
#include "tests/files.h"

namespace fullshard::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

stored::NameInFile file_names(const std::string& name) {
  if (name == "table") return {};
  return {"model." + name, name == "block1.up.weight" || name == "aside.weight", {}};
}

const SaveOptions kSave{.names = file_names};
const LoadOptions kLoad{.names = file_names};

// Under the names of the file.
Values file_values(uint64_t seed = 5) {
  Values values;
  for (const auto& [name, tensor] : small_values(seed)) {
    const auto in_file = file_names(name);
    values[in_file.name] = in_file.transposed ? tensor.t().contiguous() : tensor;
  }
  return values;
}

void expect_in_file(const std::string& path, const Values& expected) {
  const auto source = open_weights(path);
  ASSERT_EQ(source->tensors().size(), expected.size());
  for (const auto& [name, tensor] : expected) {
    EXPECT_TRUE(at::equal(tensor_io::read_tensor(*source, name), tensor)) << name;
  }
}

// The file of these values, written under a way of sharding.
std::string saved_bytes(const Way& way, const Values& values, const SaveOptions& save = kSave) {
  const TemporaryFolder folder;
  run_ranks({.ranks = way.ranks}, [&](const World& world) {
    auto model = deferred<SmallModel>();
    auto sharded = shard(model, world, way.options);
    load_weights(MemorySource(values), sharded, kLoad);
    save_weights(folder.path(), sharded, save);
    if (world.rank() == 0) {
      EXPECT_THAT(entries_of(folder.path()), UnorderedElementsAre("model.safetensors"));
    }
  });
  return read_file(folder.file("model.safetensors"));
}

TEST(SaveWeights, RefusesAParameterThatCameAfterShard) {
  const TemporaryFolder folder;
  run_ranks({.ranks = 2}, [&](const World& world) {
    SmallModel model;
    auto sharded = shard(model, world);
    model->register_parameter("late", at::zeros({3}));
    const std::string late = "parameter 'late' was registered after shard()";
    EXPECT_THAT(message_of([&] { save_weights(folder.file("weights"), sharded); }),
                HasSubstr(late));
    EXPECT_THAT(message_of([&] { save_checkpoint(folder.file("checkpoint"), sharded, {}); }),
                HasSubstr(late));
  });
}

TEST(SaveWeights, TheSameBytesForEveryStrategyAndWorldFromMastersInFullPrecision) {
  const auto ways = all_ways();
  const auto expected = saved_bytes(ways.front(), file_values());
  for (const auto& plain : ways) {
    EXPECT_TRUE(saved_bytes(plain, file_values()) == expected) << plain.name;
  }
  // Frozen parameters have no master: what is not trained is what computation sees.
  auto rounded = file_values();
  for (auto& [name, tensor] : rounded) {
    if (name.ends_with("gate")) tensor = tensor.to(at::kBFloat16).to(at::kFloat);
  }
  const auto expected_in_bf16 = saved_bytes(ways.front(), rounded);
  for (const auto& plain : ways) {
    const auto way = in_bf16(plain);
    EXPECT_TRUE(saved_bytes(way, file_values()) == expected_in_bf16) << way.name;
  }
}

TEST(SaveWeights, WritesEachTensorOnceUnderTheFilesNamesAndShapes) {
  const TemporaryFolder folder;
  run_ranks({.ranks = 3}, [&](const World& world) {
    auto model = deferred<SmallModel>();
    auto sharded = shard(model, world);
    load_weights(MemorySource(file_values()), sharded, kLoad);
    save_weights(folder.path(), sharded, kSave);
    if (world.rank() == 0) expect_in_file(folder.path(), file_values());
  });
}

TEST(SaveWeights, AFolderThatIsLoadedAndSavedKeepsItsBytes) {
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const SaveOptions save{.names = file_names, .dtype = dtype, .max_file_bytes = 400};
    const TemporaryFolder first, second;
    const auto ways = all_ways();
    run_ranks({.ranks = 1}, [&](const World& world) {
      auto model = deferred<SmallModel>();
      auto sharded = shard(model, world);
      load_weights(MemorySource(file_values()), sharded, kLoad);
      save_weights(first.path(), sharded, save);
    });
    run_ranks({.ranks = 3}, [&](const World& world) {
      auto model = deferred<SmallModel>();
      auto sharded = shard(model, world);
      load_weights(*open_weights(first.path()), sharded, kLoad);
      save_weights(second.path(), sharded, save);
    });
    const auto names = entries_of(first.path());
    EXPECT_GE(names.size(), 3);  // two parts and the index
    EXPECT_THAT(entries_of(second.path()), ::testing::UnorderedElementsAreArray(names));
    for (const auto& name : names) {
      EXPECT_TRUE(read_file(first.file(name)) == read_file(second.file(name))) << name;
    }
  }
}

TEST(SaveWeights, WritesWhatWasTrained) {
  const TemporaryFolder folder;
  run_ranks({.ranks = 2}, [&](const World& world) {
    ShardOptions options;
    options.param_dtype = at::kBFloat16;
    auto model = deferred<SmallModel>();
    auto sharded = shard(model, world, options);
    load_weights(MemorySource(file_values()), sharded, kLoad);
    Sgd optimizer(sharded, {.lr = 0.1});
    model(small_batch(0, world.rank())).backward();
    optimizer.step();
    optimizer.zero_grad();
    save_weights(folder.path(), sharded, kSave);
    const auto trained = master_values(sharded);
    auto again = deferred<SmallModel>();
    auto reloaded = shard(again, world, options);
    load_weights(*open_weights(folder.path()), reloaded, kLoad);
    const auto read = master_values(reloaded);
    ASSERT_EQ(read.size(), trained.size());
    for (const auto& [name, values] : trained)
      EXPECT_TRUE(at::equal(read.at(name), values)) << name;
    bool changed = false;
    for (const auto& piece : sharded.pieces()) {
      const auto before = small_values().at(piece.name).view({-1});
      changed |= !at::equal(piece.master, before.narrow(0, piece.begin, piece.numel()));
    }
    EXPECT_TRUE(changed);
  });
}

TEST(SaveWeights, SplitsInTheOrderOfTheModuleTree) {
  const TemporaryFolder folder;
  auto model = deferred<SmallModel>();
  auto sharded = shard(model, World::single());
  load_weights(MemorySource(small_values()), sharded);
  save_weights(folder.path(), sharded, {.max_file_bytes = 300});
  EXPECT_THAT(entries_of(folder.path()),
              ::testing::IsSupersetOf(
                  {"model-00001-of-00005.safetensors", "model.safetensors.index.json"}));
  const auto index = read_file(folder.file("model.safetensors.index.json"));
  EXPECT_THAT(index, HasSubstr("\"embedding.weight\": \"model-00001-of-00005.safetensors\""));
  EXPECT_THAT(index, HasSubstr("\"table\": \"model-00001-of-00005.safetensors\""));
}

TEST(SaveWeights, LeavesNoWeightsOfAnEarlierSaveThatReadersWouldPrefer) {
  const TemporaryFolder folder;
  auto model = deferred<SmallModel>();
  auto sharded = shard(model, World::single());
  load_weights(MemorySource(small_values()), sharded);
  save_weights(folder.path(), sharded);
  EXPECT_THAT(entries_of(folder.path()), UnorderedElementsAre("model.safetensors"));
  save_weights(folder.path(), sharded, {.max_file_bytes = 600});
  EXPECT_THAT(entries_of(folder.path()), UnorderedElementsAre("model-00001-of-00002.safetensors",
                                                              "model-00002-of-00002.safetensors",
                                                              "model.safetensors.index.json"));
  save_weights(folder.path(), sharded);
  EXPECT_THAT(entries_of(folder.path()), UnorderedElementsAre("model.safetensors"));
}

TEST(SaveWeights, WhatFailsOnRank0IsThrownByAllAndNothingIsLeft) {
  const TemporaryFolder folder;
  ASSERT_EQ(::mkdir(folder.file("model.safetensors").c_str(), 0755), 0);
  ASSERT_EQ(::mkdir(folder.file("model.safetensors/in the way").c_str(), 0755), 0);
  run_ranks({.ranks = 4}, [&](const World& world) {
    ShardOptions options;
    options.sharding.strategy = Strategy::hybrid_shard;
    options.sharding.sharding_factor = 2;
    auto model = deferred<SmallModel>();
    auto sharded = shard(model, world, options);
    load_weights(MemorySource(small_values()), sharded);
    EXPECT_THAT(message_of([&] { save_weights("/nowhere/to be found", sharded); }),
                HasSubstr("rank 0: /nowhere/to be found/model.safetensors"));
    EXPECT_THAT(message_of([&] { save_weights(folder.path(), sharded); }),
                HasSubstr("cannot be renamed"));
    EXPECT_NO_THROW(model(small_batch(0, 0)));
  });
  EXPECT_THAT(entries_of(folder.path()), UnorderedElementsAre("model.safetensors"));
  ::rmdir(folder.file("model.safetensors/in the way").c_str());
  ::rmdir(folder.file("model.safetensors").c_str());
}

// Files may not grow beyond a size while it lives.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    ::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() { ::setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_{};
};

TEST(SaveWeights, NoRoomForTheLastBytesIsThrownByAllAndTheOldFileStands) {
  const TemporaryFolder folder;
  run_ranks({.ranks = 3}, [&](const World& world) {
    auto model = deferred<SmallModel>();
    auto sharded = shard(model, world);
    load_weights(MemorySource(small_values()), sharded);
    save_weights(folder.path(), sharded);
    const auto before = read_file(folder.file("model.safetensors"));
    load_weights(MemorySource(small_values(9)), sharded);
    world.communicator().barrier();
    {
      std::optional<FileSizeLimit> limit;
      if (world.rank() == 0) limit.emplace(before.size() - 100);
      world.communicator().barrier();
      EXPECT_THAT(message_of([&] { save_weights(folder.path(), sharded); }),
                  HasSubstr("rank 0: " + folder.file("model.safetensors")));
      world.communicator().barrier();
    }
    EXPECT_THAT(entries_of(folder.path()), UnorderedElementsAre("model.safetensors"));
    EXPECT_TRUE(read_file(folder.file("model.safetensors")) == before);
  });
}

TEST(SaveWeights, TwoTensorsOfOneNameAreAnError) {
  auto model = SmallModel();
  auto sharded = shard(model, World::single());
  const auto same = [](const std::string&) { return stored::NameInFile{"w", false, {}}; };
  EXPECT_THAT(message_of([&] { save_weights("/tmp", sharded, {.names = same}); }),
              HasSubstr("are both called 'w' in files"));
}

struct WideImpl : Unit {
  WideImpl() {
    first = register_module("first", torch::nn::Linear(1024, 1024));
    second = register_module("second", Wrap<torch::nn::Linear>(1024, 5120));
  }
  at::Tensor forward(at::Tensor x) { return second(first(x)); }
  torch::nn::Linear first{nullptr};
  Wrap<torch::nn::Linear> second{nullptr};
};
FULLSHARD_UNIT(Wide);

// The larger unit has 20 MiB: ranges of 4 MiB pass by, and a transposed tensor is turned whole.
TEST(SaveWeights, HoldsOneRangeBesideTheShardAndWhatIsTurned) {
  for (const bool transposed : {false, true}) {
    const TemporaryFolder folder;
    run_ranks({.ranks = 2}, [&](const World& world) {
      ShardOptions options;
      options.share_host_copy = false;
      auto model = deferred<Wide>();
      auto sharded = shard(model, world, options);
      initialise_weights(sharded, 1, [](const auto&, at::Tensor& tensor, uint64_t seed) {
        tensor.fill_(static_cast<double>(seed % 1000));
      });
      const auto held = sharded.ledger().held_total();
      sharded.ledger().reset_peaks();
      save_weights(folder.path(), sharded, {.names = [&](const std::string& name) {
                     return stored::NameInFile{name, transposed && name == "second.weight", {}};
                   }});
      EXPECT_EQ(sharded.ledger().held_total(), held);
      const bool turns = transposed && world.rank() == 0;
      EXPECT_EQ(sharded.ledger().peak_total() - held, (turns ? 24 : 4) * kMiB);
    });
  }
}

}  // namespace
}  // namespace fullshard::testing
