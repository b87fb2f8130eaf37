/* For kernels: loops that become straight code, functions that become part of their callers. */
#pragma once

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 64")
#endif
#define ALWAYS_INLINE static inline __attribute__((always_inline))
