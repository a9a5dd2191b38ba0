// The module peercache_client._ipc, described in peercache_client/_ipc.pyi.

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string_view>
#include <unordered_map>

#include "client/connection.h"
#include "client/segment.h"
#include "client/session.h"
#include "client/slots.h"

namespace nb = nanobind;

namespace peercached::client {
namespace {

using std::chrono::microseconds;

// A signal just before a wait, or to another thread, does not end it. So no wait is longer than
// this.
constexpr int64_t kUnseenNs = 20'000'000;

thread_local Clock::duration t_waited{};

// When the interpreter exits, CPython before 3.14 ends every thread that asks for the GIL by
// unwinding the thread's stack. That would run the destructors of the call in progress, which is
// not safe then. So this destructor, the first to run, blocks the thread until the process ends.
struct StaysHere {
  bool ended = true;
  ~StaysHere() {
    while (ended) ::pause();
  }
};

template <class Wait>
auto while_others_run(Wait wait) {
  PyThreadState* state = PyEval_SaveThread();
  const auto result = wait();
  StaysHere here;
  PyEval_RestoreThread(state);
  here.ended = false;
  return result;
}

// Other threads and signal handlers run while it waits.
class PythonWaits : public Waits {
 public:
  PythonWaits() = default;
  explicit PythonWaits(const nb::object& landed) : landed_(landed) {}

  bool ready(int fd, short events, TimePoint until) override {
    while (true) {
      const TimePoint now = Clock::now();
      const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(until - now).count();
      const timespec time = {0, std::clamp<int64_t>(left, 0, kUnseenNs)};
      pollfd wanted = {fd, events, 0};
      int found = 0;
      if (time.tv_nsec == 0) {
        found = fd < 0 ? 0 : ::ppoll(&wanted, 1, &time, nullptr);
      } else {
        found = while_others_run([&] { return ::ppoll(&wanted, fd < 0 ? 0 : 1, &time, nullptr); });
        t_waited += Clock::now() - now;
      }
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
      if (found > 0) return true;
      // Polls once more after the time has come: getting here may have taken long.
      if (time.tv_nsec == 0) return false;
    }
  }

  void pause(microseconds time) override {
    const timespec wanted = {0, time.count() * 1000};
    while_others_run([&] { return ::nanosleep(&wanted, nullptr); });
  }

  void landed(uint32_t count) override {
    if (landed_.is_valid() && !landed_.is_none()) landed_(count);
  }

 private:
  nb::object landed_;
};

// `at_s`: seconds of Python's time.monotonic().
TimePoint time_point(double at_s) {
  const double bounded_s = std::min(at_s, 4e9);
  return TimePoint(
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(bounded_s)));
}

std::span<const std::byte> span_of(const nb::bytes& bytes) {
  return {reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()};
}

nb::bytes bytes_of(const std::string& text) { return nb::bytes(text.data(), text.size()); }

std::string text_of(const nb::bytes& bytes) { return {bytes.c_str(), bytes.size()}; }

nb::tuple ask(Session& session, int op, int flags, uint32_t count, const nb::tuple& body,
              const nb::list& segments, double end_s, std::optional<double> silence_s,
              const nb::bytes& caller, const nb::object& landed,
              const std::shared_ptr<Cancel>& cancel, std::optional<double> answer_by_s) {
  Request request;
  request.op = static_cast<ipc::Op>(op);
  request.flags = static_cast<uint16_t>(flags);
  request.count = count;
  for (const nb::handle part : body) request.body.push_back(span_of(nb::cast<nb::bytes>(part)));
  std::unordered_map<const Segment*, uint32_t> known;
  if (segments.size() > 1) request.segment_of.reserve(segments.size());
  for (const nb::handle each : segments) {
    auto segment = nb::cast<std::shared_ptr<Segment>>(each);
    const auto [at, added] =
        known.try_emplace(segment.get(), static_cast<uint32_t>(request.segments.size()));
    if (added) request.segments.push_back(std::move(segment));
    if (segments.size() > 1) request.segment_of.push_back(at->second);
  }
  request.end = time_point(end_s);
  if (answer_by_s) request.answer_by = time_point(*answer_by_s);
  request.caller = span_of(caller);
  if (silence_s) request.silence = microseconds(static_cast<int64_t>(*silence_s * 1e6));
  request.cancel = cancel;
  PythonWaits waits(landed);
  Answer reply = session.ask(request, waits);
  return nb::make_tuple(static_cast<int>(reply.outcome), static_cast<int>(reply.error), reply.value,
                        bytes_of(reply.body));
}

// The bytes of a key. They live as long as it.
std::string_view key_bytes(PyObject* key) {
  if (PyBytes_Check(key)) return {PyBytes_AS_STRING(key), static_cast<size_t>(Py_SIZE(key))};
  if (!PyUnicode_Check(key)) {
    PyErr_Format(PyExc_TypeError, "a key must be str or bytes, not %.100s: %.80R",
                 Py_TYPE(key)->tp_name, key);
    throw nb::python_error();
  }
  Py_ssize_t bytes = 0;
  const char* text = PyUnicode_AsUTF8AndSize(key, &bytes);
  if (text == nullptr) throw nb::python_error();
  return {text, static_cast<size_t>(bytes)};
}

// Runs no Python code once it has the list, so the list stays as it is.
nb::tuple pack_keys(const nb::object& keys) {
  const nb::object list = nb::steal(PySequence_Fast(keys.ptr(), "keys must be a sequence of keys"));
  if (!list.is_valid()) throw nb::python_error();
  const auto count = static_cast<size_t>(PySequence_Fast_GET_SIZE(list.ptr()));
  PyObject** items = PySequence_Fast_ITEMS(list.ptr());
  std::vector<std::string_view> texts(count);
  std::vector<uint32_t> lengths(count);
  size_t total = 0;
  for (size_t i = 0; i < count; ++i) {
    texts[i] = key_bytes(items[i]);
    if (texts[i].size() > UINT32_MAX) throw std::overflow_error("a key of 4 GiB or more");
    lengths[i] = static_cast<uint32_t>(texts[i].size());
    total += texts[i].size();
  }
  nb::object joined = nb::steal(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(total)));
  if (!joined.is_valid()) throw nb::python_error();
  char* to = PyBytes_AS_STRING(joined.ptr());
  for (const std::string_view text : texts) to = std::copy(text.begin(), text.end(), to);
  return nb::make_tuple(nb::bytes(lengths.data(), 4 * count), joined);
}

// The buffer protocol of a Mapping.
int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  const auto* mapping = nb::inst_ptr<Mapping>(self);
  return PyBuffer_FillInfo(view, self, mapping->base(), static_cast<Py_ssize_t>(mapping->bytes()),
                           0, flags);
}

uint64_t address_of(const nb::object& buffer) {
  Py_buffer view;
  if (PyObject_GetBuffer(buffer.ptr(), &view, PyBUF_SIMPLE) != 0) throw nb::python_error();
  const auto address = reinterpret_cast<uint64_t>(view.buf);
  PyBuffer_Release(&view);
  return address;
}

nb::object view_at(uint64_t address, uint64_t bytes) {
  return nb::steal(PyMemoryView_FromMemory(reinterpret_cast<char*>(address),
                                           static_cast<Py_ssize_t>(bytes), PyBUF_WRITE));
}

void raise_os_error(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const std::system_error& error) {
    const nb::object arguments = nb::make_tuple(error.code().value(), std::string(error.what()));
    PyErr_SetObject(PyExc_OSError, arguments.ptr());
  }
}

}  // namespace

NB_MODULE(_ipc, module) {
  nb::set_leak_warnings(false);
  nb::register_exception_translator(&raise_os_error);

  PyType_Slot slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)}, {0, nullptr}};
  const nb::class_<Mapping> mapping(module, "Mapping", nb::type_slots(slots));

  nb::class_<Segment>(module, "Segment")
      .def_static("create", &Segment::create, nb::arg("bytes"), nb::arg("name"))
      .def_static(
          "duplicate", [](int fd) { return std::make_shared<Segment>(Descriptor::duplicate(fd)); },
          nb::arg("fd"))
      .def_static(
          "open",
          [](const std::string& path) {
            return std::make_shared<Segment>(
                Descriptor(::open(path.c_str(), O_RDWR | O_CLOEXEC), path.c_str()));
          },
          nb::arg("path"))
      .def_static(
          "of_memory",
          [](int fd, uint64_t bytes, uint32_t kind, const nb::bytes& device,
             const nb::bytes& opaque) {
            ipc::RegisterDevice told;
            told.bytes = bytes;
            told.kind = kind;
            if (device.size() != told.device.size() || opaque.size() > told.opaque.size())
              throw std::invalid_argument(
                  "a device of " + std::to_string(device.size()) + " bytes and a handle of " +
                  std::to_string(opaque.size()) + ": a device has 16, and a handle at most 64");
            std::memcpy(told.device.data(), device.data(), device.size());
            std::memcpy(told.opaque.data(), opaque.data(), opaque.size());
            return std::make_shared<Segment>(Descriptor::duplicate(fd), told);
          },
          nb::arg("fd"), nb::arg("bytes"), nb::arg("kind"), nb::arg("device"), nb::arg("opaque"))
      .def("map", [](const Segment& segment) { return std::make_unique<Mapping>(segment); })
      .def_prop_ro("size_bytes", &Segment::bytes)
      .def_prop_ro("of_device", &Segment::of_device)
      .def_prop_ro("identity",
                   [](const Segment& segment) {
                     const FileIdentity identity = segment.identity();
                     return nb::make_tuple(identity.device, identity.inode);
                   })
      .def_prop_ro("quarantined", &Segment::quarantined)
      .def_prop_ro("lost", [](const Segment& segment) { return segment.file() < 0; });

  nb::class_<Hold>(module, "Hold").def_prop_ro("segment", &Hold::segment);

  nb::class_<Segments>(module, "Segments")
      .def(nb::init<>())
      .def("hold", &Segments::hold, nb::arg("segment"));

  nb::class_<Cancel>(module, "Cancel")
      .def(nb::init<>())
      .def("cancel", &Cancel::cancel)
      .def_prop_ro("cancelled", &Cancel::cancelled);
  // No constructor: a long chain of them would need a deep stack.
  module.def(
      "part_of",
      [](const std::shared_ptr<Cancel>& whole) { return std::make_shared<Cancel>(whole); },
      nb::arg("cancel"));

  nb::class_<Session>(module, "Session")
      .def(
          "__init__",
          [](Session* session, const nb::bytes& path, const nb::bytes& ns, const nb::bytes& name) {
            new (session) Session(text_of(path), text_of(ns), text_of(name));
          },
          nb::arg("path"), nb::arg("namespace_"), nb::arg("name"))
      .def("ask", &ask, nb::arg("op"), nb::arg("flags"), nb::arg("count"), nb::arg("body"),
           nb::arg("segments"), nb::arg("end"), nb::arg("silence_s").none(), nb::arg("caller"),
           nb::arg("landed").none(), nb::arg("cancel").none(), nb::arg("answer_by").none())
      .def(
          "place_to_wait",
          [](Session& session, double end_s, const std::shared_ptr<Cancel>& cancel) {
            PythonWaits waits;
            return session.place_to_wait(time_point(end_s), cancel.get(), waits);
          },
          nb::arg("end"), nb::arg("cancel"))
      .def("stop", &Session::stop)
      .def(
          "note_took",
          [](Session& session, int op, double seconds) {
            session.note_took(static_cast<ipc::TookOp>(op),
                              microseconds(static_cast<int64_t>(seconds * 1e6)));
          },
          nb::arg("op"), nb::arg("seconds"))
      .def(
          "sweep",
          [](Session& session, double end_s) {
            PythonWaits waits;
            session.sweep(time_point(end_s), waits);
          },
          nb::arg("end"))
      .def("close",
           [](Session& session) {
             PythonWaits waits;
             session.close(waits);
           })
      .def_prop_ro("closed", &Session::closed)
      .def_prop_ro("last_error",
                   [](const Session& session) { return bytes_of(session.last_error()); })
      .def_prop_ro("reconnects", &Session::reconnects)
      .def_prop_ro("has_notes", &Session::has_notes)
      .def("take_notes", [](Session& session) {
        std::vector<std::pair<bool, nb::bytes>> notes;
        for (const Session::Note& note : session.take_notes()) {
          notes.emplace_back(note.loud, bytes_of(note.text));
        }
        return notes;
      });

  const nb::class_<Slot> slot(module, "Slot");
  nb::class_<Slots>(module, "Slots")
      .def(nb::init<unsigned>(), nb::arg("count"))
      .def(
          "take",
          [](const std::shared_ptr<Slots>& of_all, double end_s) {
            PythonWaits waits;
            return Slot::take(of_all, time_point(end_s), waits);
          },
          nb::arg("end"));

  module.def("pack_keys", &pack_keys, nb::arg("keys"));
  module.def("address_of", &address_of, nb::arg("buffer"));
  module.def("view_at", &view_at, nb::arg("address"), nb::arg("bytes"));
  module.def("waited_s", [] { return std::chrono::duration<double>(t_waited).count(); });
  module.def("abandon_connections", &Connection::abandon_all);
}

}  // namespace peercached::client
