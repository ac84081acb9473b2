/* bench pipe: steps of a pipe whose stages sleep instead of computing, so that many of them need
 * few cores. The order of actions, the messages and the waiting are those of a training step. */
#include "cli/bench/bench.h"

#include "base/json.h"
#include "base/mem.h"
#include "base/nap.h"
#include "comm/lane_parts.h"
#include "comm/runner.h"
#include "mpi/rounds.h"
#include "mpi/wait.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

enum {
    MOST_MICROS = 16, /* numbers of microbatches in --microbatches */
    MOST_CELLS = GW_SPEC_ITEMS * MOST_MICROS + 1,
    SLICE_NS = 250000, /* between two polls: a matrix product is about that long */
    REST_NS = 20000,   /* between two polls of a wait */
    MOST_BLOCK = 1000,
    STAMPS = 1 << 22 /* that a float can tell apart */
};

typedef struct cell {
    const gw_spec *spec;
    int micros;
    gw_timetable *timetable;
    gw_hops *hops;
    int places;      /* of a chunk: microbatches of which a message has a place of its own */
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
    gw_lane *lane[GW_HOP_KINDS];
    float *messages;
    gw_queue *queue;
    double hop_s;
    /* of the present step: */
    gw_runner runner;
    double due_s; /* when the last action ended, or should have */
    int polls;    /* since then, in waits: one finds what is there */
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
    "simulator's step, of this pace and of the time of a hop, which is measured; 'formula' = that\n"
    "of 'gradwire list', where hops take no time, with as many microbatches as stages or more.\n"
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

/* Places of messages in the memory of all cells: activations and deltas, both ends, each chunk. */
static size_t pipe_place(const cell *c, gw_hop_kind kind, bool receives, int chunk, int micro) {
    int end = 2 * (int)kind + receives, chunks = gw_timetable_chunks(c->timetable);
    return (size_t)((end * chunks + chunk) * c->places + micro % c->places) * pipe_floats();
}

static gw_span pipe_where(const void *ctx, gw_hop hop, bool receives) {
    const cell *c = ctx;
    bool upper = (hop.kind == GW_HOP_ACTIVATION) == receives;
    int chunk = (hop.boundary + upper) / b.place->ranks;
    return (gw_span){pipe_place(c, hop.kind, receives, chunk, hop.micro), pipe_floats()};
}

/* A timetable that refuses is left out, with its reason; alike on all ranks. */
static gw_err pipe_open_timetable(cell *c, bool *refused) {
    gw_err e = gw_timetable_open(&c->timetable, c->spec, b.place->ranks, c->micros);
    *refused = e == GW_ERR_UNSUPPORTED;
    if (*refused)
        json_array_append_new(b.left_out, json_string(gw_err_text()));
    else
        GW_TRY(e);
    for (int i = 0; !*refused && i < gw_timetable_chunks(c->timetable); i++) {
        int places = gw_timetable_slots(c->timetable, b.place->rank, i) + 1; /* one ahead */
        c->places = places > c->places ? places : c->places;
    }
    return GW_OK;
}

/* *places: of messages, the most that a cell needs; *most: messages of a step. */
static gw_err pipe_open_timetables(int *places, int *most) {
    int n = b.n;
    b.n = *most = *places = 0;
    for (int i = 0; i < n; i++) {
        cell c = b.cells[i];
        bool refused;
        GW_TRY(pipe_open_timetable(&c, &refused));
        if (refused)
            continue;
        int ends = 2 * GW_HOP_KINDS * gw_timetable_chunks(c.timetable);
        *places = ends * c.places > *places ? ends * c.places : *places;
        *most = ends * c.micros > *most ? ends * c.micros : *most;
        b.cells[b.n++] = c;
    }
    return b.n > 1 ? GW_OK
                   : gw_fail(GW_ERR_UNSUPPORTED, "bench: %s",
                             json_string_value(json_array_get(b.left_out, 0)));
}

static gw_err pipe_open_hops(cell *c) {
    gw_hops_setup setup = {.lane = {b.lane[GW_HOP_ACTIVATION], b.lane[GW_HOP_DELTA]},
                           .chunks = b.place->ranks * gw_timetable_chunks(c->timetable),
                           .micro = c->micros,
                           .deltas = true,
                           .base = b.messages,
                           .where = pipe_where,
                           .ctx = c};
    return gw_hops_open(&c->hops, &setup);
}

/* Ranks that wait must not keep the cores from those whose sleep ends. */
static gw_err pipe_rest(void *none) {
    (void)none;
    if (++b.polls > 1)
        nanosleep(&(struct timespec){.tv_nsec = REST_NS}, NULL);
    return GW_OK;
}

static gw_err pipe_open_memory(void) {
    int places, most;
    GW_TRY(pipe_open_timetables(&places, &most));
    GW_TRY(gw_alloc(&b.messages, (size_t)places * pipe_floats(), sizeof *b.messages));
    GW_TRY(gw_queue_open(&b.queue, GW_PROGRESS_POLL, most, false));
    gw_queue_beside(b.queue, pipe_rest, NULL);
    for (int i = 0; i < b.n; i++)
        GW_TRY(pipe_open_hops(&b.cells[i]));
    return GW_OK;
}

static gw_err pipe_open(void) {
    static const char *const names[] = {"activations", "deltas"};
    GW_TRY(gw_codec_open(&b.exact, &gw_codec_exact));
    for (int k = 0; k < GW_HOP_KINDS; k++) {
        gw_lane_setup setup = {.codec = &b.exact, .apart = true, .name = names[k]};
        GW_TRY(gw_lane_open(&b.lane[k], b.place->comm, &setup));
    }
    return gw_agree(b.place->comm, pipe_open_memory());
}

/* ---- actions ---- */

/* Deadlines are absolute, so what a sleep lasts too long does not add up. */
static gw_err pipe_sleep_until(double due_s) {
    for (double now = gw_nap_now(); now < due_s; now = gw_nap_now()) {
        gw_nap_until(fmin(due_s, now + SLICE_NS * 1e-9));
        GW_TRY(gw_queue_poll(b.queue));
    }
    return GW_OK;
}

/* By which a message is known: who sends it, of which microbatch of which step. */
static float pipe_stamp(const cell *c, int stage, gw_act a) {
    uint64_t number = (b.runner.step * (uint64_t)c->micros + (uint64_t)a.micro) * 1031;
    return (float)((number + (uint64_t)(2 * (a.chunk * b.place->ranks + stage) +
                                        (a.kind == GW_ACT_FORWARD))) %
                   STAMPS);
}

static gw_hop_kind pipe_kind(gw_act a) {
    return a.kind == GW_ACT_FORWARD ? GW_HOP_ACTIVATION : GW_HOP_DELTA;
}

static gw_err pipe_check(const cell *c, gw_act a) {
    if (!gw_runner_hop(&b.runner, a, true))
        return GW_OK;
    gw_place from = gw_timetable_source(c->timetable, b.place->rank, a);
    const float *x = b.messages + pipe_place(c, pipe_kind(a), true, a.chunk, a.micro);
    float want = pipe_stamp(c, from.stage, (gw_act){a.kind, from.chunk, a.micro});
    if (x[0] == want && x[pipe_floats() - 1] == want)
        return GW_OK;
    return gw_fail(GW_ERR_INTERNAL, "bench: %s: stage %d got a wrong message for %c%d of chunk %d",
                   c->spec->text, b.place->rank, gw_act_letter(a.kind), a.micro, a.chunk);
}

static gw_err pipe_send(const cell *c, gw_act a) {
    float *x = b.messages + pipe_place(c, pipe_kind(a), false, a.chunk, a.micro);
    if (gw_runner_hop(&b.runner, a, false))
        x[0] = x[pipe_floats() - 1] = pipe_stamp(c, b.place->rank, a);
    return gw_runner_send(&b.runner, a);
}

/* An action begins where the last one should have ended, unless it had to wait. */
static gw_err pipe_act(void *ctx, gw_act a) {
    const cell *c = ctx;
    GW_TRY(pipe_check(c, a));
    GW_TRY(gw_runner_vacate(&b.runner, a));
    double begin = b.polls > 1 ? gw_nap_now() : b.due_s;
    b.due_s = begin + gw_act_seconds(&(gw_run_cost){.act = b.pace}, a.kind) /
                          gw_timetable_chunks(c->timetable);
    GW_TRY(pipe_sleep_until(b.due_s));
    b.polls = 0;
    return pipe_send(c, a);
}

/* ---- measuring ---- */

static void pipe_begin_turn(cell *c) {
    b.runner.timetable = c->timetable;
    b.runner.hops = c->hops;
    b.runner.micros = c->micros;
    b.runner.ctx = c;
    b.due_s = gw_nap_now();
}

/* A step to fill the pipe, and then a block of timed ones, one right after another. */
static gw_err pipe_turn(void *none, int i, double *unused) {
    double step_s[MOST_BLOCK + 1];
    (void)none, (void)unused;
    GW_TRY(gw_bench_sync(b.place));
    pipe_begin_turn(&b.cells[i]);
    for (int k = 0; k <= b.block; k++, b.runner.step++) {
        double before = b.due_s;
        GW_TRY(gw_runner_step(&b.runner));
        step_s[k] = b.due_s - before;
    }
    GW_TRY(gw_allreduce(MPI_IN_PLACE, step_s, b.block + 1, MPI_DOUBLE, MPI_SUM, b.place->comm));
    for (int k = 1; k <= b.block; k++)
        GW_TRY(gw_samples_add(&b.cells[i].step, step_s[k] / b.place->ranks));
    return GW_OK;
}

static gw_err pipe_measure_steps(void) {
    gw_rounds rounds = {.comm = b.place->comm, .seed = 1, .once = pipe_turn};
    b.runner.stage = b.place->rank;
    b.runner.queue = b.queue;
    b.runner.act = pipe_act;
    for (int k = 0; k < b.steps; k += b.block)
        GW_TRY(gw_rounds_next(&rounds, b.n, NULL, NULL));
    return GW_OK;
}

/* Seconds that each stage works in a step. */
static double pipe_work(const cell *c) {
    return c->micros * (b.pace.forward_s + b.pace.input_s + b.pace.weights_s);
}

/* A microbatch that is alone passes all stages forth and back, one at a time. */
static double pipe_hop(const cell *alone) {
    int ranks = b.place->ranks;
    double left_s = alone->stats.median - ranks * pipe_work(alone);
    return ranks > 1 && left_s > 0 ? left_s / (2 * (ranks - 1)) : 0;
}

static gw_err pipe_simulate(cell *c) {
    int chunks = gw_timetable_chunks(c->timetable), runs = chunks * b.place->ranks;
    gw_act_cost act = {b.pace.forward_s / chunks, b.pace.input_s / chunks,
                       b.pace.weights_s / chunks};
    gw_run_cost *cost = NULL;
    gw_pipe_times times = {0};
    GW_TRY(gw_alloc(&cost, (size_t)runs, sizeof *cost));
    for (int i = 0; i < runs; i++)
        cost[i] = (gw_run_cost){act, b.hop_s, b.hop_s};
    gw_err e = gw_timetable_simulate(c->timetable, cost, GW_SENDS_BUFFERED, &times, NULL);
    c->simulated_s = times.step_s;
    free(cost);
    return e;
}

static gw_err pipe_conclude(void) {
    for (int i = 0; i < b.n; i++)
        GW_TRY(gw_samples_stats(&b.cells[i].step, &b.cells[i].stats));
    b.hop_s = pipe_hop(&b.cells[0]);
    for (int i = 0; i < b.n; i++)
        GW_TRY(pipe_simulate(&b.cells[i]));
    return GW_OK;
}

static gw_err pipe_measure(gw_bench_run *run, bool *own) {
    b.place = &run->place;
    b.left_out = json_array();
    gw_nap_lightly();
    GW_TRY(pipe_open());
    gw_err e = pipe_measure_steps();
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

static void pipe_report_one(const cell *c, json_t *rows) {
    const gw_stats *s = &c->stats;
    double work_s = pipe_work(c), sim_s = c->simulated_s;
    bool fills = c->micros >= b.place->ranks;
    double bubble_s = fills ? gw_timetable_bubble(c->timetable, &b.pace) : NAN;
    gw_bench_row(&table, rows, GW_TEXTS(c->spec->text),
                 GW_NUMBERS(c->micros, s->median, gw_stats_precision(s), sim_s, s->median / sim_s,
                            work_s + bubble_s, s->median / (work_s + bubble_s), s->median - work_s,
                            sim_s - work_s, bubble_s, work_s, s->ci_low, s->ci_high));
}

static void pipe_report(gw_bench_run *run) {
    size_t i;
    json_t *why;
    int bytes = (int)(pipe_floats() * sizeof(float));
    gw_bench_place_say(b.place, "steps of a paced pipe, a stage a rank");
    printf("F %d us, I %d us, W %d us; a hop of %d bytes takes %.1f us\n", b.pace_us.x[0],
           b.pace_us.x[1], b.pace_us.x[2], bytes, b.hop_s * 1e6);
    gw_bench_head(&table);
    for (int k = 1; k < b.n; k++)
        pipe_report_one(&b.cells[k], run->results);
    json_array_foreach(b.left_out, i, why)
        printf("%snot measured: %s\n", i == 0 ? "\n" : "", json_string_value(why));
    gw_json_add(run->facts, "hop_s:f hop_bytes:i left_out:o", b.hop_s, bytes,
                json_incref(b.left_out));
}

static void pipe_close(void) {
    gw_queue_close(b.queue);
    for (int i = 0; i < b.n; i++)
        gw_hops_close(b.cells[i].hops);
    for (int k = 0; k < GW_HOP_KINDS; k++)
        gw_lane_close(b.lane[k]);
}

static void pipe_release(void) {
    for (int i = 0; i < b.n; i++) {
        gw_timetable_close(b.cells[i].timetable);
        gw_samples_free(&b.cells[i].step);
    }
    gw_codec_close(&b.exact);
    free(b.messages);
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
