// Plays NVIDIA's driver (libcuda.so.1) for tests on machines without a GPU: cuda.cc, cuda.py and the
// tests of this folder call it with the signatures of cuda.h. fake_cuda.py builds it.
//
// One device. Its memory is a memfd for each allocation, which other processes open through /proc
// (CUDA IPC) or get as a descriptor. A device address is the address of the mapping plus kDevice, so
// a program that reads it as its own memory crashes. Streams run in threads of their own: a caller
// that does not wait sees old bytes. A kernel only writes to the address in its first parameter. A
// wrong address loses the context, as on a GPU. So do FAKE_CUDA_COPIES copies, if it is set.
//
// It follows the CUDA Driver API reference. It cannot show that a real driver does the same.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
  kOk = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNotInitialized = 3,
  kInvalidDevice = 101,
  kInvalidContext = 201,
  kNotReady = 600,
  kIllegalAddress = 700,
  kAlreadyRegistered = 712,
  kNotRegistered = 713,
  kNotSupported = 801,
};
typedef unsigned long long Address;  // CUdeviceptr

static const Address kDevice = 1ull << 62;
static const size_t kGranularity = 2 << 20;

static _Atomic int started, lost;
static _Atomic long copies_left = -1;
static _Thread_local int current;  // whether this thread has the context
static int context;                // its address is the handle
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

// Calls that need a context begin with this.
#define ENTER()                        \
  if (!started) return kNotInitialized; \
  if (!current) return kInvalidContext; \
  if (lost) return kIllegalAddress

// --- tables ------------------------------------------------------------------------------------

typedef enum { kFree, kAllocated, kOpened, kReserved, kMapped, kRegistered, kHostAllocated } Kind;
typedef struct {
  Kind kind;
  uint64_t base, size;  // an address of this process
  int fd, references;
  int accessible;
  ino_t file;
} Range;
static Range ranges[8192];

typedef struct {
  int fd, references, exportable;
  size_t size;
} Allocation;  // of the virtual memory management API; its index plus one is the handle
static Allocation allocations[4096];

static Range* new_range(Kind kind, void* base, size_t size, int fd) {
  for (size_t i = 0; i < sizeof(ranges) / sizeof(*ranges); ++i) {
    if (ranges[i].kind != kFree) continue;
    struct stat status = {0};
    if (fd >= 0) fstat(fd, &status);
    ranges[i] = (Range){kind, (uint64_t)base, size, fd, 1, kind != kMapped, status.st_ino};
    return &ranges[i];
  }
  abort();
}
static int is_device(const Range* range) {
  return range->kind == kAllocated || range->kind == kOpened || range->kind == kMapped;
}
static int is_pinned(const Range* range) {
  return range->kind == kRegistered || range->kind == kHostAllocated;
}
// The range of this kind that contains these bytes. kFree: any memory of the device.
static Range* range_of(Kind kind, uint64_t at, size_t size) {
  for (Range* one = ranges; one < ranges + sizeof(ranges) / sizeof(*ranges); ++one) {
    if (kind == kFree ? !is_device(one) : one->kind != kind) continue;
    if (at >= one->base && size <= one->size && at - one->base <= one->size - size) return one;
  }
  return NULL;
}
static void release(size_t handle) {
  Allocation* one = &allocations[handle - 1];
  if (--one->references == 0) close(one->fd);
}
static Allocation* allocation_of(Address handle) {
  const size_t count = sizeof(allocations) / sizeof(*allocations);
  if (handle < 1 || handle > count || allocations[handle - 1].references == 0) return NULL;
  return &allocations[handle - 1];
}
static int new_allocation(Address* handle, int fd, size_t size, int exportable) {
  for (size_t i = 0; i < sizeof(allocations) / sizeof(*allocations); ++i) {
    if (allocations[i].references != 0) continue;
    allocations[i] = (Allocation){fd, 1, exportable, size};
    *handle = i + 1;
    return kOk;
  }
  return kOutOfMemory;
}
static int new_file(size_t size) {
  const int fd = memfd_create("fake-cuda", MFD_CLOEXEC);
  if (fd >= 0 && ftruncate(fd, (off_t)size) != 0) abort();
  return fd;
}
static void* map_file(int fd, size_t size) {
  void* at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return at == MAP_FAILED ? NULL : at;
}
#define LOCKED(statement)       \
  pthread_mutex_lock(&mutex);   \
  const int result = statement; \
  pthread_mutex_unlock(&mutex); \
  return result

// --- device and context ------------------------------------------------------------------------

int cuInit(unsigned flags) {
  const char* copies = getenv("FAKE_CUDA_COPIES");
  if (copies != NULL && !started) copies_left = atol(copies);
  started = 1;
  return flags == 0 ? kOk : kInvalidValue;
}
int cuDriverGetVersion(int* version) {
  *version = 0;
  return kOk;
}
int cuGetErrorString(int code, const char** text) {
  *text = code == kIllegalAddress   ? "an illegal memory access was encountered"
          : code == kInvalidValue   ? "invalid argument"
          : code == kInvalidContext ? "invalid device context"
                                    : NULL;
  return *text ? kOk : kInvalidValue;
}
int cuDeviceGetCount(int* count) {
  *count = 1;
  return started ? kOk : kNotInitialized;
}
int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return !started ? kNotInitialized : ordinal == 0 ? kOk : kInvalidDevice;
}
int cuDeviceGetUuid_v2(unsigned char* uuid, int device) {
  memcpy(uuid, "fake GPU, number", 16);
  return device == 0 ? kOk : kInvalidDevice;
}
int cuDeviceGetName(char* name, int length, int device) {
  snprintf(name, (size_t)length, "fake GPU");
  return device == 0 ? kOk : kInvalidDevice;
}
int cuDevicePrimaryCtxRetain(void** made, int device) {
  *made = &context;
  return !started ? kNotInitialized : device == 0 ? kOk : kInvalidDevice;
}
int cuDevicePrimaryCtxRelease_v2(int device) { return device == 0 ? kOk : kInvalidDevice; }
int cuCtxSetCurrent(void* wanted) {
  if (wanted != NULL && wanted != &context) return kInvalidContext;
  current = wanted != NULL;
  return kOk;
}

// --- memory ------------------------------------------------------------------------------------

int cuMemAlloc_v2(Address* at, size_t size) {
  ENTER();
  const int fd = new_file(size);
  void* base = map_file(fd, size);
  if (base == NULL) return kOutOfMemory;
  *at = (Address)base + kDevice;
  LOCKED((new_range(kAllocated, base, size, fd), kOk));
}
static int drop(Kind kind, Address at, int counted) {
  Range* range = range_of(kind, at, 1);
  if (range == NULL || range->base != at) return kInvalidValue;
  if (counted && --range->references > 0) return kOk;
  munmap((void*)range->base, range->size);
  if (range->fd >= 0) close(range->fd);
  range->kind = kFree;
  return kOk;
}
int cuMemFree_v2(Address at) {
  ENTER();
  LOCKED(drop(kAllocated, at - kDevice, 0));
}
static int address_range(Address* base, size_t* size, Address at) {
  const Range* range = range_of(kFree, at - kDevice, 1);
  if (range == NULL) return kInvalidValue;
  *base = range->base + kDevice;
  *size = range->size;
  return kOk;
}
int cuMemGetAddressRange_v2(Address* base, size_t* size, Address at) {
  ENTER();
  LOCKED(address_range(base, size, at));
}
int cuPointerGetAttribute(void* value, int attribute, Address at) {
  ENTER();
  if (attribute != 9) return kNotSupported;  // CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
  *(int*)value = 0;
  LOCKED(range_of(kFree, at - kDevice, 1) ? kOk : kInvalidValue);
}

typedef struct {
  char reserved[64];
} IpcHandle;
typedef struct {
  int process, fd;
  size_t size;
} IpcContent;

static int ipc_handle(IpcHandle* handle, Address at) {
  const Range* range = range_of(kAllocated, at - kDevice, 1);
  if (range == NULL) return kInvalidValue;  // also memory of the other API
  const IpcContent content = {getpid(), range->fd, range->size};
  memset(handle, 0, sizeof(*handle));
  memcpy(handle, &content, sizeof(content));
  return kOk;
}
int cuIpcGetMemHandle(IpcHandle* handle, Address at) {
  ENTER();
  LOCKED(ipc_handle(handle, at));
}
static int ipc_open(Address* at, const IpcContent* content) {
  if (content->process == getpid()) return kInvalidContext;
  char path[64];
  snprintf(path, sizeof(path), "/proc/%d/fd/%d", content->process, content->fd);
  const int fd = open(path, O_RDWR | O_CLOEXEC);
  struct stat status;
  if (fd < 0 || fstat(fd, &status) != 0) return kInvalidValue;
  for (Range* one = ranges; one < ranges + sizeof(ranges) / sizeof(*ranges); ++one) {
    if (one->kind != kOpened || one->file != status.st_ino) continue;
    close(fd);
    ++one->references;
    *at = one->base + kDevice;
    return kOk;
  }
  void* base = map_file(fd, content->size);
  if (base == NULL) return kOutOfMemory;
  *at = new_range(kOpened, base, content->size, fd)->base + kDevice;
  return kOk;
}
int cuIpcOpenMemHandle_v2(Address* at, IpcHandle handle, unsigned flags) {
  ENTER();
  if (flags != 1) return kInvalidValue;  // CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
  IpcContent content;
  memcpy(&content, &handle, sizeof(content));
  LOCKED(ipc_open(at, &content));
}
int cuIpcCloseMemHandle(Address at) {
  ENTER();
  LOCKED(drop(kOpened, at - kDevice, 1));
}

// --- virtual memory management -----------------------------------------------------------------

typedef struct {
  int type, handle_types, location_type, location;
  void* security;
  unsigned char flags[8];
} Properties;  // CUmemAllocationProp
typedef struct {
  int location_type, location, flags;
} Access;  // CUmemAccessDesc

int cuMemGetAllocationGranularity(size_t* size, const Properties* wanted, int option) {
  (void)wanted, (void)option;
  *size = kGranularity;
  return kOk;
}
int cuMemCreate(Address* handle, size_t size, const Properties* wanted, Address flags) {
  ENTER();
  if (size == 0 || size % kGranularity || wanted->type != 1 || wanted->location_type != 1 || flags)
    return kInvalidValue;
  LOCKED(new_allocation(handle, new_file(size), size, wanted->handle_types == 1));
}
static int retain(Address* handle, uint64_t at) {
  const Range* range = range_of(kMapped, at, 1);
  if (range == NULL) return kInvalidValue;
  *handle = (Address)range->fd;  // of a mapped range: its allocation
  ++allocations[*handle - 1].references;
  return kOk;
}
int cuMemRetainAllocationHandle(Address* handle, void* at) {
  ENTER();
  LOCKED(retain(handle, (Address)at - kDevice));
}
int cuMemRelease(Address handle) {
  LOCKED(allocation_of(handle) ? (release(handle), kOk) : kInvalidValue);
}
int cuMemExportToShareableHandle(void* fd, Address handle, int type, Address flags) {
  ENTER();
  const Allocation* one = allocation_of(handle);
  if (one == NULL || !one->exportable || type != 1 || flags) return kInvalidValue;
  *(int*)fd = fcntl(one->fd, F_DUPFD_CLOEXEC, 0);
  return kOk;
}
int cuMemImportFromShareableHandle(Address* handle, void* file, int type) {
  ENTER();
  const int fd = fcntl((int)(intptr_t)file, F_DUPFD_CLOEXEC, 0);
  struct stat status;
  if (type != 1 || fd < 0 || fstat(fd, &status) != 0) return kInvalidValue;
  LOCKED(new_allocation(handle, fd, (size_t)status.st_size, 1));
}
int cuMemAddressReserve(Address* at, size_t size, size_t align, Address near, Address flags) {
  ENTER();
  (void)align, (void)near;
  if (size == 0 || size % kGranularity || flags) return kInvalidValue;
  void* base = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) return kOutOfMemory;
  *at = (Address)base + kDevice;
  LOCKED((new_range(kReserved, base, size, -1), kOk));
}
static int free_addresses(uint64_t at, size_t size) {
  const Range* range = range_of(kReserved, at, size);
  if (range == NULL || range->size != size) return kInvalidValue;
  for (const Range* one = ranges; one < ranges + sizeof(ranges) / sizeof(*ranges); ++one)
    if (one->kind == kMapped && one->base >= at && one->base < at + size) return kInvalidValue;
  return drop(kReserved, at, 0);
}
int cuMemAddressFree(Address at, size_t size) { LOCKED(free_addresses(at - kDevice, size)); }
static int map_at(uint64_t at, size_t size, size_t offset, Address handle, Address flags) {
  Allocation* one = allocation_of(handle);
  if (one == NULL || offset || flags || size != one->size || range_of(kMapped, at, 1) ||
      !range_of(kReserved, at, size))
    return kInvalidValue;
  if (mmap((void*)at, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, one->fd, 0) ==
      MAP_FAILED)
    return kOutOfMemory;
  ++one->references;
  new_range(kMapped, (void*)at, size, -1)->fd = (int)handle;
  return kOk;
}
int cuMemMap(Address at, size_t size, size_t offset, Address handle, Address flags) {
  ENTER();
  LOCKED(map_at(at - kDevice, size, offset, handle, flags));
}
static int unmap(uint64_t at, size_t size) {
  Range* range = range_of(kMapped, at, size);
  if (range == NULL || range->size != size) return kInvalidValue;
  mmap((void*)at, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  release((size_t)range->fd);
  range->kind = kFree;
  return kOk;
}
int cuMemUnmap(Address at, size_t size) { LOCKED(unmap(at - kDevice, size)); }
static int set_access(uint64_t at, size_t size, const Access* access) {
  if (access->location_type != 1 || access->location != 0 || access->flags != 3)
    return kInvalidValue;
  for (const uint64_t end = at + size; at < end;) {
    Range* range = range_of(kMapped, at, 1);
    if (range == NULL) return kInvalidValue;
    range->accessible = 1;
    at = range->base + range->size;
  }
  return kOk;
}
int cuMemSetAccess(Address at, size_t size, const Access* access, size_t count) {
  ENTER();
  if (count != 1) return kInvalidValue;
  LOCKED(set_access(at - kDevice, size, access));
}

// --- memory of the host ------------------------------------------------------------------------

// 0: not pinned, 1: pinned, -1: pinned in part.
static int pinned(uint64_t at, size_t size) {
  for (const Range* one = ranges; one < ranges + sizeof(ranges) / sizeof(*ranges); ++one) {
    if (!is_pinned(one) || at >= one->base + one->size || at + size <= one->base) continue;
    return at >= one->base && at + size <= one->base + one->size ? 1 : -1;
  }
  return 0;
}
static int register_host(void* at, size_t size) {
  if (pinned((uint64_t)at, size)) return kAlreadyRegistered;
  new_range(kRegistered, at, size, -1);
  return kOk;
}
int cuMemHostRegister_v2(void* at, size_t size, unsigned flags) {
  ENTER();
  if (flags != 1 || size == 0) return kInvalidValue;  // CU_MEMHOSTREGISTER_PORTABLE
  LOCKED(register_host(at, size));
}
static int unregister_host(uint64_t at) {
  Range* range = range_of(kRegistered, at, 1);
  if (range == NULL || range->base != at) return kNotRegistered;
  range->kind = kFree;
  return kOk;
}
int cuMemHostUnregister(void* at) {
  ENTER();
  LOCKED(unregister_host((uint64_t)at));
}
int cuMemHostAlloc(void** at, size_t size, unsigned flags) {
  ENTER();
  (void)flags;
  *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (*at == MAP_FAILED) return kOutOfMemory;
  LOCKED((new_range(kHostAllocated, *at, size, -1), kOk));
}
int cuMemFreeHost(void* at) {
  ENTER();
  LOCKED(drop(kHostAllocated, (uint64_t)at, 0));
}

// --- streams and events ------------------------------------------------------------------------

typedef struct {
  _Atomic int pending, users;  // the caller, and recordings under way
} Event;
typedef struct Work {
  struct Work* next;
  Event* event;  // or else a copy
  char *to, *from;
  size_t to_pitch, from_pitch, width, height;
} Work;
typedef struct {
  pthread_t thread;
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  Work *first, *last;
  int busy, ended;
} Stream;

static void leave(Event* event) {
  if (--event->users == 0) free(event);
}
static void* run(void* given) {
  Stream* stream = given;
  pthread_mutex_lock(&stream->mutex);
  while (1) {
    while (stream->first == NULL && !stream->ended)
      pthread_cond_wait(&stream->changed, &stream->mutex);
    Work* work = stream->first;
    if (work == NULL) break;
    stream->first = work->next;
    stream->busy = 1;
    pthread_mutex_unlock(&stream->mutex);
    if (work->height > 0 && copies_left >= 0 && copies_left-- == 0) lost = 1;
    for (size_t row = 0; row < work->height && !lost; ++row)
      memcpy(work->to + row * work->to_pitch, work->from + row * work->from_pitch, work->width);
    if (work->event) {
      --work->event->pending;
      leave(work->event);
    }
    free(work);
    pthread_mutex_lock(&stream->mutex);
    stream->busy = 0;
    pthread_cond_broadcast(&stream->changed);
  }
  pthread_mutex_unlock(&stream->mutex);
  return NULL;
}
static int queue(Stream* stream, Work work) {
  if (stream == NULL) return kNotSupported;
  Work* copy = malloc(sizeof(work));
  *copy = work;
  copy->next = NULL;
  pthread_mutex_lock(&stream->mutex);
  *(stream->first ? &stream->last->next : &stream->first) = copy;
  stream->last = copy;
  pthread_cond_broadcast(&stream->changed);
  pthread_mutex_unlock(&stream->mutex);
  return kOk;
}
int cuStreamCreate(Stream** stream, unsigned flags) {
  ENTER();
  if (flags > 1) return kInvalidValue;
  *stream = calloc(1, sizeof(**stream));
  pthread_mutex_init(&(*stream)->mutex, NULL);
  pthread_cond_init(&(*stream)->changed, NULL);
  return pthread_create(&(*stream)->thread, NULL, run, *stream) ? kOutOfMemory : kOk;
}
int cuStreamDestroy_v2(Stream* stream) {
  pthread_mutex_lock(&stream->mutex);
  stream->ended = 1;
  pthread_cond_broadcast(&stream->changed);
  pthread_mutex_unlock(&stream->mutex);
  pthread_join(stream->thread, NULL);
  free(stream);
  return kOk;
}
int cuStreamSynchronize(Stream* stream) {
  ENTER();
  pthread_mutex_lock(&stream->mutex);
  while (stream->first != NULL || stream->busy)
    pthread_cond_wait(&stream->changed, &stream->mutex);
  pthread_mutex_unlock(&stream->mutex);
  return lost ? kIllegalAddress : kOk;
}
int cuEventCreate(Event** event, unsigned flags) {
  ENTER();
  if (flags & ~2u) return kInvalidValue;  // CU_EVENT_DISABLE_TIMING
  *event = calloc(1, sizeof(**event));
  (*event)->users = 1;
  return kOk;
}
int cuEventDestroy_v2(Event* event) {
  leave(event);  // the stream may still need it
  return kOk;
}
int cuEventRecord(Event* event, Stream* stream) {
  ENTER();
  ++event->pending;
  ++event->users;
  return queue(stream, (Work){.event = event});
}
int cuEventQuery(Event* event) {
  ENTER();
  return event->pending ? kNotReady : kOk;
}

// --- copies and kernels ------------------------------------------------------------------------

typedef struct {
  size_t src_x, src_y;
  int src_type;
  char* src_host;
  Address src_device;
  void* src_array;
  size_t src_pitch, dst_x, dst_y;
  int dst_type;
  char* dst_host;
  Address dst_device;
  void* dst_array;
  size_t dst_pitch, width, height;
} Copy2d;  // CUDA_MEMCPY2D

// Whether the rows are accessible memory of the device.
static int on_device(Address at, size_t bytes) {
  pthread_mutex_lock(&mutex);
  const uint64_t end = at - kDevice + bytes;
  uint64_t here = at - kDevice;
  while (here < end) {  // mappings that touch each other are one memory
    const Range* range = range_of(kFree, here, 1);
    if (range == NULL || !range->accessible) break;
    here = range->base + range->size;
  }
  pthread_mutex_unlock(&mutex);
  return here >= end;
}
static int on_host(void* at, size_t bytes) {
  LOCKED(pinned((uint64_t)at, bytes) >= 0);
}
static int copy(char* host, size_t host_pitch, Address device, size_t device_pitch, size_t width,
                size_t height, int to_device, Stream* stream) {
  ENTER();
  if (width == 0 || height == 0) return kOk;
  if (height > 1 && (host_pitch < width || device_pitch < width)) return kInvalidValue;
  if (!on_device(device, (height - 1) * device_pitch + width) ||
      !on_host(host, (height - 1) * host_pitch + width))
    return kInvalidValue;
  char* there = (char*)(device - kDevice);
  Work work = {.to = there, .from = host, .to_pitch = device_pitch, .from_pitch = host_pitch};
  if (!to_device)
    work = (Work){.to = host, .from = there, .to_pitch = host_pitch, .from_pitch = device_pitch};
  work.width = width;
  work.height = height;
  return queue(stream, work);
}
int cuMemcpyHtoDAsync_v2(Address to, const void* from, size_t size, Stream* stream) {
  return copy((char*)from, 0, to, 0, size, 1, 1, stream);
}
int cuMemcpyDtoHAsync_v2(void* to, Address from, size_t size, Stream* stream) {
  return copy(to, 0, from, 0, size, 1, 0, stream);
}
int cuMemcpy2DAsync_v2(const Copy2d* it, Stream* stream) {
  if (it->src_x || it->src_y || it->dst_x || it->dst_y) return kNotSupported;
  if (it->src_type == 1 && it->dst_type == 2)
    return copy(it->src_host, it->src_pitch, it->dst_device, it->dst_pitch, it->width, it->height,
                1, stream);
  if (it->src_type == 2 && it->dst_type == 1)
    return copy(it->dst_host, it->dst_pitch, it->src_device, it->src_pitch, it->width, it->height,
                0, stream);
  return kNotSupported;
}
// cudaMemcpy: returns when the bytes are there.
int cuMemcpyHtoD_v2(Address to, const void* from, size_t size) {
  ENTER();
  if (!on_device(to, size) || !on_host((void*)from, size)) return kInvalidValue;
  memcpy((char*)(to - kDevice), from, size);
  return kOk;
}
int cuMemcpyDtoH_v2(void* to, Address from, size_t size) {
  ENTER();
  if (!on_device(from, size) || !on_host(to, size)) return kInvalidValue;
  memcpy(to, (char*)(from - kDevice), size);
  return kOk;
}

int cuModuleLoadData(void** module, const void* image) {
  ENTER();
  *module = (void*)image;
  return kOk;
}
int cuModuleGetFunction(void** function, void* module, const char* name) {
  *function = module;
  return name == NULL ? kInvalidValue : kOk;
}
int cuLaunchKernel(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                   Stream* stream, void** parameters, void** extra) {
  ENTER();
  (void)function, (void)grid_x, (void)grid_y, (void)grid_z, (void)block_x, (void)block_y;
  (void)block_z, (void)shared_bytes, (void)stream, (void)extra;
  if (!on_device(*(Address*)parameters[0], 8)) lost = 1;
  return kOk;
}
