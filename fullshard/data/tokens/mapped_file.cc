// SPDX-License-Identifier: Apache-2.0
#include "fullshard/data/tokens/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "fullshard/base/error.h"

namespace fullshard::data {

MappedFile::MappedFile(std::string path, Access access) : name_(std::move(path)) {
  // Does not wait for a writer of a pipe.
  const int descriptor = ::open(name_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) {
    fail_as(ErrorKind::input, "{}: cannot be read ({})", name_, std::strerror(errno));
  }
  map(descriptor, access);
}

MappedFile::MappedFile(int descriptor, std::string name, Access access) : name_(std::move(name)) {
  map(descriptor, access);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : name_(std::move(other.name_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<char*>(data_), size_);
}

void MappedFile::map(int descriptor, Access access) {
  struct stat status {};
  ::fstat(descriptor, &status);
  if (!S_ISREG(status.st_mode)) {
    ::close(descriptor);
    fail_as(ErrorKind::input, "{}: is not a regular file; data are read from files", name_);
  }
  size_ = static_cast<size_t>(status.st_size);
  void* memory = nullptr;
  if (size_ > 0) memory = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, descriptor, 0);
  const int reason = errno;
  ::close(descriptor);
  if (memory == MAP_FAILED) {
    size_ = 0;
    fail_as(ErrorKind::input, "{}: cannot be mapped ({})", name_, std::strerror(reason));
  }
  data_ = static_cast<const char*>(memory);
  if (size_ > 0) ::madvise(memory, size_, access == Access::random ? MADV_RANDOM : MADV_SEQUENTIAL);
}

}  // namespace fullshard::data
