/** What the files of bench overlap share: bench_overlap.c measures, bench_overlap_report.c tells.
 *  Nobody else includes this. */
#ifndef GW_CLI_BENCH_BENCH_OVERLAP_PARTS_H
#define GW_CLI_BENCH_BENCH_OVERLAP_PARTS_H

#include "cli/bench/bench_exchange.h"
#include "comm/queue.h"

/* What a round measures. */
enum { COMM, COMP, BOTH, EXPOSED, POST, POLL, SLOWEST, INTERFERENCE = SLOWEST, MEASURED };

/* What a round's figures make, in rounds: the samples of a cell. */
enum { HIDDEN = MEASURED, SAVED, FIGURES };

typedef struct cell {
    gw_bench_exchange x;
    gw_progress mode;
    gw_queue *queue;
    int kernels; /* of the present size */
    double now_s[MEASURED];
    double alone_s; /* in kernels alone, in this round */
    gw_samples samples[FIGURES];
    double transport_s; /* of the core, for one exchange; NaN: not measured */
    uint64_t wrong;
} cell;

/* What all cells were measured with. */
typedef struct overlap_setting {
    const gw_bench_place *place;
    int edge; /* a kernel multiplies two square matrices with this edge */
    double kernel_s, compute_ratio;
    int repeats;
} overlap_setting;

/** none, poll, thread. */
extern const char *const gw_bench_progress_names[GW_PROGRESS_NONE + 1];

/** Rank 0: the table's head; a row of it, and the same as an element of `rows`. */
void gw_bench_overlap_head(const overlap_setting *o);
gw_err gw_bench_overlap_row(const overlap_setting *o, const cell *c, size_t bytes, json_t *rows);

#endif
