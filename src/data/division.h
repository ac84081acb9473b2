/** Training samples are cut into portions, and --partition divides them among the ranks, so that
 *  every sample lies on one rank for the whole run. */
#ifndef GW_DATA_DIVISION_H
#define GW_DATA_DIVISION_H

#include "base/registry.h"
#include "base/span.h"
#include "data/raw.h"

#include <jansson.h>

/** Into how many portions what is divided, and how large they are. */
typedef struct gw_shares {
    int parts;
    const uint32_t *ends; /* of parts 0..p: their weights' sum; NULL: all are equal */
} gw_shares;

/** The portion of n for part r; empty if r < 0. */
gw_span gw_portion_of(size_t n, int r, gw_shares by);

/** The cut: the number of samples in part r of an epoch's batches over n samples, and the number
 *  before them, of lower parts. GW_ERR_USAGE: `batch`, the global one, is not from 1 to n. */
gw_err gw_portion_cut(uint32_t n, int batch, int r, gw_shares by, uint32_t *first, uint32_t *count);

enum { GW_DIVISION_SIZES = 256 };

/** As told. */
typedef struct gw_division {
    bool on;      /* else uniform */
    bool labels;  /* equal numbers of samples, unequal labels; else unequal numbers */
    double alpha; /* of a Dirichlet distribution; 0: */
    int weights[1 + GW_DIVISION_SIZES]; /* how many there are, and the weight of each rank */
} gw_division;

/** Its kinds, for `gradwire list`; not to be extended by plugins. */
extern const gw_registry gw_divisions;

/** Out of uniform, labels:alpha=X, sizes:alpha=X or sizes:N,N,... GW_ERR_USAGE: none of these. */
gw_err gw_division_read(gw_division *p, const char *text);

/** What became of it. */
typedef struct gw_divided {
    int parts;         /* 0: the set is not divided */
    uint32_t *ends;    /* of its shares */
    uint32_t *samples; /* of each part */
    double *skew;  /* of each part: the distance in total variation of its labels from all labels */
    char hash[32]; /* "crc32:xxxxxxxx" of the samples' numbers, part by part; outline: "" */
} gw_divided;
void gw_divided_free(gw_divided *d);

/** For run.json; null: it is not divided. */
json_t *gw_divided_json(const gw_divided *d);

typedef struct gw_division_job {
    const gw_division *how;
    uint64_t seed;
    int parts, batch; /* global */
} gw_division_job;

/** Cut raw->train into parts and, unless it is an outline, sort it so that they lie one behind
 *  another, as gw_portion_cut with the shares of `ends` says: a pure function of job and labels.
 *  One part alone is not divided: out->parts stays 0. Free `out` after errors, too.
 *
 *  labels: part r draws its distribution of labels q_r ~ Dirichlet(alpha p), where p is that of the
 *  whole set (Hsu, Qi and Brown, "Measuring the effects of non-identical data distribution for
 *  federated visual classification", arXiv 1909.06335, 2019), then the parts take samples in turn,
 *  each of a label drawn by q_r among those that are left.
 *  sizes: samples of all labels alike, in numbers as the weights.
 *
 *  GW_ERR_USAGE: a part would have no sample of a full batch; other weights than parts. */
gw_err gw_division_make(gw_divided *out, const gw_division_job *job, gw_raw *raw, bool outline);

#endif
