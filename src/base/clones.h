/** One build that runs on any processor of the architecture and still uses the widest vectors of
 *  the one it meets. */
#ifndef GW_BASE_CLONES_H
#define GW_BASE_CLONES_H

/** Compile a function once per instruction set; the loader picks (GNU ifunc). */
#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(GW_NO_CLONES)
#define GW_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define GW_CLONES
#endif

#endif
