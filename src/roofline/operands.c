#include "roofline/operands.h"

#include "base/mem.h"
#include "prof/clock.h"

#include <math.h>
#include <stdlib.h>

enum { MOST_TRIES = 15 };
#define ENOUGH_S 4e-3 /* of one shape, unless a single product is longer */

gw_err gw_operands_open(gw_operands *o, const gw_product *of) {
    size_t m = (size_t)of->m, n = (size_t)of->n, k = (size_t)of->k;
    *o = (gw_operands){.of = *of,
                       .lda = of->ta ? of->m : of->k,
                       .ldb = of->tb ? of->k : of->n,
                       .beta = of->add ? 1 : 0};
    GW_TRY(gw_alloc(&o->a, m * k, sizeof *o->a));
    GW_TRY(gw_alloc(&o->b, k * n, sizeof *o->b));
    GW_TRY(gw_alloc(&o->c, m * n, sizeof *o->c));
    for (size_t i = 0; i < m * k; i++)
        o->a[i] = (float)(i % 7) - 3;
    for (size_t i = 0; i < k * n; i++)
        o->b[i] = (float)(i % 5) - 2;
    return GW_OK;
}

void gw_operands_close(gw_operands *o) {
    free(o->a);
    free(o->b);
    free(o->c);
    *o = (gw_operands){0};
}

void gw_operands_multiply(const gw_operands *o) {
    const gw_product *p = &o->of;
    gw_gemm(p->ta, p->tb, p->m, p->n, p->k, o->a, o->lda, o->b, o->ldb, o->beta, o->c, p->n);
}

double gw_operands_time(const gw_operands *o) {
    double best = INFINITY, spent = 0;
    for (int t = -1; t < MOST_TRIES && (t < 1 || spent < ENOUGH_S); t++) {
        uint64_t start = gw_clock_ticks();
        gw_operands_multiply(o);
        double took = gw_clock_since(start);
        spent += took;
        if (t >= 0)
            best = fmin(best, took);
    }
    return best;
}
