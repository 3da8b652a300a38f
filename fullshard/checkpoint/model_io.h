// SPDX-License-Identifier: Apache-2.0
// Models in and out of Hugging Face folders, sharded or not, without ever being whole on one rank.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>

#include "fullshard/engine/sharded_model.h"
#include "fullshard/formats/tensor_source.h"
#include "fullshard/stored/name_in_file.h"

namespace fullshard {

using FileNames = std::function<stored::NameInFile(const std::string& parameter)>;

struct LoadOptions {
  FileNames names = {};  // empty: the parameter's own
  // What an error asks when the file's tensors are not the model's.
  std::string question = "is it the right config.json for them?";
  std::function<bool(const std::string&)> is_ignored = {};  // of the file's names
  // Of the parameters' names: values that are not read, whether the file has them or not. The
  // caller gives them right afterwards (initialise_weights).
  std::function<bool(const std::string&)> is_left_out = {};
  // For integer parameters that are made of a floating matrix of the file, row by row, as weights
  // in 8 bits: of whole rows in fp32 [n, columns] it gives the parameter's rows. The file's tensor
  // has as many rows as the parameter.
  std::function<at::Tensor(const std::string& parameter, const at::Tensor& rows)> from_rows = {};
  // The module's parameters in the order of its tree (named_parameters()), for optimizers that
  // number them; empty: not known.
  std::vector<std::string> order = {};
};

// Collective. Every rank reads the ranges it owns, straight into its shard, and nothing else;
// ignored modules and buffers are read whole by each. A tied parameter is found under any of its
// names; a buffer may be absent unless it was deferred. Missing, extra and mis-shaped tensors are
// one error (kind input) that lists all of them; nothing is changed then. What fails on one rank
// fails on all; after an error while reading the model has no values, as a deferred one.
void load_weights(const TensorSource& source, ShardedModel& model, const LoadOptions& options = {});

// Collective. Gives every parameter new values made per tensor, not per piece: they depend on
// (seed, name) only, whatever the strategy and the number of ranks. `make` fills a whole tensor:
// fp32 (fp64 where the master is), of which a rank keeps its part; `num_threads` tensors at a time,
// then from as many threads, under its first name when it is tied. With `is_chosen` only the
// parameters that it chooses get new values. Buffers are left alone; rank 0 warns of those that
// were deferred.
using Initialise = std::function<void(const std::string& name, at::Tensor& tensor, uint64_t seed)>;
void initialise_weights(ShardedModel& model, uint64_t seed, const Initialise& make,
                        int num_threads = 1,
                        const std::function<bool(const std::string&)>& is_chosen = {});
// What `make` is given for a tensor.
uint64_t seed_of_tensor(uint64_t seed, const std::string& name);

struct SaveOptions {
  FileNames names = {};
  at::ScalarType dtype = at::kFloat;       // of floating tensors, taken from the masters
  int64_t max_file_bytes = 5'000'000'000;  // more: several files with an index
  // All of them in one file of this name; empty: as above.
  std::string file_name = {};
};

// Collective. Rank 0 writes model.safetensors (or parts and model.safetensors.index.json) into an
// existing folder, range by range: beside its shard a rank holds 4 MiB, and rank 0 the transposed
// tensors of one unit. Tied parameters are written once, under their first name. What fails on
// rank 0 (no room on disk) fails on all. Weight files of an earlier save are gone afterwards.
void save_weights(const std::string& folder, ShardedModel& model, const SaveOptions& options = {});

}  // namespace fullshard
