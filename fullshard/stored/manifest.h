// SPDX-License-Identifier: Apache-2.0
// manifest.json: where each tensor is in the files of a checkpoint. Drawn in
// docs/checkpoint_format.md.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "fullshard/stored/blocks/block_writer.h"
#include "fullshard/stored/training_progress.h"

namespace fullshard::stored {

inline constexpr const char* kManifestName = "manifest.json";
// Since version 2 a manifest carries a checksum of itself; those of version 1 are read without.
inline constexpr int kManifestVersion = 2;

struct StoredFile {
  std::string name;  // in the checkpoint's folder
  int rank = 0;      // the one that wrote it
  int host = 0;
  int64_t bytes = 0;
  Checksums checksums = {};  // CRC-32C per block of kBlockBytes
};

// Elements [begin, end) of a tensor, row-major, from byte `offset` of a file on.
struct StoredInterval {
  int file = 0;
  int64_t begin = 0;
  int64_t end = 0;
  int64_t offset = 0;
};

struct StoredValues {
  at::ScalarType dtype = at::kFloat;
  std::vector<StoredInterval> intervals = {};  // ascending; each element once
};

struct ManifestTensor {
  std::vector<std::string> names;  // tied ones have several
  std::vector<int64_t> shape;
  bool is_buffer = false;
  StoredValues weights = {};                        // in the dtype of the master weights
  std::map<std::string, StoredValues> states = {};  // of the optimizer; none for frozen ones
  // For an optimizer that counts steps for each parameter; absent: it has no state yet.
  std::optional<std::map<std::string, int64_t>> counts = {};
};

struct StoredOptimizer {
  std::string name;
  int64_t num_steps = 0;
  std::vector<std::string> states;    // their names
  std::vector<double> lrs = {};       // one, or one for each of its parameter groups
  std::vector<double> base_lrs = {};  // multiplied by schedules; empty: unknown, as in older ones
  std::optional<double> momentum = {};
  std::optional<double> beta2 = {};
};

struct Manifest {
  int version = kManifestVersion;
  int64_t saved_at = 0;     // milliseconds since 1970, by a clock that may have been set back
  int64_t save_number = 0;  // among those of its folder, rising; 0: of a version without numbers
  int num_ranks = 1;        // that saved it
  int num_shards = 1;
  std::string strategy = {};
  bool is_node_local = false;      // files of other hosts may be invisible
  bool leaves_out_frozen = false;  // it holds trained parameters and buffers only
  std::optional<StoredOptimizer> optimizer = {};
  std::vector<StoredFile> files = {};
  // For other programs: nothing of them is needed for loading (side_files.h).
  std::vector<StoredFile> side_files = {};
  std::vector<ManifestTensor> tensors = {};
  Progress progress = {};
  std::vector<std::string> rng = {};  // of every rank's CPU generator, as hexadecimal digits

  bool has_checksum() const { return version >= 2; }  // of itself
};

// Writes the current version, with its checksum.
std::string manifest_text(const Manifest& manifest);
std::string checksums_text(const Checksums& checksums);  // eight hexadecimal digits each
std::optional<Checksums> parse_checksums(const std::string& text);

// Its checksum is compared first. Then everything is checked that needs no other file: every
// element of every tensor lies in one place, inside a file, and no two share a byte. Errors begin
// with `where`.
Manifest parse_manifest(const std::string& text, const std::string& where);
// Whether the text is meant as one: other programs have files of that name too.
bool looks_like_manifest(const std::string& text);
void check_manifest(const Manifest& manifest, const std::string& where);

// Reads the manifest of a checkpoint's folder.
Manifest read_manifest(const std::string& folder);

// Checks that every file exists with its size; those of other hosts only where they are visible.
void check_files(const Manifest& manifest, const std::string& folder);
void check_file(const StoredFile& file, const std::string& folder);

}  // namespace fullshard::stored
