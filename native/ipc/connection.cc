#include "ipc/connection.h"

#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <thread>

#include "common/exiting.h"

namespace peercached::ipc {
namespace {

constexpr size_t kScratchPages = 4096;  // scratch capacity to keep after a larger request

}  // namespace

Connection::Connection(ServerState& state, UniqueFd socket, const Visitor& visitor)
    : state_(state),
      visitor_(visitor),
      stream_(std::move(socket), state.frame_memory, visitor.uid),
      hello_by_(Deadline::after_ms(state.config.hello_timeout_ms)),
      scratch_(state.frame_memory, visitor.uid) {}

void Connection::run() {
  Frame frame;
  while (serve_one(frame)) {
  }
  if (attachment_) {
    attachment_->remove_gate(gate_);
    state_.leave(std::move(attachment_));
  }
  gate_.reset();
  stream_.close_stream();
}

bool Connection::read(Frame& frame) {
  if (attachment_) return stream_.read(frame);
  if (stream_.read_hello(frame, hello_by_)) return true;
  if (hello_by_.passed()) {
    ++state_.counters.late_hellos;
    say(state_.config.notices, "ipc hello",
        "shut a worker's connection: " + visitor_.name() + " sent no HELLO in " +
            std::to_string(state_.config.hello_timeout_ms) + " ms");
  }
  return false;
}

bool Connection::serve_one(Frame& frame) {
  ReplyHeader reply;
  Answer answer;
  bool goes_on = true;
  try {
    if (!read(frame)) return false;
    answer = dispatch(frame);
  } catch (const RequestError& error) {
    if (error.code() == ErrorCode::bad_frame) ++state_.counters.bad_frames;
    if (error.code() == ErrorCode::limit && is_page_op(static_cast<Op>(frame.header.op))) {
      ++state_.counters.requests_refused;
      say(state_.config.notices, "ipc limit",
          "refused a request of " + visitor_.name() + ": " + error.what());
    }
    reply.error = static_cast<uint16_t>(error.code());
    body_ = error.what();
    answer = {0, 0, body_};
    goes_on = !closes_connection(error.code());
  } catch (const std::exception& error) {
    reply.error = static_cast<uint16_t>(ErrorCode::failed);
    body_ = error.what();
    answer = {0, 0, body_};
  }
  regions_.clear();
  if (gate_ && gate_->gate().fenced()) {
    ++attachment_->given_up;
    ++state_.counters.given_up;
  }
  reply.body_bytes = static_cast<uint32_t>(answer.body.size());
  reply.op = frame.header.op | kReplyBit;
  reply.request_id = frame.header.request_id;
  reply.count = answer.count;
  reply.value = answer.value;
  const bool taken = stream_.write(reply, answer.body);
  shrink_scratch();
  return goes_on && taken;
}

Connection::Answer Connection::dispatch(Frame& frame) {
  const auto op = static_cast<Op>(frame.header.op);
  const bool takes_file = op == Op::hello || op == Op::register_region || op == Op::register_device;
  if (frame.files.size() != (takes_file ? 1 : 0)) {
    throw RequestError(ErrorCode::bad_frame,
                       takes_file ? "this op needs a file passed along with its frame"
                                  : "this op takes no file, one was passed");
  }
  if (op == Op::hello) return hello(frame);
  if (!attachment_) {
    throw RequestError(ErrorCode::not_attached, "the first request must be HELLO");
  }
  if (const uint32_t unnamed = features_of(frame.header) & ~features_; unnamed != 0) {
    throw RequestError(ErrorCode::bad_frame, "this request uses the features " +
                                                 std::to_string(unnamed) +
                                                 ", and the client's HELLO did not name them");
  }
  ++attachment_->requests;
  attachment_->last_request = Clock::now();
  if (const TookOp took = took_op(frame.header); took != TookOp::none) {
    state_.handler.client_took(took, std::chrono::microseconds(frame.header.took >> 2));
  }
  if (is_page_op(op)) return pages(frame);
  ++state_.counters.others;
  const RequestContext context = context_of(frame.header);
  switch (op) {
    case Op::register_region:
      return register_region(frame);
    case Op::register_device:
      return register_device(frame);
    case Op::unregister_region:
      return unregister_region(frame);
    case Op::ping:
      require_empty(frame.header);
      return {};
    case Op::clear:
      require_empty(frame.header);
      body_ = state_.handler.clear(context);
      return {0, body_.empty() ? 0u : 1u, body_};
    case Op::stats:
      require_empty(frame.header);
      body_ = state_.handler.stats_json(context);
      return {0, 0, body_};
    default:
      throw RequestError(ErrorCode::unknown_op, "op " + std::to_string(frame.header.op) +
                                                    " is not known to protocol " +
                                                    std::to_string(kProtocolVersion));
  }
}

RequestContext Connection::context_of(const RequestHeader& header) {
  RequestContext context;
  context.ns = attachment_->ns.get();
  context.user = attachment_->uid;
  context.pid = attachment_->visible_pid;
  context.gate = &gate_->gate();
  context.deadline =
      Deadline::after_ms(std::min(header.deadline_ms, state_.config.deadline_ms_max));
  return context;
}

Connection::Answer Connection::hello(const Frame& frame) {
  if (attachment_) {
    throw RequestError(ErrorCode::bad_frame, "this connection is attached already");
  }
  const Hello wanted = parse_hello(frame.body);
  auto gate = std::make_shared<GatePage>(frame.files.front());
  attachment_ = state_.attach(wanted, visitor_.pid, visitor_.uid);
  features_ = wanted.features;
  gate_ = std::move(gate);
  attachment_->add_gate(gate_);

  HelloReply reply;
  reply.protocol_version = kProtocolVersion;
  reply.version_bytes = static_cast<uint32_t>(state_.config.version.size());
  reply.token = attachment_->token;
  reply.incarnation = state_.config.incarnation;
  reply.pages_max = kPagesMax;
  reply.body_bytes_max = kBodyBytesMax;
  reply.deadline_ms_max = state_.config.deadline_ms_max;
  reply.regions_max = state_.config.regions_per_attachment_max;
  body_.assign(reinterpret_cast<const char*>(&reply), sizeof(reply));
  body_ += state_.config.version;
  // An older client refuses bytes that it does not know.
  if (wanted.features != 0) body_.append(reinterpret_cast<const char*>(&state_.config.features), 4);
  return {0, 0, body_};
}

Connection::Answer Connection::register_region(const Frame& frame) {
  const auto region = attachment_->add_region(frame.files.front(), parse_region_bytes(frame.body),
                                              state_.next_region, state_.handler);
  state_.map_ahead.add(region);
  return {0, region->id, {}};
}

Connection::Answer Connection::register_device(const Frame& frame) {
  if (is_visible(attachment_->pid)) attachment_->visible_pid = attachment_->pid;
  const auto region = attachment_->add_device(frame.files.front(), parse_device(frame.body),
                                              state_.next_region, state_.handler);
  return {0, region->id, {}};
}

Connection::Answer Connection::unregister_region(const Frame& frame) {
  require_empty(frame.header);
  // The region's id is in `count`.
  const auto removed = attachment_->remove_region(frame.header.count);
  if (!removed) {
    throw RequestError(ErrorCode::bad_value,
                       "this worker has no region " + std::to_string(frame.header.count));
  }
  // The worker may free memory of a device now, and copies of other requests may still run there.
  // A mapping of the host's memory keeps its pages.
  const Deadline deadline = context_of(frame.header).deadline;
  const std::shared_ptr<Region>& region = *removed;
  while (region && region->of_device && region.use_count() > 1) {
    if (deadline.passed()) throw RequestError(ErrorCode::failed, "copies of this region still run");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return {};
}

Connection::Answer Connection::pages(const Frame& frame) {
  const auto op = static_cast<Op>(frame.header.op);
  const PageColumns columns = parse_pages(frame.header, frame.body);
  if (columns.count > kScratchPages && !scratch_.grow(columns.count * sizeof(PageRef))) {
    throw RequestError(ErrorCode::limit, "no memory for a request of " +
                                             std::to_string(columns.count) +
                                             " pages: send fewer at once");
  }
  attachment_->resolve(columns, pages_, regions_, layouts_);
  // Once more: by now the worker has touched its memory.
  for (const auto& region : regions_) {
    if (!region->mapped_ahead.exchange(true)) state_.map_ahead.add(region);
  }

  RequestContext context = context_of(frame.header);
  context.parent_key = columns.parent_key;
  context.hold_ms = columns.hold_ms;
  context.here = (frame.header.flags & kFlagHere) != 0;
  context.pin = {columns.pin_ms, (frame.header.flags & kFlagPrefix) != 0, context.here};
  context.page = {columns.page_tokens, columns.page_keys};
  context.wait = {columns.wait_ms, columns.wait_keys, columns.wait_again};
  if (op == Op::exists && !context.here) attachment_->asks_exists = true;
  context.gets_only = !attachment_->asks_exists;
  context.names = {columns.name_kinds, columns.names, columns.block_tokens};
  context.caller = columns.caller ? &*columns.caller : nullptr;
  const std::function<bool()> gone = [&] { return stream_.peer_has_left(); };
  context.gone = &gone;
  const TellStages tell = [&](uint32_t count) { tell_stages(frame.header, count); };
  if ((frame.header.flags & kFlagStages) != 0) context.tell_stages = &tell;

  Answer answer;
  answer.count = columns.count;
  std::string said;
  if (op == Op::exists) {
    ++state_.counters.exists;
    context.lengths = (frame.header.flags & kFlagLengths) != 0;
    context.forecast = (frame.header.flags & kFlagForecast) != 0;
    context.news = columns.news;
    const bool all = context.lengths || (frame.header.flags & kFlagBitmap) != 0;
    const ExistsAnswer found = state_.handler.exists(context, pages_, all);
    answer.value = found.prefix;
    body_.clear();
    if (context.lengths) {
      body_.assign(reinterpret_cast<const char*>(found.lengths.data()), 4 * found.lengths.size());
      body_.resize(size_t{4} * columns.count);
    } else if (all) {
      body_.assign(reinterpret_cast<const char*>(found.present.data()), found.present.size());
      body_.resize(columns.count);
    }
    if (context.forecast) {
      for (const std::vector<uint32_t>& column : {found.p50_us, found.p90_us}) {
        const size_t begin = body_.size();
        body_.append(reinterpret_cast<const char*>(column.data()), 4 * column.size());
        body_.resize(begin + size_t{4} * columns.count);
      }
      if ((frame.header.flags & kFlagCold) != 0) {
        const size_t begin = body_.size();
        body_.append(reinterpret_cast<const char*>(found.cold.data()), found.cold.size());
        body_.resize(begin + columns.count);
      }
    }
  } else if (op == Op::hint) {
    ++state_.counters.others;
    HintAnswer told = state_.handler.hint(context, pages_, columns.envelope);
    if (!told.understood) throw RequestError(ErrorCode::bad_value, told.text);
    answer.count = 0;
    body_ = std::move(told.text);
  } else {
    if (op == Op::set) {
      ++state_.counters.sets;
      state_.handler.set(context, pages_);
    } else if (op == Op::get) {
      ++state_.counters.gets;
      state_.handler.get(context, pages_);
    } else {
      ++state_.counters.others;
      said = op == Op::remove ? state_.handler.remove(context, pages_)
                              : state_.handler.pin(context, pages_);
    }
    body_.resize(columns.count);
    for (size_t i = 0; i < pages_.size(); ++i) {
      PageStatus status = pages_[i].status;
      if (status == PageStatus::pending) status = PageStatus::error;
      body_[i] = static_cast<char>(status);
      answer.value += status == PageStatus::ok;
    }
    body_ += said;
    drop_lost_regions();
  }
  answer.body = body_;
  return answer;
}

void Connection::tell_stages(const RequestHeader& header, uint32_t count) {
  ReplyHeader head;
  head.op = header.op | kReplyBit | kStageBit;
  head.request_id = header.request_id;
  head.value = count;
  stream_.write_if_room(head);
}

void Connection::drop_lost_regions() {
  for (const PageRef& page : pages_) {
    if (page.status != PageStatus::region_lost) continue;
    if (page.layout != nullptr) {
      // The device is lost, so all regions of the layout are.
      for (const auto& region : regions_)
        state_.counters.regions_lost += attachment_->lose_region(region->id) ? 1 : 0;
      return;
    }
    if (page.memory != nullptr && attachment_->lose_region(page.region))
      ++state_.counters.regions_lost;
  }
}

void Connection::shrink_scratch() {
  if (pages_.capacity() > kScratchPages) {
    pages_.clear();
    pages_.shrink_to_fit();
  }
  scratch_.shrink(0);
  if (body_.capacity() > kScratchPages * 16) {
    body_.clear();
    body_.shrink_to_fit();
  }
}

}  // namespace peercached::ipc
