/* Opening a data set: rank 0 reads it; each node shares one copy, or the training set is
 * scattered. */
#include "data/data.h"

#include "base/mem.h"
#include "base/span.h"
#include "data/raw.h"
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
    gw_dataset sample;                /* what a sample is like */
    int classes, batch, servers, parts;
    bool sharded, outline;
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

static gw_err data_read_source(gw_raw *raw, const gw_data_spec *spec, facts *f) {
    const char *source = spec->source, *text = data_behind(source, "text"),
               *bytes = data_behind(source, "bytes");
    if (text || bytes) {
        if (spec->image_size || spec->image_scale > 1)
            return gw_fail(GW_ERR_USAGE, "data: a text has no images to enlarge: omit "
                                         "--image-scale and --image-size");
        snprintf(f->name, sizeof f->name, "%s", "text");
        return gw_text_set_read(raw, text ? text : bytes, bytes, spec->context, f->outline);
    }
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
    f->sample.to_rows = (int)rows;
    f->sample.to_cols = (int)cols;
    return GW_OK;
}

static gw_err data_read_and_split(gw_raw *raw, const gw_data_spec *spec, facts *f,
                                  gw_divided *divided) {
    if (!spec->source || !*spec->source)
        return gw_fail(GW_ERR_USAGE, "data: no source: give fashion-mnist, a folder or synthetic");
    gw_dataset *sample = &f->sample;
    f->outline = spec->outline;
    if (spec->image_size)
        GW_TRY(data_read_size(spec->image_size, f));
    GW_TRY(data_read_source(raw, spec, f));
    sample->to_rows *= raw->channels;
    if (!spec->image_size) {
        int scale = spec->image_scale;
        double inputs = (double)raw->rows * raw->cols * scale * scale;
        if (scale < 1 || inputs > GW_MAX_PIXELS)
            return gw_fail(GW_ERR_USAGE,
                           "image-scale=%d: must be at least 1, and %d x %d enlarged by it each "
                           "way at most %d inputs",
                           scale, raw->rows, raw->cols, GW_MAX_PIXELS);
        sample->to_rows = raw->rows * scale;
        sample->to_cols = raw->cols * scale;
    }
    GW_TRY(gw_raw_limit(raw, spec->limit, spec->limit_test, spec->source));
    if (!spec->outline) {
        gw_raw_hash(raw, f->hash);
        GW_TRY(gw_raw_split(raw, spec->validation, spec->seed));
    } else {
        GW_TRY(gw_raw_apart(raw->train.n, spec->validation, &raw->validation.n));
        raw->train.n -= raw->validation.n;
    }
    if (spec->partition.on) {
        gw_division_job job = {&spec->partition, spec->seed, spec->parts, spec->batch};
        GW_TRY(gw_division_make(divided, &job, raw, spec->outline));
    }
    sample->channels = raw->channels;
    sample->rows = raw->rows;
    sample->cols = raw->cols;
    sample->targets = raw->targets;
    sample->tokens = raw->tokens;
    f->parts = divided->parts;
    f->train = raw->train.n;
    f->validation = raw->validation.n;
    f->test = raw->test.n;
    f->classes = raw->classes;
    f->sharded = spec->sharded;
    f->batch = spec->batch;
    f->servers = spec->servers;
    memcpy(f->source, raw->source, sizeof f->source);
    int64_t times = spec->replicate == 0 ? 1 : spec->replicate;
    if (times < 0 || times > INT32_MAX / (int64_t)f->train) /* ints count batches of one sample */
        return gw_fail(GW_ERR_USAGE,
                       "--replicate %lld: %u training samples so often are more than %d: give 1 to "
                       "%d",
                       (long long)times, f->train, INT32_MAX, INT32_MAX / (int)f->train);
    f->enlarged = f->train * (uint32_t)times;
    uint32_t first, count;
    gw_shares one = {.parts = 1};
    return spec->sharded ? gw_portion_cut(f->enlarged, f->batch, 0, one, &first, &count) : GW_OK;
}

static size_t data_take(size_t *at, size_t bytes) {
    size_t here = *at;
    *at += (bytes + GW_ALIGN - 1) / GW_ALIGN * GW_ALIGN;
    return here;
}

/* The bytes of a sample's image, and of its labels. */
static size_t data_image_bytes(const facts *f) {
    return (size_t)f->sample.rows * (size_t)f->sample.cols;
}

static size_t data_label_bytes(const facts *f) {
    return (size_t)f->sample.targets * sizeof(gw_label);
}

/* Rank 0 leads its node, and the leaders. The segments of a node's ranks make one copy; ranks of
 * one process have rank 0's. */
static gw_err data_node_memory(hold *h, MPI_Comm comm, size_t bytes, int rank) {
    if (gw_team_of(comm)) {
        h->alone = rank == 0;
        GW_TRY(gw_agree(comm, h->alone ? gw_alloc(&h->copy, bytes, 1) : GW_OK));
        return gw_bcast(&h->copy, (int)sizeof h->copy, MPI_BYTE, 0, comm);
    }
    GW_TRY(gw_shared_open(&h->node, comm));
    bool leads = gw_shared_rank(h->node) == 0;
    GW_MPI(MPI_Comm_split(comm, leads ? 0 : MPI_UNDEFINED, rank, &h->leaders));
    if (leads)
        GW_MPI(MPI_Comm_set_errhandler(h->leaders, MPI_ERRORS_RETURN));
    size_t ranks = (size_t)gw_shared_size(h->node);
    void *mine = NULL;
    h->alone = ranks == 1; /* plain memory is enough, in large pages */
    gw_err e = h->alone ? gw_alloc(&h->copy, bytes, 1)
                        : gw_shared_alloc(h->node, (bytes + ranks - 1) / ranks, &mine);
    if (e == GW_OK && !h->alone)
        h->copy = gw_shared_twin(h->node, mine, 0);
    return gw_agree(comm, e);
}

static void data_place_part(uint8_t *copy, const layout *l, int p, const gw_raw_part *part,
                            const facts *f) {
    if (part->n == 0)
        return;
    memcpy(copy + l->images[p], part->images, part->n * data_image_bytes(f));
    memcpy(copy + l->labels[p], part->labels, part->n * data_label_bytes(f));
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
    /* Touch every page that another rank has written. Otherwise the first pass over the data takes
     * a page fault a page inside its batches, and the rank's memory grows meanwhile. */
    const volatile uint8_t *copy = h->copy;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (size_t i = 0; i < l->bytes; i += page)
        (void)copy[i];
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

static gw_err data_scatter(hold *h, const facts *f, const gw_raw *raw, gw_dataset *train,
                           MPI_Comm comm, int rank) {
    int ranks;
    gw_span *cut = NULL;
    size_t image = data_image_bytes(f), label = data_label_bytes(f);
    GW_TRY(gw_comm_place(comm, NULL, &ranks));
    gw_err e = gw_alloc(&cut, (size_t)ranks, sizeof *cut);
    gw_shares equal = {.parts = ranks - f->servers}, by = f->parts > 0 ? train->shares : equal;
    for (int r = 0; e == GW_OK && r < ranks; r++) {
        uint32_t first = 0, count = 0;
        e = gw_portion_cut(f->enlarged, f->batch, r - f->servers, by, &first, &count);
        cut[r] = (gw_span){first, count};
    }
    GW_THEN(e, gw_alloc(&h->portion, data_stored(f, cut[rank]), image));
    GW_THEN(e, gw_alloc(&h->labels, data_stored(f, cut[rank]), label));
    e = gw_agree(comm, e);
    if (e == GW_OK) {
        for (int r = 0; r < ranks && !f->outline; r++) {
            way images = {raw->train.images, h->portion, image, rank, r, comm};
            way classes = {
                (const uint8_t *)raw->train.labels, (uint8_t *)h->labels, label, rank, r, comm};
            GW_THEN(e, data_pass_portion(&images, f, cut[r]));
            GW_THEN(e, data_pass_portion(&classes, f, cut[r]));
        }
        train->images = h->portion;
        train->labels = h->labels;
        train->first = (uint32_t)cut[rank].off;
        train->n = (uint32_t)cut[rank].n;
        train->stored = (uint32_t)data_stored(f, cut[rank]);
    }
    free(cut);
    return e;
}

static gw_dataset data_part_of(const facts *f, const layout *l, const uint8_t *copy, int p,
                               uint32_t n) {
    gw_dataset part = f->sample;
    part.n = part.n_global = part.stored = n;
    part.images = copy + l->images[p];
    part.labels = (const gw_label *)(const void *)(copy + l->labels[p]);
    return part;
}

static gw_err data_spread(gw_data *d, const facts *f, const gw_raw *raw, MPI_Comm comm, int rank) {
    hold *h = d->priv;
    layout l = {.bytes = 0};
    uint32_t n[PARTS] = {f->sharded ? 0 : f->train, f->validation, f->test};
    for (int p = 0; p < PARTS; p++) {
        l.images[p] = data_take(&l.bytes, n[p] * data_image_bytes(f));
        l.labels[p] = data_take(&l.bytes, n[p] * data_label_bytes(f));
    }
    GW_TRY(data_node_memory(h, comm, l.bytes, rank));
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

gw_err gw_data_open(gw_data **out, const gw_data_spec *spec, MPI_Comm comm) {
    int rank;
    struct {
        gw_data data;
        hold hold;
    } *both = NULL;
    gw_data *d = NULL;
    gw_raw raw = {0};
    facts f = {0};
    GW_TRY(gw_comm_place(comm, &rank, NULL));
    gw_err e = gw_alloc(&both, 1, sizeof *both);
    if (e == GW_OK) {
        both->hold.leaders = MPI_COMM_NULL;
        d = &both->data;
        d->priv = &both->hold;
    }
    if (e == GW_OK && rank == 0)
        e = data_read_and_split(&raw, spec, &f, &d->divided);
    e = gw_agree(comm, e);
    GW_THEN(e, gw_bcast(&f, (int)sizeof f, MPI_BYTE, 0, comm));
    if (e == GW_OK && f.parts > 0) {
        d->divided.parts = f.parts;
        if (!d->divided.ends)
            e = gw_alloc(&d->divided.ends, (size_t)f.parts, sizeof *d->divided.ends);
        e = gw_agree(comm, e);
        GW_THEN(e, gw_bcast(d->divided.ends, f.parts, MPI_UINT32_T, 0, comm));
    }
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
