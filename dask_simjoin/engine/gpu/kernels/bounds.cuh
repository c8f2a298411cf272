// Bounds on the weights of edges, which many threads lower.

// Weights are not negative, so their bits, as integers, have the same order as the weights.
__device__ __forceinline__ u64 bits_of(double weight) { return (u64)__double_as_longlong(weight); }

// Lowers a bound. Most weights are no lower, and do not have to wait for others that lower the same bound.
__device__ __forceinline__ void lower_bound(u64* bound, u64 weight) {
    if (weight < *(volatile u64*)bound) atomicMin(bound, weight);
}
