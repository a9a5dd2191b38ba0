#include "ipc/server_state.h"

#include <sys/random.h>

#include <system_error>

namespace peercached::ipc {
namespace {

Token random_token() {
  Token token;
  if (::getrandom(token.data(), token.size(), 0) != static_cast<ssize_t>(token.size())) {
    throw std::system_error(errno, std::generic_category(), "getrandom");
  }
  return token;
}

}  // namespace

std::shared_ptr<Attachment> ServerState::attach(const Hello& hello, uint32_t pid, uint32_t uid) {
  if (hello.token != Token{}) {
    MutexLock lock(mutex_);
    const auto found = attachments_.find(hello.token);
    // One answer for "no such token" and "not yours", so that a guess learns nothing.
    if (found == attachments_.end() || found->second->uid != uid) {
      throw RequestError(ErrorCode::no_attachment,
                         "no attachment of this user has this token: attach anew");
    }
    if (found->second->ns_name != hello.ns) {
      throw RequestError(ErrorCode::bad_value, "this attachment is for namespace '" +
                                                   found->second->ns_name + "', not '" +
                                                   std::string(hello.ns) + "': attach anew");
    }
    ++found->second->connections;
    return found->second;
  }

  std::shared_ptr<Namespace> ns = handler.open_namespace(hello.ns, uid);
  if (ns == nullptr) {
    throw RequestError(
        ErrorCode::limit,
        "no room for namespace '" + std::string(hello.ns) +
            "': too many, of your user or in all, have workers or pages: clear some");
  }
  MutexLock lock(mutex_);
  if (attachments_.size() >= config.attachments_max) {
    throw RequestError(ErrorCode::limit, std::to_string(attachments_.size()) +
                                             " workers are attached, the most that may be: " +
                                             "stop one, or raise the daemon's limit");
  }
  if (config.attachments_per_process_max != 0 && pid != 0) {
    unsigned of_process = 0;
    for (const auto& [token, one] : attachments_) of_process += one->pid == pid;
    if (of_process >= config.attachments_per_process_max) {
      ++counters.crowded;
      const std::string text = "process " + std::to_string(pid) + " is attached " +
                               std::to_string(of_process) +
                               " times, the most that one process may be";
      say(config.notices, "ipc attachments", "refused a worker: " + text);
      throw RequestError(ErrorCode::limit, text + ": close some clients");
    }
  }
  auto attachment = std::make_shared<Attachment>(
      Attached{next_attachment_++, random_token(), pid, uid, std::string(hello.name),
               std::string(hello.ns), std::move(ns)},
      RegionLimits{config.regions_per_attachment_max, config.region_bytes_max});
  attachment->connections = 1;
  attachments_.emplace(attachment->token, attachment);
  return attachment;
}

void ServerState::leave(std::shared_ptr<Attachment> attachment) {
  MutexLock lock(mutex_);
  if (--attachment->connections == 0) attachments_.erase(attachment->token);
  // `attachment` is destroyed after the lock is released, because unmapping takes long.
}

std::vector<WorkerInfo> ServerState::workers() const {
  MutexLock lock(mutex_);
  const TimePoint now = Clock::now();
  std::vector<WorkerInfo> workers;
  workers.reserve(attachments_.size());
  for (const auto& [token, attachment] : attachments_) {
    const auto regions = attachment->regions();
    workers.push_back({attachment->id, attachment->pid, attachment->uid, attachment->name,
                       attachment->ns_name, attachment->connections, regions.count, regions.bytes,
                       attachment->requests, attachment->given_up, attachment->stuck(),
                       std::chrono::duration<double>(now - attachment->last_request.load())});
  }
  return workers;
}

}  // namespace peercached::ipc
