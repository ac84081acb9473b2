/** Elementwise kernels: one build that runs on any CPU of the architecture and uses its widest
 *  vectors, and the size from which on threads pay. */
#ifndef GW_BASE_CLONES_H
#define GW_BASE_CLONES_H

/** Compile a function once per instruction set; the loader picks (GNU ifunc). */
#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(GW_NO_CLONES)
#define GW_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define GW_CLONES
#endif

/** Below this many elements, waking threads costs an elementwise kernel more than it saves. */
enum { GW_PARALLEL_ELEMENTS = 1 << 15 };

#endif
