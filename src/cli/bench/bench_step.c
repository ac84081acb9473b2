/* bench step: a training step without data loading, on a fixed batch in memory; several ways of
 * communication in one process, in turns. */
#include "cli/bench/bench.h"

#include "base/json.h"
#include "base/text.h"
#include "cli/bench/step_rig.h"
#include "cli/train/step_opts.h"
#include "mpi/wait.h"
#include "nn/gemm.h"
#include "prof/ledger.h"

#include <math.h>
#include <string.h>

enum { MOST_CONFIGS = 16 };

/* What the ledger tells of a step, put together. */
enum { COMPUTATION, EXPOSED, CODEC, OTHER, INFLIGHT, WIRE, PARTS };

typedef struct config {
    gw_args *fields; /* NULL: it is the only one */
    gw_train_config c;
    gw_rig rig;
    gw_samples part[PARTS];
    gw_bound_run bound;
    char refused[256]; /* why it cannot run; "": it can */
} config;

typedef struct state {
    gw_train_config c;
    config all[MOST_CONFIGS], *configs[MOST_CONFIGS]; /* configs: those that can run */
    int given, n;
    const gw_bench_place *place;
    bool bounds;
    int steps, block, warmup;
} state;

static state b;

static const gw_opt opts[] = {
    GW_RIG_OPTS,
#include "cli/train/step_opts.def"
    {"configs", GW_OPT_SPECS, NULL, 0, 0, NULL, "CONFIG;CONFIG..",
     "instead of --comm and --compress: several, each COMM|CODEC|UPDATE (the last two may be left "
     "out)",
     .group = "Benchmark"},
    {"steps", GW_OPT_INT, "200", 1, 1e7, NULL, "N", "timed steps per configuration", INTO(steps)},
    {"block", GW_OPT_INT, "10", 1, GW_RIG_BLOCK, NULL, "N", "timed steps per turn", INTO(block)},
    {"warmup", GW_OPT_INT, "10", 0, 1e6, NULL, "N", "steps per configuration before the first turn",
     INTO(warmup)},
    {"bound", GW_OPT_CHOICE, "on", 0, 0, "off|on", NULL,
     "measure computation and exchange apart: the least time a step can take", INTO(bounds)},
    GW_BENCH_JSON,
    {0}};

static const gw_rule rules[] = {
    {"configs", NULL, false, "comm", NULL, "each configuration names its strategy"}, {0}};

static const char notes[] =
    "e.g. --configs 'allreduce;iallreduce:bucket=256K|none|lazy;iallreduce:algo=sra|qsgd:bits=8'\n"
    "Step times are the slowest rank's; their parts are the ledger's, means over the ranks, and\n"
    "medians over the steps. 'x first' = median of the first configuration divided by this one's.\n"
    "'bound' = the least that the mode allows with computation, wire and the transport's own time\n"
    "measured apart, 'x bound' = the median over it ('-': none is known, or it was not measured).\n"
    "Each turn begins with a step that is not timed, and ends with nothing in flight.\n"
    "docs/benchmarks.md defines every figure.";

/* ---- the command line ---- */

static const gw_opt fields[] = {{"comm", GW_OPT_SPEC, GW_STRATEGY_PLAIN, 0, 0, NULL, NULL, ""},
                                {"compress", GW_OPT_SPECS, "none", 0, 0, NULL, NULL, ""},
                                {"update", GW_OPT_CHOICE, "eager", 0, 0, "eager|lazy", NULL, ""},
                                {0}};

/* That one of several cannot run is no reason against the others: configs[i] leaves the list. */
static gw_err step_refuse(int i, gw_err e) {
    if (e != GW_ERR_UNSUPPORTED || !b.configs[i]->fields)
        return e;
    gw_text_copy(b.configs[i]->refused, sizeof b.configs[i]->refused, gw_err_text());
    b.n--;
    memmove(b.configs + i, b.configs + i + 1, (size_t)(b.n - i) * sizeof *b.configs);
    return GW_OK;
}

static gw_err step_some_left(void) {
    return b.n > 0 ? GW_OK
                   : gw_fail(GW_ERR_UNSUPPORTED, "bench: no configuration can run; the first: %s",
                             b.all[0].refused);
}

static gw_err step_open_session(config *one, int *level) {
    gw_mix mix;
    one->rig.lazy = one->c.run.lazy;
    GW_TRY(gw_mix_open(&mix, one->c.run.compress, one->c.run.wire_check));
    GW_TRY(gw_rig_new(&one->rig, one->c.run.comm, &mix, one->c.run.feedback));
    GW_TRY(gw_chooser_open(&one->rig.choice, one->rig.session, &one->c, NULL, false));
    int needs = gw_strategy_thread_level(&one->rig.session->strategy);
    *level = needs > *level ? needs : *level;
    return GW_OK;
}

/* given: "COMM|CODEC|UPDATE", which is cut; NULL: the options' own. */
static gw_err step_add_config(const gw_spec *given, int *level) {
    if (b.given == MOST_CONFIGS)
        return gw_fail(GW_ERR_USAGE, "bench: more than %d configurations", MOST_CONFIGS);
    config *one = b.configs[b.n++] = &b.all[b.given++];
    *one = (config){.c = b.c};
    if (given) {
        char *text = (char *)given->text;
        int n = 0;
        GW_TRY(gw_args_new(&one->fields, fields));
        for (char *item; (item = strsep(&text, "|")) != NULL; n++) {
            if (n == 3)
                return gw_fail(GW_ERR_USAGE, "bench: configs: '%s': more than COMM|CODEC|UPDATE",
                               item);
            if (!*item)
                return gw_fail(GW_ERR_USAGE,
                               "bench: configs: number %d has nothing in its field %d of "
                               "COMM|CODEC|UPDATE",
                               b.given, n + 1);
            GW_TRY(gw_args_set(one->fields, "bench: configs", fields[n].name, item));
        }
        one->c.run.comm = gw_args_spec(one->fields, "comm");
        if (n > 1)
            one->c.run.compress = gw_args_spec(one->fields, "compress");
        if (n > 2)
            one->c.run.lazy = strcmp(gw_args_text(one->fields, "update"), "lazy") == 0;
    }
    return step_refuse(b.n - 1, step_open_session(one, level));
}

static gw_err step_prepare(gw_bench_run *run) {
    const gw_spec *list = gw_args_spec(run->args, "configs");
    GW_TRY(gw_step_opts_read(&b.c, run->args, "bench"));
    if (!list)
        return step_add_config(NULL, &run->level);
    for (const gw_spec *s = list->parts; s; s = s->next)
        GW_TRY(step_add_config(s, &run->level));
    return step_some_left();
}

/* ---- measuring ---- */

static gw_rig *rig(int i) {
    return &b.configs[i]->rig;
}

static gw_err step_keep(int i, const gw_batch_cost *cost, int n) {
    static double part[GW_RIG_BLOCK][PARTS];
    for (int k = 0; k < n; k++) {
        const double *p = cost[k].phase_s;
        part[k][COMPUTATION] = p[GW_PHASE_FORWARD] + p[GW_PHASE_BACKWARD] + p[GW_PHASE_UPDATE];
        part[k][EXPOSED] = p[GW_PHASE_MPI_POST] + p[GW_PHASE_MPI_POLL] + p[GW_PHASE_MPI_WAIT];
        part[k][CODEC] = p[GW_PHASE_ENCODE] + p[GW_PHASE_DECODE];
        part[k][OTHER] = p[GW_PHASE_OTHER];
        part[k][INFLIGHT] = cost[k].inflight_s;
        part[k][WIRE] = (double)cost[k].wire_bytes;
    }
    GW_TRY(gw_allreduce(MPI_IN_PLACE, part, n * PARTS, MPI_DOUBLE, MPI_SUM, b.place->comm));
    for (int k = 0; k < n; k++)
        for (int p = 0; p < PARTS; p++)
            GW_TRY(gw_samples_add(&b.configs[i]->part[p], part[k][p] / b.place->ranks));
    return GW_OK;
}

/* ---- results; rank 0 ---- */

static const gw_bench_table table = {
    .form = "%-32s %-14s %-6s %10.1u %10.1u %6.1p %10.1u %10.1u %10.1u %10.1u %10.1u %11.0f %8.2f "
            "%10.1u %7.2f",
    .heads = "strategy|codec|update|median us|p95 us|+-%|comput.|exposed|codec|other|inflight|"
             "wire bytes|x first|bound us|x bound",
    .kept = "sbdfff",
    .keys = "comm|compress|update|median_s|p95_s||computation_s|exposed_s|codec_s|other_s|"
            "inflight_s|wire_bytes|ratio_first|||algorithm|error_feedback|steps|min_s|ci_low_s|"
            "ci_high_s"};

static double step_report_one(config *one, double first_s, json_t *rows) {
    gw_chooser *choice = one->rig.choice;
    const gw_session *session = one->rig.session;
    const gw_bound_run *bound = &one->bound;
    gw_stats s = gw_stats_of(one->rig.wall.x, one->rig.wall.n);
    double bound_s = bound->measured ? bound->parts.step_s[bound->mode] : NAN, part[PARTS];
    char codec[256]; /* as it was given, or what `auto` chose */
    gw_text_print(codec, sizeof codec, "%s%s",
                  choice ? session->mix.codec->spec : one->c.run.compress->text,
                  session->unmet.idle ? " (not encoded here)" : "");
    for (int p = 0; p < PARTS; p++)
        part[p] = gw_stats_median(one->part[p].x, one->part[p].n);
    json_t *row =
        gw_bench_row(&table, rows,
                     GW_TEXTS(one->c.run.comm->text, codec, one->rig.lazy ? "lazy" : "eager",
                              session->mix.algo->ops->head.name),
                     GW_NUMBERS(s.median, s.p95, gw_stats_precision(&s), part[COMPUTATION],
                                part[EXPOSED], part[CODEC], part[OTHER], part[INFLIGHT], part[WIRE],
                                first_s > 0 ? first_s / s.median : 1, bound_s, s.median / bound_s,
                                gw_session_feeds_back(session), s.n, s.min, s.ci_low, s.ci_high));
    if (choice)
        choice->measured_s = s.median;
    gw_json_add(row, "bound:o forecast:o unmet:o", gw_bound_json(bound),
                choice ? gw_chooser_json(choice) : json_null(), gw_unmet_json(&session->unmet));
    return s.median;
}

static void step_report(gw_bench_run *run) {
    double first_s = 0;
    gw_bench_place_say(&run->place, "training step without data loading");
    printf("%zu parameters, global batch %d; GEMM by %s\n",
           gw_model_size(b.configs[0]->rig.at.model), b.configs[0]->rig.at.global,
           gw_gemm_library());
    gw_rig_say_warning();
    for (int i = 0; i < b.n; i++) {
        const gw_session *s = b.configs[i]->rig.session;
        fputs(s->notes.lines ? s->notes.lines : "", stdout);
        gw_unmet_print(&s->unmet, NULL, stdout);
    }
    gw_bench_head(&table);
    for (int i = 0; i < b.n; i++) {
        double median_s = step_report_one(b.configs[i], first_s, run->results);
        first_s = i == 0 ? median_s : first_s;
    }
    json_t *refused = json_array();
    for (const config *one = b.all; one < b.all + b.given; one++) {
        if (!*one->refused)
            continue;
        const char *comm = one->c.run.comm->text, *codec = one->c.run.compress->text;
        printf("refused: %s with %s: %s\n", comm, codec, one->refused);
        json_array_append_new(
            refused, gw_json_object("comm:s compress:s reason:s", comm, codec, one->refused));
    }
    json_object_set_new(run->facts, "refused", refused);
    if (b.bounds) /* what they are made of */
        printf("\nbounds:\n");
    for (int i = 0; i < b.n; i++) {
        const gw_bound_run *bound = &b.configs[i]->bound;
        const gw_bound_parts *p = &bound->parts;
        if (!bound->measured)
            continue;
        printf("%-32s computation %.1f us, codec %.1f, wire %.1f, transport ",
               b.configs[i]->c.run.comm->text, gw_layers_sum(&p->local) * 1e6, p->codec_s * 1e6,
               p->wire_s * 1e6);
        if (isnan(p->transport_s))
            printf("absent:");
        else
            printf("%.1f:", p->transport_s * 1e6);
        for (int m = 0; m < GW_BOUND_MODES; m++)
            printf(" %s%s %.1f", m == (int)bound->mode ? "*" : "", gw_bound_name((gw_bound_mode)m),
                   p->step_s[m] * 1e6);
        printf("\n");
    }
}

/* ---- the whole ---- */

static gw_err step_measure(gw_bench_run *run, bool *own) {
    b.place = &run->place;
    gw_rig_setup setup = gw_rig_setup_of(&b.c, b.place);
    for (int i = 0, left; i < b.n; i += left == b.n) {
        left = b.n;
        gw_err e = gw_rig_open(&b.configs[i]->rig, &setup);
        GW_THEN(e, gw_rig_start(&b.configs[i]->rig));
        GW_TRY(step_refuse(i, e));
    }
    GW_TRY(step_some_left());
    for (int i = 0; i < b.n && b.bounds; i++) {
        gw_rig *r = &b.configs[i]->rig;
        gw_bound_run *bound = &b.configs[i]->bound;
        gw_layer_job steps = gw_placed_layers(&r->at);
        if (gw_bound_of(&r->stepper.is, r->lazy, &bound->mode) == GW_OK) /* else none is known */
            GW_TRY(gw_bound_measure(bound, &r->stepper, &steps, r->yield, own));
    }
    gw_rig_turns turns = {.place = &run->place,
                          .rig = rig,
                          .n = b.n,
                          .steps = b.steps,
                          .block = b.block,
                          .warmup = b.warmup,
                          .seed = b.c.run.seed,
                          .keep = step_keep};
    gw_err e = gw_rig_take_turns(&turns);
    *own = e != GW_OK; /* the others wait in an exchange */
    GW_TRY(e);
    for (int i = 0; i < b.n; i++) {
        gw_session *s = b.configs[i]->rig.session;
        GW_TRY(gw_session_find_unmet(s, (gw_unmet_ask){.ended = true}, run->place.comm));
    }
    /* A step that does not learn numbers is no training step. */
    for (int i = 0; i < b.n; i++) {
        double loss = b.configs[i]->rig.loss;
        GW_TRY(gw_allreduce(MPI_IN_PLACE, &loss, 1, MPI_DOUBLE, MPI_SUM, b.place->comm));
        if (!isfinite(loss))
            return gw_fail(GW_ERR_DIVERGED,
                           "bench: %s with %s: the loss is no longer finite: try a smaller --lr",
                           b.configs[i]->c.run.comm->text, b.configs[i]->c.run.compress->text);
    }
    return GW_OK;
}

static void step_close_sessions(void) {
    for (int i = b.given - 1; i >= 0; i--)
        gw_rig_stop(&b.all[i].rig);
}

static void step_release(void) {
    for (int i = 0; i < b.given; i++) {
        config *one = &b.all[i];
        gw_rig_free(&one->rig);
        gw_args_free(one->fields);
        for (int p = 0; p < PARTS; p++)
            gw_samples_free(&one->part[p]);
    }
}

const gw_benchmark gw_bench_step = {
    .name = "step",
    .summary = "a training step without data loading, by communication and codec",
    .opts = opts,
    .rules = rules,
    .config = &b,
    .notes = notes,
    .prepare = step_prepare,
    .measure = step_measure,
    .report = step_report,
    .close = step_close_sessions,
    .release = step_release,
};
