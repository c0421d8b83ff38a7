// The code between this header and avx512_end.h is compiled for AVX-512. The rest of the file is not: see avx2_begin.h.
#if defined(__clang__)
#pragma clang attribute push( \
    __attribute__((target("avx2,fma,f16c,bmi,bmi2,popcnt,avx512f,avx512bw,avx512vl,avx512vnni"))), \
    apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,bmi,bmi2,popcnt,avx512f,avx512bw,avx512vl,avx512vnni")
#endif
