#include "client/session.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "common/error_text.h"
#include "common/types.h"

namespace peercached::client {
namespace {

using ipc::ErrorCode;
using ipc::Op;
using namespace std::chrono_literals;
using std::chrono::microseconds;

// Time for REGISTER and UNREGISTER, if the call has that much time left.
constexpr auto kControlTime = 1s;
// The first registration of a GPU's memory opens the GPU in the daemon.
constexpr auto kDeviceTime = 10s;
constexpr microseconds kPauseMin = 50ms;
constexpr microseconds kPauseMax = 500ms;
// How long all calls together wait for the answer to a HELLO. The first HELLO gets longer, because
// the machine may be busy. The probe of a daemon that has stopped answering gets less.
constexpr auto kHelloTime = 3s;
constexpr auto kProbeTime = 5ms;
// While a GET waits for silence, signal handlers do not run for this long. A handler that raises
// would end the wait too early.
constexpr auto kUninterrupted = 1s;
constexpr size_t kNotesMax = 16;
// Each request reports one call, so few wait.
constexpr size_t kTookMax = 64;

// A refused region is not registered again this soon, and a connection not opened.
constexpr auto kRefusedTime = 1s;

constexpr const char* kNoAnswer = "the daemon did not answer in time";

// Whether the socket itself is mounted into this container, and not its folder. Such a mount stays
// with the file of the daemon that ran then: a later daemon makes another one.
bool is_mounted(const std::string& path) {
  std::ifstream mounts("/proc/self/mountinfo");
  std::string line;
  while (std::getline(mounts, line)) {
    if (line.find(" " + path + " ") != std::string::npos) return true;
  }
  return false;
}

// Names the ability that an older daemon lacks for this request; null if it can serve it.
const char* unknown_to(const Connection& connection, const Request& request) {
  if (request.op == Op::pin && !connection.has(ipc::kFeaturePins)) return "pins";
  if (request.op == Op::hint && !connection.has(ipc::kFeatureHint)) return "hints";
  if (request.flags & ipc::kFlagLayout && !connection.has(ipc::kFeatureDevice))
    return "memory of devices";
  if (request.op != Op::exists) return nullptr;
  if (request.flags & ipc::kFlagHere && !connection.has(ipc::kFeatureHere)) return "touches";
  if (request.flags & ipc::kFlagWait && !connection.has(ipc::kFeatureWait)) return "waits";
  if (request.flags & ipc::kFlagForecast && !connection.has(ipc::kFeatureForecast))
    return "forecasts";
  if (request.flags & ipc::kFlagCold && !connection.has(ipc::kFeatureCold))
    return "forecasts of the object store";
  return nullptr;
}

// How long a wait may go on after its request is over.
constexpr auto kLooksEvery = 20ms;

// A wait throws this when its request is over.
struct Over {};

// The waits of a request that may be over at any time. So every step of it ends in the same way.
template <class IsOver>
class WaitsUntilOver : public Waits {
 public:
  WaitsUntilOver(Waits& waits, IsOver is_over) : waits_(waits), is_over_(is_over) {}

  bool ready(int fd, short events, TimePoint until) override {
    while (true) {
      if (is_over_()) throw Over();
      const TimePoint look = std::min(until, Clock::now() + kLooksEvery);
      if (waits_.ready(fd, events, look)) return true;
      if (look == until) return false;
    }
  }
  void landed(uint32_t count) override { waits_.landed(count); }
  void pause(microseconds time) override { waits_.pause(time); }

 private:
  Waits& waits_;
  const IsOver is_over_;
};

// Work for the end of a scope, also when it ends with an exception.
template <class Work>
struct Finally {
  Work work;
  ~Finally() { work(); }
};
template <class Work>
Finally(Work) -> Finally<Work>;

}  // namespace

Session::Session(std::string path, std::string ns, std::string name)
    : path_(std::move(path)),
      ns_(std::move(ns)),
      name_(std::move(name)),
      pid_(::getpid()),
      dice_(static_cast<unsigned>(Clock::now().time_since_epoch().count()) ^
            static_cast<unsigned>(pid_)) {}

void Session::note(bool loud, std::string text) {
  if (notes_.size() < kNotesMax) notes_.push_back({loud, std::move(text)});
}

Session::Lease::~Lease() {
  if (!connection) return;
  const bool wanted = session->attachment_ == attachment && !session->closed_;
  if (connection->idle() && wanted) {
    attachment->idle.push_back(std::move(connection));
  } else {
    --attachment->open;
  }
}

// --- connections

Session::Taken Session::take(Lease& lease, TimePoint end, Waits& waits) {
  while (true) {
    if (closed_ || !in_this_process()) return Taken::away;
    if (away_ && !probe(end, waits)) return Taken::away;
    if (!attachment_) break;
    if (!attachment_->idle.empty()) {
      lease.session = this;
      lease.attachment = attachment_;
      lease.connection = std::move(attachment_->idle.back());
      attachment_->idle.pop_back();
      return Taken::connection;
    }
    if (attachment_->open < attachment_->open_max) break;
    const TimePoint now = Clock::now();
    if (attachment_->open_max < kConnectionsMax && now >= attachment_->crowded_until) {
      set_open_max(*attachment_, kConnectionsMax);
      continue;
    }
    if (now >= end) return Taken::late;
    waits.ready(-1, 0, std::min(end, now + 200us));
  }
  return open(lease, end, waits);
}

Session::Taken Session::open(Lease& lease, TimePoint end, Waits& waits) {
  while (true) {
    const std::shared_ptr<Attachment> joined = attachment_;
    std::shared_ptr<Connection> greeting;
    const TimePoint patience = Clock::now() + kHelloTime;
    const TimePoint until = std::min(end, patience);
    bool counted = joined != nullptr;
    if (counted) ++joined->open;
    const Finally uncount{[&] {
      if (counted) --joined->open;
    }};
    try {
      greeting = std::make_shared<Connection>(path_, joined ? joined->token : Token{}, ns_, name_);
    } catch (const std::system_error& error) {
      if (error.code().value() == EAGAIN && Clock::now() < until) {
        waits.ready(-1, 0, Clock::now() + 1ms);
        continue;
      }
      lose(error_text(error.code().value()), kPauseMin);
      return Taken::away;
    }
    const Answer hello = greeting->receive(until, waits);
    if (closed_ || !in_this_process()) return Taken::away;
    if (const auto token = greeting->token()) {
      lease.session = this;
      lease.connection = std::move(greeting);
      if (joined) {
        lease.attachment = joined;
        counted = false;
      } else {
        lease.attachment = std::make_shared<Attachment>();
        lease.attachment->open = 1;
        lease.attachment->token = *token;
        // If two threads attach at once, the last attachment is kept. The other one ends with its
        // call.
        attachment_ = lease.attachment;
      }
      return Taken::connection;
    }
    if (hello.outcome == Outcome::refused && hello.error == ErrorCode::no_attachment && joined) {
      // It is another daemon, or it saw all our connections end.
      if (attachment_ == joined) attachment_.reset();
      continue;
    }
    if (hello.outcome == Outcome::refused && hello.error == ErrorCode::limit && joined &&
        joined->open > 1) {
      set_open_max(*joined, joined->open - 1);
      joined->crowded_until = Clock::now() + kRefusedTime;
      counted = false;
      --joined->open;
      return take(lease, end, waits);
    }
    // Another thread has attached meanwhile.
    if (attachment_ && attachment_ != joined && !away_ && Clock::now() < end) {
      return take(lease, end, waits);
    }
    if (hello.outcome == Outcome::late) {
      lose(kNoAnswer, 0us);
      if (!probe_) {  // the answer may come yet
        probe_ = std::move(greeting);
        probe_until_ = patience;
      }
      return Taken::away;
    }
    lose(hello.body, kPauseMin);
    return Taken::away;
  }
}

void Session::set_open_max(Attachment& attachment, unsigned open_max) {
  attachment.open_max = open_max;
  places_->count = std::max(1u, open_max / 2);
}

void Session::lose(const std::string& why, microseconds probe_after) {
  if (closed_ || !in_this_process()) return;
  if (!away_) {
    const char* remedy =
        is_mounted(path_) ? "; mount the folder of the socket, not the socket" : "";
    note(false,
         "no daemon at " + path_ + " (" + why + "): pages are misses until it is back" + remedy);
  }
  away_ = true;
  last_error_ = why;
  pause_ = kPauseMin;
  probe_at_ = Clock::now() + probe_after;
}

bool Session::probe(TimePoint end, Waits& waits) {
  if (probing_) return false;
  probing_ = true;
  const Finally one_at_a_time{[this] { probing_ = false; }};
  for (int attempt = 1; attempt <= 2; ++attempt) {
    const TimePoint now = Clock::now();
    // The probed daemon may be stopped while another one listens at the path by now.
    if (probe_ && now >= probe_until_ && probe_->has_moved(path_)) probe_.reset();
    if (!probe_) {
      if (now < probe_at_) return false;
      // Jitter: the workers of a host do not all probe at once.
      probe_at_ = now + pause_ * std::uniform_int_distribution(50, 100)(dice_) / 100;
      pause_ = std::min(2 * pause_, kPauseMax);
      probe_until_ = now + kProbeTime;
      try {
        probe_ = std::make_shared<Connection>(path_, attachment_ ? attachment_->token : Token{},
                                              ns_, name_);
      } catch (const std::system_error& error) {
        last_error_ = error_text(error.code().value());
        return false;
      }
    }
    const std::shared_ptr<Connection> greeting = probe_;
    const Answer hello = greeting->receive(std::min(end, probe_until_), waits);
    if (closed_ || !in_this_process()) return false;
    if (hello.outcome == Outcome::late) return false;
    probe_.reset();
    if (const auto token = greeting->token()) {
      if (!attachment_ || attachment_->token != *token) {
        attachment_ = std::make_shared<Attachment>();
        attachment_->token = *token;
      }
      ++attachment_->open;
      attachment_->idle.push_back(greeting);
      away_ = false;
      last_error_.clear();
      ++reconnects_;
      note(false, "the daemon at " + path_ + " is back");
      return true;
    }
    last_error_ = hello.body;
    const bool of_another_life =
        hello.outcome == Outcome::refused && hello.error == ErrorCode::no_attachment;
    if (!of_another_life || !attachment_) return false;
    attachment_.reset();
    probe_at_ = Clock::now();
  }
  return false;
}

// --- requests

Answer Session::ask(const Request& request, Waits& waits) {
  askers_.push_back(std::this_thread::get_id());
  const Finally asked{[this] {
    const auto self = std::find(askers_.begin(), askers_.end(), std::this_thread::get_id());
    if (self != askers_.end()) askers_.erase(self);
  }};
  const auto over = [&] { return is_over(request.cancel.get()); };
  WaitsUntilOver until_over(waits, over);
  Waits& its_waits = request.cancel ? until_over : waits;
  for (int attempt = 1;; ++attempt) {
    if (over()) return {.outcome = Outcome::lost};
    Lease lease;
    try {
      const Taken taken = take(lease, request.end, its_waits);
      if (taken != Taken::connection) {
        return {.outcome = taken == Taken::late ? Outcome::late : Outcome::lost};
      }
      Answer answer = exchange(lease, request, its_waits);
      if (answer.outcome == Outcome::late || answer.outcome == Outcome::lost) {
        give_up_unless_idle(lease, request, request.silence, waits);
      }
      // Perhaps the daemon has restarted since the last call. Every request can be repeated, unless
      // the program uses the memory already.
      if (answer.outcome != Outcome::lost || attempt == 2 || lease.connection->told_of_stages())
        return answer;
    } catch (const Over&) {
      give_up_unless_idle(lease, request, request.silence, waits);
      return {.outcome = Outcome::lost};
    } catch (...) {
      // Interrupted: the next call would read this reply, and the daemon may still be writing. The
      // exception does not wait without limit.
      give_up_unless_idle(lease, request, request.silence.value_or(kUninterrupted), waits);
      throw;
    }
  }
}

Answer Session::exchange(Lease& lease, const Request& request, Waits& waits) {
  Answer answer;
  answer.outcome = sweep_with(lease, request.end, waits);
  for (int attempt = 1; attempt <= 2; ++attempt) {
    if (answer.outcome == Outcome::reply) answer.outcome = register_all(lease, request, waits);
    if (answer.outcome != Outcome::reply) break;
    if (Clock::now() >= request.end) return {.outcome = Outcome::late};
    if (const char* unknown = unknown_to(*lease.connection, request)) {
      return {Outcome::refused, ErrorCode::unknown_op, 0,
              "the daemon of version " + lease.connection->daemon_version() + " knows no " +
                  unknown + ": update it to a version that does"};
    }
    Frame frame{request.op, request.flags, request.count, 0, request.body};
    frame.answer_by = request.answer_by;
    if (!lease.connection->has(ipc::kFeatureTook)) took_.clear();
    if (!took_.empty()) {
      frame.took = took_.front();
      took_.pop_front();
    }
    if (frame.flags & ipc::kFlagNames && !lease.connection->has(ipc::kFeatureNames)) {
      frame.flags &= static_cast<uint16_t>(~ipc::kFlagNames);  // this daemon tells no events
      frame.body.pop_back();
    }
    std::vector<uint32_t> ids;
    if (request.op == Op::set || request.op == Op::get) {
      ids = ids_of_pages(*lease.attachment, request);
      frame.body.insert(frame.body.begin() + 1, std::as_bytes(std::span(ids)));
    }
    if (!request.caller.empty() && lease.connection->has(ipc::kFeatureSpan)) {
      frame.flags |= ipc::kFlagSpan;
      frame.body.push_back(request.caller);
    }
    answer = lease.connection->ask(frame, request.end, waits);
    if (answer.outcome != Outcome::reply) break;
    if (!forget_unknown_ids(*lease.attachment, request, ids, answer.body)) break;
  }
  if (answer.outcome == Outcome::reply || answer.outcome == Outcome::refused) return answer;
  if (answer.outcome == Outcome::lost) {
    lease.attachment->open -= static_cast<unsigned>(lease.attachment->idle.size());
    lease.attachment->idle.clear();
  } else if (lease.attachment == attachment_) {
    lose(kNoAnswer, 0us);  // from now on no other call waits for it, until a probe is answered
  }
  return {.outcome = answer.outcome};
}

std::unique_ptr<Slot> Session::place_to_wait(TimePoint end, const Cancel* cancel, Waits& waits) {
  return Slot::take(places_, end, waits, [&] { return closed_ || is_over(cancel); });
}

std::vector<uint32_t> Session::ids_of_pages(const Attachment& attachment, const Request& request) {
  std::vector<uint32_t> of_segments;
  for (const std::shared_ptr<Segment>& segment : request.segments) {
    const auto known = attachment.regions.find(segment->number());
    const bool usable = known != attachment.regions.end() && !segment->quarantined();
    of_segments.push_back(usable ? known->second.id : 0);
  }
  if (request.segment_of.empty()) {
    const bool layout = (request.flags & ipc::kFlagLayout) != 0;
    return std::vector<uint32_t>(layout ? 1 : request.count, of_segments[0]);
  }
  std::vector<uint32_t> ids;
  ids.reserve(request.count);
  for (const uint32_t at : request.segment_of) ids.push_back(of_segments[at]);
  return ids;
}

bool Session::forget_unknown_ids(Attachment& attachment, const Request& request,
                                 const std::vector<uint32_t>& ids, const std::string& statuses) {
  std::set<uint32_t> unknown;
  for (size_t i = 0; i < std::min(ids.size(), statuses.size()); ++i) {
    const auto status = static_cast<PageStatus>(statuses[i]);
    if (ids[i] != 0 && status == PageStatus::bad_region) unknown.insert(ids[i]);
  }
  bool forgotten = false;
  for (const std::shared_ptr<Segment>& segment : request.segments) {
    // For device memory the status may be about an id that the daemon knows.
    const auto known = attachment.regions.find(segment->number());
    if (known == attachment.regions.end() || segment->of_device()) continue;
    if (unknown.erase(known->second.id) == 0) continue;
    known->second.id = 0;
    forgotten = true;
  }
  return forgotten;
}

void Session::give_up_unless_idle(const Lease& lease, const Request& request,
                                  std::optional<microseconds> silence, Waits& waits) {
  const std::shared_ptr<Connection> connection = lease.connection;
  if (!connection || connection->idle() || connection->given_up()) return;
  connection->give_up();
  // A set of the host's memory may go on: the daemon keeps nothing of it. Memory of a device may be
  // freed, so that copies there must end first.
  if (request.op != Op::get && !(request.flags & ipc::kFlagLayout)) return;
  // close() does not wait for the silence of a request that was given up.
  std::erase(askers_, std::this_thread::get_id());
  const TimePoint began = Clock::now();
  while (!connection->silent()) {
    if (!in_this_process()) return;  // a handler has forked: the request is the parent's
    const auto waited = Clock::now() - began;
    if (silence && waited >= *silence) break;
    try {
      if (waited < kUninterrupted) {
        waits.pause(200us);
      } else {
        waits.ready(-1, 0, Clock::now() + 10ms);
      }
    } catch (...) {
      for (const auto& segment : request.segments) segment->quarantine(connection);
      throw;
    }
  }
  if (connection->silent()) return;
  for (const auto& segment : request.segments) {
    segment->quarantine(connection);
    note(true, "the daemon hangs while it writes into a region of " +
                   std::to_string(segment->bytes()) +
                   " bytes: until it goes on, or has ended, the region is not used, and what is in "
                   "it may change");
  }
}

// --- regions

Outcome Session::register_all(Lease& lease, const Request& request, Waits& waits) {
  for (const auto& segment : request.segments) {
    const auto known = lease.attachment->regions.find(segment->number());
    if (known != lease.attachment->regions.end() &&
        (known->second.id != 0 || Clock::now() < known->second.refused_until)) {
      continue;
    }
    if (segment->quarantined()) continue;
    const Outcome outcome = register_one(lease, segment, request.end, waits);
    if (outcome != Outcome::reply) return outcome;
  }
  return Outcome::reply;
}

Answer Session::ask_for_id(Lease& lease, int file, const Registration& what, TimePoint end,
                           Waits& waits) {
  if (what.device && !lease.connection->has(ipc::kFeatureDevice))
    return {Outcome::refused, ErrorCode::unknown_op, 0, "it knows no memory of devices"};
  const auto body = what.device ? std::as_bytes(std::span(&*what.device, 1))
                                : std::as_bytes(std::span(&what.bytes, 1));
  const auto patience = what.device ? kDeviceTime : kControlTime;
  return lease.connection->ask(
      {.op = what.device ? Op::register_device : Op::register_region, .body = {body}, .file = file},
      std::min(end, Clock::now() + patience), waits);
}

Outcome Session::register_one(Lease& lease, const std::shared_ptr<Segment>& segment, TimePoint end,
                              Waits& waits) {
  const auto attachment = lease.attachment;
  const auto [entry, is_new] = attachment->regions.try_emplace(segment->number());
  const bool was_refused = !is_new && entry->second.refused_until != TimePoint{};
  entry->second.segment = segment;
  entry->second.registration = segment->registration();
  Answer answer{.outcome = Outcome::refused,
                .body = "its file descriptor is closed, or another file's"};
  if (const int file = segment->file(); file >= 0) {
    try {
      entry->second.file = Descriptor::duplicate(file);
    } catch (const std::system_error&) {
      // The copy is needed only if this call is interrupted before the answer.
    }
    answer = ask_for_id(lease, file, segment->registration(), end, waits);
  }
  // Looked up again: another thread may have swept meanwhile.
  Attachment::Known& known = attachment->regions[segment->number()];
  known.segment = segment;
  if (answer.outcome == Outcome::refused) {
    if (!segment->dead() && !was_refused) {
      note(false, "the daemon refuses a region of " + std::to_string(segment->bytes()) +
                      " bytes: " + answer.body);
    }
    known.refused_until = Clock::now() + kRefusedTime;
    answer.outcome = lease.connection->idle() ? Outcome::reply : Outcome::lost;
  } else if (answer.outcome != Outcome::reply) {
    return answer.outcome;
  }
  known.id = answer.value;
  known.file.close();
  // If the segment died meanwhile, no sweep has seen it in the table.
  if (segment->dead()) attachment->deaths_seen = 0;
  return answer.outcome;
}

Outcome Session::sweep_with(Lease& lease, TimePoint end, Waits& waits) {
  Attachment& attachment = *lease.attachment;
  const uint64_t deaths = Segment::deaths();
  if (attachment.deaths_seen == deaths) return Outcome::reply;
  attachment.deaths_seen = deaths;
  while (true) {
    const auto gone =
        std::find_if(attachment.regions.begin(), attachment.regions.end(), [](const auto& known) {
          const auto segment = known.second.segment.lock();
          return !segment || segment->dead();
        });
    if (gone == attachment.regions.end()) return Outcome::reply;
    // The entry is out of the table meanwhile, so that no other thread unregisters it, too. It goes
    // back unless the daemon has answered.
    auto entry = attachment.regions.extract(gone);
    const Finally put_back{[&] {
      if (entry.empty()) return;
      attachment.regions.insert(std::move(entry));
      attachment.deaths_seen = 0;
    }};
    Attachment::Known& known = entry.mapped();
    if (const int file = known.file.get(); known.id == 0 && file >= 0) {
      const Answer answer = ask_for_id(lease, file, known.registration, end, waits);
      if (answer.outcome == Outcome::late || answer.outcome == Outcome::lost) return answer.outcome;
      if (!lease.connection->idle()) return Outcome::lost;
      known.id = answer.value;
      known.file.close();
    }
    if (known.id != 0) {
      const Answer answer =
          lease.connection->ask({.op = Op::unregister_region, .count = known.id},
                                std::min(end, Clock::now() + kControlTime), waits);
      if (answer.outcome == Outcome::late || answer.outcome == Outcome::lost) return answer.outcome;
      if (!lease.connection->idle()) return Outcome::lost;
      // There is room now for regions that were refused.
      for (auto& [number, other] : attachment.regions) {
        other.refused_until = std::min(other.refused_until, Clock::now());
      }
    }
    entry = {};
  }
}

void Session::note_took(ipc::TookOp op, microseconds time) {
  constexpr int64_t kMax = (int64_t{1} << 30) - 1;
  const auto us = static_cast<uint32_t>(std::clamp<int64_t>(time.count(), 0, kMax));
  // In an outage only the first call counts: later ones return at once.
  if (away_ && !took_.empty()) return;
  if (took_.size() == kTookMax) took_.pop_front();
  took_.push_back(us << 2 | static_cast<uint32_t>(op));
}

void Session::sweep(TimePoint end, Waits& waits) {
  if (!attachment_ || attachment_->deaths_seen == Segment::deaths()) return;
  ask({.op = Op::ping, .end = end}, waits);
}

// --- the end

void Session::stop() {
  closed_ = true;
  last_error_ = "the client is closed";
  probe_.reset();
  if (attachment_) attachment_->idle.clear();
  attachment_.reset();
}

void Session::close(Waits& waits) {
  stop();
  const auto self = std::this_thread::get_id();
  if (!in_this_process() || std::find(askers_.begin(), askers_.end(), self) != askers_.end())
    return;
  while (!askers_.empty()) waits.ready(-1, 0, Clock::now() + 1ms);
}

}  // namespace peercached::client
