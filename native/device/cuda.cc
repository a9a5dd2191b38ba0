#include "device/cuda.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>

#include "device/cuda_driver.h"

namespace peercached::device {
namespace {

// The driver refuses larger ones (CU_DEVICE_ATTRIBUTE_MAX_PITCH).
constexpr uint64_t kPitchMax = 0x7fffffff;
// Looks at a copy under way: without a pause at first, because a sleep takes 60 us longer than
// asked. A wait in the driver could not be given up.
constexpr auto kLookFor = std::chrono::microseconds(100);
constexpr auto kLookEvery = std::chrono::microseconds(20);

class Gpu {
 public:
  Gpu(const CudaDriver& cuda, int number) : cuda_(cuda) {
    check(cuda_.get(&device_, number), "cuDeviceGet");
    CUuuid uuid;
    check(cuda_.uuid(&uuid, device_), "cuDeviceGetUuid");
    std::memcpy(id.data(), uuid.bytes, id.size());
    char text[128] = "";
    check(cuda_.device_name(text, sizeof(text), device_), "cuDeviceGetName");
    name = text;
  }
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;
  ~Gpu() { close(); }

  DeviceId id{};
  std::string name;
  std::atomic<unsigned> allocations{0};
  std::atomic<uint64_t> imported_bytes{0}, copied_bytes{0};

  const CudaDriver& cuda() const { return cuda_; }
  bool is_open() const { return open_.load(); }
  bool lost() const { return lost_.load(); }
  std::string why_lost() const {
    const std::lock_guard lock(lost_mutex_);
    return why_lost_;
  }
  // Makes this thread use the GPU. Opens it if needed: a context costs hundreds of MB of its
  // memory. Throws std::runtime_error, also if it is lost.
  void use() {
    if (lost())
      throw std::runtime_error(name + " is lost until the daemon restarts: " + why_lost());
    const std::lock_guard lock(mutex_);
    if (!is_open()) open();
    check(cuda_.use(context_), "cuCtxSetCurrent");
  }
  CUstream stream(Direction direction) const {
    return streams_[direction == Direction::to_device ? 0 : 1];
  }
  // NVIDIA: after such an error the process must be restarted.
  void lose(const std::string& why) {
    const std::lock_guard lock(lost_mutex_);
    if (!lost_.exchange(true)) why_lost_ = why;
  }
  void check(CUresult result, const char* call) const {
    if (result != kCudaSuccess)
      throw std::runtime_error(std::string(call) + ": " + cuda_.text_of(result));
  }
  CUdevice number() const { return device_; }

 private:
  void open() {
    check(cuda_.retain(&context_, device_), "cuDevicePrimaryCtxRetain");
    CUresult result = cuda_.use(context_);
    for (CUstream& one : streams_) {
      if (result == kCudaSuccess) result = cuda_.stream_create(&one, kNonBlocking);
    }
    open_ = true;
    if (result == kCudaSuccess) return;
    close();
    check(result, "cuStreamCreate");
  }
  void close() {
    if (!open_.exchange(false)) return;
    cuda_.use(context_);
    for (CUstream& one : streams_) {
      if (one != nullptr) cuda_.stream_destroy(std::exchange(one, nullptr));
    }
    cuda_.release(device_);
  }

  const CudaDriver& cuda_;
  CUdevice device_ = 0;
  std::mutex mutex_;
  std::atomic<bool> open_{false}, lost_{false};
  CUcontext context_ = nullptr;
  CUstream streams_[2] = {};
  mutable std::mutex lost_mutex_;
  std::string why_lost_;
};

class CudaMemory final : public Memory {
 public:
  CudaMemory(std::shared_ptr<Gpu> gpu, const Handle& handle)
      : gpu_(std::move(gpu)), bytes_(handle.bytes), by_ipc_(handle.kind == Kind::cuda_ipc) {
    gpu_->use();
    if (by_ipc_)
      open_ipc(handle);
    else
      map_posix(handle);
    ++gpu_->allocations;
    gpu_->imported_bytes += bytes_;
  }
  CudaMemory(const CudaMemory&) = delete;
  CudaMemory& operator=(const CudaMemory&) = delete;
  ~CudaMemory() override {
    const CudaDriver& cuda = gpu_->cuda();
    if (!by_ipc_) {  // the addresses are the process's, also where the context is lost
      cuda.unmap(base_, bytes_);
      cuda.free_addresses(base_, bytes_);
    } else if (!gpu_->lost()) {
      try {
        gpu_->use();
        cuda.ipc_close(base_);
      } catch (const std::runtime_error&) {
        // The context keeps it until the process ends.
      }
    }
    gpu_->imported_bytes -= bytes_;
    --gpu_->allocations;
  }

  uint64_t bytes() const override { return bytes_; }
  const DeviceId& device() const override { return gpu_->id; }
  CUdeviceptr base() const { return base_; }
  const std::shared_ptr<Gpu>& gpu() const { return gpu_; }

 private:
  void open_ipc(const Handle& handle) {
    const CudaDriver& cuda = gpu_->cuda();
    CUipcMemHandle opaque;
    std::memcpy(opaque.reserved, handle.opaque.data(), sizeof(opaque.reserved));
    gpu_->check(cuda.ipc_open(&base_, opaque, kIpcLazyPeerAccess), "cuIpcOpenMemHandle");
    // The worker said how large it is. Only the driver knows. Small allocations may be parts of one
    // block.
    CUdeviceptr begin = 0;
    size_t bytes = 0;
    const CUresult found = cuda.range(&begin, &bytes, base_);
    const uint64_t before = base_ - begin;
    if (found == kCudaSuccess && before <= bytes && bytes_ <= bytes - before) return;
    cuda.ipc_close(base_);
    gpu_->check(found, "cuMemGetAddressRange");
    throw std::runtime_error("an allocation of " + std::to_string(bytes_) + " bytes has only " +
                             std::to_string(bytes));
  }
  void map_posix(const Handle& handle) {
    const CudaDriver& cuda = gpu_->cuda();
    CUmemHandle allocation = 0;
    void* file = reinterpret_cast<void*>(static_cast<uintptr_t>(handle.file));
    gpu_->check(cuda.import_handle(&allocation, file, kPosixDescriptor),
                "cuMemImportFromShareableHandle");
    CUresult result = cuda.reserve(&base_, bytes_, 0, 0, 0);
    // Fails if the allocation has another size.
    if (result == kCudaSuccess) result = cuda.map(base_, bytes_, 0, allocation, 0);
    cuda.release_handle(allocation);  // the mapping keeps it
    const CUmemAccess access{kLocationDevice, gpu_->number(), kAccessReadWrite};
    if (result == kCudaSuccess) {
      result = cuda.set_access(base_, bytes_, &access, 1);
      if (result != kCudaSuccess) cuda.unmap(base_, bytes_);
    }
    if (result != kCudaSuccess) {
      if (base_ != 0) cuda.free_addresses(base_, bytes_);
      gpu_->check(result, "cuMemAddressReserve, cuMemMap or cuMemSetAccess");
    }
  }

  const std::shared_ptr<Gpu> gpu_;
  const uint64_t bytes_;
  const bool by_ipc_;
  CUdeviceptr base_ = 0;
};

CUcopy2d rows_of(Direction direction, const Piece& piece, CUdeviceptr at) {
  CUcopy2d copy{};
  copy.width_bytes = piece.row_bytes;
  copy.height = piece.rows;
  if (direction == Direction::to_device) {
    copy.src_type = kOnHost;
    copy.src_host = piece.host;
    copy.src_pitch = piece.host_pitch;
    copy.dst_type = kOnDevice;
    copy.dst_device = at;
    copy.dst_pitch = piece.device_pitch;
  } else {
    copy.src_type = kOnDevice;
    copy.src_device = at;
    copy.src_pitch = piece.device_pitch;
    copy.dst_type = kOnHost;
    copy.dst_host = piece.host;
    copy.dst_pitch = piece.host_pitch;
  }
  return copy;
}

class CudaCopies final : public Copies {
 public:
  CudaCopies(Direction direction, std::span<const Piece> pieces)
      : gpu_(static_cast<const CudaMemory&>(*pieces[0].memory).gpu()), direction_(direction) {
    if (gpu_->lost()) {
      outcome_ = Outcome::lost;
      return;
    }
    gpu_->use();
    const CudaDriver& cuda = gpu_->cuda();
    gpu_->check(cuda.event_create(&event_, kNoTiming), "cuEventCreate");
    CUresult result = kCudaSuccess;
    for (const Piece& piece : pieces) {
      if (result == kCudaSuccess) result = submit(piece);
    }
    if (result == kCudaSuccess) result = cuda.event_record(event_, gpu_->stream(direction_));
    if (result == kCudaSuccess) return;
    // Some copies may be under way. If they end well, the driver has only refused this call.
    result = cuda.stream_wait(gpu_->stream(direction_));
    outcome_ = Outcome::failed;
    if (result != kCudaSuccess) lose(result);
  }
  CudaCopies(const CudaCopies&) = delete;
  CudaCopies& operator=(const CudaCopies&) = delete;
  ~CudaCopies() override {
    while (wait_until(TimePoint::max()) == Outcome::running) {
    }
    if (event_ != nullptr) gpu_->cuda().event_destroy(event_);
  }

  Outcome wait_until(TimePoint until) noexcept override {
    const TimePoint began = Clock::now();
    while (outcome_ == Outcome::running) {
      const CUresult result = gpu_->cuda().event_query(event_);
      if (result == kCudaSuccess) {
        outcome_ = Outcome::done;
        gpu_->copied_bytes += bytes_;
      } else if (result != kCudaNotReady) {
        lose(result);
      } else if (const TimePoint now = Clock::now(); now >= until) {
        break;
      } else if (now - began < kLookFor) {
        std::this_thread::yield();
      } else {
        std::this_thread::sleep_for(kLookEvery);
      }
    }
    return outcome_;
  }

 private:
  CUresult submit(const Piece& piece) {
    const CudaDriver& cuda = gpu_->cuda();
    const CUdeviceptr at = static_cast<const CudaMemory&>(*piece.memory).base() + piece.at;
    CUstream stream = gpu_->stream(direction_);
    bytes_ += uint64_t{piece.rows} * piece.row_bytes;
    const bool whole = piece.rows == 1 || (piece.device_pitch == piece.row_bytes &&
                                           piece.host_pitch == piece.row_bytes);
    if (whole) return run(at, piece.host, size_t{piece.rows} * piece.row_bytes);
    if (std::max(piece.device_pitch, piece.host_pitch) <= kPitchMax) {
      const CUcopy2d copy = rows_of(direction_, piece, at);
      return cuda.copy_2d(&copy, stream);
    }
    CUresult result = kCudaSuccess;
    for (uint64_t row = 0; row < piece.rows && result == kCudaSuccess; ++row)
      result =
          run(at + row * piece.device_pitch, piece.host + row * piece.host_pitch, piece.row_bytes);
    return result;
  }
  CUresult run(CUdeviceptr at, std::byte* host, size_t bytes) {
    const CudaDriver& cuda = gpu_->cuda();
    CUstream stream = gpu_->stream(direction_);
    return direction_ == Direction::to_device ? cuda.copy_to_device(at, host, bytes, stream)
                                              : cuda.copy_to_host(host, at, bytes, stream);
  }
  void lose(CUresult result) {
    gpu_->cuda().stream_wait(gpu_->stream(direction_));  // returns at once after such an error
    outcome_ = Outcome::lost;
    gpu_->lose(gpu_->cuda().text_of(result));
  }

  const std::shared_ptr<Gpu> gpu_;
  const Direction direction_;
  CUevent event_ = nullptr;
  uint64_t bytes_ = 0;
  Outcome outcome_ = Outcome::running;
};

class Cuda final : public Devices {
 public:
  Cuda() : cuda_(CudaDriver::load()) {
    int count = 0;
    CUresult result = cuda_.init(0);
    if (result == kCudaSuccess) result = cuda_.count(&count);
    if (result != kCudaSuccess || count == 0) {
      throw std::runtime_error("no GPU can be used: " +
                               (count == 0 && result == kCudaSuccess
                                    ? std::string("the driver shows none")
                                    : cuda_.text_of(result)) +
                               "; check nvidia-smi, and that this process may open /dev/nvidia*");
    }
    for (int number = 0; number < count; ++number)
      gpus_.push_back(std::make_shared<Gpu>(cuda_, number));
  }

  const char* name() const override { return "cuda"; }

  std::shared_ptr<Memory> import(const Handle& handle) override {
    if (handle.kind != Kind::cuda_ipc && handle.kind != Kind::cuda_posix)
      throw std::runtime_error("this memory is of another kind of device");
    const auto gpu = std::ranges::find(gpus_, handle.device, &Gpu::id);
    if (gpu == gpus_.end())
      throw std::runtime_error(
          "the worker's GPU is not one of this daemon's: give both the same devices");
    return std::make_shared<CudaMemory>(*gpu, handle);
  }

  void host_mapped(std::byte* base, uint64_t bytes) override {
    try {
      open_gpu().use();
      open_gpu().check(cuda_.host_register(base, bytes, kPortable), "cuMemHostRegister");
    } catch (const std::runtime_error& error) {
      const std::lock_guard lock(mutex_);
      why_slow_ = error.what();
      throw;
    }
  }
  void host_unmapped(std::byte* base) noexcept override {
    try {
      open_gpu().use();
      cuda_.host_unregister(base);
    } catch (const std::runtime_error&) {
      // A lost context has let go of it.
    }
  }

  std::unique_ptr<Copies> start(Direction direction, std::span<const Piece> pieces) override {
    return std::make_unique<CudaCopies>(direction, pieces);
  }

  std::vector<DeviceState> states() const override {
    const std::lock_guard lock(mutex_);
    std::vector<DeviceState> all;
    for (const auto& gpu : gpus_)
      all.push_back({gpu->id, gpu->name, gpu->allocations, gpu->imported_bytes, gpu->copied_bytes,
                     gpu->why_lost(), why_slow_});
    return all;
  }

 private:
  // A GPU in use, because the pinning alone must open no context.
  Gpu& open_gpu() const {
    const auto found =
        std::ranges::find_if(gpus_, [](const auto& gpu) { return gpu->is_open() && !gpu->lost(); });
    return found == gpus_.end() ? *gpus_.front() : **found;
  }

  const CudaDriver& cuda_;
  std::vector<std::shared_ptr<Gpu>> gpus_;
  mutable std::mutex mutex_;
  std::string why_slow_;
};

}  // namespace

std::unique_ptr<Devices> make_cuda() { return std::make_unique<Cuda>(); }

}  // namespace peercached::device
