// READs without an engine around them, for the benchmark.

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <memory>

#include "bench/bare_reads.h"
#include "bindings/packed.h"

namespace peercached {

namespace {

using Buffer = nb::ndarray<uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

std::span<std::byte> bytes_of(const Buffer& buffer) {
  return {reinterpret_cast<std::byte*>(buffer.data()), buffer.size()};
}

rdma::BareReads::End port_named(const std::string& name, int gid_index) {
  rdma::RailPolicy policy;
  policy.device_names = {name};
  policy.gid_index = gid_index;
  return {rdma::choose_rails(rdma::list_ports(), policy).at(0), policy};
}

// Keeps the buffers as long as READs may be in flight.
class BoundBareReads {
 public:
  BoundBareReads(const std::string& source_port, int source_gid, const std::string& reader_port,
                 int reader_gid, Buffer source, Buffer dest, uint32_t read_bytes,
                 unsigned queue_pairs)
      : source_(std::move(source)),
        dest_(std::move(dest)),
        reads_(port_named(source_port, source_gid), port_named(reader_port, reader_gid),
               bytes_of(source_), bytes_of(dest_), read_bytes, queue_pairs) {}

  double read(uint64_t count) {
    nb::gil_scoped_release unlocked;
    return reads_.read(count);
  }

 private:
  Buffer source_, dest_;
  rdma::BareReads reads_;
};

}  // namespace

void bind_bare_reads(nb::module_& module) {
  nb::class_<BoundBareReads>(module, "BareReads")
      .def(nb::init<const std::string&, int, const std::string&, int, Buffer, Buffer, uint32_t,
                    unsigned>(),
           nb::arg("source_port"), nb::arg("source_gid"), nb::arg("reader_port"),
           nb::arg("reader_gid"), nb::arg("source"), nb::arg("dest"), nb::arg("read_bytes"),
           nb::arg("queue_pairs"))
      .def("read", &BoundBareReads::read, nb::arg("count"));
}

}  // namespace peercached
