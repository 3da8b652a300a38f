#pragma once

#include <memory>

#include "fullshard/text/tokenizer.h"

namespace fullshard {

// Needs no file: each byte is its value; <s> is 256, </s> 257, <pad> 258. With `special`, <s> comes
// before a text and </s> behind it.
std::unique_ptr<Tokenizer> byte_tokenizer();

}  // namespace fullshard
