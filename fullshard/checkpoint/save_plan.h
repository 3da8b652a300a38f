// SPDX-License-Identifier: Apache-2.0
// Which rank writes what into which file of a checkpoint: integers that every rank computes alike,
// so that nothing but checksums has to be sent.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "fullshard/checkpoint/device_snapshot.h"
#include "fullshard/checkpoint/model_tensors.h"
#include "fullshard/optim/optimizer_states.h"
#include "fullshard/stored/blocks/block_writer.h"
#include "fullshard/stored/manifest.h"

namespace fullshard::checkpoint {

// Who writes: of the ranks that hold the same, the first; with node-local folders the first of each
// host, so that a host has on its disk all that its ranks hold.
class Writers {
 public:
  Writers(const Mesh& mesh, bool is_node_local) : mesh_(mesh), is_node_local_(is_node_local) {}

  bool writes_shard(int rank) const;
  bool writes_whole(int rank) const;  // what every rank holds; also the manifest
  // Whose file a host's manifest refers to: one of its own where there is one.
  int writer_of_shard(int shard, int host) const;
  int writer_of_whole(int host) const;
  bool is_node_local() const { return is_node_local_; }

 private:
  int host_of(int rank) const { return is_node_local_ ? mesh_.world().host_of(rank) : 0; }

  const Mesh& mesh_;
  bool is_node_local_;
};

// Borrows from the engine and the states.
class SavePlan {
 public:
  // `states` may be null: without an optimizer's. A tensor of a type that files cannot hold is an
  // error.
  SavePlan(const engine::Engine& engine, const optim::OptimizerStates* states, bool is_node_local,
           bool leaves_out_frozen = false);

  const Writers& writers() const { return writers_; }
  // What this rank writes, by the files' names; `held` keeps alive what the spans look at: copies
  // of what is whole on every rank, if asked for. With `copies` (null for the CPU) the spans begin
  // those, and nothing has been read from the device yet.
  struct OwnFile {
    std::string name;
    std::vector<stored::ByteSpan> content;
    std::vector<at::Tensor> held;
  };
  std::vector<OwnFile> own_files(bool copies_whole, SnapshotCopies* copies) const;

  // As this rank's host sees it; without checksums, counts, progress, rng and time.
  stored::Manifest manifest() const;

 private:
  struct Group {
    const engine::ParamGroup* group;
    int trainable;  // index for the states; -1: frozen
  };
  struct Place {
    int64_t offset = -1;  // in the file; -1: not in it
    at::ScalarType dtype = at::kFloat;
    int64_t bytes = 0;
  };
  struct FileLayout {
    std::vector<Place> groups;   // one per group
    std::vector<Place> tensors;  // one per tensor; those that are whole on every rank
    int64_t bytes = 0;
  };
  static constexpr int kWeights = -1;  // otherwise the index of an optimizer state

  int num_states() const;
  std::string file_name(int rank, int kind) const;
  using ValuesOf = std::function<at::Tensor(int64_t first, int64_t numel)>;
  ValuesOf values(const Group& group, int kind) const;
  static stored::ByteSpan device_span(const Place& place, ValuesOf values, SnapshotCopies& copies);
  static bool is_on_disk(const Group& group, int kind);
  std::optional<at::ScalarType> dtype(const Group& group, int kind) const;  // none: no values
  FileLayout lay_out(int rank, int kind) const;
  void add_intervals(int kind, stored::Manifest& manifest) const;
  int file_index(int rank, int kind, const FileLayout& layout, stored::Manifest& manifest) const;
  stored::StoredValues& stored(stored::ManifestTensor& tensor, int kind) const;

  const engine::Engine& engine_;
  const optim::OptimizerStates* states_;
  Writers writers_;
  bool leaves_out_frozen_;
  std::vector<ModelTensor> tensors_;
  std::vector<Group> groups_;
};

}  // namespace fullshard::checkpoint
