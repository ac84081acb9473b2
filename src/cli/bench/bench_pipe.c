/* bench pipe: steps of a pipe whose stages sleep instead of computing, so that many of them need
 * few cores. They play a profile of stages that take the given pace (play/actor.h), here and once
 * more in virtual time. */
#include "cli/bench/bench.h"

#include "base/json.h"
#include "base/mem.h"
#include "base/nap.h"
#include "comm/strategy/plain.h"
#include "mpi/rounds.h"
#include "mpi/wait.h"
#include "play/options.h"

#include <math.h>

enum {
    MOST_MICROS = 16, /* numbers of microbatches in --microbatches */
    MOST_CELLS = GW_SPEC_ITEMS * MOST_MICROS + 1,
    MOST_BLOCK = 1000,
    SIMULATED = 4 /* steps, without the first one */
};

/* In the simulator a hop takes its latency, whatever its bytes. */
#define WIDE 1e18

typedef struct cell {
    const gw_spec *spec;
    int micros;
    gw_step_profile profile;
    gw_sim_mesh mesh;
    gw_samples step; /* seconds, the mean over the stages */
    gw_stats stats;  /* of them */
    double simulated_s;
} cell;

typedef struct list {
    int n, x[MOST_MICROS];
} list;

typedef struct state {
    const gw_spec *timetables;
    list micros, pace_us;
    int width, rows, steps, block;
    const gw_bench_place *place;
    gw_act_cost pace; /* of a microbatch on a stage */
    cell cells[MOST_CELLS];
    int n;
    json_t *left_out;
    gw_codec exact;
    gw_fabric *fabric;
    double hop_s;
    double step_s[MOST_BLOCK + 1]; /* of this turn, */
    double ended_s;                /* and when the last one ended */
} state;

static state b;

static const gw_opt opts[] = {
    {"timetable", GW_OPT_SPECS, "gpipe;1f1b;1f1b:eager=1;interleaved;zb", 0, 0, NULL, "T;T..",
     "timetables to measure", INTO(timetables)},
    {"microbatches", GW_OPT_LIST, "8,16", 1, 4096, NULL, "M,M..", "microbatches per step",
     INTO(micros)},
    {"pace", GW_OPT_LIST, "2000,2000,2000", 1, 1e7, NULL, "F,I,W",
     "microseconds per microbatch and stage: forward, "
     "gradient of the input, gradient of the weights",
     INTO(pace_us)},
    {"width", GW_OPT_INT, "1024", 1, 1 << 20, NULL, "N", "neurons between two stages", INTO(width)},
    {"rows", GW_OPT_INT, "32", 1, 1 << 16, NULL, "N", "samples per microbatch", INTO(rows)},
    {"steps", GW_OPT_INT, "20", 1, 1e6, NULL, "N", "timed steps per configuration", INTO(steps)},
    {"block", GW_OPT_INT, "5", 1, MOST_BLOCK, NULL, "N", "timed steps per turn", INTO(block)},
    GW_BENCH_JSON,
    {0}};

static const char notes[] =
    "Each rank is a stage, which sleeps as long as --pace says; messages are real. 'sim' = the\n"
    "same step in virtual time, where a hop takes as long as a measured one; 'formula' = that of\n"
    "'gradwire list', where hops take no time, with as many microbatches as stages or more.\n"
    "docs/benchmarks.md defines every figure.";

/* ---- the command line ---- */

static void pipe_add_cell(const gw_spec *spec, int micros) {
    b.cells[b.n++] = (cell){.spec = spec, .micros = micros};
}

/* The first cell, a microbatch that passes alone, tells the time of a hop. */
static size_t pipe_floats(void) {
    return (size_t)b.width * (size_t)b.rows;
}

static gw_err pipe_prepare(gw_bench_run *run) {
    static const gw_spec alone = {.text = "1f1b", .name = "1f1b"};
    (void)run;
    if (b.pace_us.n != 3)
        return gw_fail(GW_ERR_USAGE, "bench: --pace: give three times, F,I,W");
    if (pipe_floats() > INT32_MAX / sizeof(float))
        return gw_fail(GW_ERR_USAGE, "bench: --width times --rows: a hop of more than 2 GiB");
    b.pace = (gw_act_cost){b.pace_us.x[0] * 1e-6, b.pace_us.x[1] * 1e-6, b.pace_us.x[2] * 1e-6};
    pipe_add_cell(&alone, 1);
    for (const gw_spec *s = b.timetables->parts; s; s = s->next)
        for (int i = 0; i < b.micros.n; i++)
            pipe_add_cell(s, b.micros.x[i]);
    return GW_OK;
}

/* ---- opening ---- */

/* Each stage takes the pace for a microbatch with all its chunks. */
static gw_err pipe_profile(cell *c, const gw_timetable *t) {
    int chunks = gw_timetable_chunks(t), runs = chunks * b.place->ranks, n;
    const gw_act *acts = gw_timetable_acts(t, b.place->ranks - 1, &n);
    double times = (double)c->micros / chunks;
    double input =
        1; /* a whole backward pass sends its delta at its end, as the formulas have it */
    for (int i = 0; i < n; i++)
        if (acts[i].kind == GW_ACT_INPUT)
            input = b.pace.input_s / (b.pace.input_s + b.pace.weights_s);
    gw_step_profile *p = &c->profile;
    *p = (gw_step_profile){.model = "a pipe",
                           .batch = (long)b.rows * c->micros,
                           .n_tensors = runs,
                           .groups = runs,
                           .n = (size_t)runs};
    GW_TRY(gw_alloc(&p->tensor, (size_t)runs, sizeof *p->tensor));
    for (int i = 0; i < runs; i++)
        p->tensor[i] = (gw_step_tensor){.name = "stage",
                                        .group = i,
                                        .n = 1,
                                        .forward_s = times * b.pace.forward_s,
                                        .backward_s = times * (b.pace.input_s + b.pace.weights_s),
                                        .input_extra = input - 0.5,
                                        .activation = (size_t)b.width};
    return GW_OK;
}

/* A timetable that refuses is left out, with its reason; alike on all ranks. */
static gw_err pipe_open_cells(void) {
    int n = b.n, ranks = b.place->ranks;
    gw_parallel o = gw_parallel_plain;
    o.shape = (gw_mesh_shape){{1, ranks, 1}, {GW_DIM_TENSOR, GW_DIM_DATA, GW_DIM_PIPE}};
    if (ranks == 1)
        return gw_fail(GW_ERR_UNSUPPORTED,
                       "bench: a pipe has two stages or more, each on a rank: start more ranks");
    b.n = 0;
    for (int i = 0; i < n; i++) {
        cell *c = &b.cells[b.n];
        gw_timetable *t;
        *c = b.cells[i];
        gw_err e = gw_timetable_open(&t, c->spec, ranks, c->micros);
        if (e == GW_ERR_UNSUPPORTED) {
            json_array_append_new(b.left_out, json_string(gw_err_text()));
            continue;
        }
        GW_TRY(e);
        b.n++;
        o.timetable = c->spec;
        o.microbatches = c->micros;
        e = pipe_profile(c, t);
        gw_timetable_close(t);
        GW_THEN(e, gw_sim_mesh_open(&c->mesh, &o, &c->profile, ranks));
        GW_TRY(e);
    }
    return b.n > 1 ? GW_OK
                   : gw_fail(GW_ERR_UNSUPPORTED, "bench: %s",
                             json_string_value(json_array_get(b.left_out, 0)));
}

/* ---- measuring ---- */

static gw_err pipe_end(gw_actor *a) {
    b.step_s[a->step] = a->ended_s - b.ended_s;
    b.ended_s = a->ended_s;
    return GW_OK;
}

/* Replicas exchange nothing: there is one. */
static const gw_play_exchange exchange = {.end = pipe_end};

/* A step to fill the pipe, and then a block of timed ones, one right after another. */
static gw_err pipe_turn(void *none, int i, double *unused) {
    cell *c = &b.cells[i];
    gw_actor a = {.world = &gw_play_real,
                  .exchange = &exchange,
                  .fabric = b.fabric,
                  .script = {.profile = &c->profile, .mesh = &c->mesh, .sleeps = true, .speed = 1}};
    (void)none, (void)unused;
    GW_TRY(gw_actor_open(&a, 0, &b.exact, NULL));
    GW_TRY(gw_bench_sync(b.place));
    GW_TRY(gw_actor_play(&a, b.block + 1));
    gw_actor_close(&a);
    GW_TRY(gw_allreduce(MPI_IN_PLACE, b.step_s, b.block + 1, MPI_DOUBLE, MPI_SUM, b.place->comm));
    for (int k = 1; k <= b.block; k++)
        GW_TRY(gw_samples_add(&c->step, b.step_s[k] / b.place->ranks));
    return GW_OK;
}

/* ---- in virtual time ---- */

/* Seconds that each stage works in a step. */
static double pipe_work(const cell *c) {
    return c->micros * (b.pace.forward_s + b.pace.input_s + b.pace.weights_s);
}

static gw_err pipe_conclude(void) {
    for (int i = 0; i < b.n; i++)
        GW_TRY(gw_samples_stats(&b.cells[i].step, &b.cells[i].stats));
    /* A microbatch that is alone passes all stages forth and back, one at a time. */
    int ranks = b.place->ranks;
    double left_s = b.cells[0].stats.median - ranks * pipe_work(&b.cells[0]);
    b.hop_s = left_s > 0 ? left_s / (2 * (ranks - 1)) : 0;
    gw_sim_link link = {WIDE, b.hop_s, 0};
    gw_sim_play p = {
        .world = {.ranks = b.place->ranks, .per_host = 1, .link = link, .memory = link},
        .script = {.sleeps = true, .speed = 1},
        .steps = SIMULATED};
    gw_err e = gw_network_open(&p.world.network, NULL, b.place->ranks, WIDE);
    GW_THEN(e, gw_sim_play_open(&p, &GW_SPEC_NAMED(GW_STRATEGY_PLAIN), &gw_codec_exact));
    for (int i = 0; i < b.n && e == GW_OK; i++) {
        p.script.profile = &b.cells[i].profile;
        p.script.mesh = &b.cells[i].mesh;
        e = gw_sim_play_run(&p);
        b.cells[i].simulated_s = p.step_s;
    }
    gw_sim_play_close(&p);
    return e;
}

static gw_err pipe_measure(gw_bench_run *run, bool *own) {
    gw_rounds rounds = {.comm = run->place.comm, .seed = 1, .once = pipe_turn};
    b.place = &run->place;
    b.left_out = json_array();
    gw_nap_lightly();
    GW_TRY(gw_fabric_of(&b.fabric, run->place.comm));
    gw_err e = gw_codec_open(&b.exact, &gw_codec_exact);
    GW_THEN(e, pipe_open_cells());
    GW_TRY(gw_agree(run->place.comm, e));
    for (int k = 0; k < b.steps && e == GW_OK; k += b.block)
        e = gw_rounds_next(&rounds, b.n, NULL, NULL);
    *own = e != GW_OK; /* the others wait for a message */
    return e == GW_OK ? gw_agree(run->place.comm, pipe_conclude()) : e;
}

/* ---- results; rank 0 ---- */

static const gw_bench_table table = {
    .form = "%-18s %5d %10.1u %6.1p %10.1u %7.3f %10.1u %9.3f %10.1u %10.1u %10.1u",
    .heads = "timetable|M|step us|+-%|sim us|x sim|formula us|x formula|idle us|sim idle|f. idle",
    .kept = "fff",
    .keys = "timetable|microbatches|median_s||simulated_s|ratio_simulated|formula_s|ratio_formula|"
            "idle_s|simulated_idle_s|formula_idle_s|work_s|ci_low_s|ci_high_s"};

static void pipe_report(gw_bench_run *run) {
    size_t i;
    json_t *why;
    int bytes = (int)(pipe_floats() * sizeof(float));
    gw_bench_place_say(b.place, "steps of a paced pipe, a stage a rank");
    printf("F %d us, I %d us, W %d us; a hop of %d bytes takes %.1f us\n", b.pace_us.x[0],
           b.pace_us.x[1], b.pace_us.x[2], bytes, b.hop_s * 1e6);
    gw_bench_head(&table);
    for (int k = 1; k < b.n; k++) {
        const cell *c = &b.cells[k];
        const gw_stats *s = &c->stats;
        double work_s = pipe_work(c), sim_s = c->simulated_s;
        bool fills = c->micros >= b.place->ranks;
        double bubble_s = fills ? gw_timetable_bubble(c->mesh.timetable, &b.pace) : NAN;
        gw_bench_row(&table, run->results, GW_TEXTS(c->spec->text),
                     GW_NUMBERS(c->micros, s->median, gw_stats_precision(s), sim_s,
                                s->median / sim_s, work_s + bubble_s,
                                s->median / (work_s + bubble_s), s->median - work_s, sim_s - work_s,
                                bubble_s, work_s, s->ci_low, s->ci_high));
    }
    json_array_foreach(b.left_out, i, why)
        printf("%snot measured: %s\n", i == 0 ? "\n" : "", json_string_value(why));
    gw_json_add(run->facts, "hop_s:f hop_bytes:i left_out:o", b.hop_s, bytes,
                json_incref(b.left_out));
}

static void pipe_close(void) {
    if (b.fabric)
        b.fabric->ops->close(b.fabric);
}

static void pipe_release(void) {
    for (int i = 0; i < b.n; i++) {
        gw_sim_mesh_close(&b.cells[i].mesh);
        gw_step_profile_free(&b.cells[i].profile);
        gw_samples_free(&b.cells[i].step);
    }
    gw_codec_close(&b.exact);
    json_decref(b.left_out);
}

const gw_benchmark gw_bench_pipe = {
    .name = "pipe",
    .summary = "steps of a pipe of paced stages, against the simulator and the formula",
    .opts = opts,
    .config = &b,
    .notes = notes,
    .prepare = pipe_prepare,
    .measure = pipe_measure,
    .report = pipe_report,
    .close = pipe_close,
    .release = pipe_release,
};
