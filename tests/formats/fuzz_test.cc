// SPDX-License-Identifier: Apache-2.0
// Damaged files of every kind, made from good ones by a seeded generator: each is read whole or
// ends in an Error. FULLSHARD_FUZZ_SECONDS makes each test go on for that long.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <random>

#include "fullshard/formats/pickle/pickle_reader.h"
#include "fullshard/formats/weights/open_weights.h"
#include "tests/formats/checkpoint_fixture.h"

namespace fullshard::testing {
namespace {

using Clock = std::chrono::steady_clock;

// A number of rounds, not a time: the same files on every machine.
constexpr int64_t kRounds = 1000;

Clock::duration time_to_spend() {
  const char* seconds = std::getenv("FULLSHARD_FUZZ_SECONDS");
  return std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(seconds != nullptr ? std::atof(seconds) : 0));
}

class Mutator {
 public:
  explicit Mutator(std::vector<std::string> originals) : originals_(std::move(originals)) {}

  std::string next() {
    std::string bytes = originals_[below(originals_.size())];
    for (size_t round = 0; round <= below(4) && !bytes.empty(); ++round) change(bytes);
    return bytes;
  }

 private:
  size_t below(size_t bound) { return random_() % bound; }

  void change(std::string& bytes) {
    const size_t at = below(bytes.size());
    const size_t count = std::min(below(16) + 1, bytes.size() - at);
    switch (below(6)) {
      case 0:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
        break;
      case 1:
        bytes[at] = static_cast<char>(random_());
        break;
      case 2:
        bytes.erase(at, count);
        break;
      case 3:
        bytes.insert(at, bytes.substr(below(bytes.size()), count));
        break;
      case 4:
        bytes.replace(at, count, std::string(count, below(2) != 0 ? '\xff' : '\0'));
        break;
      default:
        if (below(4) == 0) bytes.resize(at);
    }
  }

  std::vector<std::string> originals_;
  std::mt19937 random_{20260};
};

void expect_errors_only(Mutator mutator, const std::function<void(const std::string&)>& read) {
  const auto end = Clock::now() + time_to_spend();
  int64_t rounds = 0;
  int64_t refused = 0;
  for (; rounds < kRounds || Clock::now() < end; ++rounds) {
    const std::string bytes = mutator.next();
    try {
      read(bytes);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::input) << error.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, rounds / 4);
  ::testing::Test::RecordProperty("rounds", std::to_string(rounds));
}

void read_everything(const std::string& path) {
  const auto source = open_weights(path);
  for (const auto& tensor : source->tensors()) {
    const int64_t count = std::min<int64_t>(tensor.numel(), 100);
    source->read(tensor.name, tensor.numel() - count, at::empty({count}));
  }
}

TEST(Fuzz, SafetensorsFilesAreReadOrRefused) {
  const TemporaryFolder folder;
  const std::string path = folder.file("f.safetensors");
  expect_errors_only(Mutator({read_file(fixture("written.safetensors")),
                              read_file(fixture("split/model-00001-of-00004.safetensors"))}),
                     [&](const std::string& bytes) {
                       write_file(path, bytes);
                       read_everything(path);
                     });
}

TEST(Fuzz, TorchFilesAreReadOrRefused) {
  const TemporaryFolder folder;
  const std::string path = folder.file("f.bin");
  expect_errors_only(
      Mutator({read_file(fixture("checkpoint.pt")), read_file(fixture("plain_zip.bin")),
               read_file(fixture("state_dict.bin"))}),
      [&](const std::string& bytes) {
        write_file(path, bytes);
        read_everything(path);
      });
}

TEST(Fuzz, PicklesAreReadOrRefused) {
  std::vector<std::string> originals = {
      "\x80\x02}X\x01\x00\x00\x00"
      "acposix\nsystem\n(K\x01K\x02\x86tR]q\x00h\x00"
      "asb."};
  for (const auto* name : {"protocol2.pkl", "protocol4.pkl"}) {
    originals.push_back(read_file(fixture(name)).substr(0, 1200));
    originals.push_back(read_file(fixture(name)));
  }
  expect_errors_only(Mutator(std::move(originals)),
                     [&](const std::string& bytes) { formats::read_pickle(bytes, "f"); });
}

TEST(Fuzz, IndexesAreReadOrRefused) {
  const TemporaryFolder folder;
  for (const auto& name : entries_of(fixture("split"))) {
    write_file(folder.file(name), read_file(fixture("split/" + name)));
  }
  const std::string index = fixture("split/model.safetensors.index.json");
  expect_errors_only(Mutator({read_file(index)}), [&](const std::string& bytes) {
    write_file(folder.file("model.safetensors.index.json"), bytes);
    read_everything(folder.file("model.safetensors.index.json"));
  });
}

// One file of a folder at a time.
void expect_folder_errors_only(const std::string& original, const std::string& name) {
  const TemporaryFolder folder;
  for (const auto& file : entries_of(original)) {
    write_file(folder.file(file), read_file(original + "/" + file));
  }
  expect_errors_only(Mutator({read_file(original + "/" + name)}), [&](const std::string& bytes) {
    write_file(folder.file(name), bytes);
    read_everything(folder.path());
  });
}

TEST(Fuzz, DeepSpeedFoldersAreReadOrRefused) {
  const std::string folder = checkpoint_fixture("zero2/global_step2");
  expect_folder_errors_only(folder, "mp_rank_00_model_states.pt");
  expect_folder_errors_only(folder, "zero_pp_rank_0_mp_rank_00_optim_states.pt");
}

TEST(Fuzz, DcpMetadataIsReadOrRefused) {
  expect_folder_errors_only(checkpoint_fixture("accelerate/pytorch_model_fsdp_0"), ".metadata");
}

}  // namespace
}  // namespace fullshard::testing
