#include "transfer/rdma/memory.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <fstream>
#include <system_error>
#include <thread>

#include "common/error_text.h"

namespace peercached::rdma {
namespace {

constexpr uint64_t kChunkBytesMin = 64ull << 20;
constexpr size_t kChunksWanted = 16;
// A pool is touched in parts of about this size (pool/memory.cc), and a part is registered at once.
constexpr size_t kPoolChunksWanted = 256;
constexpr unsigned kThreadsMax = 8;
constexpr int kCapabilityIpcLock = 14;

// A value of /proc/self/status, for example "VmPin:    1024 kB" or "CapEff: 00ff".
uint64_t own_status(const std::string& name, int base) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(name + ":")) {
      return std::strtoull(line.c_str() + name.size() + 1, nullptr, base);
    }
  }
  return 0;
}

std::string mebibytes(uint64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

std::string lock_remedy() {
  return "raise RLIMIT_MEMLOCK (systemd: LimitMEMLOCK=infinity; a shell: ulimit -l unlimited; "
         "Docker: --ulimit memlock=-1) or give the daemon CAP_IPC_LOCK";
}

void check_lockable(uint64_t bytes, const std::string& what) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  if ((own_status("CapEff", 16) >> kCapabilityIpcLock & 1) != 0) return;
  const uint64_t pinned_bytes = own_status("VmPin", 10) * 1024;
  if (pinned_bytes + bytes <= limit.rlim_cur) return;
  throw std::runtime_error("RDMA must lock " + mebibytes(bytes) + " for " + what + ", " +
                           mebibytes(pinned_bytes) + " are locked already, and RLIMIT_MEMLOCK is " +
                           mebibytes(limit.rlim_cur) + ": " + lock_remedy());
}

// Runs `work` on `threads` threads, this one among them; on fewer if no more are available.
template <typename Work>
void share(size_t threads, const Work& work) {
  std::vector<std::jthread> others;
  others.reserve(threads);
  try {
    while (others.size() + 1 < threads) others.emplace_back(work);
  } catch (const std::system_error&) {
    // Fewer threads are only slower. The destructor calls this, so nothing may be thrown.
  }
  work();
}

}  // namespace

int numa_node_of(const void* address) {
  constexpr unsigned long kNodeOfAddress = 3;  // MPOL_F_NODE | MPOL_F_ADDR
  int node = -1;
  return ::syscall(SYS_get_mempolicy, &node, nullptr, 0, address, kNodeOfAddress) == 0 ? node : -1;
}

RegisteredMemory::RegisteredMemory(std::span<const std::unique_ptr<Rail>> rails, std::byte* base,
                                   uint64_t bytes, Purpose purpose)
    : rails_(rails), base_(base), bytes_(bytes), purpose_(purpose), numa_node_(numa_node_of(base)) {
  check_lockable(bytes * rails.size(), purpose == Purpose::publish ? "the pool" : "a region");
  uint64_t most = UINT64_MAX;
  for (const auto& rail : rails) most = std::min<uint64_t>(most, rail->limits().max_mr_size);
  const size_t chunks = purpose == Purpose::publish ? kPoolChunksWanted : kChunksWanted;
  const uint64_t wanted = std::max(bytes / chunks, kChunkBytesMin);
  chunk_bytes_ = std::min((wanted + kChunkAlign - 1) / kChunkAlign * kChunkAlign,
                          std::max(most / kChunkAlign * kChunkAlign, kChunkAlign));
  make_pieces();
}

RegisteredMemory::RegisteredMemory(std::span<const std::unique_ptr<Rail>> rails, std::byte* base,
                                   uint64_t bytes, int dma_buf_fd)
    : rails_(rails),
      base_(base),
      bytes_(bytes),
      purpose_(Purpose::receive),
      numa_node_(-1),
      chunk_bytes_(bytes) {
  make_pieces();
  const auto reg = Verbs::get().reg_dmabuf_mr;
  for (Piece& piece : pieces_) {
    const Rail& rail = *rails_[piece.rail];
    if (reg == nullptr) {
      throw std::runtime_error("libibverbs is too old for dma-bufs: install rdma-core 34 or newer");
    }
    piece.registration = Registration(reg(rail.pd(), 0, bytes, reinterpret_cast<uint64_t>(base),
                                          dma_buf_fd, IBV_ACCESS_LOCAL_WRITE));
    if (!piece.registration) {
      throw VerbsError("registering a dma-buf of " + mebibytes(bytes) + " with " + rail.name() +
                           " (it takes a device, a driver and a kernel that support it; else "
                           "receive into host memory)",
                       errno);
    }
    piece.state = State::ready;
  }
  left_ = 0;
}

void RegisteredMemory::make_pieces() {
  chunks_ = (bytes_ + chunk_bytes_ - 1) / chunk_bytes_;
  for (size_t chunk = 0; chunk < chunks_; ++chunk) {
    for (uint32_t rail = 0; rail < rails_.size(); ++rail) {
      Piece& piece = pieces_.emplace_back();
      piece.rail = rail;
      piece.chunk = chunk;
    }
  }
  left_ = pieces_.size();
}

RegisteredMemory::~RegisteredMemory() {
  // A thread that registers one of our pieces holds a reference to us, so no piece is busy now.
  std::atomic<size_t> next{0};
  share(std::min<size_t>(pieces_.size(), kThreadsMax), [&] {
    for (size_t i = next++; i < pieces_.size(); i = next++) pieces_[i].registration.reset();
  });
}

bool RegisteredMemory::begin(Piece& piece) {
  State none = State::none;
  return piece.state.compare_exchange_strong(none, State::busy);
}

void RegisteredMemory::register_piece(Piece& piece) {
  const Rail& rail = *rails_[piece.rail];
  const uint64_t from = piece.chunk * chunk_bytes_;
  const uint64_t bytes = std::min(chunk_bytes_, bytes_ - from);
  const int access = purpose_ == Purpose::publish ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_LOCAL_WRITE;
  Registration registration(Verbs::get().reg_mr(rail.pd(), base_ + from, bytes, access));
  const int error = errno;
  MutexLock lock(mutex_);
  if (registration) {
    piece.registration = std::move(registration);
    piece.state.store(State::ready, std::memory_order_release);
    left_.fetch_sub(1, std::memory_order_acq_rel);
  } else {
    if (failure_.empty()) {
      failure_ = "registering " + mebibytes(bytes) + " with " + rail.name() + ": " +
                 error_text(error) +
                 (error == ENOMEM || error == EAGAIN ? ": " + lock_remedy() : "");
    }
    piece.state.store(State::failed, std::memory_order_release);
  }
  changed_.notify_all();
}

bool RegisteredMemory::register_one() {
  for (size_t i = next_++; i < pieces_.size(); i = next_++) {
    if (!begin(pieces_[i])) continue;
    register_piece(pieces_[i]);
    return true;
  }
  return false;
}

void RegisteredMemory::register_first(uint64_t bytes) {
  const size_t end = (bytes + chunk_bytes_ - 1) / chunk_bytes_ * rails_.size();
  std::atomic<size_t> next{0};
  share(std::min<size_t>(end, kThreadsMax), [&] {
    for (size_t i = next++; i < end; i = next++) {
      if (begin(pieces_[i])) register_piece(pieces_[i]);
    }
  });
  MutexLock lock(mutex_);
  if (!failure_.empty()) throw std::runtime_error(failure_);
}

void RegisteredMemory::register_until(Deadline until) {
  const size_t threads = std::min<size_t>(
      {pieces_.size(), kThreadsMax, std::max(1u, std::thread::hardware_concurrency())});
  share(threads, [&] {
    while (!until.passed() && register_one()) {
      MutexLock lock(mutex_);
      if (!failure_.empty()) return;
    }
  });
  MutexLock lock(mutex_);
  if (!failure_.empty()) throw std::runtime_error(failure_);
}

RegisteredMemory::Piece& RegisteredMemory::piece_of(const Rail& rail, const std::byte* address) {
  const size_t chunk = static_cast<uint64_t>(address - base_) / chunk_bytes_;
  return pieces_[chunk * rails_.size() + rail.index];
}

bool RegisteredMemory::ready(const Rail& rail, const std::byte* address, uint64_t bytes,
                             Deadline deadline) {
  if (complete()) return true;
  for (const std::byte* at = address; at < address + bytes; at = chunk_end(at)) {
    if (!wait_for(piece_of(rail, at), deadline)) return false;
  }
  return true;
}

bool RegisteredMemory::wait_for(Piece& piece, Deadline deadline) {
  if (piece.state.load(std::memory_order_acquire) == State::ready) return true;
  if (begin(piece)) register_piece(piece);
  MutexLock lock(mutex_);
  while (piece.state == State::busy && changed_.wait_until(mutex_, deadline.at)) {
  }
  return piece.state == State::ready;
}

const ibv_mr* RegisteredMemory::key(const Rail& rail, const std::byte* address) {
  const Piece& piece = piece_of(rail, address);
  assert(piece.state.load(std::memory_order_acquire) == State::ready);
  return piece.registration.get();
}

const std::byte* RegisteredMemory::chunk_end(const std::byte* address) const {
  const uint64_t chunk = static_cast<uint64_t>(address - base_) / chunk_bytes_;
  return base_ + std::min((chunk + 1) * chunk_bytes_, bytes_);
}

std::vector<uint32_t> RegisteredMemory::remote_keys(const Rail& rail) const {
  std::vector<uint32_t> keys;
  for (const Piece& piece : pieces_) {
    if (piece.rail != rail.index) continue;
    const bool is_ready = piece.state.load(std::memory_order_acquire) == State::ready;
    keys.push_back(is_ready ? piece.registration->rkey : 0);
  }
  return keys;
}

}  // namespace peercached::rdma
