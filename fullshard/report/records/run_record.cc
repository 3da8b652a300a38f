// SPDX-License-Identifier: Apache-2.0
#include "fullshard/report/records/run_record.h"

#include <fmt/format.h>

#include <array>
#include <ctime>
#include <nlohmann/json.hpp>

#include "fullshard/base/error.h"
#include "fullshard/base/file_kind.h"
#include "fullshard/base/json_text.h"
#include "fullshard/base/printable.h"
#include "fullshard/base/text_file.h"
#include "fullshard/report/records/number_text.h"
#include "fullshard/report/records/run_file.h"

namespace fullshard {
namespace {

using Json = nlohmann::ordered_json;  // keys stay in the order that readers expect

constexpr std::array kStatuses = {RunStatus::running, RunStatus::finished, RunStatus::failed,
                                  RunStatus::interrupted};

std::optional<int64_t> parse_time(const std::string& text) {
  std::tm parts{};
  const char* end = ::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  if (end == nullptr || *end != '\0') return std::nullopt;
  return ::timegm(&parts);
}

Json parse(std::string_view text, const std::string& where) {
  try {
    return base::parse_json<Json>(text);
  } catch (const base::JsonError& error) {
    fail_as(ErrorKind::input, "{}: {}; was it written by another program?", where, error.what());
  }
}

// Text from outside may be anything; failing to write the record because of it would be worse.
std::string dump(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Json shares_json(const std::vector<MemoryShare>& shares) {
  Json rows = Json::array();
  for (const MemoryShare& share : shares) {
    rows.push_back({{"purpose", share.purpose}, {"tier", share.tier}, {"bytes", share.bytes}});
  }
  return rows;
}

Json planned_json(const std::vector<PlannedTier>& tiers) {
  Json all = Json::object();
  for (const PlannedTier& tier : tiers) {
    Json purposes = Json::object();
    for (const auto& [purpose, bytes] : tier.by_purpose) purposes[purpose] = bytes;
    all[tier.tier] = {{"rest_bytes", tier.rest_bytes},
                      {"peak_bytes", tier.peak_bytes},
                      {"peak_at", tier.peak_at},
                      {"by_purpose", std::move(purposes)}};
  }
  return all;
}

Json memory_json(const MemoryPlan& plan) {
  Json ranks = Json::array();
  for (const auto& shares : plan.ranks) ranks.push_back(shares_json(shares));
  return {{"planned", planned_json(plan.planned)},
          {"unsharded", shares_json(plan.unsharded)},
          {"ranks", std::move(ranks)}};
}

// An object of the file; `path` is its dotted name, for messages.
class ObjectReader {
 public:
  ObjectReader(const Json& json, std::string where, std::string path)
      : json_(json), where_(std::move(where)), path_(std::move(path)) {
    if (!json_.is_object()) refuse("", json_, "an object");
  }

  void read(const char* key, std::string& target) const {
    if (const Json* value = find(key)) target = text(key, *value);
  }
  void read(const char* key, int64_t& target) const {
    const Json* value = find(key);
    if (value == nullptr) return;
    if (!value->is_number_integer()) refuse(key, *value, "a whole number");
    target = value->get<int64_t>();
  }
  void read(const char* key, std::optional<int64_t>& target) const {
    if (find(key) != nullptr) read(key, target.emplace());
  }
  void read(const char* key, double& target) const {
    const Json* value = find(key);
    if (value == nullptr) return;
    if (!value->is_number()) refuse(key, *value, "a number");
    target = value->get<double>();
  }
  void read(const char* key, int& target) const {
    int64_t wide = target;
    read(key, wide);
    target = static_cast<int>(wide);
  }
  void read(const char* key, std::vector<std::string>& target) const {
    target.clear();
    for (const Json& value : list(key)) target.push_back(text(key, value));
  }
  std::optional<int64_t> time(const char* key) const {
    const Json* value = find(key);
    if (value == nullptr) return std::nullopt;
    const auto seconds = parse_time(text(key, *value));
    if (!seconds) refuse(key, *value, "a time like \"2031-05-06T07:08:09Z\"");
    return seconds;
  }
  // The elements of the list under a key; none if the key is absent.
  Json list(const char* key) const {
    const Json* value = find(key);
    if (value == nullptr) return Json::array();
    if (!value->is_array()) refuse(key, *value, "a list");
    return *value;
  }
  // The object under a key; an empty one if the key is absent.
  Json object(const char* key) const {
    const Json* value = find(key);
    if (value == nullptr) return Json::object();
    if (!value->is_object()) refuse(key, *value, "an object");
    return *value;
  }
  [[noreturn]] void refuse(std::string_view key, const Json& found,
                           std::string_view expected) const {
    const std::string dotted =
        path_.empty() || key.empty() ? path_ + std::string(key) : fmt::format("{}.{}", path_, key);
    fail_as(ErrorKind::input, "{}: {}{}found {}, expected {}", where_, base::printable(dotted),
            dotted.empty() ? "" : ": ",
            base::printable(found.dump(-1, ' ', false, Json::error_handler_t::replace), 40),
            expected);
  }

 private:
  const Json* find(const char* key) const {
    const auto found = json_.find(key);
    return found == json_.end() || found->is_null() ? nullptr : &*found;
  }
  std::string text(const char* key, const Json& value) const {
    if (!value.is_string()) refuse(key, value, "a text");
    return value.get<std::string>();
  }

  const Json& json_;
  std::string where_;
  std::string path_;
};

std::vector<MemoryShare> read_shares(const Json& rows, const std::string& where) {
  std::vector<MemoryShare> shares;
  if (!rows.is_array()) fail_as(ErrorKind::input, "{}: memory_plan: expected lists", where);
  for (const Json& row : rows) {
    const ObjectReader reader(row, where, "memory_plan");
    MemoryShare& share = shares.emplace_back();
    reader.read("purpose", share.purpose);
    reader.read("tier", share.tier);
    reader.read("bytes", share.bytes);
  }
  return shares;
}

std::vector<PlannedTier> read_planned(const Json& json, const std::string& where) {
  std::vector<PlannedTier> tiers;
  for (const auto& [name, of_tier] : json.items()) {
    const std::string path = "memory_plan.planned." + name;
    const ObjectReader reader(of_tier, where, path);
    PlannedTier& tier = tiers.emplace_back(PlannedTier{.tier = name});
    reader.read("rest_bytes", tier.rest_bytes);
    reader.read("peak_bytes", tier.peak_bytes);
    reader.read("peak_at", tier.peak_at);
    const Json purposes_json = reader.object("by_purpose");
    const ObjectReader purposes(purposes_json, where, path + ".by_purpose");
    for (const auto& [purpose, bytes] : purposes_json.items()) {
      purposes.read(purpose.c_str(), tier.by_purpose.emplace_back(purpose, 0).second);
    }
  }
  return tiers;
}

MemoryPlan read_memory(const Json& json, const std::string& where) {
  const ObjectReader reader(json, where, "memory_plan");
  MemoryPlan plan{.planned = read_planned(reader.object("planned"), where),
                  .unsharded = read_shares(reader.list("unsharded"), where)};
  for (const Json& shares : reader.list("ranks")) plan.ranks.push_back(read_shares(shares, where));
  return plan;
}

Json disk_json(const DiskTraffic& disk) {
  return {{"folders", disk.folders},
          {"bytes_read", disk.bytes_read},
          {"bytes_written", disk.bytes_written},
          {"bytes_written_per_day", disk.bytes_written_per_day},
          {"read_wait_s", disk.read_wait_s},
          {"write_wait_s", disk.write_wait_s}};
}

std::optional<DiskTraffic> read_disk(const Json& json, const std::string& where) {
  if (json.empty()) return std::nullopt;
  const ObjectReader reader(json, where, "disk");
  DiskTraffic disk;
  reader.read("folders", disk.folders);
  reader.read("bytes_read", disk.bytes_read);
  reader.read("bytes_written", disk.bytes_written);
  reader.read("bytes_written_per_day", disk.bytes_written_per_day);
  reader.read("read_wait_s", disk.read_wait_s);
  reader.read("write_wait_s", disk.write_wait_s);
  return disk;
}

RunStatus read_status(const ObjectReader& reader) {
  std::string name(name_of(RunStatus::running));
  reader.read("status", name);
  for (const RunStatus status : kStatuses) {
    if (name == name_of(status)) return status;
  }
  if (name == "finished") return RunStatus::finished;  // as version 0.1 wrote it
  reader.refuse("status", Json(name), "running, done, failed or interrupted");
}

void read_versions(const ObjectReader& reader, RunRecord& record) {
  const Json versions = reader.object("versions");
  for (const auto& [name, version] : versions.items()) {
    if (!version.is_string()) reader.refuse("versions." + name, version, "a string");
    record.versions.emplace_back(name, version.get<std::string>());
  }
}

}  // namespace

std::string_view name_of(RunStatus status) {
  switch (status) {
    case RunStatus::running:
      return "running";
    case RunStatus::finished:
      return "done";
    case RunStatus::failed:
      return "failed";
    case RunStatus::interrupted:
      return "interrupted";
  }
  return "unknown";
}

std::string to_json(const RunRecord& record) {
  Json json;
  json["status"] = name_of(record.status);
  if (!record.problem.empty()) json["problem"] = record.problem;
  if (!record.checkpoint.empty()) json["checkpoint"] = record.checkpoint;
  if (!record.stopped_early.empty()) json["stopped_early"] = record.stopped_early;
  json["versions"] = Json::object();
  for (const auto& [name, version] : record.versions) json["versions"][name] = version;
  json["command"] = record.command;
  json["device"] = record.device;
  json["mesh"] = {{"world", record.mesh.world},
                  {"replicas", record.mesh.replicas},
                  {"shards", record.mesh.shards},
                  {"hosts", record.mesh.hosts}};
  json["model"] = {{"name", record.model.name},
                   {"architecture", record.model.architecture},
                   {"parameters", record.model.parameters}};
  json["num_steps"] = record.num_steps;
  if (record.first_step) json["first_step"] = *record.first_step;
  json["tokens"] = record.tokens;
  json["started"] = report::format_utc(record.started);
  json["ended"] = record.ended ? Json(report::format_utc(*record.ended)) : Json();
  json["warnings"] = record.warnings;
  json["memory_plan"] = memory_json(record.memory);
  if (record.disk) json["disk"] = disk_json(*record.disk);
  json["configuration"] = base::parse_json<Json>(record.configuration);
  check(json["configuration"].is_object(), "run record: the configuration is not a JSON object: {}",
        base::printable(record.configuration, 80));
  return dump(json);
}

RunRecord parse_run_record(std::string_view text, std::string_view where) {
  const std::string place(where);
  const Json json = parse(text, place);
  const ObjectReader reader(json, place, "");
  RunRecord record{.status = read_status(reader)};
  reader.read("problem", record.problem);
  reader.read("checkpoint", record.checkpoint);
  reader.read("stopped_early", record.stopped_early);
  read_versions(reader, record);
  reader.read("command", record.command);
  reader.read("device", record.device);
  const Json mesh_json = reader.object("mesh");
  const ObjectReader mesh(mesh_json, place, "mesh");
  mesh.read("world", record.mesh.world);
  mesh.read("replicas", record.mesh.replicas);
  mesh.read("shards", record.mesh.shards);
  mesh.read("hosts", record.mesh.hosts);
  const Json model_json = reader.object("model");
  const ObjectReader model(model_json, place, "model");
  model.read("name", record.model.name);
  model.read("architecture", record.model.architecture);
  model.read("parameters", record.model.parameters);
  reader.read("num_steps", record.num_steps);
  reader.read("first_step", record.first_step);
  reader.read("tokens", record.tokens);
  record.started = reader.time("started").value_or(0);
  record.ended = reader.time("ended");
  reader.read("warnings", record.warnings);
  record.memory = read_memory(reader.object("memory_plan"), place);
  record.disk = read_disk(reader.object("disk"), place);
  record.configuration =
      reader.object("configuration").dump(-1, ' ', false, Json::error_handler_t::replace);
  return record;
}

void write_run_record(const std::string& path, const RunRecord& record) {
  report::write_whole_file(path, to_json(record));
}

RunRecord read_run_record(const std::string& path) {
  const auto text = base::find_text_file(path);
  if (!text) fail_as(ErrorKind::input, "{}: not found; give the --output folder of a run", path);
  return parse_run_record(*text, path);
}

namespace {

// From the file next to its checkpoints, which is written with each of them; empty: none.
std::string last_checkpoint_of(const std::string& folder) {
  constexpr int64_t kLongestName = 4096;
  const std::string checkpoints = folder + "/checkpoints/";
  try {
    std::string name = base::find_text_file(checkpoints + "latest", kLongestName).value_or("");
    if (name.ends_with('\n')) name.pop_back();
    const bool is_name = !name.empty() && name.find_first_of("/\n") == std::string::npos;
    return is_name && base::is_folder(checkpoints + name) ? checkpoints + name : "";
  } catch (const Error&) {
    return "";
  }
}

}  // namespace

bool close_run_record(const std::string& folder, RunStatus status, const std::string& problem,
                      int64_t ended) {
  const std::string path = folder + "/run.json";
  Json json;
  try {
    json = base::parse_json<Json>(base::find_text_file(path).value_or(""));
  } catch (const base::JsonError&) {  // the reader of the file reports what is wrong
    return false;
  }
  if (!json.is_object() || json.value("status", Json()) != name_of(RunStatus::running)) {
    return false;
  }
  json["status"] = name_of(status);
  json["problem"] = problem;
  json["ended"] = report::format_utc(ended);
  if (const std::string last = last_checkpoint_of(folder); !last.empty()) json["checkpoint"] = last;
  report::write_whole_file(path, dump(json));
  return true;
}

}  // namespace fullshard
