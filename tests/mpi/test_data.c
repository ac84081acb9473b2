/* Opening a data set on several ranks: both layouts give the bytes that a single rank reads, a node
 * holds one copy, and all ranks learn what rank 0 finds wrong. */
#include "../idx_files.h"
#include "check.h"
#include "data/data.h"
#include "data/sampler.h"

#include <stdbool.h>

/* `set` holds what `whole` (read alone) does at the same global indices. */
static void expect_same(const gw_dataset *set, const gw_dataset *whole, const char *what) {
    enum { ROWS = 64 };
    int features = gw_dataset_features(whole);
    size_t room = (size_t)ROWS * (size_t)features * sizeof(float);
    float *a = malloc(room), *b = malloc(room);
    gw_label la[ROWS], lb[ROWS];
    uint32_t idx[ROWS];
    CHECK(a && b, "out of memory");
    CHECK(set->n_global == whole->n && gw_dataset_features(set) == features,
          "%s: %u samples of %d, expected %u of %d", what, set->n_global, gw_dataset_features(set),
          whole->n, features);
    for (uint32_t at = 0; at < set->n; at += ROWS) {
        int n = set->n - at < ROWS ? (int)(set->n - at) : ROWS;
        for (int i = 0; i < n; i++)
            idx[i] = set->first + at + (uint32_t)i;
        gw_dataset_gather(set, idx, n, a, la);
        gw_dataset_gather(whole, idx, n, b, lb);
        CHECK(memcmp(a, b, (size_t)n * (size_t)features * sizeof(float)) == 0,
              "%s: images from %u on differ", what, idx[0]);
        CHECK(memcmp(la, lb, (size_t)n * sizeof *la) == 0, "%s: labels from %u on differ", what,
              idx[0]);
    }
    free(a);
    free(b);
}

/* What one rank writes into the set, the other ranks of its node read. */
static void expect_one_copy(const gw_dataset *set) {
    MPI_Comm node;
    int node_rank, node_size;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, me, MPI_INFO_NULL, &node);
    MPI_Comm_rank(node, &node_rank);
    MPI_Comm_size(node, &node_size);
    volatile uint8_t *byte = (volatile uint8_t *)(uintptr_t)set->images;
    uint8_t was = *byte;
    for (int writer = 0; writer < node_size; writer++) {
        uint8_t mark = (uint8_t)(was ^ (writer + 1) ^ (me << 4 & 0x10));
        MPI_Bcast(&mark, 1, MPI_BYTE, writer, node);
        if (node_rank == writer)
            *byte = mark;
        __sync_synchronize();
        MPI_Barrier(node);
        CHECK(*byte == mark, "rank %d of the node wrote %d, here is %d", writer, mark, *byte);
        MPI_Barrier(node);
    }
    *byte = was;
    MPI_Barrier(node);
    MPI_Comm_free(&node);
}

static void expect_shards(const gw_data *d, int batch) {
    uint32_t first, count, total = d->train.n;
    CHECK_OK(
        gw_portion_cut(d->train.n_global, batch, me, (gw_shares){.parts = ranks}, &first, &count));
    CHECK(d->train.first == first && d->train.n == count, "shard %u + %u, expected %u + %u",
          d->train.first, d->train.n, first, count);
    MPI_Allreduce(MPI_IN_PLACE, &total, 1, MPI_UINT32_T, MPI_SUM, MPI_COMM_WORLD);
    CHECK(total == d->train.n_global, "shards hold %u of %u samples", total, d->train.n_global);
}

/* A set without its images, which has everything that a refusal could be about. */
static void expect_outline(const gw_data_spec *whole, const gw_data *d) {
    gw_data_spec spec = *whole;
    gw_data *o;
    spec.outline = true;
    CHECK_OK(gw_data_open(&o, &spec, MPI_COMM_WORLD));
    CHECK(strcmp(o->name, d->name) == 0 && strcmp(o->source, d->source) == 0, "source %s",
          o->source);
    CHECK(o->classes == d->classes, "%d classes, not %d", o->classes, d->classes);
    const gw_dataset *part[] = {&o->train, &o->validation, &o->test};
    const gw_dataset *want[] = {&d->train, &d->validation, &d->test};
    for (int p = 0; p < 3; p++)
        CHECK(part[p]->n == want[p]->n && part[p]->n_global == want[p]->n_global &&
                  part[p]->first == want[p]->first &&
                  gw_dataset_features(part[p]) == gw_dataset_features(want[p]),
              "part %d: %u of %u samples from %u on", p, part[p]->n, part[p]->n_global,
              part[p]->first);
    gw_data_close(o);
}

/* Both layouts of one source, compared with the set that one rank reads alone. */
static void expect_layouts(const char *source, const char *name, double validation, int scale,
                           int batch) {
    gw_data_spec spec = {.source = source,
                         .image_scale = scale,
                         .validation = validation,
                         .seed = 11,
                         .batch = batch};
    gw_data *alone, *d;
    CHECK_OK(gw_data_open(&alone, &spec, MPI_COMM_SELF));
    CHECK((alone->validation.n > 0) == (validation > 0), "%u for validation", alone->validation.n);
    for (int sharded = 0; sharded < 2; sharded++) {
        spec.sharded = sharded;
        CHECK_OK(gw_data_open(&d, &spec, MPI_COMM_WORLD));
        CHECK(strcmp(d->hash, alone->hash) == 0 && strncmp(d->hash, "crc32:", 6) == 0,
              "hash %s, alone %s", d->hash, alone->hash);
        CHECK(strcmp(d->name, name) == 0, "name %s", d->name);
        CHECK(strcmp(d->source, alone->source) == 0 && *d->source, "source %s", d->source);
        CHECK(d->classes == alone->classes, "%d classes, alone %d", d->classes, alone->classes);
        expect_same(&d->train, &alone->train, "train");
        expect_same(&d->validation, &alone->validation, "validation");
        expect_same(&d->test, &alone->test, "test");
        expect_one_copy(sharded ? &d->test : &d->train);
        if (sharded)
            expect_shards(d, batch);
        else
            CHECK(d->train.n == d->train.n_global && d->train.first == 0, "not the whole set");
        gw_sampler *s; /* the layouts are those that the sampler wants */
        CHECK_OK(gw_sampler_open(&s, &d->train, batch, sharded, 1, me, ranks));
        gw_sampler_close(s);
        expect_outline(&spec, d);
        gw_data_close(d);
    }
    gw_data_close(alone);
}

/* Each of the first samples is the next of the training or of the validation set. */
static void expect_first(const gw_data *d) {
    uint32_t next[2] = {0, 0};
    const gw_dataset *part[2] = {&d->train, &d->validation};
    for (uint32_t i = 0; i < d->train.n + d->validation.n; i++) {
        bool found = false;
        for (int p = 0; p < 2 && !found; p++) {
            const uint8_t *image = part[p]->images + next[p] * (size_t)PIXELS;
            found = next[p] < part[p]->n && part[p]->labels[next[p]] == label_of(0, i);
            for (int j = 0; found && j < PIXELS; j++)
                found = image[j] == pixel_of(0, i, j);
            next[p] += found;
        }
        CHECK(found, "sample %u of the file is missing", i);
    }
}

/* Limited, then divided, then resized and replicated: sample i is sample i mod n of one rank's,
 * in memory once, in shards that begin and end anywhere or hold all of it. */
static void expect_cut(const char *dir, int batch) {
    enum { LIMIT = 41, APART = 5, N = LIMIT - APART, TIMES = 3, TESTED = 7, INPUTS = 9 * 4 };
    gw_data_spec spec = {.source = dir,
                         .image_size = "9x4",
                         .limit = LIMIT,
                         .limit_test = TESTED,
                         .validation = 0.125,
                         .seed = 11,
                         .batch = batch};
    gw_data *alone, *d;
    CHECK_OK(gw_data_open(&alone, &spec, MPI_COMM_SELF));
    CHECK(alone->train.n == N && alone->validation.n == APART && alone->test.n == TESTED,
          "%u, %u and %u samples", alone->train.n, alone->validation.n, alone->test.n);
    CHECK(gw_dataset_features(&alone->train) == INPUTS, "not 9 x 4");
    expect_first(alone);
    spec.replicate = TIMES;
    for (int sharded = 0; sharded < 2; sharded++) {
        spec.sharded = sharded;
        CHECK_OK(gw_data_open(&d, &spec, MPI_COMM_WORLD));
        const gw_dataset *t = &d->train;
        CHECK(t->n_global == N * TIMES && strcmp(d->hash, alone->hash) == 0, "%u samples of %s",
              t->n_global, d->hash);
        CHECK(t->stored == (sharded && t->n < N ? t->n : N), "%u stored of %u", t->stored, t->n);
        for (uint32_t i = t->first; i < t->first + t->n; i++) {
            float got[INPUTS], want[INPUTS];
            gw_label label[2];
            gw_dataset_gather(t, &i, 1, got, &label[0]);
            gw_dataset_gather(&alone->train, &(uint32_t){i % N}, 1, want, &label[1]);
            CHECK(memcmp(got, want, sizeof got) == 0 && label[0] == label[1], "sample %u", i);
        }
        expect_same(&d->validation, &alone->validation, "validation");
        expect_same(&d->test, &alone->test, "test");
        if (sharded)
            expect_shards(d, batch);
        expect_outline(&spec, d);
        gw_data_close(d);
    }
    gw_data_close(alone);
}

/* Every rank gets `want` and the same message, which holds `word`. */
static void expect_refused(const gw_data_spec *spec, gw_err want, const char *word) {
    gw_data *d = NULL;
    gw_err e = gw_data_open(&d, spec, MPI_COMM_WORLD);
    char text[1024] = "";
    CHECK(e == want && d == NULL, "error %d, expected %d: %s", e, want, gw_err_text());
    CHECK(strstr(gw_err_text(), word) != NULL, "'%s' lacks '%s'", gw_err_text(), word);
    CHECK(strchr(gw_err_text(), '\n') == NULL, "more than one line: %s", gw_err_text());
    if (me == 0)
        snprintf(text, sizeof text, "%s", gw_err_text());
    MPI_Bcast(text, sizeof text, MPI_CHAR, 0, MPI_COMM_WORLD);
    CHECK(strcmp(text, gw_err_text()) == 0, "rank 0 says '%s', this one '%s'", text, gw_err_text());
    gw_data_spec outline = *spec;
    outline.outline = true;
    CHECK(gw_data_open(&d, &outline, MPI_COMM_WORLD) == want, "outline: not refused");
    CHECK(strcmp(text, gw_err_text()) == 0, "outline: '%s', not '%s'", gw_err_text(), text);
}

static void expect_errors(const char *dir) {
    gw_data_spec good = {.source = dir, .image_scale = 1, .seed = 1, .batch = 10}, spec = good;
    spec.source = "/nonexistent";
    expect_refused(&spec, GW_ERR_INPUT, "/nonexistent");
    spec.source = "synthetic:sample=3";
    expect_refused(&spec, GW_ERR_USAGE, "'samples'");
    spec.source = "";
    expect_refused(&spec, GW_ERR_USAGE, "no source");
    spec = good;
    spec.image_scale = 0;
    expect_refused(&spec, GW_ERR_USAGE, "image-scale=0");
    spec.image_scale = 2000000000;
    expect_refused(&spec, GW_ERR_USAGE, "image-scale=2000000000");
    static const char *const sizes[] = {"",     "5",   "5x",        "x5",
                                        "0x5",  "5x0", "-1x5",      "5x5x",
                                        "5 x5", "5*5", "4097x4097", "99999999999999999999x1"};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        spec = good;
        spec.image_size = sizes[i];
        expect_refused(&spec, GW_ERR_USAGE, "must be ROWSxCOLS");
    }
    spec = good;
    spec.limit = TRAIN_N + 1;
    expect_refused(&spec, GW_ERR_USAGE, "has 103 training samples: give 1 to 103");
    spec = good;
    spec.limit_test = 1 << 30;
    expect_refused(&spec, GW_ERR_USAGE, "test samples: give 1 to");
    spec = good;
    spec.replicate = INT32_MAX / TRAIN_N + 1;
    expect_refused(&spec, GW_ERR_USAGE, "--replicate 20849356: 103 training samples");
    spec.replicate = INT64_MAX;
    expect_refused(&spec, GW_ERR_USAGE, "give 1 to 20849355");
    spec = good;
    spec.validation = 1.5;
    expect_refused(&spec, GW_ERR_USAGE, "validation=1.5");
    spec = good;
    spec.sharded = true;
    spec.batch = TRAIN_N + 1;
    expect_refused(&spec, GW_ERR_USAGE, "104");
    uint8_t data[FILE_BYTES];
    if (me == 0)
        write_bytes(dir, "t10k-images-idx3-ubyte", data, idx_content(2, data) - 5);
    spec = good;
    expect_refused(&spec, GW_ERR_INPUT, "t10k-images-idx3-ubyte: truncated");
    if (me == 0)
        remove_file(dir, "t10k-images-idx3-ubyte");
}

/* Only rank 0's spec counts: a rank with a bad spec still gets the set. */
static void expect_rank_0_decides(const char *dir) {
    gw_data_spec spec = {.source = me == 0 ? dir : "/nonexistent",
                         .image_scale = 1,
                         .sharded = me != 0,
                         .seed = 1,
                         .batch = me};
    gw_data *d;
    CHECK_OK(gw_data_open(&d, &spec, MPI_COMM_WORLD));
    CHECK(d->train.n == TRAIN_N, "%u samples", d->train.n);
    gw_data_close(d);
}

#ifdef EMULATE_NODES
static void expect_two_nodes(void) {
    char library[MPI_MAX_LIBRARY_VERSION_STRING];
    int len, node_size;
    MPI_Comm node;
    MPI_Get_library_version(library, &len);
    if (!strstr(library, "MPICH"))
        return; /* other libraries cannot emulate nodes: then all is tested on one */
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_size(node, &node_size);
    MPI_Comm_free(&node);
    CHECK(node_size == (ranks + 1 - me % 2) / 2, "%d ranks on this node", node_size);
}
#endif

int main(int argc, char **argv) {
#ifdef EMULATE_NODES
    setenv("MPIR_CVAR_ODD_EVEN_CLIQUES", "1", 1); /* MPICH: odd and even ranks are two nodes */
#endif
    check_start(argc, argv);
#ifdef EMULATE_NODES
    expect_two_nodes();
#endif
    char dir[] = "/tmp/gw-test-data-XXXXXX";
    if (me == 0) {
        must(mkdtemp(dir) != NULL, dir);
        write_folder(dir, 1);
    }
    MPI_Bcast(dir, sizeof dir, MPI_CHAR, 0, MPI_COMM_WORLD);
    expect_layouts(dir, "mnist-format", 0.2, 3, 10);
    expect_layouts(dir, "mnist-format", 0, 1, 1); /* a batch of 1: some shards are empty */
    expect_layouts("synthetic:samples=300,features=17", "synthetic", 0.1, 1, 64);
    CHECK(gw_data_find_fashion_mnist() != NULL,
          "Fashion-MNIST not found: install Debian's dataset-fashion-mnist");
    expect_layouts("fashion-mnist", "fashion-mnist", 0.1, 1, 50);
    static const int batches[] = {1, 7, 50, 108}; /* 108: all samples in one batch */
    for (int i = 0; i < 4; i++)
        expect_cut(dir, batches[i]);
    expect_errors(dir);
    expect_rank_0_decides(dir);
    MPI_Barrier(MPI_COMM_WORLD);
    if (me == 0)
        remove_folder(dir);
    MPI_Finalize();
    return 0;
}
