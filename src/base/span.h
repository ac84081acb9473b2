/** A half-open range [off, off + n) of an arena, in floats; and what an arena is made of. */
#ifndef GW_BASE_SPAN_H
#define GW_BASE_SPAN_H

#include <stdbool.h>
#include <stddef.h>

typedef struct gw_span {
    size_t off, n;
} gw_span;

/** A tensor of a model: its row-major part of the arena; a vector has rows = 1. Tensors tile the
 *  arena in order. */
typedef struct gw_tensor {
    gw_span span;
    int layer, rows, cols;
    bool tracks; /* a running mean, not a parameter: its "gradient", its distance from the values
                    averaged, is exchanged like others, but it moves by its own rule */
} gw_tensor;

/** Vectors of n floats each, one behind another; count 0: none. */
typedef struct gw_vectors {
    float *x;
    int count;
} gw_vectors;

static inline size_t gw_span_end(gw_span s) {
    return s.off + s.n;
}

static inline int gw_span_overlap(gw_span a, gw_span b) {
    return a.off < gw_span_end(b) && b.off < gw_span_end(a);
}

/** Intersection of two spans; n is 0 if empty. */
static inline gw_span gw_span_common(gw_span a, gw_span b) {
    size_t lo = a.off > b.off ? a.off : b.off;
    size_t hi = gw_span_end(a) < gw_span_end(b) ? gw_span_end(a) : gw_span_end(b);
    return (gw_span){lo, hi > lo ? hi - lo : 0};
}

/** Part `i` of `parts` nearly equal parts of `s`: sizes differ by one at most, larger ones last;
 *  the parts tile `s` in order. One rule for slices of a span, of a batch and of a data set. */
static inline gw_span gw_span_part(gw_span s, int i, int parts) {
    size_t lo = s.n * (size_t)i / (size_t)parts;
    size_t hi = s.n * ((size_t)i + 1) / (size_t)parts;
    return (gw_span){s.off + lo, hi - lo};
}

#endif
