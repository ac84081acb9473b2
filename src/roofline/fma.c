#include "roofline/fma.h"

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
VARIANT(portable, , __m128, 4, _mm_set1_ps, PORTABLE_FMA, _mm_storeu_ps)

static const variant *best(void) {
    static const variant wide = {fma_avx512, 16}, middle = {fma_avx2, 8}, narrow = {portable, 4};
    if (__builtin_cpu_supports("avx512f"))
        return &wide;
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? &middle : &narrow;
}

#elif defined(__ARM_NEON)

#include <arm_neon.h>

#define NEON_FMA(y, a, b) vfmaq_f32(b, y, a)
VARIANT(fma_neon, , float32x4_t, 4, vdupq_n_f32, NEON_FMA, vst1q_f32)

static const variant *best(void) {
    static const variant neon = {fma_neon, 4};
    return &neon;
}

#else

#define SCALAR_FMA(y, a, b) ((y) * (a) + (b))
#define SAME(x)             (x)
#define PUT(to, x)          ((to)[0] = (x))
VARIANT(portable, , float, 1, SAME, SCALAR_FMA, PUT)

static const variant *best(void) {
    static const variant plain = {portable, 1};
    return &plain;
}

#endif

float gw_fma_run(uint64_t rounds) {
    return best()->run(rounds);
}

double gw_fma_flops(void) {
    return 2.0 * CHAINS * best()->lanes;
}
