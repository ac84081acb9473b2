#include "roofline/kernels.h"

#include "base/clones.h"
#include "base/mem.h"
#include "base/rng.h"
#include "prof/clock.h"

#include <stdlib.h>
#include <string.h>

enum {
    LINE = 64,
    LANES = 16,
    ACCUMULATORS = 8,
    FMA_ROUNDS = 1000,
    MOST_LOADS = 1 << 12, /* of a sweep, and floats of each array: some tenths of a ms even in */
    MOST_FLOATS = 1 << 19 /* DRAM, so that many a sweep meets no other process */
};

typedef float vec __attribute__((vector_size(LINE)));

typedef struct line {
    const struct line *next;
    char pad[LINE - sizeof(void *)];
} line;

struct gw_kernel {
    gw_kernel_kind kind;
    float *memory;
    size_t n;              /* floats in it; CHASE: lines */
    const struct line *at; /* CHASE: where the last sweep ended */
    size_t from;           /* else: its float */
    volatile float sink;   /* what the compiler must not think nobody wants */
};

/* ---- fused multiply-adds in registers, as many at a time as the CPU can have under way, in the
 * widest vectors it has: the peak that a matrix product is held against ---- */

/* Two units of five cycles' latency want ten chains at least. */
enum { CHAINS = 14 };

/* y = y a + b, near its fixed point from the first round on: no overflow, no denormals. Volatile,
 * or the compiler would know the result. */
static volatile const float factor = 0.999f, summand = 0.001f, first = 0.9f;

typedef struct variant {
    float (*run)(uint64_t rounds);
    int lanes;
} variant;

/* One function an instruction set: VEC its register, SET and FMA its operations, STORE to memory.
 */
#define VARIANT(NAME, TARGET, VEC, LANES, SET, FMA, STORE)                                         \
    TARGET static float NAME(uint64_t rounds) {                                                    \
        VEC y[CHAINS], a = SET(factor), b = SET(summand);                                          \
        for (int c = 0; c < CHAINS; c++)                                                           \
            y[c] = SET(first);                                                                     \
        for (uint64_t r = 0; r < rounds; r++)                                                      \
            _Pragma("GCC unroll 14") for (int c = 0; c < CHAINS; c++) y[c] = FMA(y[c], a, b);      \
        float sum = 0, lane[LANES];                                                                \
        for (int c = 0; c < CHAINS; c++) {                                                         \
            STORE(lane, y[c]);                                                                     \
            for (int l = 0; l < LANES; l++)                                                        \
                sum += lane[l];                                                                    \
        }                                                                                          \
        return sum;                                                                                \
    }

#if defined(__x86_64__)

#include <immintrin.h>

VARIANT(fma_avx512, __attribute__((target("avx512f"))), __m512, 16, _mm512_set1_ps, _mm512_fmadd_ps,
        _mm512_storeu_ps)
VARIANT(fma_avx2, __attribute__((target("avx2,fma"))), __m256, 8, _mm256_set1_ps, _mm256_fmadd_ps,
        _mm256_storeu_ps)

#define PORTABLE_FMA(y, a, b) _mm_add_ps(_mm_mul_ps(y, a), b)
VARIANT(fma_portable, , __m128, 4, _mm_set1_ps, PORTABLE_FMA, _mm_storeu_ps)

static const variant *fma_best(void) {
    static const variant wide = {fma_avx512, 16}, middle = {fma_avx2, 8},
                         narrow = {fma_portable, 4};
    if (__builtin_cpu_supports("avx512f"))
        return &wide;
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? &middle : &narrow;
}

#elif defined(__ARM_NEON)

#include <arm_neon.h>

#define NEON_FMA(y, a, b) vfmaq_f32(b, y, a)
VARIANT(fma_neon, , float32x4_t, 4, vdupq_n_f32, NEON_FMA, vst1q_f32)

static const variant *fma_best(void) {
    static const variant neon = {fma_neon, 4};
    return &neon;
}

#else

#define SCALAR_FMA(y, a, b) ((y) * (a) + (b))
#define SAME(x)             (x)
#define PUT(to, x)          ((to)[0] = (x))
VARIANT(fma_portable, , float, 1, SAME, SCALAR_FMA, PUT)

static const variant *fma_best(void) {
    static const variant plain = {fma_portable, 1};
    return &plain;
}

#endif

/* ---- the other kernels; sweeps are counted inside, as a call a sweep would show on L1-sized
 * data ---- */

/* Nothing may be carried over from one sweep to the next. */
static inline void kernel_forget(void) {
    __asm__ volatile("" ::: "memory");
}

/* n: a multiple of LANES * ACCUMULATORS. */
GW_CLONES static float kernel_read_all(const float *x, size_t n, uint64_t sweeps) {
    const vec *v = (const vec *)x;
    vec sum[ACCUMULATORS] = {0};
    for (uint64_t s = 0; s < sweeps; s++, kernel_forget())
        for (size_t i = 0; i < n / LANES; i += ACCUMULATORS)
            for (int j = 0; j < ACCUMULATORS; j++)
                sum[j] += v[i + (size_t)j];
    float all = 0;
    for (int j = 0; j < ACCUMULATORS; j++)
        for (int l = 0; l < LANES; l++)
            all += sum[j][l];
    return all;
}

GW_CLONES static void kernel_update_all(float *restrict a, const float *restrict b, size_t n,
                                        uint64_t sweeps) {
    for (uint64_t s = 0; s < sweeps; s++, kernel_forget())
        for (size_t i = 0; i < n; i++)
            a[i] += 1e-6f * b[i];
}

/* ---- opening ---- */

static gw_err kernel_fill(gw_kernel *k, size_t bytes) {
    size_t unit = 2 * LANES * ACCUMULATORS; /* each half is read in whole vectors */
    if (k->kind == GW_KERNEL_CHASE) {
        k->n = bytes / LINE < UINT32_MAX ? bytes / LINE : UINT32_MAX;
        k->n = k->n < 2 ? 2 : k->n;
        uint32_t *order = NULL; /* of one cycle through all lines */
        GW_TRY(gw_alloc(&k->memory, k->n, LINE));
        GW_TRY(gw_alloc(&order, k->n, sizeof *order));
        for (size_t i = 0; i < k->n; i++)
            order[i] = (uint32_t)i;
        gw_rng_shuffle(k->n, order, (uint32_t)k->n);
        line *l = (line *)(void *)k->memory;
        for (size_t i = 0; i < k->n; i++)
            l[order[i]].next = &l[order[(i + 1) % k->n]];
        k->at = l;
        free(order);
        return GW_OK;
    }
    k->n = bytes / sizeof(float) / unit * unit;
    k->n = k->n < unit ? unit : k->n;
    GW_TRY(gw_alloc(&k->memory, k->n, sizeof *k->memory));
    for (size_t i = 0; i < k->n; i++)
        k->memory[i] = (float)(i % 61);
    return GW_OK;
}

gw_err gw_kernel_open(gw_kernel **out, gw_kernel_kind kind, size_t bytes) {
    gw_kernel *k = NULL;
    GW_TRY(gw_alloc(&k, 1, sizeof *k));
    k->kind = kind;
    gw_err e = kind == GW_KERNEL_FMA ? GW_OK : kernel_fill(k, bytes);
    GW_OPENED(e, out, k, gw_kernel_close);
}

void gw_kernel_close(gw_kernel *k) {
    if (!k)
        return;
    free(k->memory);
    free(k);
}

void gw_kernel_turn(gw_kernel *k, gw_kernel_kind kind) {
    k->kind = kind;
}

/* ---- running ---- */

static size_t kernel_loads(const gw_kernel *k) {
    return k->n < MOST_LOADS ? k->n : MOST_LOADS;
}

/* Floats of each array that a sweep covers. */
static size_t kernel_window(const gw_kernel *k) {
    size_t n = k->kind == GW_KERNEL_READ ? k->n : k->n / 2;
    return n < MOST_FLOATS ? n : MOST_FLOATS;
}

static void kernel_stream(gw_kernel *k, size_t from, size_t n, uint64_t sweeps) {
    float *a = k->memory + from;
    const float *b = k->kind == GW_KERNEL_READ ? NULL : a + k->n / 2;
    switch (k->kind) {
    case GW_KERNEL_READ: k->sink = kernel_read_all(a, n, sweeps); break;
    case GW_KERNEL_UPDATE: kernel_update_all(a, b, n, sweeps); break;
    default:
        for (; sweeps > 0; sweeps--, kernel_forget())
            memcpy(a, b, n * sizeof *a);
    }
}

/* What is larger than a window is walked through window by window, from sweep to sweep. */
static void kernel_stream_on(gw_kernel *k, uint64_t sweeps) {
    size_t n = k->kind == GW_KERNEL_READ ? k->n : k->n / 2, w = kernel_window(k);
    if (w == n) {
        kernel_stream(k, 0, n, sweeps);
        return;
    }
    for (; sweeps > 0; sweeps--) {
        size_t from = k->from + w <= n ? k->from : 0;
        kernel_stream(k, from, w, 1);
        k->from = from + w;
    }
}

double gw_kernel_run(gw_kernel *k, uint64_t sweeps) {
    const line *at = k->at;
    uint64_t start = gw_clock_ticks();
    switch (k->kind) {
    case GW_KERNEL_FMA: k->sink = fma_best()->run(sweeps * FMA_ROUNDS); break;
    case GW_KERNEL_CHASE:
        for (uint64_t loads = sweeps * kernel_loads(k); loads > 0; loads--)
            at = at->next;
        k->at = at;
        break;
    default: kernel_stream_on(k, sweeps); break;
    }
    return gw_clock_since(start);
}

double gw_kernel_work(const gw_kernel *k) {
    double n = (double)kernel_window(k), each = sizeof(float);
    switch (k->kind) {
    case GW_KERNEL_READ: return n * each;
    case GW_KERNEL_UPDATE: return 3 * n * each;
    case GW_KERNEL_COPY: return 2 * n * each;
    case GW_KERNEL_CHASE: return (double)kernel_loads(k);
    default: return 2.0 * CHAINS * fma_best()->lanes * FMA_ROUNDS; /* two a multiply-add */
    }
}

uint64_t gw_kernel_sweeps(gw_kernel *k, double seconds) {
    uint64_t sweeps = 1;
    for (;;) {
        double took = gw_kernel_run(k, sweeps);
        if (took >= seconds / 4) {
            double want = (double)sweeps * seconds / took;
            return want < 1 ? 1 : (uint64_t)want;
        }
        sweeps *= 2;
    }
}

double gw_kernel_rate(gw_kernel *k, int tries, double seconds) {
    uint64_t sweeps = gw_kernel_sweeps(k, seconds);
    double best = 0;
    for (int i = 0; i < tries; i++) {
        double rate = (double)sweeps * gw_kernel_work(k) / gw_kernel_run(k, sweeps);
        best = rate > best ? rate : best;
    }
    return best;
}
