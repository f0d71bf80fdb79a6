#define SIZE 64

__device__ int place(int each) { return blockIdx.x * each + threadIdx.x; }

template <typename T> __global__ void __launch_bounds__(SIZE) sums(const T *a, T *out, int n = 0) {
  __shared__ T part[SIZE];
  const int i = place(SIZE);
  part[threadIdx.x] = i < n ? a[i] : T(0);
  __syncthreads();
  if (threadIdx.x == 0) out[blockIdx.x] = part[0] + part[(n - 1) % SIZE];
}
