// SPDX-License-Identifier: Apache-2.0
// What launchers tell the processes that they start, in environment variables. They are read here
// and nowhere else; all others are handed the value.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace fullshard::base {

// One fact, with the name of the variable that says it, or could: for messages.
struct LauncherVariable {
  std::string name = {};
  std::optional<std::string> text = {};  // nothing where it is not set, or empty

  explicit operator bool() const { return text.has_value(); }
  std::string text_or_empty() const { return text.value_or(""); }
  // A usage Error that names the variable where the text is no number from 0 on.
  std::optional<int> number() const;
};

// Texts as they are found, so that a variable nobody asks for may hold anything. A value: it stays
// as it was read when the process changes its environment.
struct LauncherEnvironment {
  // Of variables by their names. Pure, so that every launcher can be tried without being there.
  using Lookup = std::function<std::optional<std::string>(const std::string& name)>;
  static LauncherEnvironment read(const Lookup& lookup);
  static LauncherEnvironment of_process();

  struct Ranks {
    LauncherVariable rank, size, local_rank, local_size;
  };
  Ranks torchrun;  // `fullshard launch` too; a name after FULLSHARD_ wins: FULLSHARD_RANK, RANK
  Ranks open_mpi, pmi;
  LauncherVariable mpi_job;

  // Of the job step, else of the allocation.
  struct Slurm {
    LauncherVariable task, num_tasks, local_task, node, num_nodes;
    LauncherVariable tasks_of_nodes;  // "2(x3),1"
    LauncherVariable tasks_per_node;  // one number for all
    LauncherVariable hosts;           // "n[01-03]"
    LauncherVariable job;
  };
  Slurm slurm;

  // Whether somebody started this process as one rank of several. Our own names alone say so, even
  // where one of them is missing, and so does a WORLD_SIZE of several: who then asks for the rank
  // says what is missing. An allocation of SLURM, or a step of one task, does not.
  bool is_rank = false;

  LauncherVariable master_address, master_port;
  LauncherVariable agent_store;  // torchrun's agent serves the store where it is "True"
  LauncherVariable restart;      // how often the ranks have been started again
  LauncherVariable socket_interface;
  LauncherVariable gloo_interface;  // socket_interface, else gloo's own
  LauncherVariable device_sums;

  // FULLSHARD_JOB_SECRET, or the first line of the file that FULLSHARD_JOB_SECRET_FILE names, which
  // nobody but its owner may read: an Error otherwise. Empty: there is none.
  std::string job_secret() const;
  LauncherVariable secret, secret_file;

  // What `fullshard` hands to the ranks that it starts.
  static constexpr const char* kTerminal = "FULLSHARD_TERMINAL_FD";
  static constexpr const char* kRunLock = "FULLSHARD_RUN_LOCK";
  static constexpr const char* kPrompts = "FULLSHARD_PROMPTS_FD";
  static constexpr const char* kMeasured = "FULLSHARD_MEASURED";
  static constexpr const char* kMeasuredSteps = "steps";
  static constexpr const char* kMeasuredPhases = "phases";
  LauncherVariable meeting;   // a pipe to say in that ranks have met: "NUMBER:INODE"
  LauncherVariable terminal;  // a descriptor
  LauncherVariable run_lock;  // a descriptor
  LauncherVariable prompts;   // a descriptor: what standard input held
  LauncherVariable measured;  // a run of `tune` or `bench step`: kMeasuredSteps, or …Phases too
  struct Config {
    LauncherVariable file, fsdp, fsdp_config, overrides, allow_unknown;
  };
  Config config;

  // Ranks that were started again go on by themselves.
  bool is_restart() const { return restart.number().value_or(0) > 0; }
};

}  // namespace fullshard::base
