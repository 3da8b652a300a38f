// SPDX-License-Identifier: Apache-2.0
// The flags that say where ranks run and how they are supervised, for `launch` and every command
// that starts ranks itself.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fullshard/config/plan_sections.h"
#include "fullshard/launch/launch_hosts.h"

namespace CLI {
class App;
}

namespace fullshard::cli {

class LaunchFlags {
 public:
  explicit LaunchFlags(CLI::App& command);
  LaunchFlags(const LaunchFlags&) = delete;  // the parser writes into it
  LaunchFlags& operator=(const LaunchFlags&) = delete;

  // Takes ranks and hosts from a configuration, where no flag sets them.
  void take(const LaunchPlan& plan);
  void keep_logs_in(const std::string& folder);  // unless --log-dir is given
  void show_only_first();                        // rank 0's output, unless --tee is given
  void trust_messages() { options_.explains_itself = true; }  // the program reports its own errors
  void let_it_save() { options_.saves_itself = true; }        // after a signal, without a deadline
  void let_logs_wait() { options_.logs_wait = true; }  // until rank 0 has checked their folder
  void set_default_ranks(int ranks);                   // when nothing else gives their number
  void name_config(const std::string& config) { options_.config = config; }     // for messages
  void keep_open(int descriptor) { options_.kept_open.push_back(descriptor); }  // in every rank
  // Variables that every rank gets, as NAME=VALUE.
  void add_variable(const std::string& variable);

  bool names_ranks() const;  // by a flag or a configuration
  // On all hosts together, as far as it is known before they are asked.
  int world_size();
  // 0: as many as a host usually has.
  int ranks_per_host();
  // Whether this host has rank 0; false also where ssh starts it.
  bool starts_rank_zero();
  bool is_over_ssh() const { return chooses_hosts(); }
  // Other hosts take part, or a choice among hosts was made.
  bool names_hosts() const { return chooses_hosts() || nodes_.value_or(1) > 1; }
  // The other nodes may know of earlier starts of the same job, if this one's host was lost.
  bool may_come_back() const {
    return !chooses_hosts() && nodes_.value_or(1) > 1 && options_.max_restarts > 0;
  }
  // Starts the command on all ranks and supervises them.
  launch::LaunchResult start(const std::vector<std::string>& command);

 private:
  void add_ranks(CLI::App& command);
  void add_output(CLI::App& command);
  void add_failures(CLI::App& command);
  void add_hosts(CLI::App& command);
  void add_internal(CLI::App& command);

  int ranks_per_node(int nodes) const;
  bool chooses_hosts() const;
  void take_slurm();
  std::vector<launch::Host> chosen_hosts() const;
  launch::LaunchResult start_here();

  launch::LaunchOptions options_;
  launch::HostsOptions hosts_;
  std::string ranks_;                 // per host: a number, or gpu, cpu, auto
  std::optional<int> num_processes_;  // on all hosts
  int default_ranks_ = 0;             // 0: no default
  std::optional<int> nodes_, node_rank_;
  std::string tee_;  // empty: all
  std::string bind_ = "none";
  std::string hostfile_, include_, exclude_;
  double notice_seconds_ = 3, grace_seconds_ = 30;
  bool is_controlled_ = false;
};

}  // namespace fullshard::cli
