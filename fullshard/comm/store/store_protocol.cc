// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/store/store_protocol.h"

#include <sys/random.h>

#include <cerrno>
#include <cstring>

#include "fullshard/base/error.h"

namespace fullshard::comm {
namespace {

constexpr size_t kRestartBytes = kStoreClaimBytes - sizeof(base::Digest);

void put(std::string& text, uint64_t value, size_t bytes) {
  for (size_t place = 0; place < bytes; ++place) {
    text += static_cast<char>(value >> (8 * place) & 0xff);
  }
}

uint64_t get(std::string_view text) {
  uint64_t value = 0;
  for (size_t place = text.size(); place-- > 0;) {
    value = value << 8 | static_cast<unsigned char>(text[place]);
  }
  return value;
}

std::string make_claim(std::string_view who, std::string_view token, const StoreNonce& server,
                       const StoreNonce& client, int restart) {
  std::string said;
  put(said, static_cast<uint64_t>(restart), kRestartBytes);
  std::string text(who);
  text.append(server.begin(), server.end());
  text.append(client.begin(), client.end());
  const base::Digest proof = base::hmac_sha256(token, text + said);
  return said.append(proof.begin(), proof.end());
}

}  // namespace

StoreNonce make_store_nonce() {
  StoreNonce nonce{};
  const bool is_random =
      ::getrandom(nonce.data(), nonce.size(), 0) == static_cast<ssize_t>(nonce.size());
  check(is_random, "rendezvous: no random numbers: {}", std::strerror(errno));
  return nonce;
}

std::string client_claim(std::string_view token, const StoreNonce& server, const StoreNonce& client,
                         int restart) {
  return make_claim("client of the store", token, server, client, restart);
}

std::string server_claim(std::string_view token, const StoreNonce& server, const StoreNonce& client,
                         int restart) {
  return make_claim("server of the store", token, server, client, restart);
}

int restart_in(std::string_view claim) {
  return static_cast<int>(get(claim.substr(0, kRestartBytes)));
}

bool is_claim(std::string_view found, std::string_view expected) {
  return base::are_equal(base::sha256(found), base::sha256(expected));
}

StoreWriter& StoreWriter::number(int64_t value) {
  put(fields_, static_cast<uint64_t>(value), 8);
  return *this;
}

StoreWriter& StoreWriter::text(std::string_view value) {
  put(fields_, value.size(), kStoreLengthBytes);
  fields_ += value;
  return *this;
}

StoreWriter& StoreWriter::keys(std::span<const std::string> values) {
  number(static_cast<int64_t>(values.size()));
  for (const std::string& value : values) text(value);
  return *this;
}

std::string StoreWriter::message() const {
  check(fields_.size() <= kLongestStoreMessage, "rendezvous: a message of {} bytes, at most {}",
        fields_.size(), kLongestStoreMessage);
  std::string whole;
  put(whole, fields_.size(), kStoreLengthBytes);
  return whole + fields_;
}

std::string_view StoreReader::take(size_t bytes) {
  check(bytes <= left_.size(), "rendezvous: a message is too short");
  const std::string_view taken = left_.substr(0, bytes);
  left_.remove_prefix(bytes);
  return taken;
}

int64_t StoreReader::number() { return static_cast<int64_t>(get(take(8))); }
std::string StoreReader::text() { return std::string(take(get(take(kStoreLengthBytes)))); }

// Grows with what is there, not with what the number claims.
std::vector<std::string> StoreReader::keys() {
  std::vector<std::string> values;
  for (int64_t left = number(); left > 0; --left) values.push_back(text());
  return values;
}

size_t store_message_length(std::string_view head) {
  const size_t length = get(head.substr(0, kStoreLengthBytes));
  check(length <= kLongestStoreMessage, "rendezvous: a message of {} bytes, at most {}", length,
        kLongestStoreMessage);
  return length;
}

}  // namespace fullshard::comm
