// Cooperative groups within a block: the block itself, and tiles of a warp.
//
// Input: what threads.h and cuda.h define.  It has no groups of several blocks: those cannot be
// waited for here, where blocks run one after the other.
#pragma once

namespace cooperative_groups {

struct thread_block {
  void sync() const { __syncthreads(); }
  static unsigned size() { return blockDim.x * blockDim.y * blockDim.z; }
  static unsigned num_threads() { return size(); }
  static unsigned thread_rank() { return cuda_cpu::now->number; }
  static dim3 group_index() { return blockIdx; }
  static dim3 thread_index() { return threadIdx; }
  static dim3 group_dim() { return blockDim; }
  static dim3 dim_threads() { return blockDim; }
};
inline thread_block this_thread_block() { return {}; }

template <unsigned N, class Parent = void> struct thread_block_tile {
  static_assert(N <= cuda_cpu::WARP, "tiles of several warps are not known on the CPU");
  static unsigned size() { return N; }
  static unsigned num_threads() { return N; }
  static unsigned thread_rank() { return cuda_cpu::lane() % N; }
  static unsigned meta_group_rank() { return cuda_cpu::now->number / N; }
  static unsigned meta_group_size() { return (thread_block::size() + N - 1) / N; }
  static unsigned first() { return cuda_cpu::lane() / N * N; }
  static unsigned mask() { return (N == cuda_cpu::WARP ? ~0u : (1u << N % 32) - 1) << first(); }
  void sync() const { __syncwarp(mask()); }
  template <class T> T shfl(T v, unsigned rank) const { return __shfl_sync(mask(), v, rank, N); }
  template <class T> T shfl_up(T v, unsigned by) const { return __shfl_up_sync(mask(), v, by, N); }
  template <class T> T shfl_down(T v, unsigned by) const {
    return __shfl_down_sync(mask(), v, by, N);
  }
  template <class T> T shfl_xor(T v, unsigned by) const {
    return __shfl_xor_sync(mask(), v, by, N);
  }
  int any(int p) const { return __any_sync(mask(), p); }
  int all(int p) const { return __all_sync(mask(), p); }
  unsigned ballot(int p) const { return __ballot_sync(mask(), p) >> first(); }
};
template <unsigned N, class G> thread_block_tile<N, G> tiled_partition(const G &) { return {}; }
template <class G> void sync(const G &group) { group.sync(); }

}  // namespace cooperative_groups
