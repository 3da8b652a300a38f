// SPDX-License-Identifier: Apache-2.0
#include "fullshard/train/model_source.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/base/file_kind.h"
#include "fullshard/base/hub_cache.h"
#include "fullshard/base/json_text.h"
#include "fullshard/base/text_file.h"
#include "fullshard/formats/element_span.h"
#include "fullshard/models/model_folder.h"
#include "fullshard/nn/deferred.h"
#include "fullshard/stored/side_files.h"

namespace fullshard {
namespace {

bool is_preset(const std::string& name) {
  const auto names = preset_names();
  return std::find(names.begin(), names.end(), name) != names.end();
}

// An Error says which command downloads it.
std::string cached_model(const std::string& name) {
  if (!base::is_hub_name(name)) fail_as(ErrorKind::usage, "model \"{}\": no such folder", name);
  const base::HubCache cache = base::HubCache::of_process();
  std::string folder = cache.find(base::HubKind::model, name);
  if (!folder.empty()) return folder;
  const std::string command = base::download_command(base::HubKind::model, name);
  if (is_preset(name)) {
    fail_as(ErrorKind::usage,
            "model \"{}\": the preset of that name has no weights, and the Hugging Face cache ({}) "
            "does not have the model; download it: {}; or train the preset: --model {}",
            name, cache.folder(), command, name);
  }
  fail_as(ErrorKind::usage,
          "model \"{}\": is no folder, no preset ({}), and not in the Hugging Face cache ({}); "
          "download it: {}",
          name, fmt::join(preset_names(), ", "), cache.folder(), command);
}

ModelSource model_in(const std::string& name, const std::string& folder) {
  stored::check_model_file(folder, "config.json");
  const auto config = base::find_text_file(folder + "/config.json");
  if (!config) {
    fail_as(ErrorKind::input,
            "{}: has no config.json; a model is a Hugging Face folder or one of "
            "the presets",
            folder);
  }
  return {.name = name,
          .folder = folder,
          .config_json = *config,
          .has_weights = stored::holds_model_weights(folder)};
}

// Null when it cannot be read: make_model() says why.
nlohmann::json parsed(const ModelSource& source) {
  try {
    return base::parse_json(source.config_json);
  } catch (const base::JsonError&) {
    return nullptr;
  }
}

// Of two tensors of one shape, part by part: most that differ do so at once.
bool have_same_values(const TensorSource& weights, const std::string& name,
                      const std::string& other) {
  constexpr int64_t kPart = 1 << 18;
  const int64_t numel = weights.find(name)->numel();
  for (int64_t begin = 0; begin < numel; begin += kPart) {
    const int64_t size = std::min(kPart, numel - begin);
    const ElementBuffer values(size, at::kFloat), others(size, at::kFloat);
    weights.read(name, begin, values.all());
    weights.read(other, begin, others.all());
    const auto* first = static_cast<const float*>(values.all().data);
    if (!std::equal(first, first + size, static_cast<const float*>(others.all().data)))
      return false;
  }
  return true;
}

}  // namespace

std::string ModelSource::where() const {
  return folder.empty() ? "preset " + name : folder + "/config.json";
}

std::string ModelSource::new_weights_warning() const {
  if (folder.empty()) {
    return fmt::format(
        "{}: is a preset, which has no weights: new ones are drawn; name a folder to run a model "
        "that was trained",
        name);
  }
  return fmt::format(
      "{}: holds no weights (model.safetensors, pytorch_model.bin, their index, or a checkpoint of "
      "DeepSpeed or torch.distributed.checkpoint): new ones are drawn",
      folder);
}

std::optional<int64_t> ModelSource::hidden_size() const {
  const auto config = parsed(*this);
  for (const char* key : {"hidden_size", "n_embd", "d_model"}) {
    if (config.is_object() && config.contains(key) && config[key].is_number_integer()) {
      return config[key].get<int64_t>();
    }
  }
  return std::nullopt;
}

std::string ModelSource::dtype() const {
  const auto config = parsed(*this);
  for (const char* key : {"dtype", "torch_dtype"}) {
    if (config.is_object() && config.contains(key) && config[key].is_string()) {
      return config[key].get<std::string>();
    }
  }
  return "";
}

ModelSource find_model(const std::string& name) {
  if (base::is_folder(name)) return model_in(name, name);
  if (!is_preset(name) && base::is_hub_name(name)) return model_in(name, cached_model(name));
  return {.name = name, .config_json = preset_config(name)};
}

ModelSource find_pretrained_model(const std::string& name) {
  return model_in(name, base::is_folder(name) ? name : cached_model(name));
}

StoredWeights ModelSource::stored_weights() const {
  if (!has_weights) return {};
  const std::shared_ptr<const TensorSource> weights = stored::open_model_weights(folder);
  StoredWeights::Shapes shapes;
  for (const StoredTensor& tensor : weights->tensors()) shapes[tensor.name] = tensor.shape;
  return {std::move(shapes), [weights](const std::string& one, const std::string& other) {
            return have_same_values(*weights, one, other);
          }};
}

std::shared_ptr<LanguageModel> make_deferred_model(const ModelSource& source, bool needs_head) {
  const MakeOptions options{.weights = source.stored_weights(), .needs_head = needs_head};
  const DeferredScope scope;
  return make_model(source.config_json, source.where(), options);
}

}  // namespace fullshard
