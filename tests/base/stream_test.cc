#include "fullshard/base/stream.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace fullshard {
namespace {

// Every alignment of both ends, and what lies around them.
TEST(Stream, CopiesExactlyTheBytesAskedFor) {
  std::vector<unsigned char> source(400);
  std::iota(source.begin(), source.end(), 1);
  for (size_t begin = 0; begin < 20; ++begin) {
    for (const size_t bytes : {0, 1, 15, 16, 63, 64, 65, 200, 301}) {
      std::vector<unsigned char> target(400, 0);
      stream(target.data() + begin, source.data() + 3, bytes);
      stream_fence();
      std::vector<unsigned char> expected(400, 0);
      std::copy_n(source.begin() + 3, bytes, expected.begin() + static_cast<long>(begin));
      ASSERT_EQ(target, expected) << begin << " " << bytes;
    }
  }
}

TEST(Stream, CopyLargeIsACopyBelowAndAboveItsThreshold) {
  for (const size_t bytes : {kStreamBytes - 1, kStreamBytes + 7}) {
    std::vector<unsigned char> source(bytes), target(bytes + 1, 9);
    for (size_t i = 0; i < bytes; ++i) source[i] = static_cast<unsigned char>(i * 31);
    copy_large(target.data(), source.data(), bytes);
    EXPECT_TRUE(std::equal(source.begin(), source.end(), target.begin()));
    EXPECT_EQ(target[bytes], 9);
  }
}

}  // namespace
}  // namespace fullshard
