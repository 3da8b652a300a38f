// SPDX-License-Identifier: Apache-2.0
// What is said between the ranks and the store where they meet.
//
//   server: "fullshrd" and 16 random bytes       client: 16 random bytes and its proof
//   server: its proof                            then requests and answers in turn
//           or its refusal, and closes
//
// A proof is a code over both sides' random bytes that only who knows the job's token can make, and
// it is good for this connection only. Before it, nothing is answered; a connection that closes
// without a word was dropped, and its rank may come again. After it, each message is its length (4
// bytes, little-endian) and its fields; a text is its length and its bytes.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fullshard/base/sha256.h"

namespace fullshard::comm {

inline constexpr std::string_view kStoreMagic = "fullshrd";
// To who does not know the token. As long as a proof, which it cannot be.
inline constexpr std::string_view kStoreRefusal = "fullshrd: this is not the token.";
static_assert(kStoreRefusal.size() == sizeof(base::Digest));
using StoreNonce = std::array<uint8_t, 16>;

StoreNonce make_store_nonce();
base::Digest client_proof(std::string_view token, const StoreNonce& server,
                          const StoreNonce& client);
base::Digest server_proof(std::string_view token, const StoreNonce& server,
                          const StoreNonce& client);

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

inline constexpr size_t kStoreLengthBytes = 4;
inline constexpr size_t kLongestStoreMessage = size_t{64} << 20;
// Of the message whose first bytes these are.
size_t store_message_length(std::string_view head);

}  // namespace fullshard::comm
