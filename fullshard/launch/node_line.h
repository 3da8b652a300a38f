// SPDX-License-Identifier: Apache-2.0
// The launchers of several nodes that were started by hand tell one another when a rank has failed:
// before the ranks have met, none of them could notice it. Node 0 listens, on a port that follows
// from the one where the ranks meet, and passes on what it hears; the others connect to it. A
// launcher that comes later, or again after its host was lost, is told of the starts that it has
// missed, so that it counts them as the others do.
//
//     both     fullshard nodes NONCE            32 hexadecimal digits
//     both     MAC hello                        MAC: of the job's token over who speaks, the
//     both     MAC lost RESTART STATUS TEXT     listener's nonce and what follows
//     node 0   MAC bye                          before it ends, however it does
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace fullshard::launch {

struct NodeLineOptions {
  std::string address;   // of node 0
  int port = 0;          // where its launcher listens
  std::string secret;    // of the job; empty: anyone may speak
  int nodes = 2;         // of the job
  bool is_first = true;  // this is node 0
};

// A rank that has failed.
struct Loss {
  int restart = 0;  // starts of the job before the one that lost it
  int status = 0;
  std::string text;  // "rank 3 on host n2: killed by signal 9 (Killed)"
};

// The port of the line, derived from the one where the ranks meet: jobs meet at 20000 to 29999, and
// it lies outside.
int node_line_port(int master_port);

// For one thread. Blocks only to look up node 0's name and, for half a second, to reach it.
class NodeLine {
 public:
  // Warns, and receives nothing, when node 0 cannot listen.
  explicit NodeLine(const NodeLineOptions& options);
  // Waits at most a second for the others to have read what was told.
  ~NodeLine();
  NodeLine(const NodeLine&) = delete;
  NodeLine& operator=(const NodeLine&) = delete;

  int descriptor() const { return watch_; }  // to be polled
  // Tries to reach node 0, now and then, until it is there.
  void connect();
  bool is_connecting() const { return !options_.is_first && peers_.empty() && !has_ended_; }
  // Node 0's launcher may come back after it has gone: looks for it again from now on.
  void look_again();
  size_t num_connections() const { return peers_.size(); }
  // Reads what has arrived.
  void read();

  // Tells all other nodes, also those that connect later.
  void tell(const Loss& loss);
  // Whether there is nothing to tell, or all nodes have connected.
  bool have_all_come() const;
  // Waits a little for something to arrive.
  void wait();

  // The loss that another node has reported for this start of the job.
  std::optional<Loss> loss_of(int restart) const;
  // Node 0's launcher was there and has gone; is_cut: without saying so. Until look_again().
  bool has_ended() const { return has_ended_; }
  bool is_cut() const { return is_cut_; }

 private:
  using Clock = std::chrono::steady_clock;

  // The other end of a connection.
  struct Peer {
    int socket = -1;
    std::string own_nonce = {};  // the nonce with which it has to prove that it knows the token
    std::string nonce = {};      // its own; empty until it has arrived
    std::string said = {};       // an unfinished line
    bool is_known = false;       // it has proved that it knows the token
    bool is_leaving = false;     // it has said that it ends
  };

  void add_peer(int socket);
  void accept_peer();
  void drop(int socket);
  void drop_a_stranger();
  void hear(int socket);
  bool hear_line(Peer& peer, const std::string& line);
  void heed(Peer& peer, const std::string& text);
  void send(const Peer& peer, const std::string& text) const;
  void send_losses(const Peer& peer) const;
  std::string code(const std::string& nonce, bool from_first, const std::string& text) const;
  Peer* find(int socket);

  NodeLineOptions options_;
  int watch_ = -1, listener_ = -1;
  std::vector<Peer> peers_;  // on node 0: all that are connected; elsewhere: node 0, if connected
  // Nodes that have proved that they know the token, also those that have gone, but none that was
  // cut off.
  int num_come_ = 0;
  std::vector<Loss> told_, heard_;
  bool is_cut_ = false, has_ended_ = false;
  Clock::time_point next_try_ = {};
  Clock::duration pause_;
};

}  // namespace fullshard::launch
