/* Opening a data set: rank 0 reads it; each node shares one copy, or the training set is
 * scattered. */
#include "data/data.h"

#include "base/mem.h"
#include "base/span.h"
#include "data/cifar.h"
#include "data/idx.h"
#include "data/portion.h"
#include "data/synthetic.h"
#include "data/text.h"
#include "mpi/large.h"
#include "mpi/shared.h"
#include "mpi/wait.h"

#include <ctype.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What rank 0 read and every rank must know; sent as bytes, since all run the same program. */
typedef struct facts {
    uint32_t train, validation, test; /* samples; train: that are stored, */
    uint32_t enlarged;                /* and what they stand for */
    int channels, rows, cols, to_rows, to_cols, classes, targets, batch, servers, parts;
    bool sharded, outline, tokens;
    char name[64], source[256], hash[32];
} facts;

/* Order in a node's copy: images and labels of train, validation and test. */
enum { TRAIN, VALIDATION, TEST, PARTS };
typedef struct layout {
    size_t images[PARTS], labels[PARTS], bytes;
} layout;

typedef struct hold {
    gw_shared *node;
    MPI_Comm leaders; /* MPI_COMM_NULL except on each node's rank 0 */
    bool alone;       /* on the node */
    uint8_t *copy;    /* the node's, in `node`, or the rank's own if it is alone */
    uint8_t *portion; /* sharded: this rank's training images */
    gw_label *labels; /* and its labels */
} hold;

const char *gw_data_find_fashion_mnist(void) {
    static char dir[PATH_MAX];
    const char *root = getenv("GW_DATA_DIR");
    if (root && *root) {
        snprintf(dir, sizeof dir, "%s/fashion-mnist", root);
        if (gw_idx_present(dir))
            return dir;
    }
    static const char *const usual[] = {"/usr/share/datasets/fashion-mnist",
                                        "./data/fashion-mnist"};
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        if (gw_idx_present(usual[i]))
            return usual[i];
    return NULL;
}

/* What stands behind `kind` and a colon; NULL: the source is of another kind. */
static const char *data_behind(const char *source, const char *kind) {
    size_t n = strlen(kind);
    return strncmp(source, kind, n) == 0 && source[n] == ':' ? source + n + 1 : NULL;
}

static gw_err data_read_text(gw_raw *raw, const char *path, bool bytes, const gw_data_spec *spec,
                             facts *f) {
    if (spec->image_size || spec->image_scale > 1)
        return gw_fail(GW_ERR_USAGE, "data: a text has no images to enlarge: omit --image-scale "
                                     "and --image-size");
    snprintf(f->name, sizeof f->name, "%s", "text");
    return gw_text_set_read(raw, path, bytes, spec->context, f->outline);
}

static gw_err data_read_source(gw_raw *raw, const gw_data_spec *spec, facts *f) {
    const char *source = spec->source, *text = data_behind(source, "text"),
               *bytes = data_behind(source, "bytes");
    if (text || bytes)
        return data_read_text(raw, text ? text : bytes, bytes, spec, f);
    if (spec->context > 0)
        return gw_fail(GW_ERR_USAGE,
                       "data: %s holds no text, which the model reads: give --data "
                       "text:FILE, or another --model",
                       source);
    static const char synthetic[] = "synthetic";
    size_t len = sizeof synthetic - 1;
    if (strncmp(source, synthetic, len) == 0 && (source[len] == '\0' || source[len] == ':')) {
        snprintf(f->name, sizeof f->name, "%s", synthetic);
        return gw_synthetic_make(raw, source, f->outline);
    }
    bool fashion = strcmp(source, "fashion-mnist") == 0;
    const char *dir = fashion ? gw_data_find_fashion_mnist() : source;
    if (!dir)
        return gw_fail(
            GW_ERR_INPUT,
            "fashion-mnist not found in $GW_DATA_DIR/fashion-mnist, "
            "/usr/share/datasets/fashion-mnist or ./data/fashion-mnist: install Debian's "
            "dataset-fashion-mnist, or give its folder, or synthetic");
    GW_TRY(gw_text_name("data", "", dir)); /* the environment may have named it */
    bool cifar = !fashion && gw_cifar_present(dir);
    snprintf(f->name, sizeof f->name, "%s",
             fashion ? "fashion-mnist"
             : cifar ? "cifar"
                     : "mnist-format");
    return cifar ? gw_cifar_read(raw, dir, f->outline) : gw_idx_read(raw, dir, f->outline);
}

/* "ROWSxCOLS" */
static gw_err data_read_size(const char *text, facts *f) {
    char *end = NULL;
    long rows = isdigit((unsigned char)*text) ? strtol(text, &end, 10) : 0, cols = 0;
    if (rows > 0 && *end == 'x' && isdigit((unsigned char)end[1]))
        cols = strtol(end + 1, &end, 10);
    if (cols < 1 || *end || rows > GW_MAX_PIXELS || cols > GW_MAX_PIXELS / rows)
        return gw_fail(GW_ERR_USAGE,
                       "image-size=%s: must be ROWSxCOLS, as 56x58, of at most %d pixels", text,
                       GW_MAX_PIXELS);
    f->to_rows = (int)rows;
    f->to_cols = (int)cols;
    return GW_OK;
}

static gw_err data_scale(const gw_raw *raw, int scale, facts *f) {
    double inputs = (double)raw->rows * raw->cols * scale * scale;
    if (scale < 1 || inputs > GW_MAX_PIXELS)
        return gw_fail(GW_ERR_USAGE,
                       "image-scale=%d: must be at least 1, and %d x %d enlarged by it each way at "
                       "most %d inputs",
                       scale, raw->rows, raw->cols, GW_MAX_PIXELS);
    f->to_rows = raw->rows * scale;
    f->to_cols = raw->cols * scale;
    return GW_OK;
}

/* Batches of one sample are counted by ints. */
static gw_err data_enlarge(facts *f, int64_t times) {
    if (times == 0)
        times = 1;
    if (times < 0 || times > INT32_MAX / (int64_t)f->train)
        return gw_fail(GW_ERR_USAGE,
                       "--replicate %lld: %u training samples so often are more than %d: give 1 to "
                       "%d",
                       (long long)times, f->train, INT32_MAX, INT32_MAX / (int)f->train);
    f->enlarged = f->train * (uint32_t)times;
    return GW_OK;
}

static gw_err data_divide(gw_raw *raw, const gw_data_spec *spec, gw_divided *out) {
    gw_division_job job = {&spec->partition, spec->seed, spec->parts, spec->batch};
    return job.how->on ? gw_division_make(out, &job, raw, spec->outline) : GW_OK;
}

static gw_err data_read_and_split(gw_raw *raw, const gw_data_spec *spec, facts *f,
                                  gw_divided *divided) {
    if (!spec->source || !*spec->source)
        return gw_fail(GW_ERR_USAGE, "data: no source: give fashion-mnist, a folder or synthetic");
    f->outline = spec->outline;
    if (spec->image_size)
        GW_TRY(data_read_size(spec->image_size, f));
    GW_TRY(data_read_source(raw, spec, f));
    f->to_rows *= raw->channels;
    if (!spec->image_size)
        GW_TRY(data_scale(raw, spec->image_scale, f));
    GW_TRY(gw_raw_limit(raw, spec->limit, spec->limit_test, spec->source));
    if (!spec->outline) {
        gw_raw_hash(raw, f->hash);
        GW_TRY(gw_raw_split(raw, spec->validation, spec->seed));
    } else {
        GW_TRY(gw_raw_apart(raw->train.n, spec->validation, &raw->validation.n));
        raw->train.n -= raw->validation.n;
    }
    GW_TRY(data_divide(raw, spec, divided));
    f->parts = divided->parts;
    f->train = raw->train.n;
    f->validation = raw->validation.n;
    f->test = raw->test.n;
    f->channels = raw->channels;
    f->rows = raw->rows;
    f->cols = raw->cols;
    f->classes = raw->classes;
    f->targets = raw->targets;
    f->tokens = raw->tokens;
    f->sharded = spec->sharded;
    f->batch = spec->batch;
    f->servers = spec->servers;
    memcpy(f->source, raw->source, sizeof f->source);
    GW_TRY(data_enlarge(f, spec->replicate));
    uint32_t first, count;
    gw_shares one = {.parts = 1};
    return spec->sharded ? gw_portion_cut(f->enlarged, f->batch, 0, one, &first, &count) : GW_OK;
}

static size_t data_take(size_t *at, size_t bytes) {
    size_t here = *at;
    *at += (bytes + GW_ALIGN - 1) / GW_ALIGN * GW_ALIGN;
    return here;
}

/* Of a sample. */
static size_t data_label_bytes(const facts *f) {
    return (size_t)f->targets * sizeof(gw_label);
}

static layout data_lay_out(const facts *f) {
    size_t pixels = (size_t)f->rows * (size_t)f->cols;
    uint32_t n[PARTS] = {f->sharded ? 0 : f->train, f->validation, f->test};
    layout l = {.bytes = 0};
    for (int p = 0; p < PARTS; p++) {
        l.images[p] = data_take(&l.bytes, n[p] * pixels);
        l.labels[p] = data_take(&l.bytes, n[p] * data_label_bytes(f));
    }
    return l;
}

static gw_err data_share_copy(hold *h, size_t bytes) {
    size_t ranks = (size_t)gw_shared_size(h->node);
    void *mine;
    GW_TRY(gw_shared_alloc(h->node, (bytes + ranks - 1) / ranks, &mine));
    h->copy = gw_shared_twin(h->node, mine, 0);
    return GW_OK;
}

/* Ranks of one process have rank 0's copy. */
static gw_err data_one_copy(hold *h, MPI_Comm comm, size_t bytes, int rank) {
    h->alone = rank == 0;
    GW_TRY(gw_agree(comm, h->alone ? gw_alloc(&h->copy, bytes, 1) : GW_OK));
    return gw_bcast(&h->copy, (int)sizeof h->copy, MPI_BYTE, 0, comm);
}

/* Rank 0 leads its node, and the leaders. The segments of a node's ranks make one copy. */
static gw_err data_node_memory(hold *h, MPI_Comm comm, size_t bytes) {
    int rank;
    GW_TRY(gw_comm_place(comm, &rank, NULL));
    if (gw_team_of(comm))
        return data_one_copy(h, comm, bytes, rank);
    GW_TRY(gw_shared_open(&h->node, comm));
    bool leads = gw_shared_rank(h->node) == 0;
    GW_MPI(MPI_Comm_split(comm, leads ? 0 : MPI_UNDEFINED, rank, &h->leaders));
    if (leads)
        GW_MPI(MPI_Comm_set_errhandler(h->leaders, MPI_ERRORS_RETURN));
    h->alone = gw_shared_size(h->node) == 1; /* plain memory is enough, in large pages */
    return gw_agree(comm, h->alone ? gw_alloc(&h->copy, bytes, 1) : data_share_copy(h, bytes));
}

static void data_place_part(uint8_t *copy, const layout *l, int p, const gw_raw_part *part,
                            const facts *f) {
    if (part->n == 0)
        return;
    memcpy(copy + l->images[p], part->images, part->n * (size_t)f->rows * (size_t)f->cols);
    memcpy(copy + l->labels[p], part->labels, part->n * data_label_bytes(f));
}

/* Touch every page that another rank has written. Otherwise the first pass over the data takes a
 * page fault a page inside its batches, and the rank's memory grows meanwhile. */
static void data_map_copy(const volatile uint8_t *copy, size_t bytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (size_t i = 0; i < bytes; i += page)
        (void)copy[i];
}

/* Rank 0 fills its node's copy and sends it to the other nodes' leaders; only rank 0's `raw` is
 * used. */
static gw_err data_fill_copies(hold *h, const facts *f, const layout *l, const gw_raw *raw,
                               int rank) {
    if (rank == 0) {
        if (!f->sharded)
            data_place_part(h->copy, l, TRAIN, &raw->train, f);
        data_place_part(h->copy, l, VALIDATION, &raw->validation, f);
        data_place_part(h->copy, l, TEST, &raw->test, f);
    }
    if (h->leaders != MPI_COMM_NULL)
        GW_MPI(gw_large_bcast(h->copy, l->bytes, 0, h->leaders));
    if (h->alone || !h->node)
        return GW_OK;
    atomic_thread_fence(memory_order_seq_cst); /* what was written before the barrier, */
    GW_TRY(gw_barrier(gw_shared_comm(h->node)));
    atomic_thread_fence(memory_order_seq_cst); /* is read after it */
    data_map_copy(h->copy, l->bytes);
    return GW_OK;
}

/* Samples that a portion of the enlarged set needs: a run of the stored ones, from its first on and
 * around their end. */
static size_t data_stored(const facts *f, gw_span portion) {
    return portion.n < f->train ? portion.n : f->train;
}

/* Rows of `width` bytes on their way from rank 0's `all` to `mine` of rank `to`. */
typedef struct way {
    const uint8_t *all;
    uint8_t *mine;
    size_t width;
    int rank, to;
    MPI_Comm comm;
} way;

static gw_err data_pass_rows(const way *w, size_t from, size_t at, size_t n) {
    size_t bytes = n * w->width;
    gw_team *g = gw_team_of(w->comm);
    if (w->rank == 0 && w->to == 0)
        memcpy(w->mine + at * w->width, w->all + from * w->width, bytes);
    else if (g && w->rank == 0)
        return g->ops->message(g, (void *)(w->all + from * w->width), bytes, w->to, 0, true);
    else if (g && w->rank == w->to)
        return g->ops->message(g, w->mine + at * w->width, bytes, 0, 0, false);
    else if (w->rank == 0)
        GW_MPI(gw_large_send(w->all + from * w->width, bytes, w->to, 0, w->comm));
    else if (w->rank == w->to)
        GW_MPI(gw_large_recv(w->mine + at * w->width, bytes, 0, 0, w->comm));
    return GW_OK;
}

static gw_err data_pass_portion(const way *w, const facts *f, gw_span portion) {
    size_t n = data_stored(f, portion), from = portion.off % f->train;
    size_t head = n < f->train - from ? n : f->train - from;
    if (head > 0)
        GW_TRY(data_pass_rows(w, from, 0, head));
    return n > head ? data_pass_rows(w, 0, head, n - head) : GW_OK;
}

static gw_err data_prepare_portion(hold *h, const facts *f, gw_shares by, gw_span *cut, int ranks,
                                   int rank) {
    size_t pixels = (size_t)f->rows * (size_t)f->cols;
    for (int r = 0; r < ranks; r++) {
        uint32_t first, count;
        GW_TRY(gw_portion_cut(f->enlarged, f->batch, r - f->servers, by, &first, &count));
        cut[r] = (gw_span){first, count};
    }
    GW_TRY(gw_alloc(&h->portion, data_stored(f, cut[rank]), pixels));
    return gw_alloc(&h->labels, data_stored(f, cut[rank]), data_label_bytes(f));
}

static gw_err data_scatter(hold *h, const facts *f, const gw_raw *raw, gw_dataset *train,
                           MPI_Comm comm, int rank) {
    int ranks;
    gw_span *cut = NULL;
    size_t pixels = (size_t)f->rows * (size_t)f->cols;
    GW_TRY(gw_comm_place(comm, NULL, &ranks));
    gw_err e = gw_alloc(&cut, (size_t)ranks, sizeof *cut);
    gw_shares equal = {.parts = ranks - f->servers}, by = f->parts > 0 ? train->shares : equal;
    GW_THEN(e, data_prepare_portion(h, f, by, cut, ranks, rank));
    e = gw_agree(comm, e);
    if (e == GW_OK) {
        size_t stored = data_stored(f, cut[rank]);
        for (int r = 0; r < ranks && !f->outline; r++) {
            way images = {raw->train.images, h->portion, pixels, rank, r, comm};
            way classes = {(const uint8_t *)raw->train.labels,
                           (uint8_t *)h->labels,
                           data_label_bytes(f),
                           rank,
                           r,
                           comm};
            GW_THEN(e, data_pass_portion(&images, f, cut[r]));
            GW_THEN(e, data_pass_portion(&classes, f, cut[r]));
        }
        train->images = h->portion;
        train->labels = h->labels;
        train->first = (uint32_t)cut[rank].off;
        train->n = (uint32_t)cut[rank].n;
        train->stored = (uint32_t)stored;
    }
    free(cut);
    return e;
}

static gw_dataset data_part_of(const facts *f, const layout *l, const uint8_t *copy, int p,
                               uint32_t n) {
    return (gw_dataset){.n = n,
                        .n_global = n,
                        .stored = n,
                        .channels = f->channels,
                        .rows = f->rows,
                        .cols = f->cols,
                        .to_rows = f->to_rows,
                        .to_cols = f->to_cols,
                        .images = copy + l->images[p],
                        .labels = (const gw_label *)(const void *)(copy + l->labels[p]),
                        .targets = f->targets,
                        .tokens = f->tokens};
}

static gw_err data_spread(gw_data *d, const facts *f, const gw_raw *raw, MPI_Comm comm, int rank) {
    hold *h = d->priv;
    layout l = data_lay_out(f);
    GW_TRY(data_node_memory(h, comm, l.bytes));
    if (!f->outline)
        GW_TRY(data_fill_copies(h, f, &l, raw, rank));
    d->train = data_part_of(f, &l, h->copy, TRAIN, f->train);
    d->train.n = d->train.n_global = f->enlarged;
    d->train.shares = (gw_shares){d->divided.parts, d->divided.ends};
    d->validation = data_part_of(f, &l, h->copy, VALIDATION, f->validation);
    d->test = data_part_of(f, &l, h->copy, TEST, f->test);
    d->classes = f->classes;
    memcpy(d->name, f->name, sizeof d->name);
    memcpy(d->source, f->source, sizeof d->source);
    memcpy(d->hash, f->hash, sizeof d->hash);
    return f->sharded ? data_scatter(h, f, raw, &d->train, comm, rank) : GW_OK;
}

static gw_err data_new(gw_data **out) {
    struct {
        gw_data data;
        hold hold;
    } *both = NULL;
    GW_TRY(gw_alloc(&both, 1, sizeof *both));
    both->hold.leaders = MPI_COMM_NULL;
    both->data.priv = &both->hold;
    *out = &both->data;
    return GW_OK;
}

/* Receive what rank 0 found, or the common error. */
static gw_err data_learn(facts *f, gw_divided *divided, gw_err mine, MPI_Comm comm) {
    GW_TRY(gw_agree(comm, mine));
    GW_TRY(gw_bcast(f, (int)sizeof *f, MPI_BYTE, 0, comm));
    if (f->parts == 0)
        return GW_OK;
    divided->parts = f->parts;
    if (!divided->ends)
        mine = gw_alloc(&divided->ends, (size_t)f->parts, sizeof *divided->ends);
    GW_TRY(gw_agree(comm, mine));
    return gw_bcast(divided->ends, f->parts, MPI_UINT32_T, 0, comm);
}

gw_err gw_data_open(gw_data **out, const gw_data_spec *spec, MPI_Comm comm) {
    int rank;
    gw_data *d = NULL;
    gw_raw raw = {0};
    facts f = {0};
    GW_TRY(gw_comm_place(comm, &rank, NULL));
    gw_err e = data_new(&d);
    if (e == GW_OK && rank == 0)
        e = data_read_and_split(&raw, spec, &f, &d->divided);
    e = data_learn(&f, d ? &d->divided : NULL, e, comm);
    GW_THEN(e, data_spread(d, &f, &raw, comm, rank));
    gw_raw_free(&raw);
    GW_OPENED(e, out, d, gw_data_close);
}

void gw_data_close(gw_data *d) {
    if (!d)
        return;
    hold *h = d->priv;
    if (h->alone)
        free(h->copy);
    /* The run is over: a failure to free does not matter. */
    if (h->leaders != MPI_COMM_NULL)
        MPI_Comm_free(&h->leaders);
    gw_shared_close(h->node);
    free(h->portion);
    free(h->labels);
    gw_divided_free(&d->divided);
    free(d);
}
