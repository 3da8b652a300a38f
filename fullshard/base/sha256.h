// SPDX-License-Identifier: Apache-2.0
// SHA-256 (FIPS 180-4) and the message authentication code over it (HMAC, RFC 2104).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace fullshard::base {

using Digest = std::array<uint8_t, 32>;

Digest sha256(std::string_view text);
// Who does not know the key can neither make nor predict it.
Digest hmac_sha256(std::string_view key, std::string_view text);
// Takes the same time wherever they differ.
bool are_equal(const Digest& left, const Digest& right);

}  // namespace fullshard::base
