// Everything from here to avx2_end.h is compiled for AVX2, and nothing else in the file is.
//
// Flags for whole files would also compile the standard library's templates for AVX2, and the linker, which
// keeps one copy of each, might hand that copy to the kernels for older CPUs. So: include standard headers
// before this one, and give every function of ours in between internal linkage.
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,bmi,bmi2,popcnt"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,bmi,bmi2,popcnt")
#endif
