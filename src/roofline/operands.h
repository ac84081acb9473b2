/** Matrices to time a product on. */
#ifndef GW_ROOFLINE_OPERANDS_H
#define GW_ROOFLINE_OPERANDS_H

#include "nn/gemm.h"

typedef struct gw_operands {
    gw_product of;
    float *a, *b, *c; /* dense */
    int lda, ldb;
    float beta;
} gw_operands;

/** Allocate and fill; closed by gw_operands_close, after an error, too. */
gw_err gw_operands_open(gw_operands *o, const gw_product *of);
void gw_operands_close(gw_operands *o);

/** The product, by gw_gemm. */
void gw_operands_multiply(const gw_operands *o);

/** Seconds of one: the best of up to 15, some milliseconds in all, after one that warms up. */
double gw_operands_time(const gw_operands *o);

#endif
