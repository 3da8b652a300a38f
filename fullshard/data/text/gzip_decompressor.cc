// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "fullshard/base/error.h"
#include "fullshard/data/text/decompressor.h"

namespace fullshard::data {
namespace {

// zlib's own reader: it checks sums and lengths, and reads files that were put one after another.
class GzipDecompressor : public Decompressor {
 public:
  explicit GzipDecompressor(const std::string& path) : name_(path) {
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) {
      fail_as(ErrorKind::input, "{}: cannot be read ({})", path, std::strerror(errno));
    }
    file_ = ::gzdopen(descriptor, "rb");
    if (file_ == nullptr) {
      ::close(descriptor);
      fail_as(ErrorKind::input, "{}: cannot be read (no memory)", path);
    }
    ::gzbuffer(file_, 1 << 17);
    if (::gzdirect(file_) != 0) {  // what it would hand through as it is
      ::gzclose(file_);
      fail_as(ErrorKind::input, "{}: is no gzip file, though its name says so", path);
    }
  }
  ~GzipDecompressor() override { ::gzclose(file_); }
  GzipDecompressor(const GzipDecompressor&) = delete;
  GzipDecompressor& operator=(const GzipDecompressor&) = delete;

  size_t read(char* bytes, size_t size) override {
    const auto most = static_cast<unsigned>(std::min<size_t>(size, 1U << 30));
    const int got = ::gzread(file_, bytes, most);
    int problem = Z_OK;
    ::gzerror(file_, &problem);
    if (got >= 0 && problem == Z_OK) return static_cast<size_t>(got);
    if (problem == Z_BUF_ERROR) {
      fail_as(ErrorKind::input, "{}: is cut off; copy it again", name_);
    }
    fail_as(ErrorKind::input, "{}: is damaged (not valid gzip); copy it again", name_);
  }

  int64_t consumed() const override { return ::gzoffset(file_); }

 private:
  std::string name_;
  gzFile file_ = nullptr;
};

}  // namespace

std::unique_ptr<Decompressor> open_gzip(const std::string& path) {
  return std::make_unique<GzipDecompressor>(path);
}

}  // namespace fullshard::data
