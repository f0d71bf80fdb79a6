#define SIZE 64

__device__ int place(int each) { return blockIdx.x * each + threadIdx.x; }
__device__ int place_tw(const tilewright::Tile &tw_tile, int each) { return tw_tile.tw_block.x * each + threadIdx.x; }

template <typename T> __global__ void __launch_bounds__(SIZE) sums(const T *a, T *out, int n = 0) {
  __shared__ T part[SIZE];
  const int i = place(SIZE);
  part[threadIdx.x] = i < n ? a[i] : T(0);
  __syncthreads();
  if (threadIdx.x == 0) out[blockIdx.x] = part[0] + part[(n - 1) % SIZE];
}
// ---- elastic forms of sums
template <typename T>
__device__ __forceinline__ void sums_tw(const tilewright::Tile tw_tile, const T *a, T *out, int n) {
  __shared__ T part[SIZE];
  const int i = place_tw(tw_tile, SIZE);
  part[threadIdx.x] = i < n ? a[i] : T(0);
  __syncthreads();
  if (threadIdx.x == 0) out[tw_tile.tw_block.x] = part[0] + part[(n - 1) % SIZE];
}
template <typename T> __global__ void __launch_bounds__(SIZE) sums_elastic(const T *a, T *out, int n, const tilewright::TileRange tw_shard, const tilewright::Turn tw_turn) {
  __shared__ int tw_tasks[2][3];
  tilewright::Worker tw_worker = tilewright::tw_begin(tw_turn, tw_tasks[0]);
  __syncthreads();
  for (int tw_side = 0;; tw_side ^= 1) {
    const int tw_own = tw_tasks[tw_side][0];
    if (tw_own < 0) return;
    tilewright::tw_ahead(tw_turn, tw_worker, tw_own);
    unsigned tw_number = tilewright::tw_first(tw_shard, tw_own);
    const unsigned tw_end = tilewright::tw_end_of(tw_shard, tw_number);
    tilewright::Tile tw_at = tilewright::tw_tile_of(tw_shard, tw_number);
    for (;;) {
      sums_tw<T>(tw_at, a, out, n);
      if (++tw_number >= tw_end) break;
      __syncthreads();
      tilewright::tw_advance(tw_at, tw_shard, tw_number);
    }
    tilewright::tw_next(tw_turn, tw_tasks[tw_side ^ 1], tw_worker, tw_own);
    __syncthreads();
    tilewright::tw_finish(tw_turn, tw_tasks[tw_side ^ 1], tw_worker);
  }
}
template <typename T> __global__ void __launch_bounds__(SIZE) sums_slice(const T *a, T *out, int n, const tilewright::TileRange tw_shard) {
  for (unsigned tw_number = tilewright::tw_begin(tw_shard);
       tilewright::tw_within(tw_shard, tw_number); tw_number += tilewright::tw_step()) {
    const tilewright::Tile tw_at = tilewright::tw_tile_of(tw_shard, tw_number);
    sums_tw<T>(tw_at, a, out, n);
    __syncthreads();
  }
}

