// SPDX-License-Identifier: Apache-2.0
// The folders of tests/fixtures/checkpoints, and copies of them to damage.
#pragma once

#include <string>

#include "fullshard/formats/crc32.h"
#include "fullshard/formats/file_handle.h"
#include "fullshard/formats/folder.h"
#include "fullshard/formats/safetensors/safetensors_file.h"
#include "fullshard/formats/zip_archive.h"
#include "fullshard/tensor_io/read_tensor.h"
#include "tests/formats/fixture.h"

namespace fullshard::testing {

inline std::string checkpoint_fixture(const std::string& name) {
  return std::string(FULLSHARD_SOURCE_DIR) + "/tests/fixtures/checkpoints/" + name;
}

// Gives the entries of a zip archive, changed in place, the checksums of what they hold now: for
// tests of what readers say about contents.
inline void correct_sums(const std::string& path) {
  std::string bytes = read_file(path);
  const formats::FileHandle file = formats::FileHandle::open(path);
  const formats::ZipArchive archive(file, 0, file.size());
  for (const auto& [name, entry] : archive.entries()) {
    const uint32_t sum = formats::crc32(0, bytes.data() + entry.offset, entry.bytes);
    for (size_t at = bytes.find("PK\x01\x02"); at != std::string::npos;
         at = bytes.find("PK\x01\x02", at + 4)) {
      if (bytes.compare(at + 46, name.size(), name) == 0) std::memcpy(&bytes[at + 16], &sum, 4);
    }
  }
  write_file(path, bytes);
}

// A copy of the files of one folder.
class FolderCopy {
 public:
  explicit FolderCopy(const std::string& original) {
    for (const auto& name : formats::names_in(original)) {
      write_file(folder_.file(name), read_file(original + "/" + name));
    }
  }

  const std::string& path() const { return folder_.path(); }
  std::string file(const std::string& name) const { return folder_.file(name); }
  std::string bytes(const std::string& name) const { return read_file(file(name)); }

  void remove(const std::string& name) { ::unlink(file(name).c_str()); }
  void move(const std::string& from, const std::string& to) {
    ::rename(file(from).c_str(), file(to).c_str());
  }
  void truncate(const std::string& name, size_t bytes) {
    write_file(file(name), this->bytes(name).substr(0, bytes));
  }
  // Texts of equal length: a pickle stays as it is otherwise.
  void replace_first(const std::string& name, const std::string& old_text,
                     const std::string& new_text) {
    replace(name, bytes(name).find(old_text), old_text, new_text);
  }
  void replace_last(const std::string& name, const std::string& old_text,
                    const std::string& new_text) {
    replace(name, bytes(name).rfind(old_text), old_text, new_text);
  }

 private:
  void replace(const std::string& name, size_t at, const std::string& old_text,
               const std::string& new_text) {
    std::string all = bytes(name);
    ASSERT_NE(at, std::string::npos) << old_text;
    ASSERT_EQ(old_text.size(), new_text.size());
    write_file(file(name), all.replace(at, new_text.size(), new_text));
    if (all.starts_with("PK")) correct_sums(file(name));
  }

  TemporaryFolder folder_;
};

inline void expect_same_tensors(const TensorSource& found, const TensorSource& expected) {
  ASSERT_EQ(found.tensors().size(), expected.tensors().size());
  for (const auto& tensor : expected.tensors()) {
    SCOPED_TRACE(tensor.name);
    ASSERT_NE(found.find(tensor.name), nullptr);
    at::Tensor values = tensor_io::read_tensor(found, tensor.name);
    if (at::isFloatingType(values.scalar_type())) values = values.to(at::kFloat);
    at::Tensor wanted = tensor_io::read_tensor(expected, tensor.name);
    if (at::isFloatingType(wanted.scalar_type())) wanted = wanted.to(at::kFloat);
    expect_equal(values, wanted);
  }
}

}  // namespace fullshard::testing
