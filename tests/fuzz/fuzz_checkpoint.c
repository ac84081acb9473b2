/* What a checkpoint is read from. A spec is the kind of file: `manifest`, `rank` (the state of a
 * rank that holds a whole model), `shard` (of one that holds a part), `model` (the parameters
 * alone).
 *
 * A manifest's first byte, modulo 4:
 *   0     the rest is all of its text
 *   1     the rest is its text but for the last line, which is made right
 *   2, 3  the rest are edits (harness.h) of one that is right; the last line is made right
 * A file's first byte, modulo 4:
 *   0     the rest is all of it
 *   1     the rest are its fields; head and checksum are made right
 *   2, 3  damage (gw_fuzz_damage) to one whose fields are right; as for 1
 * Its next bit says which version of `model`. */
#include "harness.h"

#include "checkpoint/position.h"
#include "folder/store.h"
#include "nn/model.h"

#include <string.h>
#include <zlib.h>

enum { ROOM = 4 * GW_FUZZ_BYTES, PARAMS = 10, MOMENTUM = 10, SHARD = 6 };

/* ---- manifests ---- */

static const char right_text[] =
    "{\"schema\": 1, \"serial\": 7, \"utc\": \"2026-01-01T00:00:00Z\", \"gradwire\": \"0.1.0\",\n"
    "\"step\": 1200, \"epoch\": 3, \"batch\": 10, \"ranks\": 2,\n"
    "\"facts\": {\"comm\": \"allreduce\", \"lr\": 0.1, \"marks\": {\"batches.csv\": 12345}},\n"
    "\"files\": [\n"
    "{\"name\": \"model.gw\", \"bytes\": 1000, \"crc32\": \"89abcdef\"},\n"
    "{\"name\": \"rank-00000.gw\", \"bytes\": 9000000000, \"crc32\": \"00000000\"},\n"
    "{\"name\": \"rank-00001.gw\", \"bytes\": 0, \"crc32\": \"ffffffff\"}]}\n";

static const char *const words[] = {"\"schema\": ",
                                    "\"serial\": ",
                                    "\"facts\": {}",
                                    "\"files\": []",
                                    "\"ranks\": ",
                                    "\"step\": ",
                                    "rank-00002.gw",
                                    "manifest",
                                    "../",
                                    "-1",
                                    "1.5",
                                    "1e999",
                                    "\"bytes\": ",
                                    "null",
                                    "true",
                                    "[[[[[[[[",
                                    "\\u0000",
                                    "\\ud800",
                                    "9223372036854775807",
                                    "9223372036854775808",
                                    "{\"name\": \"",
                                    NULL};

static bool same_files(const gw_store_manifest *a, const gw_store_manifest *b) {
    for (size_t i = 0; i < a->n_files; i++)
        if (strcmp(a->files[i].name, b->files[i].name) != 0 ||
            a->files[i].bytes != b->files[i].bytes || a->files[i].crc32 != b->files[i].crc32)
            return false;
    return true;
}

/* What was parsed can be written, and parsing that gives the same. */
static void check_again(const gw_store_manifest *m) {
    gw_store_manifest again;
    char *text = NULL;
    size_t len;
    MUST(gw_store_print(m, &text, &len) == GW_OK);
    MUST(gw_store_parse(text, len, "again", &again) == GW_OK);
    MUST(again.serial == m->serial && again.step == m->step && again.epoch == m->epoch);
    MUST(again.batch == m->batch && again.ranks == m->ranks && again.n_files == m->n_files);
    MUST(strcmp(again.utc, m->utc) == 0 && strcmp(again.gradwire, m->gradwire) == 0);
    MUST(json_equal(again.facts, m->facts) && same_files(&again, m));
    text[len / 2] ^= 1;
    gw_store_manifest damaged;
    MUST(gw_store_parse(text, len, "damaged", &damaged) == GW_ERR_INPUT);
    gw_fuzz_forget();
    gw_store_manifest_free(&again);
    free(text);
}

static void check_manifest(const gw_store_manifest *m) {
    int ranks = 0;
    MUST(m->serial >= 1 && m->step >= 0 && m->epoch >= 1 && m->batch >= 0 && m->ranks >= 1);
    MUST(m->n_files >= (size_t)m->ranks && m->n_files <= GW_STORE_MOST_FILES);
    for (size_t i = 0; i < m->n_files; i++) {
        const char *name = m->files[i].name;
        char rank[GW_STORE_NAME];
        MUST(*name && *name != '.' && !strchr(name, '/') && strcmp(name, GW_STORE_MANIFEST) != 0);
        MUST(i == 0 || strcmp(m->files[i - 1].name, name) < 0);
        gw_store_rank_name(ranks, rank);
        ranks += strcmp(name, rank) == 0;
    }
    MUST(ranks >= m->ranks);
    check_again(m);
}

/* `text` has room for the last line. */
static size_t add_last_line(char *text, size_t n) {
    unsigned long crc = crc32_z(crc32_z(0, NULL, 0), (const Bytef *)text, n);
    return n + (size_t)sprintf(text + n, "crc32 %08lx\n", crc);
}

static void one_manifest(const uint8_t *data, size_t size) {
    enum { LINE = 32 };
    gw_store_manifest m;
    size_t n = size - 1;
    char *edited = NULL;
    const char *from = (const char *)data + 1;
    if (data[0] % 4 >= 2) {
        from = edited = gw_fuzz_edited(right_text, data + 1, size - 1, words);
        n = strlen(edited);
    }
    char *text = malloc(n + LINE);
    MUST(text != NULL);
    memcpy(text, from, n);
    if (data[0] % 4 >= 1)
        n = add_last_line(text, n);
    char *exact = realloc(text, n + !n); /* so that a sanitizer sees its end */
    MUST(exact != NULL);
    gw_fuzz_forget();
    gw_err e = gw_store_parse(exact, n, "it", &m);
    gw_fuzz_answer(e);
    MUST(e == GW_OK || (e == GW_ERR_INPUT && strncmp(gw_err_text(), "it: ", 4) == 0));
    if (e == GW_OK)
        check_manifest(&m);
    else
        MUST(!m.files && !m.facts);
    gw_store_manifest_free(&m);
    free(exact);
    free(edited);
}

/* ---- files of state ---- */

typedef struct bytes {
    uint8_t at[ROOM];
    size_t n;
} bytes;

static void put(bytes *b, const void *data, size_t n) {
    MUST(n <= sizeof b->at - b->n);
    memcpy(b->at + b->n, data, n);
    b->n += n;
}

static void begin(bytes *b, const char *magic, uint32_t number) {
    const uint32_t head[2] = {number, 0x01020304u};
    b->n = 0;
    put(b, magic, 8);
    put(b, head, sizeof head);
}

static void end(bytes *b) {
    uint32_t crc = (uint32_t)crc32_z(crc32_z(0, NULL, 0), b->at, b->n);
    put(b, &crc, sizeof crc);
}

static void field(bytes *b, const char *name, const void *data, uint64_t n) {
    uint32_t len = (uint32_t)strlen(name);
    put(b, &len, sizeof len);
    put(b, name, len);
    put(b, &n, sizeof n);
    put(b, data, n);
}

static int version; /* of the model's file, less one */

static void right_model(bytes *b) {
    const int32_t shape[5] = {2, 2, 1, 0, 0}, hidden[1] = {3}, output[2] = {1, 2}, init[2] = {0, 1};
    const uint64_t seed = 1;
    const char name[GW_MODEL_TEXT] = "mlp";
    const float params[(2 + 1) * 3 + (3 + 1) * 2] = {1, 2, 3};
    field(b, "shape", shape, sizeof shape);
    field(b, "hidden", hidden, sizeof hidden);
    field(b, "seed", &seed, sizeof seed);
    if (version >= 1) {
        field(b, "output", output, sizeof output);
        field(b, "init", init, sizeof init);
    }
    if (version >= 2)
        field(b, "model", name, sizeof name);
    field(b, "params", params, sizeof params);
}

static void right_rank(bytes *b) {
    const uint64_t sizes[8] = {PARAMS, MOMENTUM, 2, 20, 12, PARAMS, 1, 9},
                   owned[2][2] = {{0, 4}, {6, 4}};
    const gw_block all = {0, 0, 1, PARAMS, PARAMS};
    const gw_position at = {.step = 1200, .epoch = 3, .batch = 10};
    const float floats[PARAMS] = {1, 2, 3};
    field(b, "sizes", sizes, sizeof sizes);
    field(b, "position", &at, sizeof at);
    field(b, "blocks", &all, sizeof all);
    field(b, "parameters", floats, PARAMS * sizeof *floats);
    field(b, "state", floats, MOMENTUM * sizeof *floats);
    field(b, "owned", owned, sizeof owned);
    field(b, "exchange", floats, 20);
    field(b, "statistics", floats, 12);
}

/* Two columns of a matrix of three, and two of its biases. */
static void right_shard(bytes *b) {
    const uint64_t sizes[8] = {SHARD, 2 * SHARD, 1, 20, 0, PARAMS, 2, 9}, owned[1][2] = {{1, 4}};
    const gw_block blocks[2] = {{0, 0, 2, 2, 3}, {7, 4, 1, 2, 3}};
    const gw_position at = {.step = 1200, .epoch = 3, .batch = 10};
    const float floats[2 * SHARD] = {1, 2, 3};
    field(b, "sizes", sizes, sizeof sizes);
    field(b, "position", &at, sizeof at);
    field(b, "blocks", blocks, sizeof blocks);
    field(b, "parameters", floats, SHARD * sizeof *floats);
    field(b, "state", floats, sizeof floats);
    field(b, "owned", owned, sizeof owned);
    field(b, "exchange", floats, 20);
    field(b, "statistics", floats, 0);
}

static gw_fuzz_folder folder;

/* The file that the input stands for, into the folder; its size. */
static size_t put_file(int file, const char *magic, uint32_t number, void (*right)(bytes *b),
                       const uint8_t *data, size_t size) {
    bytes b = {.n = 0};
    int what = data[0] % 4;
    if (what >= 1)
        begin(&b, magic, number);
    if (what <= 1)
        put(&b, data + 1, size - 1);
    else
        right(&b);
    if (what >= 2)
        b.n = gw_fuzz_damage(b.at, b.n, data + 1, size - 1);
    if (what >= 1)
        end(&b);
    gw_fuzz_folder_put(&folder, file, b.at, b.n);
    return b.n;
}

/* Read them, so that a sanitizer sees whether they exist. */
static void touch(const void *data, size_t n) {
    for (size_t i = 0; i < n; i++)
        (void)((const volatile uint8_t *)data)[i];
}

static void one_model(const uint8_t *data, size_t size) {
    char path[128];
    gw_model *m = NULL;
    version = data[0] / 4 % 3;
    put_file(0, "GWMODEL1", (uint32_t)version + 1, right_model, data, size);
    snprintf(path, sizeof path, "%s/model.gw", folder.path);
    gw_fuzz_forget();
    gw_err e = gw_model_load(&m, path, 1, NULL);
    gw_fuzz_answer(e);
    MUST(e == GW_OK || (!m && strstr(gw_err_text(), "/model.gw: ")));
    if (e != GW_OK)
        return;
    touch(gw_model_params(m), gw_model_size(m) * sizeof(float));
    gw_model_close(m);
}

/* All that it says goes into a whole model. */
static void merge(const gw_rank_state *r) {
    gw_merge m = {0};
    float params[PARAMS], state[GW_OPTIMIZER_VECTORS * PARAMS];
    MUST(gw_merge_open(&m, PARAMS, r->vectors.count) == GW_OK);
    gw_merge_add(&m, r);
    gw_err e = gw_merge_end(&m, "it", params, state);
    MUST(e == GW_OK || e == GW_ERR_INPUT); /* it lacks a part */
    touch(params, e == GW_OK ? sizeof params : 0);
    gw_fuzz_forget();
    gw_merge_free(&m);
}

static void one_state(size_t n) {
    gw_rank_state r;
    gw_fuzz_forget();
    gw_err e = gw_rank_state_load(&r, folder.path, 0, n, PARAMS);
    gw_fuzz_answer(e);
    MUST(e == GW_OK || strstr(gw_err_text(), "/rank-00000.gw: "));
    if (e == GW_OK) {
        MUST(r.whole == PARAMS && r.n <= PARAMS && r.owned.n >= 0 && r.owned.n <= GW_MAX_LAYERS);
        touch(r.params, r.n * sizeof(float));
        touch(r.vectors.x, r.n * (size_t)r.vectors.count * sizeof(float));
        touch(r.exchange.data, r.exchange.bytes);
        touch(r.statistics.data, r.statistics.bytes);
        for (int i = 0; i < r.owned.n; i++)
            MUST(r.owned.span[i].off <= r.n && r.owned.span[i].n <= r.n - r.owned.span[i].off);
        merge(&r);
    }
    gw_rank_state_free(&r);
}

static void one_rank(const uint8_t *data, size_t size) {
    one_state(put_file(1, GW_RANK_MAGIC, GW_RANK_VERSION, right_rank, data, size));
}

static void one_shard(const uint8_t *data, size_t size) {
    one_state(put_file(1, GW_RANK_MAGIC, GW_RANK_VERSION, right_shard, data, size));
}

/* ---- all kinds ---- */

static const struct kind {
    const char *name;
    void (*one)(const uint8_t *data, size_t size);
} kinds[] = {
    {"manifest", one_manifest}, {"rank", one_rank}, {"shard", one_shard}, {"model", one_model}};
enum { KINDS = sizeof kinds / sizeof *kinds };

static const struct kind *kind;

static void each(void (*f)(const char *spec)) {
    for (int i = 0; i < KINDS; i++)
        f(kinds[i].name);
}

/* The file must be right before it is damaged. */
static void open_kind(const char *spec) {
    static const char *const names[] = {"model.gw", "rank-00000.gw"};
    const uint8_t undamaged = 2;
    kind = NULL;
    for (int i = 0; i < KINDS; i++)
        if (strcmp(kinds[i].name, spec) == 0)
            kind = &kinds[i];
    if (!kind)
        gw_fuzz_stop("no such kind of file", spec);
    gw_fuzz_folder_open(&folder, names, 2);
    gw_fuzz_forget();
    kind->one(&undamaged, 1);
    if (*gw_err_text())
        gw_fuzz_stop(gw_err_text(), spec);
}

static void close_kind(void) {
    gw_fuzz_folder_close(&folder);
}

static void one(const uint8_t *data, size_t size) {
    if (size >= 1 && size <= GW_FUZZ_BYTES)
        kind->one(data, size);
}

const gw_fuzz_target gw_fuzz_checkpoint = {.name = "checkpoint",
                                           .mutations = 30000,
                                           .words = words,
                                           .each = each,
                                           .open = open_kind,
                                           .close = close_kind,
                                           .one = one};
