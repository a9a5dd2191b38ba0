// An engine of twenty lines: a map of pages behind a mutex. Like the real engine, it copies with a
// fault guard and asks the gate before each access. Its door holds a get in the middle.
#pragma once

#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/fault_guard.h"
#include "device/stand_in.h"
#include "ipc/handler.h"

namespace peercached {

class Namespace {
 public:
  std::string name;
};

class FakeHandler final : public RequestHandler {
 public:
  std::shared_ptr<Namespace> open_namespace(std::string_view name, uint32_t) override {
    const std::lock_guard lock(mutex_);
    if (namespaces_.size() >= namespaces_max && !namespaces_.contains(std::string(name))) {
      return nullptr;
    }
    std::shared_ptr<Namespace>& ns = namespaces_[std::string(name)];
    if (!ns) ns = std::make_shared<Namespace>(std::string(name));
    return ns;
  }

  void set(const RequestContext& context, std::span<PageRef> pages) override {
    const std::lock_guard lock(mutex_);
    last_parent = context.parent_key;
    for (PageRef& page : pages) {
      if (page.status != PageStatus::pending) continue;
      std::vector<std::byte> content(page.length);
      page.status = copy(context, page, content.data(), page.memory);
      if (page.status == PageStatus::ok) {
        pages_[context.ns->name + "/" + std::string(page.key)] = std::move(content);
      }
    }
  }

  void get(const RequestContext& context, std::span<PageRef> pages) override {
    wait_at_door();
    const std::lock_guard lock(mutex_);
    for (PageRef& page : pages) {
      if (page.status != PageStatus::pending) continue;
      const auto found = pages_.find(context.ns->name + "/" + std::string(page.key));
      if (found == pages_.end()) {
        page.status = PageStatus::absent;
      } else if (found->second.size() != page.length) {
        page.status = PageStatus::length_mismatch;
      } else {
        page.status = copy(context, page, page.memory, found->second.data());
      }
    }
  }

  ExistsAnswer exists(const RequestContext& context, std::span<PageRef> keys, bool all) override {
    const std::lock_guard lock(mutex_);
    ExistsAnswer answer;
    bool unbroken = true;
    for (const PageRef& key : keys) {
      const bool present = key.status == PageStatus::pending &&
                           pages_.contains(context.ns->name + "/" + std::string(key.key));
      unbroken = unbroken && present;
      if (unbroken) ++answer.prefix;
      if (all) answer.present.push_back(present);
    }
    return answer;
  }

  std::string remove(const RequestContext& context, std::span<PageRef> keys) override {
    const std::lock_guard lock(mutex_);
    for (PageRef& key : keys) {
      if (key.status != PageStatus::pending) continue;
      const bool was = pages_.erase(context.ns->name + "/" + std::string(key.key)) != 0;
      key.status = was ? PageStatus::ok : PageStatus::absent;
    }
    return said_of_removal;
  }

  // Understands envelopes that begin with {, and says how many keys came with it.
  HintAnswer hint(const RequestContext& /*context*/, std::span<PageRef> keys,
                  std::string_view envelope) override {
    if (!envelope.starts_with("{")) return {false, "no envelope"};
    return {true, std::to_string(keys.size()) + " keys"};
  }

  // Pins a key that is there, and says with how long and how.
  std::string pin(const RequestContext& context, std::span<PageRef> keys) override {
    const std::lock_guard lock(mutex_);
    for (PageRef& key : keys) {
      const bool there = pages_.contains(context.ns->name + "/" + std::string(key.key));
      key.status = there ? PageStatus::ok : PageStatus::absent;
    }
    return std::to_string(context.pin.for_ms) + " ms" + (context.pin.prefix ? ", prefix" : "") +
           (context.pin.here ? ", here" : "");
  }

  std::string clear(const RequestContext& context) override {
    const std::lock_guard lock(mutex_);
    std::erase_if(
        pages_, [&](const auto& entry) { return entry.first.starts_with(context.ns->name + "/"); });
    return unreached;
  }

  std::string stats_json(const RequestContext&) override {
    if (stats_fail) throw std::runtime_error("the statistics are out of order");
    return "{\"pages\": 1}";
  }

  std::shared_ptr<device::Memory> import_device(const device::Handle& handle) override {
    return devices_->import(handle);
  }

  // While the door is shut, a get waits before it touches any memory.
  void shut_door() {
    const std::lock_guard lock(door_mutex_);
    shut_ = true;
  }
  void open_door() {
    const std::lock_guard lock(door_mutex_);
    shut_ = false;
    door_.notify_all();
  }
  void wait_for_visitor() {
    std::unique_lock lock(door_mutex_);
    door_.wait(lock, [this] { return at_door_ > 0; });
  }

  size_t namespaces_max = 8;
  std::string last_parent, unreached, said_of_removal;
  bool stats_fail = false;

 private:
  const std::unique_ptr<device::Devices> devices_ = device::make_stand_in();

  struct Copy {
    void* to;
    const void* from;
    size_t bytes;
  };

  static PageStatus copy(const RequestContext& context, const PageRef& page, void* to,
                         const void* from) {
    if (!context.gate->enter()) return PageStatus::deadline;
    Copy what = {to, from, page.length};
    const bool fine = guarded(
        page.memory, page.length,
        [](void* raw) {
          const auto* one = static_cast<Copy*>(raw);
          std::memcpy(one->to, one->from, one->bytes);
        },
        &what);
    context.gate->leave();
    return fine ? PageStatus::ok : PageStatus::region_lost;
  }

  void wait_at_door() {
    std::unique_lock lock(door_mutex_);
    ++at_door_;
    door_.notify_all();
    door_.wait(lock, [this] { return !shut_; });
    --at_door_;
  }

  std::mutex mutex_, door_mutex_;
  std::condition_variable door_;
  bool shut_ = false;
  int at_door_ = 0;
  std::map<std::string, std::shared_ptr<Namespace>> namespaces_;
  std::map<std::string, std::vector<std::byte>> pages_;
};

}  // namespace peercached
