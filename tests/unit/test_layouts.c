/* Ways to spread a model over ranks: which there are. */
#include "predict/layout.h"

#include "unit.h"

#include <string.h>

enum { WIDTH = 512 };

/* 512 - 512 - 512 - 512 - 16 */
static const gw_model_spec spec = {
    .inputs = WIDTH, .classes = 16, .n_hidden = 3, .hidden = {WIDTH, WIDTH, WIDTH}};

static gw_spec *timetables;
static gw_parallel all[GW_LAYOUTS];
static gw_mesh_shape wanted; /* data 0: what is left */

static int list(int ranks, int batch, const gw_mesh_shape *shape) {
    gw_layout_space space = {.spec = &spec,
                             .ranks = ranks,
                             .batch = batch,
                             .shape = shape,
                             .timetables = timetables->parts,
                             .micros = {1, 2, 3, 4, 8},
                             .n_micros = 5};
    int n;
    assert_int_equal(gw_layouts_list(&space, all, &n), GW_OK);
    return n;
}

/* ---- which there are ---- */

static bool same(const gw_parallel *a, const gw_parallel *b) {
    return memcmp(&a->shape, &b->shape, sizeof a->shape) == 0 && a->columns == b->columns &&
           a->timetable == b->timetable && a->microbatches == b->microbatches;
}

static void check_layout(const gw_parallel *l, int ranks, int batch) {
    int data = l->shape.size[GW_DIM_DATA], pipe = l->shape.size[GW_DIM_PIPE];
    int tensor = l->shape.size[GW_DIM_TENSOR];
    gw_timetable *t;
    assert_int_equal(data * pipe * tensor, ranks);
    assert_true(tensor <= (l->columns ? 16 : WIDTH));
    assert_true(data <= batch && l->microbatches <= (batch + data - 1) / data);
    assert_true(tensor > 1 || !l->columns);
    assert_true(pipe > 1 ? l->timetable != NULL : l->timetable == NULL && l->microbatches == 1);
    assert_int_equal(gw_timetable_open(&t, l->timetable, pipe, l->microbatches), GW_OK);
    assert_true(pipe * gw_timetable_chunks(t) <= gw_model_spec_layers(&spec));
    gw_timetable_close(t);
}

static void test_list(void **state) {
    for (int ranks = 1; ranks <= 24; ranks++) {
        int n = list(ranks, 12, NULL), plain = 0;
        for (int i = 0; i < n; i++) {
            check_layout(&all[i], ranks, 12);
            plain += gw_layout_plain(&all[i]);
            for (int j = 0; j < i; j++)
                assert_false(same(&all[i], &all[j]));
        }
        assert_int_equal(plain, ranks <= 12);
    }
    assert_int_equal(list(1, 12, NULL), 1);
    /* data; both splits; and of a pipe 4 timetables by 5, interleaved by those that 2 divides */
    assert_int_equal(list(2, 12, NULL), 1 + 2 + 4 * 5 + 3);
    assert_int_equal(list(2, 2, NULL), 1 + 2 + 4 * 2 + 1); /* a batch of two has two parts */
}

static void test_list_of_one_mesh(void **state) {
    char text[GW_LAYOUT_TEXT];
    wanted = (gw_mesh_shape){.size = {0, 2, 2}, .order = {GW_DIM_TENSOR, GW_DIM_DATA, GW_DIM_PIPE}};
    int n = list(8, 12, &wanted);
    assert_int_equal(n, 2 * (4 * 4 + 2)); /* 6 rows are not 8, and 3 no multiple of 2 */
    for (int i = 0; i < n; i++) {
        gw_layout_mesh(&all[i], text);
        assert_string_equal(text, "tensor=2,data=2,pipe=2");
    }
    assert_int_equal(list(6, 12, &wanted), 0);
    wanted.size[GW_DIM_DATA] = 4;
    assert_int_equal(list(8, 12, &wanted), 0);
    assert_true(list(1, 12, NULL) == 1);
    gw_layout_mesh(&all[0], text);
    assert_string_equal(text, "data=1");
}

static int open_timetables(void **state) {
    return gw_spec_parse(&timetables, "test", "timetables",
                         "1f1b;1f1b:eager=1;gpipe;interleaved;zb", GW_SPEC_LIST) != GW_OK;
}

static int close_timetables(void **state) {
    gw_spec_free(timetables);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_list),
                                       cmocka_unit_test(test_list_of_one_mesh)};
    return cmocka_run_group_tests(tests, open_timetables, close_timetables);
}
