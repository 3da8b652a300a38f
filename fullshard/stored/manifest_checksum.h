// SPDX-License-Identifier: Apache-2.0
// The checksum of a manifest, which is its own last field:
//
//     {"format": …, …,"manifest_checksum":"1b2c3d4e"}\n
//     |<--- CRC-32C --->|
//
// It covers the bytes before the comma, so that every change of a manifest is detected.
#pragma once

#include <string>
#include <string_view>

namespace fullshard::stored {

inline constexpr const char* kManifestChecksum = "manifest_checksum";
// A warning for users, about a manifest of version 1.
inline constexpr const char* kNoManifestChecksum =
    "its manifest.json was written by an older Fullshard and carries no checksum: a change in it "
    "would not be noticed; the next save adds one";

// Adds the checksum to the text of a JSON object with at least one field.
std::string with_manifest_checksum(std::string object);

// False: it has none at its end. A wrong one is an error of the kind input that begins with
// `where`.
bool check_manifest_checksum(std::string_view text, const std::string& where);

}  // namespace fullshard::stored
