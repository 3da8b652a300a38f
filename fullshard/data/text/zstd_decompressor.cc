// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <unistd.h>
#include <zstd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "fullshard/base/error.h"
#include "fullshard/data/text/decompressor.h"

namespace fullshard::data {
namespace {

// Frames may follow each other. A frame that asks for more than 128 MiB at once, libzstd's own
// limit, is refused.
class ZstdDecompressor : public Decompressor {
 public:
  explicit ZstdDecompressor(const std::string& path)
      : name_(path), stream_(::ZSTD_createDStream()), input_(::ZSTD_DStreamInSize()) {
    descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor_ < 0 || stream_ == nullptr) {
      const int reason = descriptor_ < 0 ? errno : ENOMEM;
      close();
      fail_as(ErrorKind::input, "{}: cannot be read ({})", path, std::strerror(reason));
    }
  }
  ~ZstdDecompressor() override { close(); }
  ZstdDecompressor(const ZstdDecompressor&) = delete;
  ZstdDecompressor& operator=(const ZstdDecompressor&) = delete;

  size_t read(char* bytes, size_t size) override {
    ZSTD_outBuffer output = {bytes, size, 0};
    while (output.pos == 0 && output.size > 0) {
      const bool is_read = held_.pos == held_.size && !fill();
      if (is_read && left_ == 0) return 0;
      left_ = ::ZSTD_decompressStream(stream_, &output, &held_);
      if (::ZSTD_isError(left_) != 0) {
        fail_as(ErrorKind::input, "{}: is damaged, or not a zstd file ({})", name_,
                ::ZSTD_getErrorName(left_));
      }
      if (is_read && output.pos == 0) {
        fail_as(ErrorKind::input, "{}: is cut off; copy it again", name_);
      }
    }
    return output.pos;
  }

  int64_t consumed() const override { return consumed_; }

 private:
  // Returns false at the end of the file.
  bool fill() {
    const ssize_t got = ::read(descriptor_, input_.data(), input_.size());
    if (got < 0) fail_as(ErrorKind::input, "{}: cannot be read ({})", name_, std::strerror(errno));
    consumed_ += got;
    held_ = {input_.data(), static_cast<size_t>(got), 0};
    return got > 0;
  }

  void close() {
    if (descriptor_ >= 0) ::close(descriptor_);
    ::ZSTD_freeDStream(stream_);
  }

  std::string name_;
  int descriptor_ = -1;
  ZSTD_DStream* stream_;
  std::vector<char> input_;
  ZSTD_inBuffer held_ = {nullptr, 0, 0};
  size_t left_ = 0;  // of the current frame: 0 between frames
  int64_t consumed_ = 0;
};

}  // namespace

std::unique_ptr<Decompressor> open_zstd(const std::string& path) {
  return std::make_unique<ZstdDecompressor>(path);
}

}  // namespace fullshard::data
