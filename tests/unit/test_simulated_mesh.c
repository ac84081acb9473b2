/* Simulated meshes: what hops and gradients send, by closed form; steps and bubbles by those of the
 * timetables, where hops take no time; and a whole model against one stage. */
#include <math.h>

#include "../simulated.h"
#include "unit.h"

enum { MOST_LAYERS = 24, PART = 3 /* floats of a sample that pass on */ };

/* Layers that take as long as each other, 6 ms forward and 12 back on a batch. */
static gw_step_tensor layer[MOST_LAYERS];

static gw_step_profile profile_of(int layers, long batch, double optimizer_s) {
    gw_step_profile p = {.model = "equal layers",
                         .batch = batch,
                         .n_tensors = layers,
                         .groups = layers,
                         .optimizer_s = optimizer_s,
                         .tensor = layer};
    for (int i = 0; i < layers; i++) {
        layer[i] = (gw_step_tensor){"w", i, 100, 10, 6e-3, 12e-3, 0, PART};
        p.n += layer[i].n;
        p.forward_s += layer[i].forward_s;
        p.backward_s += layer[i].backward_s;
    }
    return p;
}

static gw_err parallel_of(gw_parallel *o, int data, int pipe, int micros, const char *timetable) {
    *o = (gw_parallel){.shape = {{data, pipe, 1}, {GW_DIM_TENSOR, GW_DIM_PIPE, GW_DIM_DATA}},
                       .stages = "flops",
                       .microbatches = micros};
    return keep_spec(&o->timetable, timetable, GW_SPEC_ONE);
}

/* A play of `of` over data x pipe ranks. What is not to be had has an error. */
static gw_err play_mesh(gw_sim_play *p, gw_sim_mesh *m, const gw_parallel *o,
                        const gw_step_profile *of, const char *comm) {
    p->script.profile = of;
    p->script.mesh = m;
    gw_err e = gw_sim_mesh_open(m, o, of, p->world.ranks);
    GW_THEN(e, run_play(p, comm, "none"));
    return e;
}

/* ---- timetables ---- */

/* Of two layers each the upper one has all of the backward pass, the lower one all of the other,
 * and they are not cut apart: the delta leaves at the end. */
static gw_step_profile pairs_of(gw_step_profile p) {
    for (int i = p.n_tensors; i-- > 0;) {
        layer[2 * i + 1] = layer[2 * i] = layer[i];
        layer[2 * i].activation = 0;
        layer[2 * i].backward_s = layer[2 * i + 1].forward_s = 0;
        layer[2 * i].group = 2 * i;
        layer[2 * i + 1].group = 2 * i + 1;
    }
    p.groups = p.n_tensors *= 2;
    p.n *= 2;
    return p;
}

/* A run of one layer each, whose delta leaves when half of the backward pass is over: no later than
 * the formula has it. Or of two, by the formula. */
static void compare(const char *text, int stages, int micros, bool early, int *compared) {
    gw_sim_play p = play_of(stages, (gw_sim_link){RATE, 0, 0, 0});
    gw_sim_mesh m;
    gw_parallel o;
    gw_timetable *t = NULL;
    assert_int_equal(parallel_of(&o, 1, stages, micros, text), GW_OK);
    gw_err e = gw_timetable_open(&t, o.timetable, stages, micros);
    if (e == GW_ERR_UNSUPPORTED || (stages == 1 && gw_timetable_chunks(t) > 1)) {
        gw_timetable_close(t);
        return;
    }
    assert_int_equal(e, GW_OK);
    int chunks = gw_timetable_chunks(t);
    double each_s = 6e-3 * chunks / micros, busy_s = 18e-3 * chunks;
    double bubble_s = gw_timetable_bubble(t, &(gw_act_cost){each_s, each_s, each_s});
    gw_step_profile of = profile_of(stages * chunks, micros, 0);
    of = early ? of : pairs_of(of);
    p.script.sleeps = micros % 2;
    p.steps = 3;
    if (play_mesh(&p, &m, &o, &of, "allreduce:algo=ring") != GW_OK)
        fail_msg("%s: %s", text, gw_err_text());
    /* a hop takes some ns */
    bool as_said = early ? p.bubble_s < bubble_s + 1e-5 : fabs(p.bubble_s - bubble_s) < 1e-5;
    if (!as_said || fabs(p.step_s - busy_s - p.bubble_s) > 1e-5 ||
        fabs(p.exposed_s - p.bubble_s) > 1e-5)
        fail_msg("%s, %d stages, %d microbatches: a step of %.9g s, a bubble of %.9g, not %.9g",
                 text, stages, micros, p.step_s, p.bubble_s, bubble_s);
    gw_timetable_close(t);
    gw_sim_mesh_close(&m);
    ++*compared;
}

static void test_timetables(void **state) {
    static const char *const more[] = {"1f1b:eager=1", "interleaved:chunks=1",
                                       "interleaved:chunks=3"};
    for (int i = 0, n = 0; n < 3; i++) {
        const gw_entry *entry = n == 0 ? gw_timetables.entries[i] : NULL;
        const char *text = entry ? entry->name : more[n++];
        int compared = 0;
        for (int stages = 1; stages <= 4; stages++)
            for (int micros = stages > 1 ? stages : 2; micros <= 3 * stages; micros++)
                for (int early = 0; early < 2; early++)
                    compare(text, stages, micros, early, &compared);
        assert_true(compared > 0);
    }
}

/* ---- bytes ---- */

static void test_bytes(void **state) {
    for (int data = 1; data <= 3; data++)
        for (int pipe = 1; pipe <= 4; pipe++)
            for (int micros = 1; micros <= 5; micros += 2) {
                gw_sim_play p = play_of(data * pipe, link_with_all);
                gw_sim_mesh m;
                gw_parallel o;
                gw_step_profile of = profile_of(8, 5, 1e-3); /* which microbatches may not divide */
                assert_int_equal(parallel_of(&o, data, pipe, micros, "1f1b"), GW_OK);
                assert_int_equal(play_mesh(&p, &m, &o, &of, "allreduce:algo=(ring:chunk=0)"),
                                 GW_OK);
                uint64_t sums = 2 * (uint64_t)(data - 1) * sizeof(float) * of.n,
                         hops = (uint64_t)(data * (pipe - 1)) * 2 * 5 * PART * sizeof(float);
                assert_int_equal(p.tally.bytes, p.steps * (sums + hops));
                assert_int_equal(p.tally.messages, p.steps * (pipe * 2 * data * (data - 1) +
                                                              data * (pipe - 1) * 2 * micros));
                gw_sim_mesh_close(&m);
            }
}

/* ---- tensor ranks ---- */

enum { SUM = 7, BACK = 4, TOLD = 2, SIX = 6 };

/* Six layers, cut by columns and rows in turn, the last one by classes. */
static gw_step_profile shared_of(long batch) {
    gw_step_profile p = profile_of(SIX, batch, 1e-3);
    p.n = 0;
    for (int i = 0; i < SIX; i++) {
        bool rows = i % 2;
        layer[i].n = 120;
        layer[i].shard = rows ? layer[i].rows : layer[i].n / layer[i].rows;
        layer[i].shard_rows = rows;
        layer[i].forward_sum = rows ? SUM : 0;
        layer[i].backward_sum = rows || i == 0 ? 0 : BACK;
        layer[i].forward_gather = i + 1 == SIX ? TOLD : 0;
        p.n += layer[i].n;
    }
    return p;
}

static gw_err play_shared(gw_sim_play *p, gw_sim_mesh *m, int data, int pipe, int tensor,
                          int micros, int pieces, const gw_step_profile *of) {
    gw_parallel o;
    assert_int_equal(parallel_of(&o, data, pipe, micros, "1f1b"), GW_OK);
    o.shape.size[GW_DIM_TENSOR] = tensor;
    o.tensor_chunks = tensor > 1 ? pieces : 1;
    if (tensor > 1)
        assert_int_equal(keep_spec(&o.tensor_algo, "ring:chunk=0", GW_SPEC_ONE), GW_OK);
    return play_mesh(p, m, &o, of, "allreduce:algo=(ring:chunk=0)");
}

static void test_tensor_bytes(void **state) {
    for (int data = 1; data <= 2; data++)
        for (int pipe = 1; pipe <= 3; pipe++)
            for (int tensor = 1; tensor <= 3; tensor++)
                for (int pieces = 1; pieces <= 2; pieces++) {
                    gw_sim_play p = play_of(data * pipe * tensor, link_with_all);
                    gw_sim_mesh m;
                    gw_step_profile of = shared_of(5); /* in 2 microbatches */
                    assert_ok(play_shared(&p, &m, data, pipe, tensor, 2, pieces, &of));
                    /* behind a layer cut by rows each rank has all that passes on */
                    static const int all_behind[] = {0, 0, 2};
                    uint64_t passing = pipe == 2 ? 1 : (uint64_t)(all_behind[pipe - 1] * tensor),
                             floats = 2 * (uint64_t)(data - 1) * of.n +
                                      (uint64_t)data * 5 * 2 * PART * passing +
                                      (uint64_t)data * 5 * 2 * (uint64_t)(tensor - 1) *
                                          (3 * SUM + 2 * BACK) +
                                      (uint64_t)(data * 5 * tensor * (tensor - 1) * TOLD);
                    assert_int_equal(p.tally.bytes, p.steps * sizeof(float) * floats);
                    gw_sim_mesh_close(&m);
                }
}

/* What tensor ranks sum takes as long as an allreduce of so many floats alone; parts of it hide
 * behind the computation of others; and each computes its part. */
static void test_tensor_times(void **state) {
    for (int tensor = 2; tensor <= 4; tensor++) {
        double step_s[2], sum_s[2];
        for (int k = 0; k < 2; k++) {
            gw_step_profile bytes = bytes_only;
            gw_sim_play p = play_of(tensor, link_with_all);
            bytes.n = one.n = k ? 480000 : 960000;
            p.script.profile = &bytes;
            assert_int_equal(run_play(&p, "allreduce:algo=(ring:chunk=0)", "none"), GW_OK);
            sum_s[k] = p.step_s;
        }
        for (int pieces = 1; pieces <= 4; pieces += 3) {
            gw_sim_play p = play_of(tensor, link_with_all);
            gw_sim_mesh m;
            gw_step_profile of = profile_of(2, 8, 0);
            p.script.sleeps = true;
            layer[0].shard = layer[1].shard = 192;
            layer[0].n = layer[1].n = of.n = 192;
            of.n *= 2;
            layer[0].backward_s = 0;
            layer[0].activation = layer[1].activation = 0;
            layer[0].backward_sum = 60000;
            layer[1].forward_sum = 120000;
            assert_ok(play_shared(&p, &m, 1, 1, tensor, 1, pieces, &of));
            step_s[pieces > 1] = p.step_s;
            assert_true(m.share[0].n == 384 / (size_t)tensor);
            gw_sim_mesh_close(&m);
        }
        double computed_s = 24e-3 / tensor;
        if (fabs(step_s[0] - computed_s - sum_s[0] - sum_s[1]) > 1e-6)
            fail_msg("%d ranks: a step of %.9g s", tensor, step_s[0]);
        double hidden_s = fmin(sum_s[0], 6e-3 / tensor); /* of the last piece of four nothing is */
        assert_true(step_s[1] < step_s[0] - hidden_s / 2 && step_s[1] > step_s[0] - hidden_s);
    }
}

/* Where no other rank has a part, nothing waits for what tensor ranks would exchange, however late
 * a host is that codes. */
static void test_tensor_alone(void **state) {
    double step_s[2];
    gw_codec_price price;
    gw_sim_coding(&price, 1e-4); /* 5 ms for a layer's half */
    play_price = play_exact_price = &price;
    for (int sums = 0; sums < 2; sums++) {
        gw_sim_play p = play_of(2, link_with_all);
        gw_step_profile of = profile_of(4, 8, 0);
        p.script.profile = &of;
        p.script.sleeps = true;
        for (int i = 0; i < 4; i++) {
            layer[i].group = 0;
            layer[i].forward_sum = sums ? SUM : 0;
        }
        of.groups = 1;
        assert_int_equal(run_play(&p, "delayed:algo=ring", "none"), GW_OK);
        step_s[sums] = p.step_s;
    }
    play_price = play_exact_price = NULL;
    assert_true(step_s[0] == step_s[1]);
}

/* Times of a share that was measured are those of each tensor rank; others are divided. */
static void test_tensor_shared(void **state) {
    for (int shared = 0; shared < 2; shared++) {
        gw_sim_play p = play_of(2, (gw_sim_link){RATE, 0, 0, 0});
        gw_sim_mesh m;
        gw_step_profile of = profile_of(2, 8, 0);
        of.shared = shared;
        for (int i = 0; i < 2; i++)
            layer[i].shard = layer[i].rows;
        assert_ok(play_shared(&p, &m, 1, 1, 2, 1, 1, &of));
        double computed_s = 2 * 18e-3 / (shared ? 1 : 2);
        if (fabs(p.step_s - computed_s) > 1e-6)
            fail_msg("shared %d: a step of %.9g s", shared, p.step_s);
        gw_sim_mesh_close(&m);
    }
}

/* What a group sums of its input's gradient travels in one piece. */
static void test_tensor_groups(void **state) {
    gw_sim_play p = play_of(3, link_with_all);
    gw_sim_mesh m;
    gw_step_profile of = shared_of(5);
    for (int i = 0; i < SIX; i++)
        layer[i].group = i >= 2;
    of.groups = 2;
    assert_int_equal(play_shared(&p, &m, 1, 1, 3, 1, 1, &of), GW_OK);
    assert_int_equal(m.joined, 5 * 2 * SUM); /* more than 2 * BACK */
    gw_sim_mesh_close(&m);
}

static void test_tensor_refusals(void **state) {
    gw_sim_play p = play_of(4, link_with_all);
    gw_sim_mesh m;
    gw_step_profile of = profile_of(4, 8, 0);
    assert_fails(play_shared(&p, &m, 1, 1, 4, 1, 1, &of), GW_ERR_USAGE,
                 "does not say what tensor ranks divide");
    gw_sim_mesh_close(&m);
    p = play_of(8, link_with_all);
    of = shared_of(8);
    layer[2].forward_sum = 0; /* so that they have parts of what passes on */
    assert_fails(play_shared(&p, &m, 1, 2, 4, 1, 1, &of), GW_ERR_USAGE,
                 "divide the 3 floats that pass on behind w");
    gw_sim_mesh_close(&m);
    layer[3].shard = 3;
    assert_fails(play_shared(&p, &m, 1, 2, 4, 1, 1, &of), GW_ERR_USAGE,
                 "comes in 3 parts: at most tensor=3");
    gw_sim_mesh_close(&m);
}

/* ---- strategies ---- */

/* Each is played over a mesh, too, if it can be played, whatever it exchanges (which play.h
 * compares with its formula), and with servers among the replicas. */
static void test_strategies(void **state) {
    for (int i = 0; gw_strategies.entries[i]; i++)
        for (int lazy = 0; lazy < 2; lazy++) {
            char comm[64];
            gw_sim_mesh m;
            gw_parallel o;
            gw_step_profile of = profile_of(4, 6, 1e-3);
            gw_sim_play plain = play_of(3, link_with_all), p = play_of(6, link_with_all);
            snprintf(comm, sizeof comm, "%s:algo=ring", gw_strategies.entries[i]->name);
            plain.script.profile = &of;
            plain.script.lazy = p.script.lazy = lazy;
            assert_int_equal(parallel_of(&o, 3, 2, 3, lazy ? "zb" : "1f1b"), GW_OK);
            gw_err e = play_mesh(&p, &m, &o, &of, comm);
            if (e != run_play(&plain, comm, "none"))
                fail_msg("%s: %s", comm, gw_err_text());
            gw_sim_mesh_close(&m);
        }
}

/* ---- a pipe of one ---- */

/* What nothing overlaps takes as long in any number of microbatches. */
static void test_one_stage(void **state) {
    gw_step_profile of = profile_of(6, 4, 3e-3);
    gw_sim_play whole = play_of(4, link_with_all);
    whole.script.profile = &of;
    assert_int_equal(run_play(&whole, "allreduce:algo=ring", "none"), GW_OK);
    for (int micros = 1; micros <= 4; micros++) {
        gw_sim_play p = play_of(4, link_with_all);
        gw_sim_mesh m;
        gw_parallel o;
        assert_int_equal(parallel_of(&o, 4, 1, micros, micros > 1 ? "gpipe" : "1f1b"), GW_OK);
        assert_int_equal(play_mesh(&p, &m, &o, &of, "allreduce:algo=ring"), GW_OK);
        assert_true(fabs(p.step_s - whole.step_s) < 1e-7 && p.bubble_s == 0);
        assert_int_equal(p.tally.bytes, whole.tally.bytes);
        assert_int_equal(p.world.played, whole.world.played);
        gw_sim_mesh_close(&m);
    }
}

/* Stages as they are listed, whatever they compute: the longer one sets the step. */
static void test_listed_stages(void **state) {
    static const char *const cuts[] = {"1,3", "2,2"};
    for (int k = 0; k < 2; k++) {
        gw_sim_play p = play_of(2, (gw_sim_link){RATE, 0, 0, 0});
        gw_sim_mesh m;
        gw_parallel o;
        gw_step_profile of = profile_of(4, 4, 0);
        assert_int_equal(parallel_of(&o, 1, 2, 4, "gpipe"), GW_OK);
        o.stages = cuts[k];
        assert_int_equal(play_mesh(&p, &m, &o, &of, "allreduce:algo=ring"), GW_OK);
        assert_int_equal(m.sizes[0], cuts[k][0] - '0');
        assert_true(p.step_s > (k ? 2 : 3) * 18e-3);
        gw_sim_mesh_close(&m);
    }
}

/* Gradients overlap with the last microbatch's backward pass, and with no other. */
static void test_overlap(void **state) {
    double exposed_s[3];
    for (int k = 0; k < 3; k++) {
        gw_sim_play p = play_of(4, link_with_all);
        gw_sim_mesh m;
        gw_parallel o;
        gw_step_profile of = profile_of(8, 4, 0);
        for (int i = 0; i < 8; i++)
            layer[i].n = 1000000; /* 4 ms a layer on the wire */
        of.n = 8000000;
        assert_int_equal(parallel_of(&o, 2, 2, k ? 4 : 1, "gpipe"), GW_OK);
        assert_int_equal(
            play_mesh(&p, &m, &o, &of,
                      k == 1 ? "allreduce:algo=ring" : "iallreduce:bucket=4000000,algo=ring"),
            GW_OK);
        exposed_s[k] = p.exposed_s - p.bubble_s;
        gw_sim_mesh_close(&m);
    }
    /* 4 layers of 12 ms in one piece hide all but the last sum; of 3 ms a quarter of it */
    assert_true(exposed_s[0] < exposed_s[2] && exposed_s[2] < exposed_s[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_timetables),      cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_tensor_bytes),    cmocka_unit_test(test_tensor_times),
        cmocka_unit_test(test_tensor_alone),    cmocka_unit_test(test_tensor_groups),
        cmocka_unit_test(test_tensor_refusals), cmocka_unit_test(test_strategies),
        cmocka_unit_test(test_one_stage),       cmocka_unit_test(test_overlap),
        cmocka_unit_test(test_tensor_shared),   cmocka_unit_test(test_listed_stages)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
