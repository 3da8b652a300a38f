// SPDX-License-Identifier: Apache-2.0
#include "fullshard/base/base64.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace fullshard::base {
namespace {

// The examples of RFC 4648.
TEST(Base64, GivesTheStandardsExamples) {
  const std::string text = "foobar";
  const std::string encoded[] = {"", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"};
  for (size_t length = 0; length <= text.size(); ++length) {
    EXPECT_EQ(encode_base64(text.substr(0, length)), encoded[length]);
    EXPECT_EQ(decode_base64(encoded[length]), text.substr(0, length));
  }
}

TEST(Base64, HasEveryLetter) {
  std::string bytes;
  for (int bits = 0; bits < 64; bits += 4) {  // four letters, one after the other
    const int three = bits << 18 | (bits + 1) << 12 | (bits + 2) << 6 | (bits + 3);
    for (const int shift : {16, 8, 0}) bytes += static_cast<char>(three >> shift & 0xFF);
  }
  const std::string letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  EXPECT_EQ(encode_base64(bytes), letters);
  EXPECT_EQ(decode_base64(letters), bytes);
}

TEST(Base64, GivesBackAnyBytes) {
  const auto seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (size_t length = 0; length < 300; ++length) {
    std::string bytes(length, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    EXPECT_EQ(decode_base64(encode_base64(bytes)), bytes);
  }
}

TEST(Base64, RefusesWhatIsNone) {
  for (const char* text : {"Z", "Zg", "Zg=", "Zm9vYg", "Zg==Zg==", "Z===", "====", "Zm9v====",
                           "Zm9v==", "Z g=", "Zg=\n", "Zm9-", "Zm9_", "=Zg=", "Zm\xC3\xA9"}) {
    EXPECT_EQ(decode_base64(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace fullshard::base
