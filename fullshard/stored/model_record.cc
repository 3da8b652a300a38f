// SPDX-License-Identifier: Apache-2.0
#include "fullshard/stored/model_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "fullshard/formats/element_type.h"
#include "fullshard/formats/input_error.h"
#include "fullshard/formats/read_elements.h"
#include "fullshard/stored/transposed_read.h"

namespace fullshard::stored {
namespace {

using nlohmann::json;

constexpr const char* kKey = "model";

class RenamedSource : public TensorSource {
 public:
  RenamedSource(std::unique_ptr<TensorSource> source, const ModelRecord& record)
      : source_(std::move(source)) {
    for (const auto& tensor : source_->tensors()) {
      const auto known = record.names.find(tensor.name);
      const bool is_known = known != record.names.end();
      const std::string name = is_known ? known->second.name : tensor.name;
      if (name.empty()) continue;
      // Two names of a tied tensor may be one name in files.
      places_.insert({name, {tensor.name, is_known && known->second.transposed}});
    }
    for (const auto& [second, first] : record.tied) {
      if (const auto place = places_.find(first); place != places_.end()) {
        places_.insert({second, place->second});
      }
    }
    for (const auto& [name, place] : places_) {
      tensors_.push_back(*source_->find(place.name));
      auto& tensor = tensors_.back();
      tensor.name = name;
      if (!place.is_turned) continue;
      formats::check_input(tensor.shape.size() == 2,
                           "{}: tensor '{}': cannot be transposed: its shape is {}", tensor.file,
                           place.name, format_shape(tensor.shape));
      std::swap(tensor.shape[0], tensor.shape[1]);
    }
  }

  const std::vector<StoredTensor>& tensors() const override { return tensors_; }

  void read(const std::string& name, int64_t begin, ElementSpan out) const override {
    const StoredTensor& tensor = formats::find_or_fail(*this, name, "checkpoint");
    const Place& place = places_.at(name);
    if (!place.is_turned) return source_->read(place.name, begin, out);
    formats::check_target(tensor, begin, out);
    read_transposed(*source_, place.name, tensor.shape[0], tensor.shape[1], begin, out);
  }

  std::vector<SummedStorage> storages_of(const std::string& name) const override {
    formats::find_or_fail(*this, name, "checkpoint");
    return source_->storages_of(places_.at(name).name);
  }

 private:
  struct Place {
    std::string name;
    bool is_turned;
  };

  std::unique_ptr<TensorSource> source_;
  std::map<std::string, Place> places_;
  std::vector<StoredTensor> tensors_;
};

}  // namespace

std::string with_record(const std::string& extra, const ModelRecord& record) {
  json names = json::object();
  for (const auto& [name, in_file] : record.names) {
    names[name] = {{"name", in_file.name}, {"transposed", in_file.transposed}};
  }
  auto all = json::parse(extra);
  all[kKey] = {{"config", record.config}, {"names", std::move(names)}};
  if (!record.adapter.empty()) all[kKey]["adapter"] = record.adapter;
  if (!record.tied.empty()) all[kKey]["tied"] = record.tied;
  return all.dump();
}

ModelRecord record_in(const std::string& extra, const std::string& where) {
  ModelRecord record;
  const auto all = json::parse(extra);
  const auto found = all.find(kKey);
  if (found == all.end()) return record;
  try {
    record.config = found->at("config").get<std::string>();
    record.adapter = found->value("adapter", "");
    record.tied = found->value("tied", record.tied);
    for (const auto& [name, in_file] : found->at("names").items()) {
      record.names[name] = {
          in_file.at("name").get<std::string>(), in_file.at("transposed").get<bool>(), {}};
    }
  } catch (const json::exception& error) {
    formats::fail_input("{}: progress.extra.{}: is not a model record: {}", where, kKey,
                        error.what());
  }
  return record;
}

std::unique_ptr<TensorSource> under_file_names(std::unique_ptr<TensorSource> source,
                                               const ModelRecord& record) {
  if (record.names.empty() && record.tied.empty()) return source;
  return std::make_unique<RenamedSource>(std::move(source), record);
}

std::string file_name_of(const std::string& name, const ModelRecord& record) {
  const auto known = record.names.find(name);
  return known == record.names.end() ? name : known->second.name;
}

}  // namespace fullshard::stored
