// torch's symmetric memory in a symmetric heap. symm_mem.py compiles this against the torch that is installed.
//
// torch asks Allocator for memory, and for the Memory of each tensor that it communicates by. What needs to know the heap is
// in symm_mem.py, the object `door` here. No mutex is held while Python is called: threads may hold its lock and want ours.

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/distributed/c10d/symm_mem/SymmetricMemory.hpp>

namespace py = pybind11;
using namespace c10d::symmetric_memory;
using Name = std::optional<std::string>;
using Number = std::uintptr_t;

template <class Result = void, class... Arguments>
Result ask(PyObject* whom, const char* what, Arguments... arguments) {
  py::gil_scoped_acquire lock;
  py::object answer = py::handle(whom).attr(what)(arguments...);
  if constexpr (!std::is_void_v<Result>) return answer.cast<Result>();
}

static std::vector<void*> pointers(py::object numbers) {
  std::vector<void*> found;
  for (Number each : numbers.cast<std::vector<Number>>()) found.push_back(reinterpret_cast<void*>(each));
  return found;
}

class Memory : public SymmetricMemory {
 public:
  // given: a Memory of symm_mem.py, which is never released: torch keeps its last Memory longer than the interpreter lives
  Memory(py::object given, c10::Device device)
      : ours(given.inc_ref().ptr()), rank(given.attr("rank").cast<int>()), pes(given.attr("pes").cast<std::vector<int>>()),
        buffers(pointers(given.attr("buffers"))), pads(pointers(given.attr("pads"))),
        table(reinterpret_cast<void**>(given.attr("table_address").cast<Number>())), device(device) {}

  std::vector<void*> get_buffer_ptrs() override { return buffers; }
  std::vector<void*> get_signal_pad_ptrs() override { return pads; }
  void** get_buffer_ptrs_dev() override { return table; }
  void** get_signal_pad_ptrs_dev() override { return table + pes.size(); }
  size_t get_buffer_size() override { return ask<size_t>(ours, "buffer_size"); }
  size_t get_offset() override { return 0; }
  bool has_multicast_support() override { return false; }
  void* get_multicast_ptr() override { return nullptr; }
  void barrier(int channel, size_t timeout_ms) override { ask(ours, "barrier", channel, timeout_ms); }
  void put_signal(int rank, int channel, size_t timeout_ms) override { ask(ours, "put_signal", rank, channel, timeout_ms); }
  void wait_signal(int rank, int channel, size_t timeout_ms) override { ask(ours, "wait_signal", rank, channel, timeout_ms); }
  int get_rank() override { return rank; }
  int get_world_size() override { return static_cast<int>(pes.size()); }
  c10::Device get_device() override { return device; }
  const std::vector<int>& get_rank_to_global_rank() override { return pes; }
  bool world_within_direct_access() override { return true; }

 private:
  PyObject* ours;
  int rank;
  std::vector<int> pes;
  std::vector<void*> buffers, pads;
  void** table;
  c10::Device device;
};

class Allocator : public SymmetricMemoryAllocator {
 public:
  Allocator(py::object door, c10::Device device) : door(door.inc_ref().ptr()), device(device) {}

  void* alloc(size_t size, int, const Name& group) override {
    auto place = reinterpret_cast<void*>(ask<Number>(door, "allocate", size));
    std::lock_guard<std::mutex> lock(mutex);
    blocks[place] = {size, group};
    return place;
  }

  // A tensor has died, perhaps after the interpreter. The heap gets its memory back when all PEs allocate again.
  void free(void* place) override {
    std::lock_guard<std::mutex> lock(mutex);
    dropped.insert(place);
  }

  size_t get_alloc_size(void* place) override {
    std::lock_guard<std::mutex> lock(mutex);
    auto found = blocks.find(place);
    TORCH_CHECK(found != blocks.end(), "get_alloc_size: ", place, " is no memory that torch has allocated in the symmetric heap");
    return found->second.first;
  }

  // Null for memory that is not symmetric: torch's operators then copy what they are given.
  c10::intrusive_ptr<SymmetricMemory> rendezvous(void* place, const Name& group) override {
    std::pair<void*, std::string> key(place, group.value_or(""));
    {
      std::lock_guard<std::mutex> lock(mutex);
      if (!group && blocks.count(place)) key.second = blocks[place].second.value_or("");
      if (auto found = known.find(key); found != known.end()) return found->second;
    }
    py::gil_scoped_acquire gil;
    auto given = ask<py::object>(door, "memory", reinterpret_cast<Number>(place), key.second);
    if (given.is_none()) return nullptr;
    auto made = c10::make_intrusive<Memory>(given, device);
    std::lock_guard<std::mutex> lock(mutex);
    return known[key] = std::move(made);
  }

  bool has_multicast_support(int) override { return false; }
  c10::DeviceType supported_device_type() override { return device.type(); }
  std::string name() override { return "PYSHMEM"; }
  bool has_allocation(void* place) { return ask<bool>(door, "holds", reinterpret_cast<Number>(place)); }

  // What has been freed and is used by no Memory that a program still has.
  std::vector<Number> unused() {
    std::lock_guard<std::mutex> lock(mutex);
    auto left = dropped;
    for (auto& [key, memory] : known)
      if (memory.use_count() > 1) left.erase(key.first);
    std::vector<Number> found;
    for (void* place : left) found.push_back(reinterpret_cast<Number>(place));
    return found;
  }

  void forget(Number place) {
    std::lock_guard<std::mutex> lock(mutex);
    dropped.erase(reinterpret_cast<void*>(place));
    blocks.erase(reinterpret_cast<void*>(place));
  }

 private:
  PyObject* door;
  c10::Device device;
  std::mutex mutex;
  std::map<void*, std::pair<size_t, Name>> blocks;
  std::set<void*> dropped;
  std::map<std::pair<void*, std::string>, c10::intrusive_ptr<SymmetricMemory>> known;
};

// Makes torch allocate by `door`; the functions that it returns are unused and forget.
static py::tuple take_over(py::object door, const std::string& type, int index) {
  c10::Device device(type);
  if (device.type() != c10::DeviceType::CPU) device = c10::Device(device.type(), static_cast<c10::DeviceIndex>(index));
  auto allocator = c10::make_intrusive<Allocator>(door, device);
  register_allocator(device.type(), allocator);
  return py::make_tuple(
      py::cpp_function([allocator] { return allocator->unused(); }),
      py::cpp_function([allocator](Number place) { allocator->forget(place); }));
}

PYBIND11_MODULE(_symm_mem, module) {
  module.def("take_over", &take_over);
  module.def("pad_bytes", [] { return get_signal_pad_size(); });
}
