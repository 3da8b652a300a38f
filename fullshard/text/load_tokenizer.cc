// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>

#include "fullshard/base/error.h"
#include "fullshard/base/folder_names.h"
#include "fullshard/base/printable.h"
#include "fullshard/base/text_file.h"
#include "fullshard/text/byte_tokenizer.h"
#include "fullshard/text/files/json_node.h"
#include "fullshard/text/files/read_tokenizer_config.h"
#include "fullshard/text/files/sentencepiece.h"
#include "fullshard/text/files/tokenizer_json.h"
#include "fullshard/text/files/vocabulary_files.h"
#include "fullshard/text/pipeline/tokenizer.h"

namespace fullshard {
namespace {

bool is_folder(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

// "" for a file in the current folder, otherwise with a '/' at its end.
std::string folder_of(const std::string& file) {
  const size_t slash = file.rfind('/');
  return slash == std::string::npos ? "" : file.substr(0, slash + 1);
}

std::string name_of(const std::string& file) { return file.substr(folder_of(file).size()); }

// The commonly used names first, then the others in alphabetical order; "" if there is none.
std::string sentencepiece_in(const std::string& folder) {
  for (const char* name : {"tokenizer.model", "spiece.model", "sentencepiece.bpe.model"}) {
    if (text::is_file(folder + name)) return folder + name;
  }
  for (const std::string& name : base::names_in_folder(folder)) {
    if (name.ends_with(".model")) return folder + name;
  }
  return "";
}

// The file of a folder from which its tokenizer is loaded.
std::string file_in(const std::string& folder) {
  if (text::is_file(folder + "tokenizer.json")) return folder + "tokenizer.json";
  if (std::string model = sentencepiece_in(folder); !model.empty()) return model;
  for (const char* name : {"vocab.json", "vocab.txt"}) {
    if (text::is_file(folder + name)) return folder + name;
  }
  fail_as(ErrorKind::input,
          "{}: no tokenizer; expected tokenizer.json, a sentencepiece .model, vocab.json with "
          "merges.txt, or vocab.txt",
          folder);
}

text::PipelineParts load_json(const std::string& file, const text::TokenizerConfig& config) {
  const auto json = text::read_json_file(file);
  text::PipelineParts parts = text::read_tokenizer_json(text::JsonNode(json, ""));
  parts.special = text::special_tokens_of(parts, config);
  return parts;
}

text::PipelineParts load_sentencepiece(const std::string& file,
                                       const text::TokenizerConfig& config) {
  const std::string bytes = base::read_text_file(file);
  // tiktoken files have lines "base64 rank", and some are also called tokenizer.model.
  const std::string_view first_line = std::string_view(bytes).substr(0, bytes.find('\n'));
  if (first_line.ends_with(" 0") && first_line.size() < 64) {
    fail_as(ErrorKind::input,
            "a tiktoken file, not a sentencepiece model; tokenizer.json is needed");
  }
  return text::sentencepiece_parts(text::parse_sentencepiece(bytes), config);
}

text::PipelineParts load_parts(const std::string& file, const text::TokenizerConfig& config) {
  const std::string name = name_of(file), folder = folder_of(file);
  if (name.ends_with(".model")) return load_sentencepiece(file, config);
  if (name == "vocab.json" || name == "merges.txt") {
    return text::byte_level_parts(folder + "vocab.json", folder + "merges.txt", config);
  }
  if (name.ends_with(".txt")) return text::bert_parts(file, config);
  return load_json(file, config);
}

}  // namespace

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& path) {
  if (path == "bytes") return text::byte_tokenizer();
  if (is_folder(path) && text::names_byte_tokenizer(path)) return text::byte_tokenizer();
  const std::string file =
      is_folder(path) ? file_in(path.ends_with('/') ? path : path + "/") : path;
  if (!text::is_file(file)) {
    fail_as(ErrorKind::input,
            "tokenizer {}: neither a file nor a folder; expected one, or \"bytes\"", path);
  }
  const text::TokenizerConfig config = text::read_tokenizer_config(folder_of(file));
  try {
    text::PipelineParts parts = load_parts(file, config);
    parts.cuts_left = config.cuts_left;
    parts.file = file;
    return text::make_pipeline(std::move(parts));
  } catch (const Error& error) {
    // Parts name their place in the file; the file itself is named here, unless it was another one.
    // Messages contain tokens as they are in the file.
    constexpr size_t kMostShown = 1000;  // bytes
    const std::string what = error.what(), folder = folder_of(file);
    const bool is_named = what.starts_with(folder.empty() ? file : folder);
    throw Error(base::printable(is_named ? what : fmt::format("{}: {}", file, what), kMostShown),
                error.kind());
  }
}

}  // namespace fullshard
