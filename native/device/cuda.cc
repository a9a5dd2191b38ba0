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

// Between two looks at a copy under way. A wait in the driver could not be given up.
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
  std::string why_lost() const {
    const std::lock_guard lock(mutex_);
    return why_lost_;
  }
  // Makes this thread use the GPU. Opens it if needed: a context costs hundreds of MB of its
  // memory.
  void use() {
    const std::lock_guard lock(mutex_);
    if (!why_lost_.empty()) throw std::runtime_error(name + " is lost: " + why_lost_);
    if (context_ == nullptr) open();
    check(cuda_.use(context_), "cuCtxSetCurrent");
  }
  CUstream stream(Direction direction) const {
    return streams_[direction == Direction::to_device ? 0 : 1];
  }
  // After an error of a copy nothing of this context can be trusted.
  void lose(const std::string& why) {
    const std::lock_guard lock(mutex_);
    if (why_lost_.empty()) why_lost_ = why;
  }
  void imported(uint64_t bytes) {
    ++allocations;
    imported_bytes += bytes;
  }
  void given_back(uint64_t bytes) {
    imported_bytes -= bytes;
    if (--allocations != 0) return;
    const std::lock_guard lock(mutex_);
    if (allocations == 0 && !why_lost_.empty()) {
      close();  // a new context works again
      why_lost_.clear();
    }
  }
  void check(CUresult result, const char* call) const {
    if (result != kCudaSuccess)
      throw std::runtime_error(std::string(call) + ": " + cuda_.text_of(result));
  }
  CUdevice number() const { return device_; }

 private:
  void open() {
    check(cuda_.retain(&context_, device_), "cuDevicePrimaryCtxRetain");
    check(cuda_.use(context_), "cuCtxSetCurrent");
    for (CUstream& one : streams_) check(cuda_.stream_create(&one, kNonBlocking), "cuStreamCreate");
  }
  void close() {
    if (context_ == nullptr) return;
    cuda_.use(context_);
    for (CUstream& one : streams_) {
      if (one != nullptr) cuda_.stream_destroy(std::exchange(one, nullptr));
    }
    cuda_.release(device_);
    context_ = nullptr;
  }

  const CudaDriver& cuda_;
  CUdevice device_ = 0;
  mutable std::mutex mutex_;
  CUcontext context_ = nullptr;
  CUstream streams_[2] = {};
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
    gpu_->imported(bytes_);
  }
  CudaMemory(const CudaMemory&) = delete;
  CudaMemory& operator=(const CudaMemory&) = delete;
  ~CudaMemory() override {
    try {
      gpu_->use();
      give_back();
    } catch (const std::runtime_error&) {
      // A lost context gives its memory back when it is closed.
    }
    gpu_->given_back(bytes_);
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
    // The worker said how large it is. Only the driver knows.
    CUdeviceptr begin = 0;
    size_t bytes = 0;
    const CUresult found = cuda.range(&begin, &bytes, base_);
    if (found == kCudaSuccess && begin == base_ && bytes_ <= bytes) return;
    cuda.ipc_close(base_);
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
      gpu_->check(result, "cuMemMap");
    }
  }
  void give_back() {
    const CudaDriver& cuda = gpu_->cuda();
    if (by_ipc_) {
      cuda.ipc_close(base_);
    } else {
      cuda.unmap(base_, bytes_);
      cuda.free_addresses(base_, bytes_);
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
    gpu_->use();
    const CudaDriver& cuda = gpu_->cuda();
    gpu_->check(cuda.event_create(&event_, kNoTiming), "cuEventCreate");
    CUresult result = kCudaSuccess;
    for (const Piece& piece : pieces) {
      if (result == kCudaSuccess) result = submit(piece);
    }
    if (result == kCudaSuccess) result = cuda.event_record(event_, gpu_->stream(direction_));
    if (result != kCudaSuccess) fail(result);
  }
  ~CudaCopies() override {
    while (wait_until(TimePoint::max()) == Outcome::running) {
    }
    gpu_->cuda().event_destroy(event_);
  }

  Outcome wait_until(TimePoint until) override {
    while (outcome_ == Outcome::running) {
      const CUresult result = gpu_->cuda().event_query(event_);
      if (result == kCudaSuccess) {
        outcome_ = Outcome::done;
        gpu_->copied_bytes += bytes_;
      } else if (result != kCudaNotReady) {
        fail(result);
      } else if (Clock::now() >= until) {
        break;
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
    if (!whole) {
      const CUcopy2d copy = rows_of(direction_, piece, at);
      return cuda.copy_2d(&copy, stream);
    }
    const size_t bytes = size_t{piece.rows} * piece.row_bytes;
    return direction_ == Direction::to_device ? cuda.copy_to_device(at, piece.host, bytes, stream)
                                              : cuda.copy_to_host(piece.host, at, bytes, stream);
  }
  void fail(CUresult result) {
    // Some copies may be under way. After an error this returns at once, and none is.
    gpu_->cuda().stream_wait(gpu_->stream(direction_));
    gpu_->lose(gpu_->cuda().text_of(result));
    outcome_ = Outcome::failed;
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
    gpus_.front()->use();
    gpus_.front()->check(cuda_.host_register(base, bytes, kPortable), "cuMemHostRegister");
  }
  void host_unmapped(std::byte* base) noexcept override {
    try {
      gpus_.front()->use();
      cuda_.host_unregister(base);
    } catch (const std::runtime_error&) {
      // A lost context has let go of it.
    }
  }

  std::unique_ptr<Copies> start(Direction direction, std::span<const Piece> pieces) override {
    return std::make_unique<CudaCopies>(direction, pieces);
  }

  std::vector<DeviceState> states() const override {
    std::vector<DeviceState> all;
    for (const auto& gpu : gpus_)
      all.push_back({gpu->id, gpu->name, gpu->allocations, gpu->imported_bytes, gpu->copied_bytes,
                     gpu->why_lost()});
    return all;
  }

 private:
  const CudaDriver& cuda_;
  std::vector<std::shared_ptr<Gpu>> gpus_;
};

}  // namespace

std::unique_ptr<Devices> make_cuda() { return std::make_unique<Cuda>(); }

}  // namespace peercached::device
