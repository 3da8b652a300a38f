// SPDX-License-Identifier: Apache-2.0
#include "fullshard/data/text/text_cache.h"

#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/base/sha256.h"
#include "fullshard/data/text/text_parts.h"
#include "fullshard/data/tokens/atomic_file.h"
#include "fullshard/data/tokens/token_stream.h"
#include "fullshard/data/tokens/token_writer.h"

namespace fullshard::data {
namespace {

constexpr const char* kTokensEnding = ".tokens";
constexpr size_t kBeginning = 4096;  // bytes of each text that stand for how a tokenizer behaves

std::string fingerprint(const TokeniseOptions& options, const Tokenizer& tokenizer) {
  // A stream may contain no separate documents, which older caches did not check.
  const int version = options.own_documents == OwnDocuments::refused ? 2 : 1;
  std::string facts =
      fmt::format("{} {} {} {} {}\n", version, options.field, options.separator.value_or(-1),
                  options.enough_tokens, tokenizer.vocabulary());
  for (const std::string& path : options.files) {
    struct stat status {};
    ::stat(path.c_str(), &status);
    facts += fmt::format("{} {} {}.{}", path, status.st_size, status.st_mtim.tv_sec,
                         status.st_mtim.tv_nsec);
    for (const int32_t id : tokenizer.encode(beginning_of_text(path, kBeginning), false)) {
      facts += fmt::format(" {}", id);
    }
    facts += '\n';
  }
  for (int32_t id = 0; id < tokenizer.vocabulary(); ++id) {
    facts += tokenizer.token_of(id).value_or("") + '\n';
  }
  std::string name;
  for (const uint8_t byte : base::sha256(facts)) name += fmt::format("{:02x}", byte);
  return name.substr(0, 32);
}

TokenWriter tokenise_into(AtomicFile file, const TokeniseOptions& options,
                          const Tokenizer& tokenizer) {
  TokenWriter writer(std::move(file), TokenFormat::fullshard,
                     token_width_for(tokenizer.vocabulary()));
  tokenise(options, tokenizer, writer);
  if (writer.num_tokens() == 0) {
    fail_as(ErrorKind::input, "{}: gives no tokens", name_of_files(options.files));
  }
  return writer;
}

// A damaged file can be made again.
std::optional<TokenFile> open_kept(const std::string& path) {
  if (::access(path.c_str(), F_OK) != 0) return std::nullopt;
  try {
    return TokenFile(path);
  } catch (const Error& error) {
    spdlog::warn("{}; the text is tokenised again", error.what());
    return std::nullopt;
  }
}

}  // namespace

TokenFile tokenised_text(const TokeniseOptions& options, const Tokenizer& tokenizer,
                         const std::string& folder) {
  if (folder.empty()) {
    return tokenise_into(AtomicFile::in_memory(name_of_files(options.files)), options, tokenizer)
        .finish_in_memory();
  }
  const std::string path = folder + "/" + fingerprint(options, tokenizer) + kTokensEnding;
  if (auto kept = open_kept(path)) return std::move(*kept);
  ::mkdir(folder.c_str(), 0777);                  // an error shows when the file is opened
  remove_abandoned_parts(folder, kTokensEnding);  // those of other texts too: they have other names
  tokenise_into(AtomicFile(path), options, tokenizer).finish();
  return TokenFile(path);
}

}  // namespace fullshard::data
