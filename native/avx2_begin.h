// The code between this header and avx2_end.h is compiled for AVX2. The rest of the file is not.
//
// Compiler flags for a whole file would also compile templates of the standard library for AVX2. The linker keeps
// one copy of each template instance, and might give the AVX2 copy to the kernels for older CPUs. Therefore:
// - include standard headers before this one;
// - give our functions between the two headers internal linkage (an unnamed namespace).
// tests/test_linkage.py checks both.
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,bmi,bmi2,popcnt"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,bmi,bmi2,popcnt")
#endif
