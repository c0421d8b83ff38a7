// Ends the region that avx512_begin.h begins.
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
