// One definition for the CPU and the GPU. Files that include this are built without floating-point contraction
// (-ffp-contract=off, --fmad=false) and say fma where they mean it, so that both sides compute the same bits.
#pragma once

#ifdef __CUDACC__
#define VOX_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define VOX_HOST_DEVICE inline
#endif
