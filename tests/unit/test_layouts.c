/* Ways to spread a model over ranks: which there are, what they take by numbers worked out by hand,
 * and which is the shortest on machines made up. */
#include "select/layout.h"

#include "select/forecast.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { WIDTH = 512 };

/* 512 - 512 - 512 - 512 - 16 */
static const gw_model_spec spec = {
    .inputs = WIDTH, .classes = 16, .n_hidden = 3, .hidden = {WIDTH, WIDTH, WIDTH}};

static gw_spec *timetables;
static gw_layout all[GW_LAYOUTS];
static gw_mesh_shape wanted; /* data 0: what is left */

static void near(double got, double want) {
    if (fabs(got - want) > 1e-9 * fmax(1, fabs(want)))
        fail_msg("%.17g, expected %.17g", got, want);
}

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

static bool same(const gw_layout *a, const gw_layout *b) {
    return memcmp(&a->shape, &b->shape, sizeof a->shape) == 0 && a->split == b->split &&
           a->timetable == b->timetable && a->micro == b->micro;
}

static void check_layout(const gw_layout *l, int ranks, int batch) {
    int data = l->shape.size[GW_DIM_DATA], pipe = l->shape.size[GW_DIM_PIPE];
    int tensor = l->shape.size[GW_DIM_TENSOR];
    gw_timetable *t;
    assert_int_equal(data * pipe * tensor, ranks);
    assert_true(tensor <= (l->split == GW_SPLIT_PAIRS ? WIDTH : 16));
    assert_true(data <= batch && l->micro <= (batch + data - 1) / data);
    assert_true(tensor > 1 || l->split == GW_SPLIT_PAIRS);
    assert_true(pipe > 1 ? l->timetable != NULL : l->timetable == NULL && l->micro == 1);
    assert_int_equal(gw_timetable_open(&t, l->timetable, pipe, l->micro), GW_OK);
    assert_true(pipe * gw_timetable_chunks(t) <= gw_model_spec_layers(&spec));
    gw_timetable_close(t);
}

static void test_list(void **state) {
    (void)state;
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
    (void)state;
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

/* ---- what they take ---- */

static gw_layout_forecast predict(const gw_layout_price *p, const char *name, int stages,
                                  int micro) {
    gw_timetable *t;
    gw_layout_forecast f;
    assert_int_equal(gw_timetable_open(&t, &GW_SPEC_NAMED(name), stages, micro), GW_OK);
    assert_int_equal(gw_layout_predict(p, t, &f), GW_OK);
    gw_timetable_close(t);
    near(f.step_s, f.compute_s + f.bubble_s + f.tensor_s + f.exchange_s);
    return f;
}

static void test_one_stage(void **state) {
    (void)state;
    gw_layout_price p = {.chunks = 1,
                         .run = {{.act = {3, 2, 4}, .tensor_forward_s = 1, .tensor_backward_s = 5}},
                         .stage = {{.exchange_s = 7, .update_s = 2}}};
    gw_layout_forecast f = predict(&p, "1f1b", 1, 1);
    near(f.compute_s, 3 + 2 + 4 + 2);
    near(f.tensor_s, 6);
    near(f.exchange_s, 7);
    near(f.bubble_s, 0);
    p.link = true; /* of 5 s of the delta's sum 4 pass under the weights' gradient */
    near(predict(&p, "1f1b", 1, 1).tensor_s, 2);
    near(predict(&p, "1f1b", 1, 4).tensor_s, 8);
}

/* Two equal stages: the bubble is the timetable's; what comes behind a step does not overlap. */
static void test_two_stages(void **state) {
    (void)state;
    gw_run_cost run = {.act = {2, 1, 2}, .tensor_forward_s = 1, .tensor_backward_s = 1};
    gw_layout_price p = {.chunks = 1, .run = {run, run}, .stage = {{4, 1}, {4, 1}}};
    for (int micro = 2; micro <= 8; micro *= 2) {
        gw_layout_forecast f = predict(&p, "1f1b", 2, micro);
        near(f.bubble_s, 3 + 4);
        near(f.step_s, micro * 7 + 7 + 5);
        near(f.tensor_s, 2 * micro);
        near(predict(&p, "zb", 2, micro).bubble_s, 2 + 1); /* I, and of F what W does not fill */
    }
    p.run[0].activation_s = p.run[1].delta_s = 1;
    near(predict(&p, "gpipe", 2, 4).step_s, 4 * 7 + 7 + 5 + 2);
    p.link = true; /* but where weights' gradients have an action of their own: stage 1 of zb */
    near(predict(&p, "gpipe", 2, 4).tensor_s, 4);
    near(predict(&p, "zb", 2, 4).tensor_s, 4 + 4 / 2.0);
}

/* A delta that leaves a B before the last of its weights' gradients, as it leaves an I. */
static void test_early_delta(void **state) {
    (void)state;
    gw_run_cost run = {.act = {2, 1, 2}};
    gw_layout_price p = {.chunks = 1, .run = {run, run}};
    near(predict(&p, "gpipe", 2, 1).step_s, 4 + 3 + 3);
    p.run[1].early_s = 2;
    near(predict(&p, "gpipe", 2, 1).step_s, 4 + 1 + 3);
    near(predict(&p, "zb", 2, 1).step_s, 4 + 1 + 3);
}

/* A stage that is done early exchanges its gradients while the others still compute. */
static void test_tail_of_the_last_stage(void **state) {
    (void)state;
    gw_run_cost run = {.act = {1, 1, 1}};
    gw_layout_price p = {.chunks = 1, .run = {run, run}, .stage = {{0, 0}, {2, 0}}};
    near(predict(&p, "gpipe", 2, 2).step_s, 2 * 3 + 3);
    p.stage[1].exchange_s = 30;
    near(predict(&p, "gpipe", 2, 2).step_s, 2 * 3 + 30);
}

/* ---- which is the shortest ---- */

/* A machine made up: operations and bytes a second, and seconds a message. */
typedef struct machine {
    double flops, rate, latency;
} machine;

static double sum_of(const machine *m, double bytes, int ranks) {
    return ranks == 1 ? 0 : m->latency + 2 * bytes * (ranks - 1) / ranks / m->rate;
}

/* Layer by layer, all but the last, narrow one. */
static gw_layout_price price_of(const machine *m, const gw_layout *l, int batch) {
    int stages = l->shape.size[GW_DIM_PIPE], tensor = l->shape.size[GW_DIM_TENSOR];
    int data = l->shape.size[GW_DIM_DATA], held = 4 / stages;
    double rows = (double)batch / data / l->micro, outputs = 4.0 * rows * WIDTH;
    double product = 2 * rows * WIDTH * WIDTH / tensor / m->flops;
    gw_layout_price p = {.chunks = 1};
    for (int s = 0; s < stages; s++) {
        p.run[s] = (gw_run_cost){.act = {held * product, held * product, held * product},
                                 .tensor_forward_s = held / 2.0 * sum_of(m, outputs, tensor),
                                 .tensor_backward_s = held / 2.0 * sum_of(m, outputs, tensor),
                                 .activation_s = m->latency + outputs / m->rate,
                                 .delta_s = m->latency + outputs / m->rate};
        p.stage[s].exchange_s = sum_of(m, 4.0 * held * WIDTH * WIDTH / tensor, data);
    }
    return p;
}

/* Of data, tensor and pipe alone (1f1b, four microbatches): which dimension is spread. */
static gw_dim best(const machine *m, int ranks, int batch) {
    double step_s[GW_DIMS];
    for (int d = 0; d < GW_DIMS; d++) {
        gw_layout l = {.shape = {.size = {1, 1, 1}}, .micro = d == GW_DIM_PIPE ? 4 : 1};
        l.shape.size[d] = ranks;
        gw_layout_price p = price_of(m, &l, batch);
        step_s[d] = predict(&p, "1f1b", l.shape.size[GW_DIM_PIPE], l.micro).step_s;
    }
    return (gw_dim)gw_forecast_choose(step_s, GW_DIMS, GW_DIM_DATA, 0.05);
}

static void test_choice(void **state) {
    (void)state;
    /* Two layers of w x w: data sends 16 w^2 bytes, tensor 16 b w: less if the batch is smaller. */
    machine fast = {1e11, 1e9, 1e-6};
    assert_int_equal(best(&fast, 2, WIDTH / 8), GW_DIM_TENSOR);
    assert_int_equal(best(&fast, 2, WIDTH * 8), GW_DIM_DATA);
    /* Where a message costs much, there is one to a step. */
    machine far = {1e11, 1e12, 1e-2};
    assert_int_equal(best(&far, 2, WIDTH / 8), GW_DIM_DATA);
    /* A slow link: only outputs at stages' ends are sent, and the bubble is the lesser evil. */
    machine slow = {1e11, 1e7, 1e-6};
    assert_int_equal(best(&slow, 2, WIDTH / 8), GW_DIM_PIPE);
    /* A gain within the margin is none. */
    machine free_of_charge = {1e11, 1e15, 0};
    assert_int_equal(best(&free_of_charge, 2, WIDTH), GW_DIM_DATA);
}

static int open_timetables(void **state) {
    (void)state;
    return gw_spec_parse(&timetables, "test", "timetables",
                         "1f1b;1f1b:eager=1;gpipe;interleaved;zb", GW_SPEC_LIST) != GW_OK;
}

static int close_timetables(void **state) {
    (void)state;
    gw_spec_free(timetables);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_list),        cmocka_unit_test(test_list_of_one_mesh),
        cmocka_unit_test(test_one_stage),   cmocka_unit_test(test_two_stages),
        cmocka_unit_test(test_early_delta), cmocka_unit_test(test_tail_of_the_last_stage),
        cmocka_unit_test(test_choice),
    };
    return cmocka_run_group_tests(tests, open_timetables, close_timetables);
}
