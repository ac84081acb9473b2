#include "compress/dct.h"

#include "base/clones.h"

#include <math.h>
#include <string.h>

size_t gw_dct_side(size_t n) {
    size_t side = n < GW_DCT_MOST ? n : GW_DCT_MOST;
    while (side > 1 && n % side != 0)
        side--;
    return side;
}

void gw_dct_basis(float *basis, size_t n) {
    for (size_t k = 0; k < n; k++)
        for (size_t i = 0; i < n; i++)
            basis[k * n + i] =
                (float)(sqrt((k == 0 ? 1.0 : 2.0) / (double)n) *
                        cos(M_PI * (2.0 * (double)i + 1) * (double)k / (2.0 * (double)n)));
}

/* c (m x n, rows `ldc` apart) = op(a) b, where op(a) is a or, `turned`, its transpose. */
GW_CLONES static void dct_left(const float *restrict a, bool turned, const float *restrict b,
                               size_t ldb, float *restrict c, size_t ldc, size_t m, size_t n) {
    for (size_t i = 0; i < m; i++) {
        float *row = c + i * ldc;
        memset(row, 0, n * sizeof *row);
        for (size_t k = 0; k < m; k++) {
            float x = turned ? a[k * m + i] : a[i * m + k];
            for (size_t j = 0; j < n; j++)
                row[j] += x * b[k * ldb + j];
        }
    }
}

/* c (m x n, contiguous) = b op(a), where op(a) is a or, `turned`, its transpose: a is n x n. */
GW_CLONES static void dct_right(const float *restrict b, size_t ldb, const float *restrict a,
                                bool turned, float *restrict c, size_t m, size_t n) {
    float turn[GW_DCT_MOST * GW_DCT_MOST];
    for (size_t i = 0; i < n && turned; i++)
        for (size_t j = 0; j < n; j++)
            turn[i * n + j] = a[j * n + i];
    const float *by = turned ? turn : a;
    for (size_t i = 0; i < m; i++) {
        float *row = c + i * n;
        memset(row, 0, n * sizeof *row);
        for (size_t k = 0; k < n; k++)
            for (size_t j = 0; j < n; j++)
                row[j] += b[i * ldb + k] * by[k * n + j];
    }
}

void gw_dct_forward(const gw_dct *d, const float *from, size_t step, float *to) {
    float half[GW_DCT_MOST * GW_DCT_MOST];
    dct_right(from, step, d->by_col, true, half, d->rows, d->cols);
    dct_left(d->by_row, false, half, d->cols, to, d->cols, d->rows, d->cols);
}

void gw_dct_inverse(const gw_dct *d, const float *from, float *to, size_t step) {
    float half[GW_DCT_MOST * GW_DCT_MOST];
    dct_right(from, d->cols, d->by_col, false, half, d->rows, d->cols);
    dct_left(d->by_row, true, half, d->cols, to, step, d->rows, d->cols);
}
