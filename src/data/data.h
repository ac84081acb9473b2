/** Data sets: uint8 in memory, one copy a node (mpi/shared.h), read and decompressed once. */
#ifndef GW_DATA_DATA_H
#define GW_DATA_DATA_H

#include "data/division.h"
#include "mpi/agree.h"

#include <stdbool.h>
#include <stdint.h>

/** Samples as seen by this rank. images: (stored, rows*cols) uint8, labels: (stored,
 *  targets). Owned by gw_data. */
typedef struct gw_dataset {
    uint32_t n;           /* samples this rank can read: all (replicated) or its portion */
    uint32_t n_global;    /* samples over all ranks */
    uint32_t first;       /* global index of this rank's first sample (0 when replicated) */
    uint32_t stored;      /* samples in memory: sample first + k is number k mod stored */
    int rows, cols;       /* stored image, all planes' rows; synthetic data: 1 x features */
    int to_rows, to_cols; /* the image as it is gathered */
    const uint8_t *images;
    const gw_label *labels;
    int targets;      /* labels of a sample */
    int channels;     /* planes of an image, which lie one behind another */
    bool tokens;      /* bytes are gathered as they are: numbers of characters */
    gw_shares shares; /* portions that stay on one rank for the whole run; 0 parts: none do */
} gw_dataset;

typedef struct gw_data_spec {
    const char *source;        /* "fashion-mnist", a folder, "text:FILE", "bytes:FILE", or
                                  "synthetic[:name=value,...]" */
    int context;               /* of the model that is to read texts; 0: it reads none */
    int image_scale;           /* 1, 2, 4, ... */
    const char *image_size;    /* "ROWSxCOLS" instead; NULL: image_scale says it */
    int64_t limit, limit_test; /* the first so many training and test samples; 0: all */
    double validation;         /* fraction of the training set held out, [0, 1) */
    int64_t replicate;         /* the rest of it, so many times over; 0: once */
    bool sharded;              /* scatter the training set instead of one copy a node */
    uint64_t seed;             /* chooses the validation set */
    int batch;                 /* global batch size, for sharded and partition */
    int servers;               /* ranks, from 0 on, that take no samples (sharded: get none) */
    gw_division partition;     /* among */
    int parts;                 /* ranks, or replicas of a mesh, that take samples */
    bool outline;              /* sizes only: reads and makes no image, all are 0 */
} gw_data_spec;

typedef struct gw_data {
    gw_dataset train, validation, test; /* validation.n_global may be 0 */
    int classes;
    char name[64];    /* "fashion-mnist", "mnist-format", "cifar", "text", "synthetic" */
    char source[256]; /* where it was found */
    char hash[32]; /* CRC-32 of images and labels, train then test, as limited, and before they are
                      replicated: "crc32:xxxxxxxx"; outline: "" */
    gw_divided divided; /* by spec->partition; samples, skew and hash: rank 0 */
    void *priv;
} gw_data;

/** Collective: all ranks get the set, or all the same error. Bad files: GW_ERR_INPUT with file,
 *  defect and value; bad spec: GW_ERR_USAGE; too little shared memory: GW_ERR_NOMEM. Only rank 0 of
 *  `comm` reads files, and only its `spec` is used. A node's ranks share one copy; in the sharded
 *  layout that holds for validation and test sets, while each rank has its part of the training set
 *  in its own memory, cut as gw_portion_cut says. The set is limited first, then the validation set
 *  is held out of the training set, then the rest of that is replicated: sample i of it is sample
 *  i mod n of the n that there are, and nobody stores one twice. A partition sorts the training set
 *  (data/division.h), and excludes replicating it. Call it from the thread that
 *  initialised MPI. Close is also collective and frees everything; d may be NULL. */
gw_err gw_data_open(gw_data **out, const gw_data_spec *spec, MPI_Comm comm);
void gw_data_close(gw_data *d);

/** The folder of "fashion-mnist" if it has all four files, else NULL. Searches
 *  $GW_DATA_DIR/fashion-mnist, the Debian package's folder (/usr/share/datasets/fashion-mnist) and
 *  ./data/fashion-mnist. Static text: call it from one thread. */
const char *gw_data_find_fashion_mnist(void);

/** Inputs of a network for this set. */
static inline int gw_dataset_features(const gw_dataset *s) {
    return s->to_rows * s->to_cols;
}

/** out (n, features) = images[(idx[i] - first) mod stored] * (1 / 255.f), resized: pixel (r, c) of
 *  the output (to_rows, to_cols), row-major, is the stored pixel (r * rows / to_rows, c * cols /
 *  to_cols); the `targets` labels of each (may be NULL) likewise. idx holds global indices that
 *  this rank can read; only assertions check that. OpenMP threads split the rows of a large
 *  batch. */
void gw_dataset_gather(const gw_dataset *s, const uint32_t *idx, int n, float *out,
                       gw_label *labels);
/** The labels alone. */
void gw_dataset_labels(const gw_dataset *s, const uint32_t *idx, int n, gw_label *labels);

#endif
