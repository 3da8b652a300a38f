// SPDX-License-Identifier: Apache-2.0
#include "fullshard/stored/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "fullshard/base/bytes.h"
#include "fullshard/base/file_kind.h"
#include "fullshard/formats/element_type.h"
#include "fullshard/formats/file_handle.h"
#include "fullshard/formats/input_error.h"
#include "fullshard/formats/safetensors/strict_json.h"
#include "fullshard/stored/json_fields.h"
#include "fullshard/stored/manifest_checksum.h"
#include "fullshard/stored/progress_json.h"

namespace fullshard::stored {
namespace {

using nlohmann::json;

constexpr const char* kFormat = "fullshard checkpoint";
constexpr const char* kChecksum = "crc32c";
constexpr int kDigits = 8;  // of one checksum

int digit_of(char letter) {
  if (letter >= '0' && letter <= '9') return letter - '0';
  if (letter >= 'a' && letter <= 'f') return letter - 'a' + 10;
  return -1;
}

json values_json(const StoredValues& values) {
  json intervals = json::array();
  for (const auto& interval : values.intervals) {
    intervals.push_back({interval.file, interval.begin, interval.end, interval.offset});
  }
  return {{"dtype", find_element_type(values.dtype)->name}, {"intervals", std::move(intervals)}};
}

StoredValues parse_values(const JsonFields& fields) {
  StoredValues values;
  const auto dtype = fields.at("dtype");
  const auto* type = find_element_type(dtype.text());
  if (type == nullptr || type->dtype == at::ScalarType::Undefined) {
    dtype.reject("a dtype, such as F32");
  }
  values.dtype = type->dtype;
  for (const auto& item : fields.at("intervals").items()) {
    const auto numbers = item.integers();
    if (numbers.size() != 4) item.reject("[file, begin, end, offset]");
    values.intervals.push_back({static_cast<int>(std::min<int64_t>(numbers[0], INT32_MAX)),
                                numbers[1], numbers[2], numbers[3]});
  }
  return values;
}

json tensor_json(const ManifestTensor& tensor) {
  json result = {{"names", tensor.names},
                 {"shape", tensor.shape},
                 {"is_buffer", tensor.is_buffer},
                 {"weights", values_json(tensor.weights)},
                 {"states", json::object()}};
  for (const auto& [name, values] : tensor.states) result["states"][name] = values_json(values);
  if (tensor.counts) result["counts"] = *tensor.counts;
  return result;
}

ManifestTensor parse_tensor(const JsonFields& fields) {
  ManifestTensor tensor;
  tensor.names = fields.at("names").texts();
  if (tensor.names.empty()) fields.at("names").reject("at least one name");
  tensor.shape = fields.at("shape").integers();
  tensor.is_buffer = fields.at("is_buffer").boolean();
  tensor.weights = parse_values(fields.at("weights"));
  const auto states = fields.at("states");
  for (const auto& name : states.keys()) tensor.states[name] = parse_values(states.at(name));
  if (!fields.has("counts")) return tensor;
  const auto counts = fields.at("counts");
  tensor.counts.emplace();
  for (const auto& name : counts.keys()) (*tensor.counts)[name] = counts.at(name).integer();
  return tensor;
}

StoredFile parse_file(const JsonFields& fields) {
  StoredFile file;
  file.name = fields.at("name").text();
  // Names are untrusted: none may point outside the folder.
  if (file.name.empty() || file.name.find('/') != std::string::npos || file.name[0] == '.') {
    fields.at("name").reject("the name of a file in this folder");
  }
  file.rank = static_cast<int>(fields.at("rank").integer());
  file.host = static_cast<int>(fields.at("host").integer());
  file.bytes = fields.at("bytes").integer();
  const auto checksums = fields.at("checksums");
  auto parsed = parse_checksums(checksums.text());
  if (!parsed) checksums.reject("eight hexadecimal digits per block");
  file.checksums = std::move(*parsed);
  return file;
}

json files_json(const std::vector<StoredFile>& files) {
  json result = json::array();
  for (const auto& file : files) {
    result.push_back({{"name", file.name},
                      {"rank", file.rank},
                      {"host", file.host},
                      {"bytes", file.bytes},
                      {"checksums", checksums_text(file.checksums)}});
  }
  return result;
}

json optimizer_json(const StoredOptimizer& optimizer) {
  json result = {{"name", optimizer.name},
                 {"num_steps", optimizer.num_steps},
                 {"states", optimizer.states},
                 {"lr", optimizer.lrs.at(0)}};
  if (optimizer.lrs.size() > 1) result["lrs"] = optimizer.lrs;
  if (!optimizer.base_lrs.empty()) result["base_lrs"] = optimizer.base_lrs;
  if (optimizer.momentum) result["momentum"] = *optimizer.momentum;
  if (optimizer.beta2) result["beta2"] = *optimizer.beta2;
  return result;
}

StoredOptimizer parse_optimizer(const JsonFields& fields) {
  StoredOptimizer optimizer;
  optimizer.name = fields.at("name").text();
  optimizer.num_steps = fields.at("num_steps").integer();
  optimizer.states = fields.at("states").texts();
  optimizer.lrs = {fields.at("lr").number()};
  if (fields.has("lrs")) {
    optimizer.lrs.clear();
    for (const auto& item : fields.at("lrs").items()) optimizer.lrs.push_back(item.number());
    if (optimizer.lrs.empty()) fields.at("lrs").reject("at least one number");
  }
  if (fields.has("base_lrs")) {
    for (const auto& item : fields.at("base_lrs").items()) {
      optimizer.base_lrs.push_back(item.number());
    }
    if (optimizer.base_lrs.size() != optimizer.lrs.size()) {
      fields.at("base_lrs").reject("as many numbers as learning rates");
    }
  }
  if (fields.has("momentum")) optimizer.momentum = fields.at("momentum").number();
  if (fields.has("beta2")) optimizer.beta2 = fields.at("beta2").number();
  return optimizer;
}

// Gives the version.
int check_kind(const JsonFields& fields, const std::string& where) {
  formats::check_input(
      fields.has("format") && fields.at("format").value() == kFormat,
      "{}: is not from a Fullshard checkpoint; expected the field 'format' to be \"{}\"", where,
      kFormat);
  const auto version = fields.at("version").integer();
  formats::check_input(
      version >= 1 && version <= kManifestVersion,
      "{}: has version {}, but this program reads versions 1 to {}; use the Fullshard "
      "that wrote it, or a newer one",
      where, version, kManifestVersion);
  const auto checksum = fields.at("checksum");
  if (checksum.at("kind").text() != kChecksum) checksum.at("kind").reject("\"crc32c\"");
  if (checksum.at("block_bytes").integer() != kBlockBytes) {
    checksum.at("block_bytes").reject(std::to_string(kBlockBytes));
  }
  return static_cast<int>(version);
}

}  // namespace

std::string checksums_text(const Checksums& checksums) {
  std::string text;
  text.reserve(checksums.size() * kDigits);
  for (const uint32_t checksum : checksums) text += fmt::format("{:08x}", checksum);
  return text;
}

std::optional<Checksums> parse_checksums(const std::string& text) {
  if (text.size() % kDigits != 0) return std::nullopt;
  Checksums checksums(text.size() / kDigits);
  for (size_t i = 0; i < text.size(); ++i) {
    const int digit = digit_of(text[i]);
    if (digit < 0) return std::nullopt;
    checksums[i / kDigits] = checksums[i / kDigits] << 4 | static_cast<uint32_t>(digit);
  }
  return checksums;
}

std::string manifest_text(const Manifest& manifest) {
  json tensors = json::array();
  for (const auto& tensor : manifest.tensors) tensors.push_back(tensor_json(tensor));
  json result = {{"format", kFormat},
                 {"version", kManifestVersion},
                 {"step", manifest.progress.step},
                 {"saved_at", manifest.saved_at},
                 {"num_ranks", manifest.num_ranks},
                 {"num_shards", manifest.num_shards},
                 {"strategy", manifest.strategy},
                 {"is_node_local", manifest.is_node_local},
                 {"checksum", {{"kind", kChecksum}, {"block_bytes", kBlockBytes}}},
                 {"files", files_json(manifest.files)},
                 {"tensors", std::move(tensors)},
                 {"progress", progress_json(manifest.progress)},
                 {"rng", manifest.rng}};
  if (manifest.save_number > 0) result["save_number"] = manifest.save_number;
  if (!manifest.side_files.empty()) result["side_files"] = files_json(manifest.side_files);
  if (manifest.leaves_out_frozen) result["leaves_out_frozen"] = true;
  if (manifest.optimizer) result["optimizer"] = optimizer_json(*manifest.optimizer);
  return with_manifest_checksum(result.dump());
}

bool looks_like_manifest(const std::string& text) {
  return text.find(fmt::format("\"{}\"", kFormat)) != std::string::npos;
}

Manifest parse_manifest(const std::string& text, const std::string& where) {
  const bool has_checksum = check_manifest_checksum(text, where);
  const auto parsed = formats::parse_strict_json(text, where);
  const JsonFields fields(parsed, where);
  Manifest manifest;
  manifest.version = check_kind(fields, where);
  formats::check_input(has_checksum || !manifest.has_checksum(),
                       "{}: has version {} but no '{}' at its end; the file is damaged or was "
                       "changed: copy it again or use another checkpoint",
                       where, manifest.version, kManifestChecksum);
  manifest.saved_at = fields.at("saved_at").integer();
  if (fields.has("save_number")) manifest.save_number = fields.at("save_number").integer(1);
  manifest.num_ranks = static_cast<int>(fields.at("num_ranks").integer(1));
  manifest.num_shards = static_cast<int>(fields.at("num_shards").integer(1));
  manifest.strategy = fields.at("strategy").text();
  manifest.is_node_local = fields.at("is_node_local").boolean();
  if (fields.has("leaves_out_frozen")) {
    manifest.leaves_out_frozen = fields.at("leaves_out_frozen").boolean();
  }
  if (fields.has("optimizer")) manifest.optimizer = parse_optimizer(fields.at("optimizer"));
  for (const auto& item : fields.at("files").items()) manifest.files.push_back(parse_file(item));
  if (fields.has("side_files")) {
    for (const auto& item : fields.at("side_files").items()) {
      manifest.side_files.push_back(parse_file(item));
    }
  }
  for (const auto& item : fields.at("tensors").items()) {
    manifest.tensors.push_back(parse_tensor(item));
  }
  const auto progress = fields.at("progress");
  manifest.progress = parse_progress(progress.value(), progress.where());
  manifest.rng = fields.at("rng").texts();
  check_manifest(manifest, where);
  return manifest;
}

Manifest read_manifest(const std::string& folder) {
  const auto path = fmt::format("{}/{}", folder, kManifestName);
  formats::check_input(base::is_folder(folder), "{}: is not a checkpoint folder: it {}", folder,
                       base::is_file(folder) ? "is a file" : "does not exist");
  formats::check_input(base::is_file(path),
                       "{}: has no {}: it is not a checkpoint, or an incomplete one", folder,
                       kManifestName);
  const auto file = formats::FileHandle::open(path);
  formats::check_input(file.size() <= kGiB, "{}: has {}, expected less than 1 GiB", path,
                       format_bytes(file.size()));
  return parse_manifest(file.read_text(0, file.size(), "the manifest"), path);
}

}  // namespace fullshard::stored
