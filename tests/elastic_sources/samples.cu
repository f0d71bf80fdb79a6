// Kernels of the usual kinds, for tests of their elastic forms.
#define ROW_OF(thread) (blockIdx.y * blockDim.y + (thread))
#define BARRIER() __syncthreads()
#define TILE 32

struct Scale {
  float by;
  __device__ float apply(float v) const { return v * by + gridDim.x; }
};

namespace places {
__device__ int first(int each);  // declared before it is defined
__device__ inline int linear() { return first(blockDim.x) + threadIdx.x; }
__device__ int first(int each) { return blockIdx.x * each; }
}  // namespace places

template <typename T> __device__ T sum_of_block(T v, T *part) {
  part[threadIdx.x] = v;
  __syncthreads();
  for (unsigned half = blockDim.x / 2; half; half /= 2) {
    if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
    __syncthreads();
  }
  return part[0];
}

extern "C" __global__ void __launch_bounds__(64) reduce(const float *a, float *out, int n) {
  extern __shared__ float part[];
  const int i = places::linear();
  const float sum = sum_of_block<float>(i < n ? a[i] : 0.0f, part);
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

__global__ void scan(const int *a, int *out, int n) {
  __shared__ int line[2][64];
  int i = blockIdx.x * 64 + threadIdx.x, side = 0;
  line[0][threadIdx.x] = i < n ? a[i] : 0;
  for (int by = 1; by < 64; by *= 2) {
    __syncthreads();
    const int t = threadIdx.x;
    line[1 - side][t] = line[side][t] + (t >= by ? line[side][t - by] : 0);
    side = 1 - side;
  }
  if (i < n) out[i] = line[side][threadIdx.x];
}

__global__ void transpose(const float *a, float *out, int columns, int rows) {
  __shared__ float tile[TILE][TILE];
  int x = blockIdx.x * TILE + threadIdx.x;
  for (int y = threadIdx.y; y < TILE; y += blockDim.y)
    if (x < columns && blockIdx.y * TILE + y < rows)
      tile[y][threadIdx.x] = a[(blockIdx.y * TILE + y) * columns + x];
  __syncthreads();
  x = blockIdx.y * TILE + threadIdx.x;
  for (int y = threadIdx.y; y < TILE; y += blockDim.y)
    if (x < rows && blockIdx.x * TILE + y < columns)
      out[(blockIdx.x * TILE + y) * rows + x] = tile[threadIdx.x][y];
}

// A matrix times its own transpose: threads of a warp read a column of the staged rows.
__global__ void gram(const float *a, float *out, int n, int depth) {
  __shared__ float other[TILE][TILE];
  const int row = ROW_OF(threadIdx.y), first = blockIdx.x * TILE, column = first + threadIdx.x;
  float sum = 0;
  for (int k = 0; k < depth; k += TILE) {
    for (int y = threadIdx.y; y < TILE; y += blockDim.y)
      other[y][threadIdx.x] =
          first + y < n && k + threadIdx.x < depth ? a[(first + y) * depth + k + threadIdx.x] : 0;
    __syncthreads();
    for (int i = 0; i < TILE && k + i < depth && row < n; i++)
      sum += a[row * depth + k + i] * other[threadIdx.x][i];
    __syncthreads();
  }
  if (row < n && column < n) out[row * n + column] = sum;
}

__global__ void histogram(const unsigned char *a, unsigned *bins, int n) {
  __shared__ unsigned own[256];
  for (int b = threadIdx.x; b < 256; b += blockDim.x) own[b] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    atomicAdd(&own[a[i]], 1u);
  __syncthreads();
  for (int b = threadIdx.x; b < 256; b += blockDim.x) atomicAdd(&bins[b], own[b]);
}

__global__ void stencil(const float *a, float *out, dim3 size) {
  const unsigned x = blockIdx.x * blockDim.x + threadIdx.x, y = ROW_OF(threadIdx.y);
  const unsigned z = blockIdx.z * blockDim.z + threadIdx.z;
  if (x >= size.x || y >= size.y || z >= size.z) return;
  const unsigned i = (z * size.y + y) * size.x + x;
  float sum = a[i];
  if (x > 0) sum += a[i - 1];
  if (y > 0) sum += a[i - size.x];
  if (z > 0) sum += a[i - size.x * size.y];
  out[i] = sum;
}

// Threads beyond the last body load with the others, and store nothing.
__global__ void bodies(const float4 *at, float4 *force, int n) {
  __shared__ float4 some[32];
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const float4 own = i < n ? at[i] : make_float4(0, 0, 0, 0);
  float4 sum = make_float4(0, 0, 0, 0);
  for (int first = 0; first < n; first += 32) {
    for (int j = threadIdx.x; j < 32 && first + j < n; j += blockDim.x) some[j] = at[first + j];
    BARRIER();
    for (int j = 0; j < 32 && first + j < n; j++) {
      const float dx = some[j].x - own.x, dy = some[j].y - own.y;
      const float r = rsqrtf(dx * dx + dy * dy + 0.01f);
      sum.x += dx * r * r * r, sum.y += dy * r * r * r;
    }
    BARRIER();
  }
  if (i < n) force[i] = sum;
}

// A part of a warp returns before the others shuffle.
__global__ void softmax(const float *a, float *out, int rows, int columns) {
  const int group = threadIdx.x / 8, lane = threadIdx.x % 8;
  const int row = blockIdx.x * (blockDim.x / 8) + group;
  if (row >= rows) return;
  float most = -3e38f, sum = 0;
  for (int c = lane; c < columns; c += 8) most = fmaxf(most, a[row * columns + c]);
  for (int by = 4; by; by /= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffff, most, by));
  for (int c = lane; c < columns; c += 8) sum += expf(a[row * columns + c] - most);
  for (int by = 4; by; by /= 2) sum += __shfl_xor_sync(0xffffffff, sum, by);
  for (int c = lane; c < columns; c += 8)
    out[row * columns + c] = expf(a[row * columns + c] - most) / sum;
}

template <typename T, int SIZE>
__global__ void __launch_bounds__(SIZE *SIZE)
    gemm(const T *__restrict__ a, const T *__restrict__ b, T *__restrict__ c, int m, int k, int n) {
  __shared__ T left[SIZE][SIZE], right[SIZE][SIZE];
  const int row = blockIdx.y * SIZE + threadIdx.y, column = blockIdx.x * SIZE + threadIdx.x;
  T sum = 0;
  for (int at = 0; at < k; at += SIZE) {
    left[threadIdx.y][threadIdx.x] =
        row < m && at + threadIdx.x < k ? a[row * k + at + threadIdx.x] : T(0);
    right[threadIdx.y][threadIdx.x] =
        column < n && at + threadIdx.y < k ? b[(at + threadIdx.y) * n + column] : T(0);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < SIZE; i++) sum += left[threadIdx.y][i] * right[i][threadIdx.x];
    __syncthreads();
  }
  if (row < m && column < n) c[row * n + column] = sum;
}

// Barriers that ask, met by those that are left.
__global__ void votes(const int *a, int *out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  for (int round = 0; round < 4; round++) {
    const bool mine = i + round * 7 < n;
    const int any = __syncthreads_or(mine && a[i] == round);
    const int all = __syncthreads_and(!mine || a[i] >= 0);
    const int count = __syncthreads_count(mine && a[i] > round);
    if (mine) out[i] += any + 2 * all + 4 * count;
  }
}

__device__ unsigned arrived = 0;

// The last block to arrive adds what all blocks left.
__global__ void last_block(const int *a, int *part, int *out, int n) {
  __shared__ int own[32];
  __shared__ bool last;
  const int i = places::linear();
  const int sum = sum_of_block(i < n ? a[i] : 0, own);
  if (threadIdx.x == 0) {
    part[blockIdx.x] = sum;
    __threadfence();
    last = atomicInc(&arrived, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (!last || threadIdx.x) return;
  int all = 0;
  for (unsigned b = 0; b < gridDim.x; b++) all += part[b];
  *out = all;
}

__device__ void add_slowly(double *to, double v) {
  unsigned long long *const bits = (unsigned long long *)to;
  unsigned long long old = *bits, expected;
  do {
    expected = old;
    double sum;
    memcpy(&sum, &expected, sizeof(sum));
    sum += v;
    unsigned long long made;
    memcpy(&made, &sum, sizeof(sum));
    old = atomicCAS(bits, expected, made);
  } while (old != expected);
}

__device__ int lock = 0;

__global__ void by_hand(const int *a, double *sum, int *most, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) add_slowly(sum, a[i]);
  if (threadIdx.x == 0 && i < n) {
    while (atomicCAS(&lock, 0, 1) != 0) {
    }
    *most = max(*most, a[i]);
    __threadfence();
    atomicExch(&lock, 0);
  }
}

__global__ void scaled(float *a, const Scale scale, int n, int, float by = 2) {
  const dim3 own = blockIdx;
  const auto place = [&](int each) { return own.x * each + threadIdx.x + 0 * blockIdx.x; };
  const int i = place(blockDim.x);
  switch (i % 3) {
    case 0:
      if (i >= n) return;
      a[i] = scale.apply(a[i]) * by;
      break;
    default:
      if (i < n) a[i] = -a[i];
  }
}

template <int BY> __global__ void shifted(int *a, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) a[i] += BY;
}
template <> __global__ void shifted<1>(int *a, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) a[i] ^= 1;
}

// All threads of a block return together, so nobody needs to be waited for.
__global__ void triangle(const float *a, float *out, int n) {
  __shared__ float line[32];
  if (blockIdx.x > blockIdx.y) return;
  const int steps = blockIdx.y - blockIdx.x;
  for (int s = 0; s <= steps; s++) {
    if (s > 3) return;
    line[threadIdx.x] = a[(blockIdx.x + s) * n + threadIdx.x % n];
    __syncthreads();
    out[(blockIdx.y * gridDim.x + blockIdx.x) * 32 + threadIdx.x] += line[31 - threadIdx.x];
    __syncthreads();
  }
}
