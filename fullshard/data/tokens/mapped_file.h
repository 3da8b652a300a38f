// SPDX-License-Identifier: Apache-2.0
// A file's bytes without reading them: the kernel loads pages when they are used and may drop them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace fullshard::data {

enum class Access { random, sequential };  // what the kernel reads ahead

// Owns the mapping. Errors are of the kind `input`.
class MappedFile {
 public:
  MappedFile(std::string path, Access access);
  // Maps an open file, which it closes; `name` stands for it in messages.
  MappedFile(int descriptor, std::string name, Access access);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;
  ~MappedFile();

  std::string_view bytes() const { return {data_, size_}; }
  const std::string& name() const { return name_; }

 private:
  void map(int descriptor, Access access);

  std::string name_;
  const char* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace fullshard::data
