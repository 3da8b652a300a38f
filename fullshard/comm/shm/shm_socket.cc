// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/shm/shm_socket.h"

#include <fmt/ranges.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "fullshard/base/error.h"

namespace fullshard::comm {
namespace {

constexpr size_t kMostDescriptors = 2;

struct Address {
  sockaddr_un value = {};
  socklen_t length = 0;
};

Address abstract_address(const std::string& name) {
  Address address;
  address.value.sun_family = AF_UNIX;
  check(name.size() + 1 < sizeof(address.value.sun_path), "shm: socket name {} is too long", name);
  std::copy(name.begin(), name.end(), address.value.sun_path + 1);
  address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

ShmDescriptor make_socket(int flags) {
  ShmDescriptor descriptor(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0));
  check(descriptor.is_open(), "shm: cannot make a local socket: {}", std::strerror(errno));
  return descriptor;
}

}  // namespace

std::string random_token() {
  std::array<unsigned char, 16> bytes{};
  check(::getrandom(bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()),
        "shm: the system gives no random bytes: {}", std::strerror(errno));
  return fmt::format("{:02x}", fmt::join(bytes, ""));
}

LocalSocket LocalSocket::listen(const std::string& name) {
  // A guest that goes away before it is accepted must not make accept() wait for the next one.
  LocalSocket socket(make_socket(SOCK_NONBLOCK));
  const Address address = abstract_address(name);
  const auto* pointer = reinterpret_cast<const sockaddr*>(&address.value);
  check(::bind(socket.descriptor(), pointer, address.length) == 0 &&
            ::listen(socket.descriptor(), SOMAXCONN) == 0,
        "shm: cannot listen for the other ranks of this host: {}", std::strerror(errno));
  return socket;
}

LocalSocket LocalSocket::connect(const std::string& name) {
  LocalSocket socket(make_socket(0));
  const Address address = abstract_address(name);
  const auto* pointer = reinterpret_cast<const sockaddr*>(&address.value);
  check(::connect(socket.descriptor(), pointer, address.length) == 0,
        "shm: cannot reach rank 0 on this host: {}; it has ended, or the ranks run in separate "
        "network namespaces, which need backend gloo",
        std::strerror(errno));
  check(socket.is_same_user(),
        "shm: the socket of rank 0 belongs to another user; all ranks must run as one user");
  return socket;
}

bool LocalSocket::is_same_user() const {
  ucred peer = {};
  socklen_t length = sizeof(peer);
  return ::getsockopt(descriptor(), SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 &&
         peer.uid == ::geteuid();
}

std::optional<LocalSocket> LocalSocket::accept() const {
  ShmDescriptor accepted(::accept4(descriptor(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!accepted.is_open()) return std::nullopt;
  LocalSocket socket(std::move(accepted));
  if (!socket.is_same_user()) return std::nullopt;
  // A rank that was stopped and reads nothing must not hold up the others.
  const timeval longest = {10, 0};
  ::setsockopt(socket.descriptor(), SOL_SOCKET, SO_SNDTIMEO, &longest, sizeof(longest));
  return socket;
}

bool LocalSocket::send(const SocketMessage& message, std::span<const int> descriptors) const {
  iovec part = {const_cast<SocketMessage*>(&message), sizeof(message)};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kMostDescriptors)> control{};
  msghdr header = {};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (!descriptors.empty()) {
    header.msg_control = control.data();
    header.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(rights), descriptors.data(), descriptors.size_bytes());
  }
  return ::sendmsg(descriptor(), &header, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof(message));
}

std::optional<Received> LocalSocket::receive() const {
  Received received;
  iovec part = {&received.message, sizeof(received.message)};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kMostDescriptors)> control{};
  msghdr header = {};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  const ssize_t bytes = ::recvmsg(descriptor(), &header, MSG_CMSG_CLOEXEC);
  for (cmsghdr* rights = CMSG_FIRSTHDR(&header); rights; rights = CMSG_NXTHDR(&header, rights)) {
    if (rights->cmsg_level != SOL_SOCKET || rights->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (rights->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int descriptor = -1;
      std::memcpy(&descriptor, CMSG_DATA(rights) + i * sizeof(int), sizeof(int));
      received.descriptors.emplace_back(descriptor);
    }
  }
  if (bytes != static_cast<ssize_t>(sizeof(SocketMessage))) return std::nullopt;
  received.message.secret.back() = received.message.text.back() = '\0';
  return received;
}

bool LocalSocket::is_ready_before(Deadline deadline) const {
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    pollfd wanted = {descriptor(), POLLIN, 0};
    const int64_t most = std::clamp<int64_t>(left.count() + 1, 0, 60'000);
    if (::poll(&wanted, 1, static_cast<int>(most)) > 0) return true;
    if (left.count() <= 0) return false;
  }
}

}  // namespace fullshard::comm
