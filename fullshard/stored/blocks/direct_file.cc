// SPDX-License-Identifier: Apache-2.0
#include "fullshard/stored/blocks/direct_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "fullshard/base/bytes.h"
#include "fullshard/formats/input_error.h"

namespace fullshard::stored {
namespace {

int64_t aligned(int64_t bytes) { return round_up(bytes, disk::kDirectAlign); }

}  // namespace

// Not every file system has O_DIRECT; the page cache is used then.
DirectOutput::DirectOutput(const std::string& path) : file_(formats::FileHandle::create(path)) {
  descriptor_ = ::open(path.c_str(), O_WRONLY | O_DIRECT | O_CLOEXEC);
  is_direct_ = descriptor_ >= 0;
}

DirectOutput::~DirectOutput() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

// False: the file system does not support it. Writing the part again does no harm.
bool DirectOutput::write_directly(int64_t offset, const char* data, int64_t bytes) {
  int64_t done = 0;
  while (done < bytes) {
    const ssize_t put = ::pwrite(descriptor_, data + done, static_cast<size_t>(bytes - done),
                                 static_cast<off_t>(offset + done));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0 && errno == EINVAL) return false;
    if (put == 0) errno = ENOSPC;
    formats::check_system(put > 0, "{}: cannot be written at byte {}", file_.path(), offset + done);
    if (put % disk::kDirectAlign != 0) return false;  // the rest would no longer be aligned
    done += put;
  }
  return true;
}

void DirectOutput::write_at(int64_t offset, const void* data, int64_t bytes) {
  if (is_direct_ && disk::is_direct_aligned(offset, data, bytes)) {
    if (write_directly(offset, static_cast<const char*>(data), bytes)) return;
    is_direct_ = false;
  }
  file_.write_at(offset, data, bytes);
}

disk::Transfer DirectOutput::transfer(int64_t offset, char* data, int64_t bytes) const {
  const bool is_direct = is_direct_ && disk::is_direct_aligned(offset, data, bytes);
  return {.descriptor = is_direct ? descriptor_ : file_.descriptor(),
          .is_write = true,
          .offset = offset,
          .data = data,
          .bytes = bytes};
}

void DirectOutput::complete(const disk::Transfer& transfer, int64_t result) {
  if (result != transfer.bytes) write_at(transfer.offset, transfer.data, transfer.bytes);
}

void DirectOutput::sync() { file_.sync(); }

DirectInput::DirectInput(const std::string& path) : file_(formats::FileHandle::open(path)) {
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
    if (done < bytes && done % disk::kDirectAlign != 0) return false;
  }
  return done >= bytes;
}

disk::Transfer DirectInput::transfer(int64_t offset, char* data, int64_t bytes) const {
  const bool is_direct = descriptor_ >= 0;
  return {.descriptor = is_direct ? descriptor_ : file_.descriptor(),
          .offset = offset,
          .data = data,
          .bytes = is_direct ? aligned(bytes) : bytes};
}

void DirectInput::complete(const disk::Transfer& transfer, int64_t result, int64_t bytes,
                           std::string_view what) const {
  if (result < bytes) read_at(transfer.offset, transfer.data, bytes, what);
}

void DirectInput::read_at(int64_t offset, char* data, int64_t bytes, std::string_view what) const {
  if (read_directly(offset, data, bytes)) return;
  file_.read_at(offset, data, bytes, what);  // throws the error
}

}  // namespace fullshard::stored
