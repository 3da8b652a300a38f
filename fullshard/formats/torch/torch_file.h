// SPDX-License-Identifier: Apache-2.0
// A file written by torch.save: a zip archive with a pickle (data.pkl) and the bytes of storages
// (data/0, data/1, ...). The pickle is data; nothing in it is called.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fullshard/formats/element_span.h"
#include "fullshard/formats/entry_sum.h"
#include "fullshard/formats/file_handle.h"
#include "fullshard/formats/pickle/pickle_reader.h"
#include "fullshard/formats/pickle/pickle_value.h"
#include "fullshard/formats/tensor_source.h"
#include "fullshard/formats/zip_archive.h"

namespace fullshard::formats {

// Where the elements of a tensor lie; checked against the file.
struct TorchTensor {
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;  // in elements, as torch counts them
  int64_t first = 0;             // element of the storage
  int64_t storage_numel = 0;
  int64_t storage_offset = 0;          // byte of the file
  std::shared_ptr<EntrySum> sum = {};  // of the storage, as far as it was read; null: none

  bool is_contiguous() const;
};

// Thread-safe for reading.
class TorchFile {
 public:
  explicit TorchFile(const std::string& path, const PickleLimits& limits = {});
  // Part of a file: bytes [begin, begin + length), as in DCP's .distcp files.
  TorchFile(FileHandle file, int64_t begin, int64_t length, const PickleLimits& limits = {});

  const std::string& path() const { return file_.path(); }
  const PickleValue& root() const { return pickle_.root(); }
  // The name that torch.save gave the archive: that of the file that it wrote, without its
  // extension; "archive" if it wrote into memory.
  std::string_view saved_name() const;

  // Nothing if the value is not a tensor; an error if it is one that the file cannot hold. `where`
  // begins the message. Parameters and tensors with attributes are tensors too.
  std::optional<TorchTensor> tensor(const PickleValue& value, const std::string& where) const;

  // Elements [begin, begin + out.numel), row-major, into `out`, converted. The storage's checksum
  // is compared when the last of its bytes has been read, by whichever tensors.
  void read(const TorchTensor& tensor, int64_t begin, const ElementSpan& out,
            std::string_view what) const;

  // For check_sums_of(): the storage of a tensor; nothing where the file has no checksums.
  std::optional<SummedStorage> storage_of(const TorchTensor& tensor, std::string what) const;

  // False: the file carries none to compare with.
  bool has_checksums() const { return archive_.has_checksums(); }
  // Reads the whole file and compares its checksums. A message names the tensor, or `what` if the
  // file holds only one or the damage is elsewhere.
  void check_sums(std::string_view what) const;

 private:
  struct Storage;
  Storage storage(const PickleValue& value, const std::string& where) const;
  std::string read_entry(const std::string& name, int64_t max_bytes) const;
  std::string owner_of(const std::string& entry, std::string_view otherwise) const;

  FileHandle file_;
  ZipArchive archive_;
  std::map<std::string, std::shared_ptr<EntrySum>> sums_;  // of storages, by their entries
  std::string root_;  // the folder in the archive that holds everything, with '/'
  Pickle pickle_;
};

// The dtype that a global such as "torch.float16" means.
std::optional<at::ScalarType> torch_dtype(const PickleValue& value);
// "torch.HalfStorage"; "" for dtypes whose storages have no class of their own.
std::string_view torch_storage_name(at::ScalarType dtype);

}  // namespace fullshard::formats
