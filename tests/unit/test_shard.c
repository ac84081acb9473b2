/* The shards of a mesh tile the whole arena, and the cuts are those that the exchanges rely on. */
#include "nn/model.h"

#include "base/rng.h"

#include "unit.h"

#include <string.h>

enum { MOST = 40000 };

static const gw_model_spec specs[] = {
    {.inputs = 7, .classes = 4, .seed = 1},
    {.inputs = 30, .classes = 10, .n_hidden = 1, .hidden = {64}},
    {.inputs = 5, .classes = 9, .n_hidden = 3, .hidden = {131, 33, 70}},
    {.inputs = 1, .classes = 6, .n_hidden = 6, .hidden = {16, 2, 65, 8, 5, 1}}, /* pairs alone */
};

/* Contiguous, not empty but beyond the last neuron, and cut at whole cache lines if there are
 * enough of them. */
static void test_parts(void **state) {
    for (int width = 1; width <= 300; width++)
        for (int parts = 1; parts <= 9; parts++) {
            size_t at = 0, widest = 0, narrowest = 300;
            for (int t = 0; t < parts; t++) {
                gw_span part = gw_share_part(width, t, parts);
                assert_int_equal(part.off, at);
                at += part.n;
                widest = part.n > widest ? part.n : widest;
                narrowest = part.n < narrowest ? part.n : narrowest;
                assert_true(part.n > 0 || width < parts);
                if (width >= 16 * parts)
                    assert_int_equal(part.off % 16, 0);
            }
            assert_int_equal(at, width);
            assert_true(widest - narrowest <= (width >= 16 * parts ? 31 : 1));
        }
}

/* Marks what a shard owns, and checks that its blocks tile its own arena, too. */
static void mark(const gw_shard *s, unsigned char *owners) {
    size_t own = 0;
    for (int b = 0; b < s->n_blocks; b++) {
        const gw_block *block = &s->blocks[b];
        assert_int_equal(block->own, own);
        own += block->rows * block->cols;
        for (size_t i = 0; i < block->rows; i++)
            for (size_t j = 0; j < block->cols; j++)
                owners[block->off + i * block->stride + j]++;
    }
    assert_int_equal(own, s->size);
}

static void check_layers(const gw_shard *s) {
    for (int i = 0; i < s->n_layers; i++) {
        const gw_shard_layer *l = &s->layers[i];
        gw_chunk chunk = s->share.chunks[l->chunk];
        size_t below = i > 0 ? gw_span_end(l[-1].layer.span) : 0;
        assert_true(l->number >= chunk.first && l->number < chunk.first + chunk.n);
        assert_true(i == 0 || l->number > l[-1].number);
        assert_int_equal(l->layer.span.off, below);
        assert_int_equal(l->layer.span.n, l->in.n * l->out.n + l->layer.own.n);
        assert_true(l->layer.in == (int)l->in.n && l->layer.out == (int)l->out.n);
        assert_true(l->layer.in > 0 && l->layer.out > 0);
        bool odd = l->number % 2, pairs = s->share.split == GW_SPLIT_PAIRS;
        assert_int_equal(l->cut, s->share.tensor == 1 ? GW_CUT_NONE
                                 : odd && pairs       ? GW_CUT_ROWS
                                                      : GW_CUT_COLUMNS);
        assert_int_equal(l->layer.partial, l->cut == GW_CUT_ROWS);
        /* what the rank leaves of a layer is what it takes as rows of the next */
        if (l->cut == GW_CUT_ROWS && i > 0 && l[-1].number + 1 == l->number)
            assert_true(l->in.off == l[-1].out.off && l->in.n == l[-1].out.n);
    }
}

static void check_mesh(const gw_model_spec *spec, int stages, int chunks, gw_share share) {
    static float whole[MOST], own[MOST], back[MOST];
    static unsigned char owners[MOST];
    int sizes[GW_MAX_LAYERS];
    double cost[GW_MAX_LAYERS];
    gw_shard s;
    for (int l = 0; l < gw_model_spec_layers(spec); l++)
        cost[l] = gw_shard_flops(spec, l);
    assert_int_equal(gw_partition(cost, gw_model_spec_layers(spec), stages * chunks, sizes), GW_OK);
    memset(owners, 0, sizeof owners);
    for (size_t i = 0; i < MOST; i++) {
        whole[i] = (float)gw_rng_normal(1, i);
        back[i] = 0;
    }
    for (int stage = 0; stage < stages; stage++)
        for (share.part = 0; share.part < share.tensor; share.part++) {
            gw_share_stage(&share, sizes, stages, chunks, stage);
            assert_int_equal(gw_shard_of(&s, spec, &share), GW_OK);
            assert_true(s.whole <= MOST);
            check_layers(&s);
            mark(&s, owners);
            gw_shard_gather(&s, whole, own);
            gw_shard_scatter(&s, own, back);
        }
    for (size_t i = 0; i < MOST; i++)
        if (owners[i] != (i < s.whole) || back[i] != (i < s.whole ? whole[i] : 0))
            fail_msg("float %zu of %zu: %d owners", i, s.whole, owners[i]);
}

static void test_tiles(void **state) {
    for (int m = 0; m < 4; m++)
        for (int chunks = 1; chunks <= 3; chunks++)
            for (int stages = 1; stages * chunks <= gw_model_spec_layers(&specs[m]); stages++)
                for (int tensor = 1; tensor <= 4; tensor++) {
                    gw_share share = {.tensor = tensor};
                    check_mesh(&specs[m], stages, chunks, share);
                    share.split = GW_SPLIT_COLUMNS;
                    if (m < 3 || tensor == 1)
                        check_mesh(&specs[m], stages, chunks, share);
                }
}

/* A strided block holds the floats of its rows and columns. */
static void test_known(void **state) {
    const gw_model_spec spec = {.inputs = 2, .classes = 3, .n_hidden = 1, .hidden = {4}};
    gw_share share = gw_share_whole(&spec);
    gw_shard s;
    float whole[27], own[27] = {0};
    for (int i = 0; i < 27; i++) /* W 2 x 4, b 4; W 4 x 3, b 3 */
        whole[i] = (float)i;
    share.tensor = 2;
    share.part = 1;
    assert_int_equal(gw_shard_of(&s, &spec, &share), GW_OK);
    assert_int_equal(s.size, 14);
    gw_shard_gather(&s, whole, own);
    const float want[] = {2, 3, 6, 7, 10, 11, 18, 19, 20, 21, 22, 23, 25, 26};
    assert_memory_equal(own, want, sizeof want);
    assert_true(s.layers[1].layer.own.off == 1 && s.layers[1].layer.own.n == 2);
}

static void refused(const gw_model_spec *spec, gw_share share, gw_err e, const char *why) {
    gw_shard s;
    assert_int_equal(gw_shard_of(&s, spec, &share), e);
    assert_string_equal(gw_err_text(), why);
}

static void test_refused(void **state) {
    gw_share share = gw_share_whole(&specs[3]);
    share.tensor = 6; /* the last layer has so many, the one by rows below it 1 */
    refused(&specs[3], share, GW_ERR_USAGE,
            "--mesh tensor=6: layer 4 has 5 neurons: at most tensor=5");
    share.chunks[0].n = 1; /* whichever layers the rank holds */
    share.part = 5;
    refused(&specs[3], share, GW_ERR_USAGE,
            "--mesh tensor=6: layer 4 has 5 neurons: at most tensor=5");
    share.split = GW_SPLIT_COLUMNS;
    refused(&specs[3], share, GW_ERR_USAGE,
            "--mesh tensor=6: layer 5 has 1 neuron: at most tensor=1");
    gw_model_spec bad = specs[1];
    bad.n_hidden = GW_MAX_LAYERS;
    refused(&bad, gw_share_whole(&specs[1]), GW_ERR_USAGE, "64 hidden layers: must be 0 to 63");
    share = gw_share_whole(&specs[1]);
    share.part = 1;
    refused(&specs[1], share, GW_ERR_INTERNAL, "part 1 of 1, 1 chunks");
    share.part = 0;
    share.chunks[0].n = 3;
    refused(&specs[1], share, GW_ERR_INTERNAL, "chunk 0: 3 layers from layer 0 on");
}

/* A shard's tensors and spans tile its arena; a part without biases has no tensor of them. */
static void test_tensors(void **state) {
    gw_share share = gw_share_whole(&specs[3]);
    gw_model_room room = {.rows = 2, .slots = {1}, .deltas = 1};
    gw_shard s;
    gw_model *m = NULL;
    share.tensor = 3;
    share.part = 0; /* of the 2 neurons of layer 1, and the 1 of layer 5, it has none */
    share.chunks[0] = (gw_chunk){1, 5};
    assert_int_equal(gw_shard_of(&s, &specs[3], &share), GW_OK);
    assert_int_equal(gw_model_open_shard(&m, &s, &room), GW_OK);
    assert_int_equal(gw_model_layers(m), 5);
    assert_int_equal(gw_model_tensor_count(m), 8);
    size_t at = 0;
    for (int i = 0; i < gw_model_tensor_count(m); i++) {
        const gw_tensor *t = &gw_model_tensors(m)[i];
        assert_int_equal(t->span.off, at);
        assert_int_equal(t->span.n, (size_t)t->rows * (size_t)t->cols);
        assert_true(t->layer >= 1 && t->layer <= 5);
        at += t->span.n;
    }
    assert_int_equal(at, gw_model_size(m));
    for (int l = 0; l < 5; l++)
        assert_memory_equal(&gw_model_spans(m)[l], &s.layers[l].layer.span, sizeof(gw_span));
    gw_model_close(m);
    room.slots[0] = 0;
    assert_int_equal(gw_model_open_shard(&m, &s, &room), GW_ERR_INTERNAL);
}

static void check_join(const gw_model *m, int l, gw_moment moment, gw_join_kind kind, size_t n) {
    gw_join join = gw_model_join(m, l, moment, (gw_micro){.n = 5});
    assert_int_equal(join.kind, kind);
    assert_int_equal(join.over.n, kind == GW_JOIN_NONE ? 0 : 5 * n);
}

/* What the tensor ranks exchange, and how much: nothing below the first layer. */
static void test_joins(void **state) {
    const gw_model_spec *spec = &specs[2]; /* four layers of 131, 33, 70 and 9 neurons */
    static const size_t block[] = {0, 48, 11, 32};
    gw_model_room room = {.rows = 5, .slots = {1}, .deltas = 1};
    for (int tensor = 1; tensor <= 3; tensor += 2)
        for (int pairs = 0; pairs <= 1; pairs++) {
            gw_share share = gw_share_whole(spec);
            gw_shard s;
            gw_model *m = NULL;
            share.tensor = tensor;
            share.split = pairs ? GW_SPLIT_PAIRS : GW_SPLIT_COLUMNS;
            assert_int_equal(gw_shard_of(&s, spec, &share), GW_OK);
            assert_int_equal(gw_model_open_shard(&m, &s, &room), GW_OK);
            for (int l = 0; l < 4; l++) {
                size_t in = (size_t)gw_model_spec_width(spec, l - 1);
                size_t out = (size_t)gw_model_spec_width(spec, l);
                bool sums = tensor > 1 && pairs, gathers = tensor > 1 && !pairs && l > 0;
                check_join(m, l, GW_MOMENT_INPUT, gathers ? GW_JOIN_ALLGATHER : GW_JOIN_NONE,
                           3 * block[l]);
                check_join(m, l, GW_MOMENT_PRODUCT,
                           sums && l % 2 ? GW_JOIN_ALLREDUCE : GW_JOIN_NONE, out);
                check_join(m, l, GW_MOMENT_DELTA,
                           gathers                       ? GW_JOIN_REDUCE_SCATTER
                           : sums && l > 0 && l % 2 == 0 ? GW_JOIN_ALLREDUCE
                                                         : GW_JOIN_NONE,
                           gathers ? 3 * block[l] : in);
                check_join(m, l, GW_MOMENT_LOSS,
                           l == 3 && tensor > 1 && !pairs ? GW_JOIN_ALLGATHER : GW_JOIN_NONE, 12);
            }
            gw_model_close(m);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts),   cmocka_unit_test(test_tiles),
        cmocka_unit_test(test_known),   cmocka_unit_test(test_refused),
        cmocka_unit_test(test_tensors), cmocka_unit_test(test_joins),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
