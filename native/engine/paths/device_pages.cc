#include "engine/paths/device_pages.h"

#include <algorithm>
#include <deque>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <set>
#include <vector>

namespace peercached {
namespace {

// Of one step. Two of them bound how long a copy goes on behind the deadline.
constexpr uint64_t kStepBytes = 16 << 20;
constexpr size_t kStepPieces = 8192;
constexpr size_t kStepsAtOnce = 2;

class Steps {
 public:
  Steps(device::Devices& devices, device::Direction direction, WriteGate& gate, Deadline deadline,
        const TellStages* tell)
      : devices_(devices), direction_(direction), gate_(gate), deadline_(deadline), tell_(tell) {}
  Steps(const Steps&) = delete;
  Steps& operator=(const Steps&) = delete;
  ~Steps() { end_all(); }

  // Begins to copy as many of these pages as make a step: all their Rows, or those of one stage.
  // Returns the others; none if nothing can be begun any more, and then all have their status.
  std::span<const DevicePage> begin(std::span<const DevicePage> pages, const uint32_t* stage) {
    if (under_way_.size() == kStepsAtOnce) end_one();
    if (ended_) {
      fail(pages, *ended_);
      return {};
    }
    pieces_.clear();
    size_t count = 0;
    for (uint64_t bytes = 0; count < pages.size() && bytes < kStepBytes; ++count) {
      const DeviceLayout& layout = *pages[count].page->layout;
      const auto all = stage == nullptr ? std::span(layout.rows) : layout.of_stage(*stage);
      if (count > 0 && pieces_.size() + all.size() > kStepPieces) break;
      for (const DeviceLayout::Rows& rows : all) bytes += add(pages[count], rows);
    }
    const auto step = pages.first(count);
    if (!pieces_.empty()) start(step);
    return pages.subspan(count);
  }

  // The stages below `count` have been begun.
  void tell_when_ended(uint32_t count) {
    if (under_way_.empty())
      tell(count);
    else
      under_way_.back().landed = count;
  }

  // Nothing can be begun any more.
  bool have_ended() const { return ended_.has_value(); }

  void end_all() {
    while (!under_way_.empty()) end_one();
  }

 private:
  struct Step {
    std::span<const DevicePage> pages;
    std::unique_ptr<device::Copies> copies;
    uint32_t landed = 0;  // stages, when this step has ended
  };

  uint64_t add(const DevicePage& one, const DeviceLayout::Rows& rows) {
    pieces_.push_back({rows.memory, rows.at + one.page->number * rows.page_stride,
                       one.host + rows.page_at, rows.row_bytes, rows.rows, rows.row_pitch,
                       rows.page_pitch});
    return uint64_t{rows.rows} * rows.row_bytes;
  }

  void start(std::span<const DevicePage> pages) {
    under_way_.push_back({pages, nullptr});
    if (!deadline_.passed() && gate_.enter()) {
      try {
        under_way_.back().copies = devices_.start(direction_, pieces_);
        return;
      } catch (const std::exception&) {  // such as of memory
        gate_.leave();
        fail(pages, PageStatus::error);
      }
    } else {
      ended_ = PageStatus::deadline;
      fail(pages, *ended_);
    }
    under_way_.pop_back();
  }

  void end_one() {
    const Step step = std::move(under_way_.front());
    under_way_.pop_front();
    const device::Outcome outcome = step.copies->wait_until(TimePoint::max());
    gate_.leave();
    if (outcome == device::Outcome::lost) ended_ = PageStatus::region_lost;
    if (outcome != device::Outcome::done)
      fail(step.pages, ended_.value_or(PageStatus::error));
    else if (step.landed != 0)
      tell(step.landed);
  }

  void fail(std::span<const DevicePage> pages, PageStatus status) {
    failed_ = true;
    for (const DevicePage& one : pages) {
      if (one.page->status == PageStatus::ok) one.page->status = status;
    }
  }

  void tell(uint32_t count) const {
    if (tell_ != nullptr && !failed_) (*tell_)(count);
  }

  device::Devices& devices_;
  const device::Direction direction_;
  WriteGate& gate_;
  const Deadline deadline_;
  const TellStages* const tell_;
  std::vector<device::Piece> pieces_;  // of the step that is begun
  std::deque<Step> under_way_;
  bool failed_ = false;
  std::optional<PageStatus> ended_;  // of all pages that have not been copied
};

std::set<uint32_t> stages_of(std::span<const DevicePage> pages) {
  std::set<const DeviceLayout*> layouts;
  for (const DevicePage& one : pages) layouts.insert(one.page->layout);
  std::set<uint32_t> stages;
  for (const DeviceLayout* layout : layouts) {
    for (const DeviceLayout::Rows& rows : layout->rows) stages.insert(rows.stage);
  }
  return stages;
}

}  // namespace

void copy_device_pages(device::Devices& devices, device::Direction direction,
                       std::span<const DevicePage> pages, WriteGate& gate, Deadline deadline,
                       const TellStages* tell) {
  for (const DevicePage& one : pages) one.page->status = PageStatus::ok;
  try {
    Steps steps(devices, direction, gate, deadline, tell);
    if (tell == nullptr) {
      for (auto left = pages; !left.empty();) left = steps.begin(left, nullptr);
    } else {
      for (const uint32_t stage : stages_of(pages)) {
        for (auto left = pages; !left.empty();) left = steps.begin(left, &stage);
        if (steps.have_ended()) break;
        steps.tell_when_ended(stage + 1);
      }
    }
    steps.end_all();
  } catch (const std::bad_alloc&) {
    for (const DevicePage& one : pages) one.page->status = PageStatus::error;
  }
}

void land_device_pages(device::Devices& devices, GetPages& get, std::span<const DevicePage> pages) {
  const bool last = get.shared.device_pages_left == pages.size();
  copy_device_pages(devices, device::Direction::to_device, pages, *get.context.gate,
                    get.context.deadline, last ? get.context.tell_stages : nullptr);
  get.shared.device_pages_left -= static_cast<size_t>(std::ranges::count_if(
      pages, [](const DevicePage& one) { return one.page->status == PageStatus::ok; }));
}

}  // namespace peercached
