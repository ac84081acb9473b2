/* Every timetable of the registry, or the plugin that argv[1] names: the actions of a step are
 * complete, in an order that ends, and take the time and the slots that the timetable promises. */
#include "comm/pipeline/timetable.h"

#include <string.h>

#include "../simulated.h"
#include "unit.h"

enum { STAGES = 8, CHUNKS = 8, MICRO = 3 * STAGES, RUNS = STAGES * CHUNKS, KINDS = 4 };

/* Whole seconds, so that sums are exact: F, I and W equal, and each of them shorter and longer than
 * the others. */
static const gw_act_cost costs[] = {{1, 1, 1}, {1, 2, 3}, {3, 1, 2}, {2, 3, 1},
                                    {3, 2, 1}, {1, 5, 1}, {5, 1, 1}, {1, 1, 5}};
enum { COSTS = sizeof costs / sizeof *costs };

static const char *plugin;

/* ---- all cases ---- */

typedef void (*check)(const gw_timetable *t);

static const gw_spec *opened_by;

static gw_err open_text(gw_timetable **t, const char *text, int stages, int micro) {
    assert_int_equal(keep_spec(&opened_by, text, GW_SPEC_ONE), GW_OK);
    return gw_timetable_open(t, opened_by, stages, micro);
}

static void each_size(const char *text, check holds) {
    int opened = 0;
    for (int p = 1; p <= STAGES; p++)
        for (int m = 1; m <= 3 * p; m++) {
            gw_timetable *t = NULL;
            gw_err e = open_text(&t, text, p, m);
            if (e == GW_ERR_UNSUPPORTED)
                continue;
            if (e != GW_OK)
                fail_msg("%s on %d stages, %d microbatches: %s", text, p, m, gw_err_text());
            assert_true(gw_timetable_chunks(t) <= CHUNKS);
            holds(t);
            gw_timetable_close(t);
            opened++;
        }
    assert_true(opened > 0);
}

static void each_case(check holds) {
    static const char *const options[] = {"1f1b:eager=1", "interleaved:chunks=1",
                                          "interleaved:chunks=3"};
    if (plugin) {
        each_size(plugin, holds);
        return;
    }
    for (const gw_entry *const *e = gw_timetables.entries; *e; e++)
        each_size((*e)->name, holds);
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        each_size(options[i], holds);
}

static void differs(const gw_timetable *t, const char *what, double is, double should_be) {
    if (is != should_be)
        fail_msg("%s on %d stages, %d microbatches: %s: %g, not %g", gw_timetable_name(t),
                 gw_timetable_stages(t), gw_timetable_micro(t), what, is, should_be);
}

static int runs_of(const gw_timetable *t) {
    return gw_timetable_stages(t) * gw_timetable_chunks(t);
}

/* ---- order ---- */

static int times[KINDS][RUNS][MICRO];

static int *done(gw_act_kind kind, const gw_timetable *t, gw_place at, int micro) {
    return &times[kind][at.chunk * gw_timetable_stages(t) + at.stage][micro];
}

static void complete(const gw_timetable *t) {
    memset(times, 0, sizeof times);
    for (int s = 0; s < gw_timetable_stages(t); s++) {
        int n;
        const gw_act *a = gw_timetable_acts(t, s, &n);
        for (int i = 0; i < n; i++)
            ++*done(a[i].kind, t, (gw_place){s, a[i].chunk}, a[i].micro);
    }
    for (int run = 0; run < runs_of(t); run++)
        for (int j = 0; j < gw_timetable_micro(t); j++) {
            int backward = times[GW_ACT_BACKWARD][run][j];
            differs(t, "forwards of a microbatch", times[GW_ACT_FORWARD][run][j], 1);
            differs(t, "B and I", backward + times[GW_ACT_INPUT][run][j], 1);
            differs(t, "B and W", backward + times[GW_ACT_WEIGHTS][run][j], 1);
        }
}

static void test_complete(void **state) {
    each_case(complete);
}

static void ascending(const gw_timetable *t) {
    for (int s = 0; s < gw_timetable_stages(t); s++) {
        int next[KINDS][CHUNKS] = {{0}}, n;
        const gw_act *a = gw_timetable_acts(t, s, &n);
        for (int i = 0; i < n; i++)
            differs(t, "order", a[i].micro, next[a[i].kind][a[i].chunk]++);
    }
}

static void test_ascending(void **state) {
    each_case(ascending);
}

static bool was(gw_act_kind kind, const gw_timetable *t, gw_place at, int micro) {
    return at.stage < 0 || *done(kind, t, at, micro);
}

/* What an action needs has been done, on this stage and on its source. */
static bool may_begin(const gw_timetable *t, int stage, gw_act a) {
    gw_place here = {stage, a.chunk}, from = gw_timetable_source(t, stage, a);
    switch (a.kind) {
    case GW_ACT_FORWARD: return was(GW_ACT_FORWARD, t, from, a.micro);
    case GW_ACT_WEIGHTS: return was(GW_ACT_INPUT, t, here, a.micro);
    default:
        return was(GW_ACT_FORWARD, t, here, a.micro) &&
               (was(GW_ACT_INPUT, t, from, a.micro) || was(GW_ACT_BACKWARD, t, from, a.micro));
    }
}

/* Without the simulator: with any number of buffers every action comes to its turn. */
static void ends(const gw_timetable *t) {
    int at[STAGES] = {0}, n[STAGES], left = 0;
    const gw_act *acts[STAGES];
    memset(times, 0, sizeof times);
    for (int s = 0; s < gw_timetable_stages(t); s++) {
        acts[s] = gw_timetable_acts(t, s, &n[s]);
        left += n[s];
    }
    for (bool any = true; any;) {
        any = false;
        for (int s = 0; s < gw_timetable_stages(t); s++)
            for (; at[s] < n[s] && may_begin(t, s, acts[s][at[s]]); at[s]++, left--) {
                gw_act a = acts[s][at[s]];
                *done(a.kind, t, (gw_place){s, a.chunk}, a.micro) = 1;
                any = true;
            }
    }
    differs(t, "actions whose turn never comes", left, 0);
}

static void test_ends(void **state) {
    each_case(ends);
}

/* ---- hops ---- */

static gw_place beside(const gw_timetable *t, int run) {
    int stages = gw_timetable_stages(t);
    return run < 0 || run == runs_of(t) ? (gw_place){-1, -1}
                                        : (gw_place){run % stages, run / stages};
}

static bool same(gw_place a, gw_place b) {
    return a.stage == b.stage && a.chunk == b.chunk;
}

/* A model's layers follow each other by runs: stage after stage, chunk after chunk. */
static void hops(const gw_timetable *t) {
    for (int run = 0; run < runs_of(t); run++) {
        gw_place here = beside(t, run);
        gw_act a = {.chunk = here.chunk};
        for (int kind = 0; kind < KINDS; kind++) {
            a.kind = (gw_act_kind)kind;
            gw_place before = beside(t, run - 1), after = beside(t, run + 1), none = beside(t, -1);
            bool on = kind == GW_ACT_FORWARD, stays = kind == GW_ACT_WEIGHTS;
            assert_true(same(gw_timetable_source(t, here.stage, a), stays ? none
                                                                    : on  ? before
                                                                          : after));
            assert_true(same(gw_timetable_target(t, here.stage, a), stays ? none
                                                                    : on  ? after
                                                                          : before));
        }
    }
}

static void test_hops(void **state) {
    each_case(hops);
}

/* ---- slots ---- */

static void slots(const gw_timetable *t) {
    for (int s = 0; s < gw_timetable_stages(t); s++) {
        bool used[CHUNKS][MICRO] = {{false}};
        int held = 0, most = 0, n;
        const gw_act *a = gw_timetable_acts(t, s, &n);
        for (int i = 0; i < n; i++) {
            bool takes = a[i].kind == GW_ACT_FORWARD;
            bool *slot = &used[a[i].chunk][a[i].micro % gw_timetable_slots(t, s, a[i].chunk)];
            differs(t, "a slot in use", *slot, !takes);
            *slot = takes || a[i].kind == GW_ACT_INPUT;
            held += takes ? 1 : a[i].kind == GW_ACT_INPUT ? 0 : -1;
            most = held > most ? held : most;
        }
        differs(t, "activations held", most, gw_timetable_held(t, s));
        if (gw_timetable_chunks(t) == 1)
            differs(t, "slots", gw_timetable_slots(t, s, 0), most);
    }
}

static void test_slots(void **state) {
    each_case(slots);
}

/* ---- time ---- */

/* Where backward passes are whole, formulas have their deltas leave at the end. */
static double input_extra(const gw_timetable *t, gw_act_cost act) {
    int n;
    const gw_act *a = gw_timetable_acts(t, gw_timetable_stages(t) - 1, &n);
    for (int i = 0; i < n; i++)
        if (a[i].kind == GW_ACT_INPUT)
            return act.input_s / (act.input_s + act.weights_s) - 0.5;
    return 0.5;
}

/* A step of equal stages, which take `act` a chunk, as it is played. */
static double play(const gw_timetable *t, gw_act_cost act, double hop_s) {
    int runs = runs_of(t), micro = gw_timetable_micro(t);
    gw_step_tensor tensor[RUNS];
    gw_step_profile of = {.model = "equal stages",
                          .batch = micro,
                          .n_tensors = runs,
                          .groups = runs,
                          .n = (size_t)runs,
                          .tensor = tensor};
    gw_parallel o = {
        .shape = {{1, gw_timetable_stages(t), 1}, {GW_DIM_TENSOR, GW_DIM_PIPE, GW_DIM_DATA}},
        .timetable = opened_by,
        .microbatches = micro,
        .tensor_chunks = 1,
        .stages = "flops"};
    gw_sim_mesh m = {0};
    gw_sim_play p = play_of(gw_timetable_stages(t), (gw_sim_link){1e15, hop_s, 0, 0});
    p.script.profile = &of;
    p.script.mesh = &m;
    for (int i = 0; i < runs; i++)
        tensor[i] = (gw_step_tensor){.name = "stage",
                                     .group = i,
                                     .n = 1,
                                     .forward_s = micro * act.forward_s,
                                     .backward_s = micro * (act.input_s + act.weights_s),
                                     .activation = 1,
                                     .input_extra = input_extra(t, act)};
    gw_err e = gw_sim_mesh_open(&m, &o, &of, gw_timetable_stages(t));
    GW_THEN(e, run_play(&p, "allreduce:algo=ring", "none"));
    assert_ok(e);
    gw_sim_mesh_close(&m);
    return p.step_s;
}

static bool plays(const gw_timetable *t) {
    int stages = gw_timetable_stages(t), micro = gw_timetable_micro(t);
    bool trivial = stages == 1 && (gw_timetable_chunks(t) > 1 || micro == 1);
    return micro >= stages && stages <= 5 && !trivial;
}

static void near(const gw_timetable *t, const char *what, double is, double should_be) {
    if (is < should_be - 1e-5 || is > should_be + 1e-5) /* a hop takes some ns */
        differs(t, what, is, should_be);
}

static void idles_as_promised(const gw_timetable *t) {
    int chunks = gw_timetable_chunks(t);
    for (int i = 0; i < COSTS && plays(t); i++) {
        gw_act_cost act = costs[i];
        gw_act_cost whole = {chunks * act.forward_s, chunks * act.input_s, chunks * act.weights_s};
        double busy_s = gw_timetable_micro(t) * (whole.forward_s + whole.input_s + whole.weights_s);
        near(t, "idle", play(t, act, 0) - busy_s, gw_timetable_bubble(t, &whole));
    }
}

static void test_bubble(void **state) {
    each_case(idles_as_promised);
}

/* Of those that run far enough ahead only the way of one microbatch shows its hops. */
static void hides_hops(const gw_timetable *t) {
    if (gw_timetable_stages(t) > 1 && plays(t))
        near(t, "hops", play(t, costs[0], 0.5) - play(t, costs[0], 0), 2 * 0.5 * (runs_of(t) - 1));
}

static void test_cost_of_hops(void **state) {
    each_size("gpipe", hides_hops);
    each_size("1f1b:eager=1", hides_hops);
    each_size("interleaved", hides_hops);
}

/* ---- what is refused ---- */

static const char *script; /* of all stages, a line each: F, B, I or W and the chunk */

static gw_err scripted_lay_down(const gw_args *args, gw_timetable *t, int stage) {
    const char *at = script;
    for (; stage > 0; stage--)
        at = strchr(at, '\n') + 1;
    for (; *at && *at != '\n'; at += 2)
        GW_TRY(gw_timetable_add(t, (gw_act_kind)(strchr("FBIW", at[0]) - "FBIW"), at[1] - '0'));
    return GW_OK;
}

static int scripted_chunks(const gw_args *args) {
    return *script == '0' ? 0 : strchr(script, '1') ? 2 : 1;
}

static const gw_timetable_ops scripted = {
    .head = {GW_TIMETABLE_ABI, "scripted", "by hand", NULL},
    .chunks = scripted_chunks,
    .lay_down = scripted_lay_down,
};

static void lays_down(const char *text, int stages, int micro, const char *fault) {
    gw_timetable *t = NULL;
    script = text;
    gw_err e = gw_timetable_lay_down(&t, &scripted, &GW_SPEC_NAMED("scripted"), stages, micro);
    gw_timetable_close(t);
    if (!fault && e != GW_OK)
        fail_msg("%s: %s", text, gw_err_text());
    if (fault && (e != GW_ERR_INPUT || !strstr(gw_err_text(), fault)))
        fail_msg("%s: '%s', not '%s'", text, e == GW_OK ? "accepted" : gw_err_text(), fault);
}

static void test_faulty(void **state) {
    lays_down("F0B0F0I0W0\nF0I0W0F0B0", 2, 2, NULL);
    lays_down("F0B0\nB0F0", 2, 1, "stage 1 of 2, action 0: B of chunk 0");
    lays_down("F0W0I0", 1, 1, "action 1");
    lays_down("F0F0I0B0", 1, 2, "action 3"); /* W of the first must come before that of the other */
    lays_down("F0B0B0", 1, 1, "action 2");
    lays_down("F0F0B0", 1, 1, "action 1");
    lays_down("F0B0\nF0B2", 2, 1, "stage 1 of 2, action 1: B of chunk 2");
    lays_down("F0I0", 1, 1, "0 of 1 microbatches pass chunk 0");
    lays_down("F0B0F0\nF0B0F0B0", 2, 2, "stage 0 of 2: 1 of 2");
    lays_down("0", 1, 1, "0 chunks");
}

static void test_deadlock(void **state) {
    /* The last stage wants both microbatches before it sends a delta, the first one after it. */
    lays_down(
        "F0B0F0B0\nF0F0B0B0", 2, 2,
        "deadlock on 2 stages with 2 microbatches: stage 0 waits to receive for B0 of chunk 0");
    /* The first stage sends for chunk 1 before the second microbatch, the last one takes that
     * first: it would end if the message could be left in a buffer. */
    lays_down("F0F1F0F1B1B1B0B0\nF0F0F1F1B1B1B0B0", 2, 2,
              "stage 0 waits to send the result of F0 of chunk 1");
    /* On one stage no message is lost, but its chunks come in the wrong order. */
    lays_down("F1F0B1B0", 1, 1, "stage 0 waits to receive for F0 of chunk 1");
}

static void refused(const char *text, int stages, int micro, gw_err e, const char *says) {
    gw_timetable *t = NULL;
    assert_int_equal(open_text(&t, text, stages, micro), e);
    if (!strstr(gw_err_text(), says) || strchr(gw_err_text(), '\n'))
        fail_msg("%s: '%s', not '%s'", text, gw_err_text(), says);
}

static void test_refusals(void **state) {
    refused("interleaved", 4, 6, GW_ERR_UNSUPPORTED,
            "--timetable interleaved: 6 microbatches on 4 stages: give a multiple of 4");
    refused("1f1c", 4, 6, GW_ERR_USAGE, "'1f1b'");
    refused("1f1b:eagre=1", 4, 6, GW_ERR_USAGE, "'eager'");
    refused("interleaved:chunks=0", 4, 4, GW_ERR_USAGE, "chunks");
    refused("zb:chunks=2", 4, 4, GW_ERR_USAGE, "chunks");
}

int main(int argc, char **argv) {
    const struct CMUnitTest contract[] = {cmocka_unit_test(test_complete),
                                          cmocka_unit_test(test_ascending),
                                          cmocka_unit_test(test_ends),
                                          cmocka_unit_test(test_hops),
                                          cmocka_unit_test(test_slots),
                                          cmocka_unit_test(test_bubble)},
                            rest[] = {
                                cmocka_unit_test(test_cost_of_hops), cmocka_unit_test(test_faulty),
                                cmocka_unit_test(test_deadlock), cmocka_unit_test(test_refusals)};
    plugin = argc > 1 ? argv[1] : NULL;
    int failed = cmocka_run_group_tests(contract, NULL, NULL);
    return failed || plugin ? failed : cmocka_run_group_tests(rest, NULL, NULL);
}
