/* A whole model comes back out of the files of the ranks of any mesh, to the bit; vectors from
 * those that own it. */
#include "checkpoint/position.h"

#include "base/rng.h"
#include "folder/store.h"
#include "store_kit.h"
#include "unit.h"

#include <math.h>

enum { MOST = 3000, REPLICAS = 3, VECTORS = 2 };

static const gw_model_spec spec = {
    .inputs = 7, .classes = 5, .n_hidden = 3, .hidden = {40, 33, 6}, .seed = 1};
static char dir[KIT_PATH];
static float params[MOST], vectors[VECTORS][MOST];
static gw_shard shard; /* of the rank at hand */

typedef struct mesh {
    int stages, chunks, tensor;
    gw_tensor_split split;
    int sizes[4]; /* layers of each run */
} mesh;

static const mesh meshes[] = {{1, 1, 1, GW_SPLIT_PAIRS, {4}},
                              {2, 1, 1, GW_SPLIT_PAIRS, {3, 1}},
                              {2, 2, 2, GW_SPLIT_COLUMNS, {1, 1, 1, 1}},
                              {3, 1, 5, GW_SPLIT_PAIRS, {1, 2, 1}}};

static void find_shard(const mesh *m, int place) {
    gw_share share = {.tensor = m->tensor, .part = place % m->tensor, .split = m->split};
    gw_share_stage(&share, m->sizes, m->stages, m->chunks, place / m->tensor);
    assert_int_equal(gw_shard_of(&shard, &spec, &share), GW_OK);
}

/* What a rank of the mesh writes, and reads back. Of its vectors it owns a part in two spans; the
 * rest is not to be used. */
static void one_rank(const mesh *m, int replica, int place, float drift, gw_rank_state *out) {
    static float own[MOST], state[VECTORS * MOST];
    uint64_t bytes;
    uint32_t crc32;
    find_shard(m, place);
    gw_rank_state r = {.params = own,
                       .vectors = {state, VECTORS},
                       .updates = 10 * replica + place,
                       .owned = {.n = 2}};
    gw_rank_state_shape(&r, &shard);
    gw_shard_gather(&shard, params, own);
    for (int v = 0; v < VECTORS; v++)
        gw_shard_gather(&shard, vectors[v], state + (size_t)v * r.n);
    gw_span mine = gw_span_part((gw_span){0, r.n}, replica, REPLICAS);
    for (size_t i = 0; i < r.n; i++) {
        own[i] += drift * (float)(replica - 1);
        for (int v = 0; v < VECTORS && (i < mine.off || i >= gw_span_end(mine)); v++)
            state[(size_t)v * r.n + i] = NAN;
    }
    r.owned.span[0] = gw_span_part(mine, 0, 2);
    r.owned.span[1] = gw_span_part(mine, 1, 2);
    assert_int_equal(gw_rank_state_save(&r, dir, 0, &bytes, &crc32), GW_OK);
    assert_int_equal(gw_rank_state_load(out, dir, 0, bytes, shard.whole), GW_OK);
    assert_true(gw_rank_state_alike(out, &r));
    assert_memory_equal(out->params, own, r.n * sizeof *own);
    assert_int_equal(out->vectors.count, VECTORS);
    assert_memory_equal(out->vectors.x, state, VECTORS * r.n * sizeof *state);
}

/* All ranks but that of `lacks`. */
static gw_err merge_all(gw_merge *all, const mesh *m, float drift, int lacks) {
    static float whole[MOST], state[VECTORS * MOST];
    find_shard(m, 0);
    assert_int_equal(gw_merge_open(all, shard.whole, VECTORS), GW_OK);
    for (int replica = 0; replica < REPLICAS; replica++)
        for (int place = 0; place < m->stages * m->tensor; place++) {
            gw_rank_state r;
            if (place == lacks)
                continue;
            one_rank(m, replica, place, drift, &r);
            gw_merge_add(all, &r);
            gw_rank_state_free(&r);
        }
    GW_TRY(gw_merge_end(all, "here", whole, state));
    assert_memory_equal(whole, params, shard.whole * sizeof *whole);
    for (int v = 0; v < VECTORS; v++)
        assert_memory_equal(state + (size_t)v * shard.whole, vectors[v],
                            shard.whole * sizeof *whole);
    assert_int_equal(all->updates, 10 * (REPLICAS - 1) + m->stages * m->tensor - 1);
    return GW_OK;
}

static void comes_back(void **state) {
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++)
        for (int drift = 0; drift < 2; drift++) {
            gw_merge all = {0};
            assert_int_equal(merge_all(&all, &meshes[i], (float)drift / 64, -1), GW_OK);
            assert_int_equal(all.differ, drift);
            gw_merge_free(&all);
        }
}

static void lacks_a_rank(void **state) {
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
        gw_merge all = {0};
        int places = meshes[i].stages * meshes[i].tensor;
        assert_fails(merge_all(&all, &meshes[i], 0, places - 1), GW_ERR_INPUT,
                     "here: no rank's file has parameter");
        gw_merge_free(&all);
    }
}

/* Before the first step of a run nobody owns any: it is where it was merged to. */
static void nobody_owns(void **state) {
    float whole[2], both[4];
    gw_merge all = {0};
    gw_rank_state r = {.whole = 2,
                       .blocks = {{.rows = 1, .cols = 2, .stride = 2}},
                       .n_blocks = 1,
                       .n = 2,
                       .params = (float[]){1, 2},
                       .vectors = {(float[]){3, 4, 5, 6}, 2}};
    assert_int_equal(gw_merge_open(&all, 2, 2), GW_OK);
    gw_merge_add(&all, &r);
    gw_merge_add(&all, &r);
    assert_int_equal(gw_merge_end(&all, "here", whole, both), GW_OK);
    assert_memory_equal(both, r.vectors.x, sizeof both);
    gw_merge_free(&all);
}

/* Of a matrix of 4 rows and 5 columns. */
static void sound_blocks(void **state) {
    const struct {
        gw_block b[2];
        int n;
        size_t own;
        bool sound;
    } all[] = {{{{0, 0, 4, 5, 5}}, 1, 20, true},
               {{{3, 0, 4, 2, 5}, {0, 8, 2, 3, 5}}, 2, 14, true},
               {{{0}}, 0, 0, true},
               {{{3, 0, 4, 2, 5}, {0, 8, 2, 3, 5}}, 2, 13, false},
               {{{3, 0, 4, 2, 5}, {0, 7, 2, 3, 5}}, 2, 14, false},
               {{{4, 0, 4, 2, 5}}, 1, 8, false},
               {{{3, 0, 5, 2, 5}}, 1, 10, false},
               {{{21, 0, 1, 1, 1}}, 1, 1, false},
               {{{20, 0, 1, 1, 1}}, 1, 1, false},
               {{{0, 0, 0, 1, 1}}, 1, 0, false},
               {{{0, 0, 1, 0, 1}}, 1, 0, false},
               {{{0, 0, 1, 2, 1}}, 1, 2, false},
               {{{0, 0, SIZE_MAX, 2, SIZE_MAX}}, 1, SIZE_MAX - 1, false},
               {{{0, 0, 2, 2, SIZE_MAX}}, 1, 4, false},
               {{{SIZE_MAX, 0, 1, 2, 5}}, 1, 2, false},
               {{{0, 0, 1, SIZE_MAX, SIZE_MAX}}, 1, SIZE_MAX, false}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        assert_int_equal(gw_blocks_sound(all[i].b, all[i].n, all[i].own, 20), all[i].sound);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(comes_back), cmocka_unit_test(lacks_a_rank),
                                       cmocka_unit_test(nobody_owns),
                                       cmocka_unit_test(sound_blocks)};
    if (kit_folder(dir) != 0)
        return 1;
    for (size_t i = 0; i < MOST; i++) {
        params[i] = (float)(i + 1) / 16;
        for (int v = 0; v < VECTORS; v++)
            vectors[v][i] = (float)gw_rng_normal(7 + (uint64_t)v, i);
    }
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    char path[KIT_DIR + KIT_PATH];
    snprintf(path, sizeof path, "%s/rank-00000.gw", dir);
    unlink(path);
    rmdir(dir);
    return failed;
}
