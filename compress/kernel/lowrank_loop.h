/* The loops of lowrank.h in vectors of WIDTH floats. Each level includes them and defines TARGET,
 * WIDTH and ROWS(r): how many rows to take at a time with r factors, as many as its registers hold
 * sums for. Multiplications and additions are separate statements, which a conforming ISO C
 * compiler does not fuse. */
#include "compress/kernel/lowrank.h"
#include "compress/kernel/vec.h"

enum { MOST_ROWS = 4, GROUP = 8, TALL = 8 };
enum { SUBTRACT = 1, ADD = 2, MULTIPLY = 4 };

typedef vf uvec __attribute__((aligned(4), may_alias)); /* in memory */

/* r factors of a matrix for R of its rows: pointers to the first, and the strides to the next. */
typedef struct rows_of {
    float *m;
    const float *add, *q, *own;
    size_t m_step, q_step;
} rows_of;

/* 16 columns of R rows. */
INLINE void lowrank_absorb_lanes(const rows_of *at, const float p[][GROUP], vf sum[][GROUP][PARTS],
                                 int r, int R, unsigned what) {
#pragma GCC unroll 4
    for (int s = 0; s < PARTS; s++) {
        size_t c = (size_t)s * WIDTH;
#pragma GCC unroll 4
        for (int i = 0; i < R; i++) {
            size_t here = (size_t)i * at->m_step + c;
            vf x = *(const uvec *)(at->m + here);
            if (what & SUBTRACT)
#pragma GCC unroll 8
                for (int j = 0; j < r; j++) {
                    vf t = p[i][j] * *(const uvec *)(at->own + (size_t)j * at->q_step + c);
                    x -= t;
                }
            if (what & ADD)
                x += *(const uvec *)(at->add + here);
            if (what & (SUBTRACT | ADD))
                *(uvec *)(at->m + here) = x;
            if (what & MULTIPLY)
#pragma GCC unroll 8
                for (int j = 0; j < r; j++) {
                    vf t = x * *(const uvec *)(at->q + (size_t)j * at->q_step + c);
                    sum[i][j][s] += t;
                }
        }
    }
}

/* The last columns, fewer than 16, in a zero-padded copy. */
INLINE void lowrank_absorb_rest(const rows_of *at, size_t n, const float p[][GROUP],
                                vf sum[][GROUP][PARTS], int r, int R, unsigned what) {
    float m[MOST_ROWS * LANES] = {0}, add[MOST_ROWS * LANES] = {0}, q[GROUP * LANES] = {0},
                        own[GROUP * LANES] = {0};
    rows_of copy = {m, add, q, own, LANES, LANES};
    for (int i = 0; i < R; i++) {
        memcpy(m + i * LANES, at->m + (size_t)i * at->m_step, n * sizeof *m);
        if (what & ADD)
            memcpy(add + i * LANES, at->add + (size_t)i * at->m_step, n * sizeof *add);
    }
    for (int j = 0; j < r; j++) {
        if (what & SUBTRACT)
            memcpy(own + j * LANES, at->own + (size_t)j * at->q_step, n * sizeof *own);
        if (what & MULTIPLY)
            memcpy(q + j * LANES, at->q + (size_t)j * at->q_step, n * sizeof *q);
    }
    lowrank_absorb_lanes(&copy, p, sum, r, R, what);
    if (what & (SUBTRACT | ADD))
        for (int i = 0; i < R; i++)
            memcpy(at->m + (size_t)i * at->m_step, m + i * LANES, n * sizeof *m);
}

/* R rows from `row` on, r factors from `first` on. */
INLINE void lowrank_absorb_rows(const gw_skinny *k, size_t row, int first, int r, int R,
                                unsigned what) {
    float p[MOST_ROWS][GROUP];
    vf sum[MOST_ROWS][GROUP][PARTS];
    float *of = k->p + (size_t)first * k->rows + row;
    for (int i = 0; i < R; i++)
        for (int j = 0; j < r; j++) {
            if (what & SUBTRACT)
                p[i][j] = of[(size_t)j * k->rows + (size_t)i];
            for (int s = 0; s < PARTS; s++)
                sum[i][j][s] = (vf){0};
        }
    size_t skip = (size_t)first * k->cols, c = 0;
    rows_of at = {k->m + row * k->cols,
                  what & ADD ? k->add + row * k->cols : NULL,
                  what & MULTIPLY ? k->q + skip : NULL,
                  what & SUBTRACT ? k->own + skip : NULL,
                  k->cols,
                  k->cols};
    for (; c + LANES <= k->cols; c += LANES) {
        lowrank_absorb_lanes(&at, p, sum, r, R, what);
        at.m += LANES;
        at.add += what & ADD ? LANES : 0;
        at.q += what & MULTIPLY ? LANES : 0;
        at.own += what & SUBTRACT ? LANES : 0;
    }
    if (c < k->cols)
        lowrank_absorb_rest(&at, k->cols - c, p, sum, r, R, what);
    if (what & MULTIPLY)
        for (int i = 0; i < R; i++)
            for (int j = 0; j < r; j++)
                of[(size_t)j * k->rows + (size_t)i] = vec_total(sum[i][j]);
}

INLINE void lowrank_absorb_block(int r, const gw_skinny *k, size_t lo, size_t hi, int first,
                                 unsigned what) {
    size_t i = lo;
    for (; i + ROWS(r) <= hi; i += ROWS(r))
        lowrank_absorb_rows(k, i, first, r, ROWS(r), what);
    for (; i < hi; i++)
        lowrank_absorb_rows(k, i, first, r, 1, what);
}

/* 16 columns of R rows: add their products to r rows of `out`. */
INLINE void lowrank_gather_lanes(const float *m, size_t m_step, const float p[][GROUP], float *out,
                                 size_t out_step, int r, int R) {
#pragma GCC unroll 4
    for (size_t c = 0; c < LANES; c += WIDTH) {
        vf sum[GROUP];
        for (int j = 0; j < r; j++)
            sum[j] = *(uvec *)(out + (size_t)j * out_step + c);
#pragma GCC unroll 8
        for (int i = 0; i < R; i++) {
            vf x = *(const uvec *)(m + (size_t)i * m_step + c);
            for (int j = 0; j < r; j++) {
                vf t = x * p[i][j];
                sum[j] += t;
            }
        }
        for (int j = 0; j < r; j++)
            *(uvec *)(out + (size_t)j * out_step + c) = sum[j];
    }
}

INLINE void lowrank_gather_rest(const float *m, size_t m_step, size_t n, const float p[][GROUP],
                                float *out, size_t out_step, int r, int R) {
    float x[TALL * LANES] = {0}, y[GROUP * LANES] = {0};
    for (int i = 0; i < R; i++)
        memcpy(x + i * LANES, m + (size_t)i * m_step, n * sizeof *x);
    for (int j = 0; j < r; j++)
        memcpy(y + j * LANES, out + (size_t)j * out_step, n * sizeof *y);
    lowrank_gather_lanes(x, LANES, p, y, LANES, r, R);
    for (int j = 0; j < r; j++)
        memcpy(out + (size_t)j * out_step, y + j * LANES, n * sizeof *y);
}

INLINE void lowrank_gather_rows(const gw_skinny *k, size_t row, int first, int r, int R,
                                float *out) {
    float p[TALL][GROUP];
    const float *of = k->p + (size_t)first * k->rows + row, *m = k->m + row * k->cols;
    size_t c = 0;
    for (int i = 0; i < R; i++)
        for (int j = 0; j < r; j++)
            p[i][j] = of[(size_t)j * k->rows + (size_t)i];
    for (; c + LANES <= k->cols; c += LANES)
        lowrank_gather_lanes(m + c, k->cols, p, out + c, k->cols, r, R);
    if (c < k->cols)
        lowrank_gather_rest(m + c, k->cols, k->cols - c, p, out + c, k->cols, r, R);
}

INLINE void lowrank_gather_block(int r, const gw_skinny *k, size_t lo, size_t hi, int first,
                                 float *out) {
    size_t i = lo;
    for (; i + TALL <= hi; i += TALL)
        lowrank_gather_rows(k, i, first, r, TALL, out);
    for (; i < hi; i++)
        lowrank_gather_rows(k, i, first, r, 1, out);
}

INLINE void lowrank_expand_lanes(float *m, size_t m_step, const float p[][GROUP], const float *q,
                                 size_t q_step, int r, int R, bool more) {
#pragma GCC unroll 4
    for (size_t c = 0; c < LANES; c += WIDTH)
#pragma GCC unroll 4
        for (int i = 0; i < R; i++) {
            float *to = m + (size_t)i * m_step + c;
            vf x = p[i][0] * *(const uvec *)(q + c);
            if (more)
                x += *(const uvec *)to;
#pragma GCC unroll 8
            for (int j = 1; j < r; j++) {
                vf t = p[i][j] * *(const uvec *)(q + (size_t)j * q_step + c);
                x += t;
            }
            *(uvec *)to = x;
        }
}

INLINE void lowrank_expand_rest(float *m, size_t m_step, size_t n, const float p[][GROUP],
                                const float *q, size_t q_step, int r, int R, bool more) {
    float x[MOST_ROWS * LANES] = {0}, y[GROUP * LANES] = {0};
    for (int i = 0; i < R && more; i++)
        memcpy(x + i * LANES, m + (size_t)i * m_step, n * sizeof *x);
    for (int j = 0; j < r; j++)
        memcpy(y + j * LANES, q + (size_t)j * q_step, n * sizeof *y);
    lowrank_expand_lanes(x, LANES, p, y, LANES, r, R, more);
    for (int i = 0; i < R; i++)
        memcpy(m + (size_t)i * m_step, x + i * LANES, n * sizeof *x);
}

INLINE void lowrank_expand_rows(const gw_skinny *k, size_t row, int first, int r, int R,
                                bool more) {
    float p[MOST_ROWS][GROUP], *m = k->m + row * k->cols;
    const float *of = k->p + (size_t)first * k->rows + row, *q = k->q + (size_t)first * k->cols;
    size_t c = 0;
    for (int i = 0; i < R; i++)
        for (int j = 0; j < r; j++)
            p[i][j] = of[(size_t)j * k->rows + (size_t)i];
    for (; c + LANES <= k->cols; c += LANES)
        lowrank_expand_lanes(m + c, k->cols, p, q + c, k->cols, r, R, more);
    if (c < k->cols)
        lowrank_expand_rest(m + c, k->cols, k->cols - c, p, q + c, k->cols, r, R, more);
}

INLINE void lowrank_expand_block(int r, const gw_skinny *k, size_t lo, size_t hi, int first,
                                 bool more) {
    size_t i = lo;
    for (; i + ROWS(r) <= hi; i += ROWS(r))
        lowrank_expand_rows(k, i, first, r, ROWS(r), more);
    for (; i < hi; i++)
        lowrank_expand_rows(k, i, first, r, 1, more);
}

/* ---- the table: up to GROUP factors in one pass, more group by group ---- */

/* A constant r in each case lets the compiler unroll the loops over factors. */
#define EACH_RANK(r, f, ...)                                                                       \
    switch (r) {                                                                                   \
    case 1: f(1, __VA_ARGS__); break;                                                              \
    case 2: f(2, __VA_ARGS__); break;                                                              \
    case 3: f(3, __VA_ARGS__); break;                                                              \
    case 4: f(4, __VA_ARGS__); break;                                                              \
    case 5: f(5, __VA_ARGS__); break;                                                              \
    case 6: f(6, __VA_ARGS__); break;                                                              \
    case 7: f(7, __VA_ARGS__); break;                                                              \
    default: f(GROUP, __VA_ARGS__); break;                                                         \
    }

TARGET static void lowrank_subtract(const gw_skinny *k, size_t lo, size_t hi, int first, int r){
    EACH_RANK(r, lowrank_absorb_block, k, lo, hi, first, SUBTRACT)}

TARGET static void lowrank_subtract_add(const gw_skinny *k, size_t lo, size_t hi, int first, int r){
    EACH_RANK(r, lowrank_absorb_block, k, lo, hi, first, SUBTRACT | ADD)}

TARGET static void lowrank_multiply(const gw_skinny *k, size_t lo, size_t hi, int first, int r){
    EACH_RANK(r, lowrank_absorb_block, k, lo, hi, first, MULTIPLY)}

TARGET static void lowrank_absorb_all(const gw_skinny *k, size_t lo, size_t hi, int r) {
    EACH_RANK(r, lowrank_absorb_block, k, lo, hi, 0, SUBTRACT | ADD | MULTIPLY)
}

static inline int lowrank_group(int rank, int first) {
    return rank - first < GROUP ? rank - first : GROUP;
}

/* A few rows at a time, so that they stay in the cache for the next group. */
TARGET static void lowrank_absorb_grouped(const gw_skinny *k, size_t lo, size_t hi) {
    for (int j = 0; k->own && j < k->rank; j += GROUP) {
        bool last = j + GROUP >= k->rank && k->add;
        (last ? lowrank_subtract_add : lowrank_subtract)(k, lo, hi, j, lowrank_group(k->rank, j));
    }
    for (int j = 0; k->q && j < k->rank; j += GROUP)
        lowrank_multiply(k, lo, hi, j, lowrank_group(k->rank, j));
}

TARGET static void lowrank_absorb(const gw_skinny *k, size_t lo, size_t hi) {
    if (k->rank <= GROUP && k->own && k->add && k->q) {
        lowrank_absorb_all(k, lo, hi, k->rank);
        return;
    }
    for (size_t i = lo; i < hi; i += TALL)
        lowrank_absorb_grouped(k, i, i + TALL < hi ? i + TALL : hi);
}

TARGET static void lowrank_gather(const gw_skinny *k, size_t lo, size_t hi, float *out) {
    memset(out, 0, (size_t)k->rank * k->cols * sizeof *out);
    for (size_t i = lo; i < hi; i += TALL) {
        size_t end = i + TALL < hi ? i + TALL : hi;
        for (int j = 0; j < k->rank; j += GROUP)
            EACH_RANK(lowrank_group(k->rank, j), lowrank_gather_block, k, i, end, j,
                      out + (size_t)j * k->cols)
    }
}

TARGET static void lowrank_expand(const gw_skinny *k, size_t lo, size_t hi) {
    for (size_t i = lo; i < hi; i += TALL) {
        size_t end = i + TALL < hi ? i + TALL : hi;
        EACH_RANK(lowrank_group(k->rank, 0), lowrank_expand_block, k, i, end, 0, false)
        for (int j = GROUP; j < k->rank; j += GROUP)
            EACH_RANK(lowrank_group(k->rank, j), lowrank_expand_block, k, i, end, j, true)
    }
}

#define GW_LOWRANK_TABLE(level)                                                                    \
    const gw_lowrank_kernels gw_lowrank_##level = {lowrank_absorb, lowrank_gather, lowrank_expand}
