#include "fullshard/train/model_source.h"

#include <nlohmann/json.hpp>

#include "fullshard/base/error.h"
#include "fullshard/base/folder_names.h"
#include "fullshard/models/model_folder.h"
#include "fullshard/nn/deferred.h"
#include "fullshard/report/run_file.h"

namespace fullshard {
namespace {

bool has_weights(const std::string& folder) {
  for (const std::string& name : names_in_folder(folder)) {
    if (name == "model.safetensors" || name == "model.safetensors.index.json" ||
        name == "pytorch_model.bin" || name == "pytorch_model.bin.index.json") {
      return true;
    }
  }
  return false;
}

nlohmann::json parsed(const ModelSource& source) {
  return nlohmann::json::parse(source.config_json, nullptr, false);
}

}  // namespace

std::string ModelSource::where() const {
  return folder.empty() ? "preset " + name : folder + "/config.json";
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
  ModelSource source{.name = name};
  if (!is_folder(name)) {
    source.config_json = preset_config(name);
    return source;
  }
  source.folder = name;
  const auto config = read_whole_file(name + "/config.json");
  if (!config) {
    fail_as(ErrorKind::input,
            "{}: has no config.json; a model is a Hugging Face folder or one of "
            "the presets",
            name);
  }
  source.config_json = *config;
  source.has_weights = has_weights(name);
  return source;
}

std::shared_ptr<LanguageModel> make_deferred_model(const ModelSource& source) {
  const DeferredScope scope;
  return make_model(source.config_json, source.where());
}

}  // namespace fullshard
