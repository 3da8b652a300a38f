// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "fullshard/text/pipeline/tokenizer.h"

namespace fullshard::text {

// Needs no file: each byte is its value; <s> is 256, </s> 257, <pad> 258. With `special`, <s> comes
// before a text and </s> after it.
std::unique_ptr<Tokenizer> byte_tokenizer();

// The tokenizer_config.json of a folder for which load_tokenizer() gives this tokenizer.
std::string byte_tokenizer_config();
bool names_byte_tokenizer(const std::string& folder);

}  // namespace fullshard::text
