// SPDX-License-Identifier: Apache-2.0
// What is said between the ranks and the store where they meet.
//
//   server: "fullshr2" and 16 random bytes       client: 16 random bytes and its claim
//   server: its claim                            then requests and answers in turn
//           or its refusal, and closes
//
// The last character of the greeting is the protocol's version. A claim is a restart, which is how
// often the job's ranks had been started again (4 bytes, little-endian), and a proof: a code over
// it and both sides' random bytes that only who knows the job's token can make, and good for this
// connection only. Before it, nothing is answered; a connection that closes without a word was
// dropped, and its rank may come again. So may one whose restart the server does not have: it is
// told the server's and the connection closes, since ranks of one start never meet those of
// another. After that, each message is its length (4 bytes, little-endian) and its fields; a text
// is its length and its bytes.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fullshard/base/sha256.h"

namespace fullshard::comm {

inline constexpr std::string_view kStoreMagic = "fullshr2";
// What the greetings of all versions begin with.
inline constexpr std::string_view kStoreFamily = kStoreMagic.substr(0, 7);
inline constexpr size_t kStoreLengthBytes = 4;
inline constexpr size_t kStoreClaimBytes = 4 + sizeof(base::Digest);
// To who does not know the token. As long as a claim, which it cannot be.
inline constexpr std::string_view kStoreRefusal = "fullshrd: this is not the job token.";
static_assert(kStoreRefusal.size() == kStoreClaimBytes);
using StoreNonce = std::array<uint8_t, 16>;

StoreNonce make_store_nonce();
std::string client_claim(std::string_view token, const StoreNonce& server, const StoreNonce& client,
                         int restart);
std::string server_claim(std::string_view token, const StoreNonce& server, const StoreNonce& client,
                         int restart);
// The restart that a claim of kStoreClaimBytes names, whether or not it is proved.
int restart_in(std::string_view claim);
// Whether a claim is the expected one; takes the same time wherever they differ.
bool is_claim(std::string_view found, std::string_view expected);

enum class StoreRequest : uint8_t {
  set,
  get,
  compare_set,
  add,
  has,
  wait,
  remove,
  count,
  set_when_lost,
  get_all
};

// Puts fields one behind the other.
class StoreWriter {
 public:
  StoreWriter& number(int64_t value);
  StoreWriter& text(std::string_view value);
  StoreWriter& keys(std::span<const std::string> values);  // how many, and each
  std::string message() const;                             // with its length in front

 private:
  std::string fields_;
};

// Takes them out again; an Error when they are not there.
class StoreReader {
 public:
  explicit StoreReader(std::string_view fields) : left_(fields) {}
  int64_t number();
  std::string text();
  std::vector<std::string> keys();

 private:
  std::string_view take(size_t bytes);
  std::string_view left_;
};

inline constexpr size_t kLongestStoreMessage = size_t{64} << 20;
// Of the message whose first bytes these are.
size_t store_message_length(std::string_view head);

}  // namespace fullshard::comm
