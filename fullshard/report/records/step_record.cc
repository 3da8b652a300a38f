// SPDX-License-Identifier: Apache-2.0
#include "fullshard/report/records/step_record.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "fullshard/base/error.h"
#include "fullshard/base/json_text.h"
#include "fullshard/base/printable.h"

namespace fullshard {
namespace {

using Parsed = nlohmann::json;

// The shortest text that reads back to the same bits. With a point even if the value is whole: a
// reader would take "-0" for an integer and lose the sign.
std::string number_text(double value) {
  if (std::isnan(value)) return "\"NaN\"";
  if (std::isinf(value)) return value > 0 ? "\"Infinity\"" : "\"-Infinity\"";
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string number_text(const std::optional<double>& value) {
  return value ? number_text(*value) : "null";
}

class LineReader {
 public:
  LineReader(std::string_view line, std::string_view where) : where_(where) {
    try {
      json_ = base::parse_json(line);
    } catch (const base::JsonError& error) {
      fail_as(ErrorKind::input, "{}: {}; remove the line", where_, error.what());
    }
    if (!json_.is_object()) {
      fail_as(ErrorKind::input, "{}: is {}, expected an object; remove the line", where_,
              json_.type_name());
    }
  }

  bool has(const char* key) const { return json_.contains(key); }

  double real(const char* key) const {
    const Parsed& value = at(key);
    if (value.is_number()) return value.get<double>();
    if (value == "NaN") return std::numeric_limits<double>::quiet_NaN();
    if (value == "Infinity") return std::numeric_limits<double>::infinity();
    if (value == "-Infinity") return -std::numeric_limits<double>::infinity();
    refuse(key, "a number, \"NaN\", \"Infinity\" or \"-Infinity\"");
  }
  std::optional<double> real_or_null(const char* key) const {
    return at(key).is_null() ? std::nullopt : std::optional(real(key));
  }
  int64_t count(const char* key) const {
    const Parsed& value = at(key);
    const bool fits =
        value.is_number_unsigned() &&
        value.get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
    if (!fits) refuse(key, "a whole number from 0 on");
    return value.get<int64_t>();
  }
  bool boolean(const char* key) const {
    if (!at(key).is_boolean()) refuse(key, "true or false");
    return at(key).get<bool>();
  }

 private:
  const Parsed& at(const char* key) const {
    const auto found = json_.find(key);
    if (found == json_.end()) {
      fail_as(ErrorKind::input, "{}: no \"{}\"; remove the line", where_, key);
    }
    return *found;
  }
  [[noreturn]] void refuse(const char* key, std::string_view expected) const {
    const std::string found = at(key).dump(-1, ' ', false, Parsed::error_handler_t::replace);
    fail_as(ErrorKind::input, "{}: {}: found {}, expected {}", where_, key,
            base::printable(found, 40), expected);
  }

  std::string_view where_;
  Parsed json_;
};

}  // namespace

std::string to_json_line(const StepRecord& record) {
  std::string text = fmt::format(
      R"({{"step":{},"loss":{},"lr":{},"grad_norm":{},"loss_scale":{},"tokens":{},"step_s":{},)"
      R"("tokens_per_s":{},"mfu":{},"device_peak_bytes":{},"host_peak_bytes":{},"comm_s":{},)"
      R"("exposed_comm_s":{},"skipped":{})",
      record.step, number_text(record.loss), number_text(record.lr), number_text(record.grad_norm),
      number_text(record.loss_scale), record.tokens, number_text(record.step_s),
      number_text(record.tokens_per_s), number_text(record.mfu), record.device_peak_bytes,
      record.host_peak_bytes, number_text(record.comm_s), number_text(record.exposed_comm_s),
      record.skipped);
  if (record.eval_loss) text += fmt::format(R"(,"eval_loss":{})", number_text(*record.eval_loss));
  if (record.phases) {
    text += fmt::format(R"(,"data_s":{},"forward_s":{},"backward_s":{},"optimizer_s":{})",
                        number_text(record.phases->data_s), number_text(record.phases->forward_s),
                        number_text(record.phases->backward_s),
                        number_text(record.phases->optimizer_s));
  }
  if (record.offload) {
    text += fmt::format(
        R"(,"update_wait_s":{},"fetch_wait_s":{},"copy_in_wait_s":{},"copy_out_wait_s":{})",
        number_text(record.offload->update_wait_s), number_text(record.offload->fetch_wait_s),
        number_text(record.offload->copy_in_wait_s), number_text(record.offload->copy_out_wait_s));
  }
  return text + "}";
}

StepRecord parse_step_record(std::string_view line, std::string_view where) {
  const LineReader reader(line, where);
  StepRecord record{.step = reader.count("step"),
                    .loss = reader.real("loss"),
                    .lr = reader.real("lr"),
                    .grad_norm = reader.real_or_null("grad_norm"),
                    .loss_scale = reader.real("loss_scale"),
                    .tokens = reader.count("tokens"),
                    .step_s = reader.real("step_s"),
                    .tokens_per_s = reader.real("tokens_per_s"),
                    .mfu = reader.real_or_null("mfu"),
                    .device_peak_bytes = reader.count("device_peak_bytes"),
                    .host_peak_bytes = reader.count("host_peak_bytes"),
                    .comm_s = reader.real("comm_s"),
                    .exposed_comm_s = reader.real("exposed_comm_s"),
                    .skipped = reader.boolean("skipped")};
  if (reader.has("eval_loss")) record.eval_loss = reader.real_or_null("eval_loss");
  if (reader.has("data_s")) {
    record.phases = PhaseTimes{.data_s = reader.real("data_s"),
                               .forward_s = reader.real("forward_s"),
                               .backward_s = reader.real("backward_s"),
                               .optimizer_s = reader.real("optimizer_s")};
  }
  if (reader.has("update_wait_s")) {
    record.offload = OffloadTimes{.update_wait_s = reader.real("update_wait_s"),
                                  .fetch_wait_s = reader.real("fetch_wait_s"),
                                  .copy_in_wait_s = reader.real("copy_in_wait_s"),
                                  .copy_out_wait_s = reader.real("copy_out_wait_s")};
  }
  return record;
}

}  // namespace fullshard
