// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "fullshard/base/error.h"
#include "fullshard/data/text/decompressor.h"

namespace fullshard::data {
namespace {

constexpr size_t kInputBytes = size_t{1} << 17;
constexpr int kGzipHeader = 15 + 16;  // the largest window, and gzip only

// Members one after another. A member is followed by another one, or by the zeros that fill a
// tape's last block: gzread takes anything else for the end, and so would drop damaged data.
class GzipDecompressor : public Decompressor {
 public:
  explicit GzipDecompressor(const std::string& path) : name_(path), input_(kInputBytes) {
    descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor_ < 0) refuse("cannot be read ({})", std::strerror(errno));
    if (::inflateInit2(&stream_, kGzipHeader) != Z_OK) {
      ::close(descriptor_);
      refuse("cannot be read (no memory)");
    }
  }
  ~GzipDecompressor() override {
    ::inflateEnd(&stream_);
    ::close(descriptor_);
  }
  GzipDecompressor(const GzipDecompressor&) = delete;
  GzipDecompressor& operator=(const GzipDecompressor&) = delete;

  size_t read(char* bytes, size_t size) override {
    const auto most = static_cast<uInt>(std::min<size_t>(size, size_t{1} << 30));
    stream_.next_out = reinterpret_cast<Bytef*>(bytes);
    stream_.avail_out = most;
    while (stream_.avail_out == most && most > 0) {
      if (!is_in_member_ && !begin_member()) return 0;
      if (stream_.avail_in == 0 && !fill()) refuse("is cut off; copy it again");
      inflate();
    }
    return most - stream_.avail_out;
  }

  int64_t consumed() const override { return num_read_ - stream_.avail_in; }

 private:
  template <class... Values>
  [[noreturn]] void refuse(fmt::format_string<Values...> why, Values&&... values) const {
    fail_as(ErrorKind::input, "{}: {}", name_, fmt::format(why, std::forward<Values>(values)...));
  }

  void inflate() {
    const int result = ::inflate(&stream_, Z_NO_FLUSH);
    if (result == Z_STREAM_END) {
      is_in_member_ = false;
    } else if (result != Z_OK && result != Z_BUF_ERROR) {
      refuse("is damaged (not valid gzip); copy it again");
    }
  }

  // Returns false at the end of the file.
  bool begin_member() {
    const bool is_first = num_members_ == 0;
    if (!is_first) skip_zeros();
    while (stream_.avail_in < 2 && fill()) {
    }
    if (stream_.avail_in == 0) return false;
    const bool is_gzip =
        stream_.avail_in >= 2 && stream_.next_in[0] == 0x1f && stream_.next_in[1] == 0x8b;
    if (!is_gzip && is_first) refuse("is not a gzip file, although its name says so");
    if (!is_gzip) refuse("is damaged (not gzip from byte {} on); copy it again", consumed());
    ::inflateReset(&stream_);
    ++num_members_;
    return is_in_member_ = true;
  }

  void skip_zeros() {
    while (stream_.avail_in > 0 || fill()) {
      if (*stream_.next_in != 0) return;
      ++stream_.next_in;
      --stream_.avail_in;
    }
  }

  // Appends more of the file to what is left of it; returns false if there is no more.
  bool fill() {
    std::copy_n(stream_.next_in, stream_.avail_in, input_.begin());
    stream_.next_in = input_.data();
    ssize_t got = -1;
    do {
      got = ::read(descriptor_, input_.data() + stream_.avail_in, input_.size() - stream_.avail_in);
    } while (got < 0 && errno == EINTR);
    if (got < 0) refuse("cannot be read ({})", std::strerror(errno));
    stream_.avail_in += static_cast<uInt>(got);
    num_read_ += got;
    return got > 0;
  }

  std::string name_;
  std::vector<Bytef> input_;
  int descriptor_ = -1;
  z_stream stream_{};
  int64_t num_read_ = 0;  // bytes of the file
  int64_t num_members_ = 0;
  bool is_in_member_ = false;
};

}  // namespace

std::unique_ptr<Decompressor> open_gzip(const std::string& path) {
  return std::make_unique<GzipDecompressor>(path);
}

}  // namespace fullshard::data
