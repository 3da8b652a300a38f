#include "fullshard/stored/direct_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "fullshard/base/bytes.h"
#include "fullshard/formats/input_error.h"

namespace fullshard {
namespace {

bool is_aligned(int64_t offset, const void* data, int64_t bytes) {
  const auto address = reinterpret_cast<uintptr_t>(data);
  return offset % kDirectAlign == 0 && bytes % kDirectAlign == 0 && address % kDirectAlign == 0;
}

int64_t aligned(int64_t bytes) { return round_up(bytes, kDirectAlign); }

constexpr int64_t kLargePage = 2 * kMiB;

}  // namespace

void DirectBuffer::reserve(int64_t bytes) {
  if (size_ >= bytes) return;
  const bool is_large = bytes >= kLargePage;
  const int64_t align = is_large ? kLargePage : kDirectAlign;
  const auto rounded = static_cast<size_t>(round_up(bytes, align));
  auto* const memory = std::aligned_alloc(static_cast<size_t>(align), rounded);
  if (memory == nullptr) throw std::bad_alloc();
  bytes_ = std::shared_ptr<char>(static_cast<char*>(memory), &std::free);
  size_ = static_cast<int64_t>(rounded);
  // A device gets a large page in one piece and 4 KiB ones each by itself: that is up to half of
  // the time of a transfer. Where the system has none, small ones serve.
  if (is_large) (void)::madvise(bytes_.get(), rounded, MADV_HUGEPAGE);
}

void DirectBuffer::adopt(std::shared_ptr<char> memory, int64_t bytes) {
  bytes_ = std::move(memory);
  size_ = bytes;
}

// Not every file system has O_DIRECT; there the page cache serves.
DirectOutput::DirectOutput(const std::string& path) : file_(FileHandle::create(path)) {
  descriptor_ = ::open(path.c_str(), O_WRONLY | O_DIRECT | O_CLOEXEC);
  is_direct_ = descriptor_ >= 0;
}

DirectOutput::~DirectOutput() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

// False: the file system cannot after all. Writing the part again does no harm.
bool DirectOutput::write_directly(int64_t offset, const char* data, int64_t bytes) {
  int64_t done = 0;
  while (done < bytes) {
    const ssize_t put = ::pwrite(descriptor_, data + done, static_cast<size_t>(bytes - done),
                                 static_cast<off_t>(offset + done));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0 && errno == EINVAL) return false;
    check_input(put > 0, "{}: cannot be written at byte {}: {}", file_.path(), offset + done,
                std::strerror(put < 0 ? errno : ENOSPC));
    if (put % kDirectAlign != 0) return false;  // the rest would no longer be aligned
    done += put;
  }
  return true;
}

void DirectOutput::write_at(int64_t offset, const void* data, int64_t bytes) {
  if (is_direct_ && is_aligned(offset, data, bytes)) {
    if (write_directly(offset, static_cast<const char*>(data), bytes)) return;
    is_direct_ = false;
  }
  file_.write_at(offset, data, bytes);
}

Transfer DirectOutput::transfer(int64_t offset, char* data, int64_t bytes) const {
  const bool is_direct = is_direct_ && is_aligned(offset, data, bytes);
  return {.descriptor = is_direct ? descriptor_ : file_.descriptor(),
          .is_write = true,
          .offset = offset,
          .data = data,
          .bytes = bytes};
}

void DirectOutput::complete(const Transfer& transfer, int64_t result) {
  if (result != transfer.bytes) write_at(transfer.offset, transfer.data, transfer.bytes);
}

void DirectOutput::sync() { file_.sync(); }

DirectInput::DirectInput(const std::string& path) : file_(FileHandle::open(path)) {
  descriptor_ = ::open(path.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC);
}

DirectInput::~DirectInput() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

// False: it could not be read that way.
bool DirectInput::read_directly(int64_t offset, char* data, int64_t bytes) const {
  int64_t done = 0;
  while (descriptor_ >= 0 && done < bytes) {
    const ssize_t got =
        ::pread(descriptor_, data + done, static_cast<size_t>(aligned(bytes - done)),
                static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    done += got;
    if (done < bytes && done % kDirectAlign != 0) return false;
  }
  return done >= bytes;
}

Transfer DirectInput::transfer(int64_t offset, char* data, int64_t bytes) const {
  const bool is_direct = descriptor_ >= 0;
  return {.descriptor = is_direct ? descriptor_ : file_.descriptor(),
          .offset = offset,
          .data = data,
          .bytes = is_direct ? aligned(bytes) : bytes};
}

void DirectInput::complete(const Transfer& transfer, int64_t result, int64_t bytes,
                           std::string_view what) const {
  if (result < bytes) read_at(transfer.offset, transfer.data, bytes, what);
}

void DirectInput::read_at(int64_t offset, char* data, int64_t bytes, std::string_view what) const {
  if (read_directly(offset, data, bytes)) return;
  file_.read_at(offset, data, bytes, what);  // says what is wrong
}

}  // namespace fullshard
