#include "client/segment.h"

#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/vfs.h>

#include "common/round_up.h"

namespace peercached::client {
namespace {

uint64_t g_deaths = 0;
uint64_t g_numbers = 0;

[[noreturn]] void fail(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), what);
}

}  // namespace

Segment::Segment(Descriptor file) : number_(++g_numbers), file_(std::move(file)) {
  struct stat status;
  if (::fstat(file_.get(), &status) != 0) fail("the size of the file");
  registration_.bytes = static_cast<uint64_t>(status.st_size);
  if (registration_.bytes == 0) {
    // fstat gives no size for a dma-buf, but lseek finds its end.
    const off_t end = ::lseek(file_.get(), 0, SEEK_END);
    of_device_ = end > 0;
    registration_.bytes = of_device_ ? static_cast<uint64_t>(end) : 0;
  }
}

Segment::Segment(Descriptor file, ipc::RegisterDevice device)
    : number_(++g_numbers), file_(std::move(file)), of_device_(true) {
  if (::getrandom(&device.identity, sizeof(device.identity), 0) !=
      static_cast<ssize_t>(sizeof(device.identity))) {
    fail("a random number");
  }
  registration_ = {device.bytes, device};
}

std::shared_ptr<Segment> Segment::create(uint64_t bytes, const char* name) {
  Descriptor file(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING), "shared memory");
  if (::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) {
    fail(std::to_string(bytes) + " bytes of shared memory");
  }
  return std::make_shared<Segment>(std::move(file));
}

bool Segment::quarantined() {
  std::erase_if(given_up_, [](const auto& connection) { return connection->silent(); });
  return !given_up_.empty();
}

void Segment::quarantine(std::shared_ptr<Connection> given_up) {
  given_up_.push_back(std::move(given_up));
}

uint64_t Segment::deaths() { return g_deaths; }

Hold::~Hold() {
  if (--segment_->holds_ > 0) return;
  segment_->file_.close();
  ++g_deaths;
}

std::unique_ptr<Hold> Segments::hold(const std::shared_ptr<Segment>& segment) {
  std::erase_if(by_file_, [](const auto& known) { return known.second.expired(); });
  std::weak_ptr<Segment>& known = by_file_[{segment->identity().device, segment->identity().inode}];
  std::shared_ptr<Segment> in_use = known.lock();
  if (!in_use || in_use->dead()) {
    in_use = segment;
    known = segment;
  } else if (in_use != segment) {
    in_use->file_.take_over(segment->file_);
  }
  return std::make_unique<Hold>(std::move(in_use));
}

Mapping::Mapping(const Segment& segment) : bytes_(segment.bytes()) {
  struct statfs filesystem;
  if (::fstatfs(segment.file(), &filesystem) != 0) fail("the file to map");
  // munmap wants whole huge pages.
  const bool huge = filesystem.f_type == HUGETLBFS_MAGIC;
  mapped_bytes_ = huge ? round_up(bytes_, static_cast<uint64_t>(filesystem.f_bsize)) : bytes_;
  void* at = ::mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, segment.file(), 0);
  if (at == MAP_FAILED) fail("mapping " + std::to_string(bytes_) + " bytes");
  base_ = static_cast<std::byte*>(at);
}

Mapping::~Mapping() { ::munmap(base_, mapped_bytes_); }

}  // namespace peercached::client
