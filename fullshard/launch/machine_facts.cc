// SPDX-License-Identifier: Apache-2.0
#include "fullshard/launch/machine_facts.h"

#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include "fullshard/base/bytes.h"
#include "fullshard/base/error.h"
#include "fullshard/base/memory_info.h"
#include "fullshard/launch/cgroup.h"
#include "fullshard/launch/cores.h"
#include "fullshard/launch/devices.h"
#include "fullshard/launch/remote_command.h"

namespace fullshard::launch {
namespace {

using Kind = Fact::Kind;

Fact cores_fact() {
  const auto share = cgroup_limits().cores;
  const int usable = num_usable_cores();
  return {
      "cores",
      fmt::format("{} of {} may be used{}", allowed_cores().size(), ::sysconf(_SC_NPROCESSORS_ONLN),
                  share ? fmt::format(", a control group allows {:.3g}", *share) : ""),
      fmt::format("{} rank{} without sharing cores; launch sets OMP_NUM_THREADS to {} / ranks",
                  usable, usable == 1 ? "" : "s", usable),
      Kind::fine};
}

Fact memory_fact() {
  const auto info = base::memory_info();
  const auto limit = cgroup_limits().memory_bytes;
  int64_t available = info.available_bytes;
  if (limit) available = std::min(available, *limit);
  // AdamW in fp32: parameter, gradient and two states.
  constexpr int64_t kBytesPerParameter = 16;
  return {
      "memory",
      fmt::format("{} of {} available{}", format_bytes(info.available_bytes),
                  format_bytes(info.total_bytes),
                  limit ? fmt::format(", a control group allows {}", format_bytes(*limit)) : ""),
      fmt::format("on CPU all ranks together train at most about {} parameters with AdamW in "
                  "fp32 (16 bytes each, activations not counted); fullshard estimate plans a model "
                  "exactly",
                  format_count(available / kBytesPerParameter)),
      Kind::fine};
}

std::optional<int64_t> free_bytes(const char* path) {
  struct statvfs facts = {};
  if (::statvfs(path, &facts) != 0) return std::nullopt;
  return static_cast<int64_t>(facts.f_bavail) * static_cast<int64_t>(facts.f_frsize);
}

Fact shared_memory_fact() {
  const auto bytes = free_bytes("/dev/shm");
  if (!bytes) {
    return {"/dev/shm", "missing",
            "ranks of this host share memory through anonymous files, so this does not matter to "
            "fullshard; NCCL and other programs need it",
            Kind::notice};
  }
  const bool is_small = *bytes < 256 * kMiB;
  return {"/dev/shm", format_bytes(*bytes) + " free",
          is_small
              ? "fullshard's ranks do not need it, but NCCL does; in a container raise it with "
                "--shm-size"
              : "enough for NCCL; fullshard's own ranks share memory without it",
          is_small ? Kind::notice : Kind::fine};
}

Fact disk_fact() {
  const auto bytes = free_bytes(".");
  if (!bytes)
    return {"disk", "this folder cannot be inspected", "checkpoints need it", Kind::problem};
  constexpr int64_t kBytesPerParameter = 12;  // master and two states in fp32
  return {"disk", format_bytes(*bytes) + " free in this folder",
          fmt::format("holds one checkpoint of about {} parameters with AdamW",
                      format_count(*bytes / kBytesPerParameter)),
          *bytes < kGiB ? Kind::notice : Kind::fine};
}

Fact gpus_fact() {
  const auto gpus = find_gpus();
  if (gpus.empty()) {
    return {"GPUs", "none seen (/proc/driver/nvidia, /dev/nvidia*)",
            "ranks train on CPU; give launch --ranks N", Kind::fine};
  }
  const int visible = num_visible_gpus();
  return {"GPUs",
          fmt::format("{} × {}{}", gpus.size(), gpus.front(),
                      visible < static_cast<int>(gpus.size())
                          ? fmt::format(", {} by CUDA_VISIBLE_DEVICES", visible)
                          : ""),
          fmt::format("launch starts {} rank{} unless --ranks says otherwise", visible,
                      visible == 1 ? "" : "s"),
          visible == 0 ? Kind::notice : Kind::fine};
}

Fact limit_fact(const char* subject, int resource, rlim_t wanted, bool is_bytes,
                const std::string& meaning) {
  rlimit limit = {};
  ::getrlimit(static_cast<decltype(RLIMIT_NOFILE)>(resource), &limit);
  const auto text = [&](rlim_t value) {
    if (value == RLIM_INFINITY) return std::string("unlimited");
    return is_bytes ? format_bytes(static_cast<int64_t>(value)) : std::to_string(value);
  };
  return {subject, fmt::format("{} (at most {})", text(limit.rlim_cur), text(limit.rlim_max)),
          meaning, limit.rlim_cur < wanted ? Kind::notice : Kind::fine};
}

// What a program that links libtorch says about itself: this one does not link it.
std::vector<Fact> core_program_facts() {
  std::error_code problem;
  const auto own = std::filesystem::read_symlink("/proc/self/exe", problem);
  const std::string core = (own.parent_path() / "fullshard-core").string();
  if (::access(core.c_str(), X_OK) != 0) {
    return {{"libtorch", "unknown: no fullshard-core next to this program",
             "train, eval, compare and checkpoint need that program; launch and config do not",
             Kind::problem}};
  }
  std::FILE* const pipe = ::popen((shell_quoted(core) + " facts 2>&1").c_str(), "re");
  check(pipe != nullptr, "doctor: cannot start '{}': {}", core, std::strerror(errno));
  std::string said;
  for (int letter; (letter = std::fgetc(pipe)) != EOF;) said += static_cast<char>(letter);
  if (::pclose(pipe) != 0) {
    said = said.substr(0, said.find('\n'));
    return {{"libtorch", "fullshard-core does not start", said, Kind::problem}};
  }
  std::vector<Fact> facts;
  std::istringstream lines(said);
  for (std::string subject, found, meaning; std::getline(lines, subject, '\t') &&
                                            std::getline(lines, found, '\t') &&
                                            std::getline(lines, meaning);) {
    facts.push_back({subject, found, meaning, Kind::fine});
  }
  return facts;
}

}  // namespace

std::vector<Fact> machine_facts() {
  std::vector<Fact> facts = {
      cores_fact(),
      memory_fact(),
      shared_memory_fact(),
      disk_fact(),
      gpus_fact(),
      limit_fact("open files", RLIMIT_NOFILE, 1024, false,
                 "each rank needs a few for every other rank and checkpoint file; below 1024 "
                 "raise it with ulimit -n"),
      limit_fact("locked memory", RLIMIT_MEMLOCK, RLIM_INFINITY, true,
                 "pinned host memory for offloading and InfiniBand need it unlimited (ulimit "
                 "-l); training on CPU does not"),
      limit_fact(
          "processes", RLIMIT_NPROC, 1024, false,
          "every rank has threads for computation and communication; below 1024 raise it with "
          "ulimit -u")};
  for (Fact& fact : core_program_facts()) facts.push_back(std::move(fact));
  return facts;
}

std::string_view name_of(Fact::Kind kind) {
  return kind == Kind::fine ? "ok" : kind == Kind::notice ? "note" : "bad";
}

std::string facts_text(const std::vector<Fact>& facts) {
  std::string text;
  for (const Fact& fact : facts) {
    text += fmt::format("{:<5} {:<14} {}\n{:<21}{}\n", name_of(fact.kind), fact.subject, fact.found,
                        "", fact.meaning);
  }
  return text;
}

}  // namespace fullshard::launch
