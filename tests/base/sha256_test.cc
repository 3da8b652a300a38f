// SPDX-License-Identifier: Apache-2.0
#include "fullshard/base/sha256.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

namespace fullshard::base {
namespace {

std::string hexadecimal(const Digest& digest) {
  std::string text;
  for (const uint8_t byte : digest) text += fmt::format("{:02x}", byte);
  return text;
}

// The examples of FIPS 180-4.
TEST(Sha256, GivesTheStandardsExamples) {
  EXPECT_EQ(hexadecimal(sha256("")),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hexadecimal(sha256("abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hexadecimal(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hexadecimal(sha256(std::string(1'000'000, 'a'))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

// Padding differs with every length modulo a block of 64 bytes. As Python's hashlib and hmac:
//   d = b""; for n in range(300): d = hashlib.sha256(d + b"x" * n).digest()
//   for n in range(150): d = hmac.digest((d * 5)[:n], d[:n % 32], "sha256")
TEST(Sha256, IsThatOfPythonAtEveryLength) {
  std::string last;
  const auto keep = [&](const Digest& digest) { last.assign(digest.begin(), digest.end()); };
  for (size_t n = 0; n < 300; ++n) keep(sha256(last + std::string(n, 'x')));
  EXPECT_EQ(hexadecimal(sha256(last)),
            "33041bbe7994aa508439b3ac6bf04add9badc861814e654e8f43129f7566dcb9");
  for (size_t n = 0; n < 150; ++n) {
    std::string key;
    for (int i = 0; i < 5; ++i) key += last;
    keep(hmac_sha256(key.substr(0, n), last.substr(0, n % 32)));
  }
  EXPECT_EQ(hexadecimal(sha256(last)),
            "43f505ea63cb2b68694840e822e20cc2db1180ef19f5773817fd9c06ff00eade");
}

// Cases 1, 2 and 6 of RFC 4231.
TEST(Hmac, GivesTheStandardsExamples) {
  EXPECT_EQ(hexadecimal(hmac_sha256(std::string(20, '\x0b'), "Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hexadecimal(hmac_sha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hexadecimal(hmac_sha256(std::string(131, '\xaa'),
                                    "Test Using Larger Than Block-Size Key - Hash Key First")),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(Digest, IsComparedWhole) {
  Digest other = sha256("abc");
  EXPECT_TRUE(are_equal(sha256("abc"), other));
  other.back() ^= 1;
  EXPECT_FALSE(are_equal(sha256("abc"), other));
}

}  // namespace
}  // namespace fullshard::base
