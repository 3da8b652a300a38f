// SPDX-License-Identifier: Apache-2.0
// The .metadata file of torch.distributed.checkpoint: the tensors, and the files that hold their
// boxes. A pickle, read as data.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace fullshard::formats {

inline constexpr const char* kDcpMetadata = ".metadata";

// Bytes [offset, offset + length) of a file: one complete archive of torch.save.
struct DcpItem {
  std::string file;  // plain name in the folder
  int64_t offset = 0;
  int64_t length = 0;
};

// A box of a tensor: elements offsets[d] to offsets[d] + sizes[d] of each dimension.
struct DcpChunk {
  std::vector<int64_t> offsets = {};
  std::vector<int64_t> sizes = {};
  DcpItem item = {};
};

struct DcpTensor {
  std::vector<int64_t> shape;
  at::ScalarType dtype = at::kFloat;
  std::vector<DcpChunk> chunks = {};  // every element is in one of them; none is empty
};

struct DcpMetadata {
  std::string path;                          // of the file
  std::map<std::string, DcpTensor> tensors;  // by their flat names
  std::map<std::string, DcpItem> objects;    // entries that are not tensors
  // The keys that lead to a flat name: "model.emb.weight" is at ("model", "emb.weight").
  std::map<std::string, std::vector<std::string>> keys;
};

// Everything is checked: boxes lie inside their tensors and cover them without overlap, files have
// plain names, exist, and are long enough. Errors are of the kind input and name the tensor.
DcpMetadata read_dcp_metadata(const std::string& folder);

// Checks that the boxes lie inside the shape and cover each element once. Errors begin with
// `where`.
void check_cover(const std::vector<int64_t>& shape, const std::vector<DcpChunk>& chunks,
                 const std::string& where);

}  // namespace fullshard::formats
