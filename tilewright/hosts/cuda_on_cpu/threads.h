// The threads of a CUDA block on one thread of the CPU: each is a fiber that runs until it waits.
//
// Input: a grid, a block and a callable that is the kernel.  Output: its effects on memory, or what
// is wrong with it: threads that wait at different barriers.  Blocks are dealt to several threads of
// the CPU.  It is for checking what kernels compute; it says nothing about their speed.
#pragma once

#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ucontext.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  constexpr operator uint3() const { return {x, y, z}; }
};

namespace cuda_cpu {

constexpr unsigned WARP = 32;
constexpr size_t STACK = 128 << 10;

enum class State { ready, barrier, warp, done };

// What the lanes of a mask give each other.  Two boards by turns: nobody writes the next but one
// before all have read this one.
struct Exchange {
  uint64_t board[2][WARP] = {};
  unsigned turn[WARP] = {};
};

struct Block;

struct Fiber {
  ucontext_t start;
  std::unique_ptr<char[]> stack;
  jmp_buf here;
  bool begun = false;
  State state = State::done;
  uint3 thread{};
  unsigned number = 0;
  bool predicate = false;
  Block *block = nullptr;
};

struct Block {
  uint3 index{};
  dim3 threads, grid;
  unsigned count = 0, live = 0, waiting = 0, processor = 0;
  bool progress = false;
  int any = 0, all = 0, sum = 0;
  std::map<uint64_t, Exchange> exchanges;
  std::vector<std::unique_ptr<Fiber>> fibers;
  std::vector<std::max_align_t> dynamic;
  const std::function<void()> *body = nullptr;
  jmp_buf scheduler;
};

inline thread_local Fiber *now = nullptr;

// Back to the scheduler, which goes on here when it is this fiber's turn again.
inline void rest() {
  Fiber *self = now;
  if (!_setjmp(self->here)) _longjmp(self->block->scheduler, 1);
}

inline void enter(unsigned high, unsigned low) {
  Fiber *self = reinterpret_cast<Fiber *>(uint64_t(high) << 32 | low);
  for (;;) {  // a fiber serves one block after the other
    (*self->block->body)();
    self->state = State::done;
    self->block->live--;
    rest();
  }
}

inline void go(Block &block, Fiber &fiber) {
  now = &fiber;
  if (_setjmp(block.scheduler)) return;
  if (fiber.begun) _longjmp(fiber.here, 1);
  fiber.begun = true;
  fiber.stack = std::make_unique<char[]>(STACK);
  getcontext(&fiber.start);
  fiber.start.uc_stack.ss_sp = fiber.stack.get();
  fiber.start.uc_stack.ss_size = STACK;
  fiber.start.uc_link = nullptr;
  uint64_t address = reinterpret_cast<uint64_t>(&fiber);
  makecontext(&fiber.start, reinterpret_cast<void (*)()>(enter), 2, unsigned(address >> 32),
              unsigned(address));
  setcontext(&fiber.start);
}

// All threads that have not ended wait at the barrier: they go on.
inline void release(Block &block) {
  block.any = 0, block.all = 1, block.sum = 0;
  for (auto &fiber : block.fibers) {
    if (fiber->state != State::barrier) continue;
    fiber->state = State::ready;
    block.any |= fiber->predicate, block.all &= fiber->predicate, block.sum += fiber->predicate;
  }
  block.waiting = 0;
}

// Runs one block to its end; "" or what is wrong.
inline std::string run(Block &block) {
  block.live = block.count, block.waiting = 0;
  block.exchanges.clear();
  while (block.fibers.size() < block.count) block.fibers.push_back(std::make_unique<Fiber>());
  for (unsigned n = 0; n < block.fibers.size(); n++) {
    Fiber &fiber = *block.fibers[n];
    if (n >= block.count) {
      fiber.state = State::done;
      continue;
    }
    fiber.block = &block, fiber.number = n, fiber.state = State::ready;
    const dim3 &t = block.threads;
    fiber.thread = {n % t.x, n / t.x % t.y, n / (t.x * t.y)};
  }
  while (block.live) {
    block.progress = false;
    for (unsigned n = 0; n < block.count; n++) {
      Fiber &fiber = *block.fibers[n];
      if (fiber.state == State::done || fiber.state == State::barrier) continue;
      if (fiber.state == State::ready) block.progress = true;
      go(block, fiber);
    }
    if (block.live && block.waiting == block.live) {
      release(block);
    } else if (!block.progress) {
      return "threads of a block wait at different barriers, or for lanes that have ended";
    }
  }
  return "";
}

// A barrier of the block.
inline Block &meet(bool predicate) {
  now->predicate = predicate;
  now->state = State::barrier;
  now->block->waiting++;
  rest();
  return *now->block;
}

inline unsigned lane() { return now->number % WARP; }

// Every lane of the mask gives a value; what they gave, by lane.  Lanes that have ended give 0.
inline const uint64_t *exchange(unsigned mask, uint64_t value) {
  Block &block = *now->block;
  unsigned first = now->number - lane();
  Exchange &all = block.exchanges[uint64_t(first) << 32 | mask];
  unsigned turn = ++all.turn[lane()];
  all.board[turn & 1][lane()] = value;
  auto missing = [&] {
    for (unsigned n = 0; n < WARP && first + n < block.count; n++) {
      bool asked = mask >> n & 1 && block.fibers[first + n]->state != State::done;
      if (asked && all.turn[n] < turn) return true;
    }
    return false;
  };
  while (missing()) {
    now->state = State::warp;
    rest();
  }
  if (now->state == State::warp) block.progress = true;
  now->state = State::ready;
  return all.board[turn & 1];
}

template <class T> T from_lane(unsigned mask, T value, unsigned source) {
  static_assert(sizeof(T) <= sizeof(uint64_t));
  uint64_t bits = 0;
  memcpy(&bits, &value, sizeof(T));
  const uint64_t *given = exchange(mask, bits);
  T found;
  memcpy(&found, &given[source], sizeof(T));
  return found;
}

inline void *dynamic() { return now->block->dynamic.data(); }

// Runs a kernel: blocks in order, by several processors, each with one block at a time.
inline std::string launch(dim3 grid, dim3 threads, size_t shared, unsigned processors,
                          const std::function<void()> &body) {
  std::atomic<uint64_t> next{0};
  std::vector<std::string> wrong(processors);
  uint64_t total = uint64_t(grid.x) * grid.y * grid.z;
  auto work = [&](unsigned processor) {
    Block block;
    block.threads = threads, block.grid = grid, block.processor = processor, block.body = &body;
    block.count = threads.x * threads.y * threads.z;
    block.dynamic.resize(shared / sizeof(std::max_align_t) + 1);
    for (uint64_t n; wrong[processor].empty() && (n = next++) < total;) {
      block.index = {unsigned(n % grid.x), unsigned(n / grid.x % grid.y),
                     unsigned(n / (uint64_t(grid.x) * grid.y))};
      wrong[processor] = run(block);
    }
  };
  std::vector<std::thread> others;
  for (unsigned n = 1; n < processors; n++) others.emplace_back(work, n);
  work(0);
  for (auto &other : others) other.join();
  for (auto &found : wrong)
    if (!found.empty()) return found;
  return "";
}

template <class... A, size_t... I>
void call(void (*kernel)(A...), void **args, std::index_sequence<I...>) {
  kernel(*static_cast<std::decay_t<A> *>(args[I])...);
}

// As cuLaunchKernel: args are pointers to the values of the parameters.  Null, or what is wrong.
template <class... A>
const char *start(void (*kernel)(A...), const unsigned *shape, size_t shared, unsigned processors,
                  void **args) {
  static thread_local std::string message;
  dim3 grid(shape[0], shape[1], shape[2]), threads(shape[3], shape[4], shape[5]);
  message = launch(grid, threads, shared, processors,
                   [&] { call(kernel, args, std::index_sequence_for<A...>()); });
  return message.empty() ? nullptr : message.c_str();
}

}  // namespace cuda_cpu

#define threadIdx (cuda_cpu::now->thread)
#define blockIdx (cuda_cpu::now->block->index)
#define blockDim (cuda_cpu::now->block->threads)
#define gridDim (cuda_cpu::now->block->grid)
#define warpSize 32

// Makes a kernel callable from outside, by the name run_NAME.
#define CUDA_CPU_EXPORT(name, ...)                                                          \
  extern "C" const char *run_##name(const unsigned *shape, size_t shared, unsigned workers, \
                                    void **args) {                                          \
    return cuda_cpu::start(__VA_ARGS__, shape, shared, workers, args);                      \
  }
