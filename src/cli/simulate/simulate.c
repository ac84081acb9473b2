/* gradwire simulate: the step of any model on many ranks of a modelled network, in one process. */
#include "cli/simulate/simulate.h"

#include "base/json.h"
#include "base/mem.h"
#include "cli/bench/step_rig.h"
#include "cli/cli.h"
#include "cli/simulate/graph.h"
#include "cli/train/step_opts.h"
#include "play/options.h"
#include "predict/codec.h"
#include "record/recorder.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { TIMED_STEPS = 20 /* of a model that is measured */ };

typedef struct simulation {
    gw_args *args;
    char *command;
    gw_train_config c; /* the model, unless a profile has it, and the mesh */
    gw_step_profile profile;
    gw_sim_mesh mesh;
    gw_sim_play play;
    gw_codec_price price[2]; /* of coding: of the play's codec, of its exact one */
    gw_graph *graph;         /* NULL: not asked for */
    gw_file *goal_file, *chakra_file, *json_file; /* begun before the run; so are these */
    gw_sim_watch watch;
    gw_claim *claim; /* of --out */
    double cpu_s, memory_bytes;
} simulation;

static const gw_opt opts[] = {
    {"ranks", GW_OPT_INT, NULL, 1, GW_SIM_MOST_RANKS, NULL, "N", "number of ranks to play",
     .group = "Network"},
#include "cli/train/model_opts.def"
#include "play/options.def"
    GW_RIG_OPTS,
    {"steps", GW_OPT_INT, "3", 1, 1e6, NULL, "N",
     "play N steps; figures are of whole periods of the exchange, without the first step",
     .group = "Play"},
    {"fold", GW_OPT_CHOICE, "auto", 0, 0, "auto|off", NULL,
     "auto: one rank plays for all that do the same in step; off: play each rank"},
    {"coding-ns", GW_OPT_REAL, "0", 0, 1e6, NULL, "X",
     "time to encode, decode or add a float, in ns; of a model it is measured here by default"},
#include "cli/train/mesh_shape_opts.def"
    {"comm", GW_OPT_SPEC, GW_STRATEGY_PLAIN, 0, 0, NULL, "STRATEGY",
     "name[:option=value,..] or path to a plugin; with algo=", .group = "Communication"},
    {"compress", GW_OPT_CHAIN, "none", 0, 0, NULL, "CODEC",
     "name[:option=value,..] or path to a plugin; of fixed size"},
    {"update", GW_OPT_CHOICE, "eager", 0, 0, "eager|lazy", NULL,
     "lazy: finish each layer just before the next forward pass reads it"},
    {"inject-skew", GW_OPT_TEXT, NULL, 0, 0, NULL, "RANK:TIME|RANK:LAW",
     "ranks that differ: delay one rank, or all, in every step, as gradwire train does: 3:1ms, or "
     "by draws: all:exp:mean=1ms, all:pareto:alpha=1.5,scale=5ms"},
    {"out", GW_OPT_PATH, NULL, 0, 0, NULL, "DIR", "write the run folder here, marked as simulated",
     .group = "Output"},
    {"overwrite", GW_OPT_FLAG, NULL, 0, 0, NULL, NULL,
     "replace the run in DIR when this one has finished"},
    {"json", GW_OPT_PATH, NULL, 0, 0, NULL, "FILE", "write all figures to FILE"},
    {"goal", GW_OPT_PATH, NULL, 0, 0, NULL, "FILE",
     "write what all ranks do to FILE, as GOAL text for LogGOPSim"},
    {"chakra", GW_OPT_PATH, NULL, 0, 0, NULL, "DIR",
     "write what rank R does to DIR/rank.R.et, as a Chakra trace for ASTRA-sim"},
    {"check", GW_OPT_FLAG, NULL, 0, 0, NULL, NULL, "check everything, play nothing"},
    {"quiet", GW_OPT_FLAG, NULL, 0, 0, NULL, NULL, "print errors only"},
    {0}};

#define HAS_MODEL "a profile has its own model"

static const gw_rule rules[] = {
    {"overwrite", NULL, true, "out", NULL, "it says what becomes of the run there"},
    {"bytes", NULL, false, "profile", NULL, "a profile has its own gradients"},
    {"bytes", NULL, false, "local-batch", NULL, "nothing is computed"},
    {"profile", NULL, false, "model", NULL, HAS_MODEL},
    {"profile", NULL, false, "layers", NULL, HAS_MODEL},
    {"profile", NULL, false, "batch", NULL, "give --local-batch, or none: a profile has one"},
    {"profile", NULL, false, "optimizer", NULL, HAS_MODEL},
    {"bytes", NULL, false, "model", NULL, "nothing is computed"},
    {"bytes", NULL, false, "layers", NULL, "nothing is computed"},
    {0}};

/* ---- the command line ---- */

/* A model that the options describe, as `train` takes them. */
static bool simulate_measures(const simulation *s) {
    return gw_args_given(s->args, "layers") || gw_args_given(s->args, "model");
}

/* Read what is to be played. Codecs get the price that --coding-ns says, or a measured one where
 * the model is measured. */
static gw_err simulate_read(simulation *s) {
    const gw_args *a = s->args;
    gw_sim_play *p = &s->play;
    gw_step_profile *of = &s->profile;
    GW_TRY(gw_sim_steps_read(p, of, a, "simulate"));
    bool measured = of->document && !gw_args_given(a, "profile");
    p->script.sleeps &= !measured || gw_args_given(a, "compute"); /* else this core computes */
    if (gw_args_given(a, "local-batch")) { /* which takes as long as its samples */
        double times = gw_args_int(a, "local-batch") / (double)of->batch;
        for (int t = 0; t < of->n_tensors; t++) {
            of->tensor[t].forward_s *= times;
            of->tensor[t].backward_s *= times;
        }
        of->batch = (long)gw_args_int(a, "local-batch");
        of->forward_s *= times;
        of->backward_s *= times;
    }
    gw_args_fill(a, &s->c);
    GW_TRY(gw_mesh_parse(&s->c.parallel.shape, s->c.parallel.mesh));
    s->c.parallel.stages = "flops"; /* as train's default: none asked for */
    p->script.mesh = &s->mesh;
    GW_TRY(gw_sim_mesh_open(&s->mesh, &s->c.parallel, of, p->world.ranks));
    p->script.lazy = strcmp(gw_args_text(a, "update"), "lazy") == 0;
    p->unfolded = strcmp(gw_args_text(a, "fold"), "off") == 0;
    p->steps = (int)gw_args_int(a, "steps");
    p->seed = (uint64_t)gw_args_int(a, "seed");
    GW_TRY(gw_delay_read(&p->skew, "simulate", gw_args_text(a, "inject-skew")));
    GW_TRY(gw_delay_suits(&p->skew, "simulate", p->world.ranks));
    GW_TRY(gw_sim_play_open(p, gw_args_spec(a, "comm"), gw_args_spec(a, "compress")));
    gw_codec *codec[] = {&p->codec, &p->exact};
    for (int i = 0; i < 2; i++) {
        gw_sim_coding(&s->price[i], 1e-9 * gw_args_real(a, "coding-ns"));
        if (simulate_measures(s) && !gw_args_given(a, "coding-ns")) {
            GW_TRY(gw_codec_time_price(codec[i], "auto", NULL, s->profile.n, p->world.ranks,
                                       &s->price[i]));
            s->price[i] = gw_codec_price_scaled(&s->price[i], p->script.speed);
        }
        codec[i]->price = &s->price[i];
    }
    return gw_sim_play_check(p);
}

/* ---- what came of it ---- */

/* The model, for --json and the run's folder. */
static json_t *simulate_model(const simulation *s) {
    const gw_sim_play *p = &s->play;
    const gw_sim_setup *w = &p->world;
    json_t *network = gw_json_object(
        "ranks:i played:i per_host:i network:s link:o memory:o coding_s:o", w->ranks,
        w->played ? w->played : w->ranks, w->per_host, gw_args_text(s->args, "network"),
        gw_sim_link_json(&w->link, NULL), gw_sim_link_json(&w->memory, NULL),
        gw_codec_price_json(s->price[0].float_s));
    json_t *steps = gw_json_object(
        "model:s source:s parameters:I tensors:i batch:I forward_s:f backward_s:f optimizer_s:f "
        "steps:i speed:f compute:s bucket_bytes:I comm:s algorithm:s modelled:s compress:s "
        "update:s inject_skew:s seed:I",
        p->script.profile->model, p->script.profile->source, (int64_t)p->script.profile->n,
        p->script.profile->n_tensors, (int64_t)p->script.profile->batch,
        p->script.profile->forward_s, p->script.profile->backward_s, p->script.profile->optimizer_s,
        p->steps, p->script.speed, p->script.sleeps ? "sleep" : "spin", (int64_t)p->script.bucket,
        gw_args_text(s->args, "comm"), p->algo.ops->head.name, p->algo.stands_for,
        gw_args_text(s->args, "compress"), gw_args_text(s->args, "update"),
        gw_args_text(s->args, "inject-skew"), (int64_t)p->seed);
    return gw_json_object("program:s engine:s network:o step:o mesh:o events:I cpu_s:f "
                          "memory_bytes:f",
                          "simulate", "gradwire: LogGP, max-min fair flows", network, steps,
                          gw_sim_mesh_json(p->script.mesh), (int64_t)p->tally.events, s->cpu_s,
                          s->memory_bytes);
}

static void simulate_print(const simulation *s) {
    const gw_sim_play *p = &s->play;
    double ranks = p->world.ranks;
    const char *skew = gw_args_text(s->args, "inject-skew");
    printf("simulated: %d rank%s, %s %s: %s, %zu parameters; --comm %s --compress %s%s%s\n",
           p->world.ranks, p->world.ranks == 1 ? "" : "s", gw_args_text(s->args, "network"),
           gw_args_text(s->args, "link"), p->script.profile->model, p->script.profile->n,
           gw_args_text(s->args, "comm"), gw_args_text(s->args, "compress"),
           skew ? " --inject-skew " : "", skew ? skew : "");
    printf(
        "step %.6g ms, exposed communication %.6g ms; %.0f wire bytes and %.6g messages a rank\n",
        1e3 * p->step_s, 1e3 * p->exposed_s, p->sent.bytes / ranks, p->sent.messages / ranks);
    if (s->mesh.micros > 1 || gw_mesh_divides(&s->mesh.shape))
        printf("mesh: data=%d, pipe=%d, tensor=%d: %d microbatch%s by %s; bubble %.6g ms, %.3g%% "
               "of the step\n",
               s->mesh.shape.size[GW_DIM_DATA], s->mesh.shape.size[GW_DIM_PIPE],
               s->mesh.shape.size[GW_DIM_TENSOR], s->mesh.micros, s->mesh.micros == 1 ? "" : "es",
               gw_timetable_name(s->mesh.timetable), 1e3 * p->bubble_s,
               100 * p->bubble_s / p->step_s);
    printf("engine: %llu events, %.2f s of this CPU, %.0f MiB\n",
           (unsigned long long)p->tally.events, s->cpu_s, s->memory_bytes / 0x1p20);
    if (p->world.played)
        printf("folded: %d rank%s played, and all others do the same\n", p->world.played,
               p->world.played == 1 ? " is" : "s are");
    bool exchanges = s->mesh.shape.size[GW_DIM_DATA] > 1;
    if (exchanges && !p->codec.fixed)
        printf("note: --compress %s: size at its bound; independent numbers take 0.9 to 1 of it\n",
               p->codec.spec);
    if (exchanges && p->algo.stands_for)
        printf("note: algo=%s is MPI's own: modelled as halving:chunk=0\n", p->algo.stands_for);
    if (s->mesh.algo.stands_for && s->mesh.shape.size[GW_DIM_TENSOR] > 1)
        printf("note: --tensor-algo %s is MPI's own: modelled as halving:chunk=0\n",
               s->mesh.algo.stands_for);
    if (!exchanges)
        printf("note: --comm %s: nothing is exchanged: %s\n", p->strategy.ops->head.name,
               gw_sim_alone(p));
    fputs(p->notes, stdout);
}

/* ---- --out: the folder of a run ---- */

/* run.json and batches.csv are as a real run has them, marked by `simulated` in run.json.
 * docs/run-folder.md says what such a folder lacks. */

enum { MOST_ROWS = 256 /* ranks with rows in batches.csv: a table of thousands helps nobody */ };

static int simulate_row_ranks(const gw_sim_play *p) {
    return p->world.ranks < MOST_ROWS ? p->world.ranks : MOST_ROWS;
}

static gw_runfolder_use simulate_folder_use(const simulation *s) {
    return gw_args_flag(s->args, "overwrite") ? GW_RUNFOLDER_REPLACE : GW_RUNFOLDER_NEW;
}

/* Write the rows of the step as it was played. epochs.csv has none, since nothing was learnt. */
static gw_err simulate_write_rows(const gw_sim_play *p, gw_rows *rows) {
    gw_batch_table batches;
    FILE *to;
    gw_batch_table_make(&batches, gw_mesh_divides(&p->script.mesh->shape), NULL, 0);
    GW_TRY(gw_rows_open(rows, &batches.table, &to, NULL));
    for (int step = 0; step < p->steps; step++)
        for (int r = 0; r < simulate_row_ranks(p); r++) {
            const gw_sim_step *of = &p->log[(size_t)step * (size_t)p->world.ranks + (size_t)r];
            gw_mesh m;
            gw_mesh_place(&m, &p->script.mesh->shape, r, p->world.ranks);
            gw_batch_row row = gw_batch_row_of(&(gw_batch_parts){
                .rank = r,
                .epoch = 1,
                .place = {m.at[GW_DIM_DATA], m.at[GW_DIM_PIPE], m.at[GW_DIM_TENSOR]},
                .step = step + 1,
                .injected_s = of->cost.phase_s[GW_PHASE_DATA],
                .slept = true,
                .logical_bytes = gw_sim_mesh_share(p->script.mesh, &m)->n * sizeof(float),
                .cost = of->cost,
                .counts = gw_batch_no_counts,
                .split = gw_batch_no_split});
            row.skew_s[GW_DIM_PIPE] = of->bubble_s;
            gw_table_write(&batches.table, to, &row, 1);
        }
    GW_TRY(gw_table_write(&batches.table, to, NULL, 0)); /* whether all could be written */
    GW_TRY(gw_rows_commit(rows, &batches.table));
    GW_TRY(gw_rows_open(rows, &gw_epochs, &to, NULL));
    return gw_rows_commit(rows, &gw_epochs);
}

/* Means over all ranks, and the steps that count. */
static gw_batch_summary simulate_sum_up(const gw_sim_play *p) {
    gw_batch_summary sum = {.batches = p->counted,
                            .kept = {.steps = p->counted, .period = p->counted},
                            .doubt = gw_steady_no_doubt,
                            .interrupted = NAN};
    size_t ranks = (size_t)p->world.ranks, n = ranks * (size_t)sum.batches;
    for (size_t i = 0; i < sizeof sum.figure / sizeof *sum.figure; i++)
        sum.figure[i] = NAN;
    sum.wall_s = sum.wire_bytes = sum.logical_bytes = 0;
    memset(sum.dim_bytes, 0, sizeof sum.dim_bytes);
    memset(sum.dim_messages, 0, sizeof sum.dim_messages);
    memset(sum.phase_s, 0, sizeof sum.phase_s);
    memset(sum.dim_comm_s, 0, sizeof sum.dim_comm_s);
    for (const gw_sim_step *s = p->log + ranks * (size_t)p->steps - n, *end = s + n; s < end; s++) {
        const gw_batch_cost *c = &s->cost;
        sum.wall_s += c->wall_s / (double)n;
        sum.wire_bytes += (double)c->wire_bytes / (double)n;
        for (int phase = 0; phase < GW_PHASES; phase++)
            sum.phase_s[phase] += c->phase_s[phase] / (double)n;
        for (int d = 0; d < GW_DIMS; d++) {
            sum.dim_comm_s[d] += c->dim[d].comm_s / (double)n;
            sum.dim_bytes[d] += (double)c->dim[d].bytes / (double)n;
            sum.dim_messages[d] += (double)c->dim[d].messages / (double)n;
        }
    }
    const int *size = p->script.mesh->shape.size;
    int shares = size[GW_DIM_PIPE] * size[GW_DIM_TENSOR];
    for (const gw_sim_share *of = p->script.mesh->share; of < p->script.mesh->share + shares; of++)
        sum.logical_bytes += (double)(of->n * sizeof(float)) / shares;
    sum.dim_waiting_s[GW_DIM_PIPE] = p->bubble_s;
    return sum;
}

/* A recorder that is filled in by hand: there is no MPI, no clock and no memory of a rank. */
static gw_err simulate_folder_json(const gw_sim_play *p, gw_recorder *r, gw_recorder_report *of,
                                   json_t **run) {
    const gw_strategy *s = &p->strategy;
    int ranks = p->world.ranks, replica = ranks / p->script.mesh->shape.size[GW_DIM_DATA];
    gw_host host;
    gw_host_facts(&host);
    r->total.hosts = json_pack("[s]", host.name);
    r->total.summary = simulate_sum_up(p);
    r->total.straggler.rank = -1;
    r->total.elapsed_s = r->train_s = p->elapsed_s;
    of->program = "simulate";
    of->started_utc = r->start_utc;
    of->stopped_by = "steps";
    of->statistic = "simulated mean";
    of->seed = p->seed;
    of->parameters = p->script.profile->n;
    of->wire_bytes = p->tally.bytes;
    of->steps = p->steps;
    of->node.nodes = (ranks + p->world.per_host - 1) / p->world.per_host;
    of->node.ranks = ranks < p->world.per_host ? ranks : p->world.per_host;
    of->workers = ranks - replica * s->plan.servers;
    of->threads = 1;
    of->dimensions = gw_recorder_dimensions(&r->total.summary, &p->script.mesh->shape);
    of->bubble_s = gw_mesh_divides(&p->script.mesh->shape) ? p->bubble_s : NAN;
    char algo[128];
    json_t *unmet = json_array();
    snprintf(algo, sizeof algo, p->algo.stands_for ? "%s (modelled as halving:chunk=0)" : "%s",
             p->algo.stands_for ? p->algo.stands_for : p->algo.ops->head.name);
    if (gw_sim_alone(p))
        json_array_append_new(unmet, gw_json_object("option:s value:s what:s why:s", "comm",
                                                    p->strategy.ops->head.name,
                                                    "nothing is exchanged", gw_sim_alone(p)));
    of->comm =
        gw_json_object("strategy:s algorithm:s codec:s error_feedback:b clip:o unmet:o notes:t "
                       "layers:o warning:o",
                       p->strategy.ops->head.name, algo, p->codec.spec, false, json_null(), unmet,
                       p->notes, json_null(), json_null());
    of->machine = gw_json_object("ranks:i clock:s busy:o", ranks, "virtual",
                                 gw_json_object("before:o during:o", json_null(), json_null()));
    of->results = gw_json_object("ranks:o peak_bytes:o peak_sum_bytes:o", json_null(), json_null(),
                                 json_null());
    return gw_recorder_json(r, of, run);
}

static gw_err simulate_write_folder(const simulation *s) {
    const gw_sim_play *p = &s->play;
    const char *dir = gw_args_text(s->args, "out");
    gw_recorder r;
    gw_rows *rows = NULL;
    json_t *run;
    gw_recorder_start(&r, &(gw_recorder_setup){.comm = MPI_COMM_NULL, .out = dir});
    gw_err e = gw_runfolder_clear(dir, simulate_folder_use(s));
    GW_THEN(e, gw_rows_new(&rows, dir, false));
    GW_THEN(e, simulate_write_rows(p, rows));
    gw_rows_close(rows);
    GW_TRY(e);
    json_t *sources = gw_json_object(
        "phases:s waiting_s:s hidden_s:s memory_s:s wire_bytes:s peak_bytes:s",
        "simulated: computation by the profile; mpi_wait_s is all else of a step", "absent",
        "absent", "absent",
        "simulated: as counted in the schedules' messages, and as the strategy's formula says",
        "absent");
    gw_recorder_report of = {
        .args = s->args,
        .command = s->command,
        .more =
            gw_json_object("mesh:o simulated:o sources:o link:o", gw_sim_mesh_json(p->script.mesh),
                           gw_json_add(simulate_model(s), "rows_of_ranks:i", simulate_row_ranks(p)),
                           sources, json_null())};
    e = simulate_folder_json(p, &r, &of, &run);
    json_decref(r.total.hosts);
    return e == GW_OK ? gw_runfolder_write(dir, run) : e;
}

/* ---- the run ---- */

static gw_err simulate_begin_chakra(simulation *s, int rank) {
    char *path = NULL;
    if (asprintf(&path, "%s/rank.%d.et", gw_args_text(s->args, "chakra"), rank) < 0)
        return gw_fail(GW_ERR_NOMEM, "out of memory");
    gw_err e = gw_file_create_at(&s->chakra_file, path);
    free(path);
    return e;
}

static gw_err simulate_begin_files(simulation *s) {
    const char *json = gw_args_text(s->args, "json"), *goal = gw_args_text(s->args, "goal");
    const char *chakra = gw_args_text(s->args, "chakra"), *out = gw_args_text(s->args, "out");
    bool made;
    if (out) { /* what lies there stays, until this run is over */
        size_t rows = (size_t)s->play.world.ranks * (size_t)s->play.steps;
        GW_TRY(gw_claim_take(&s->claim, out));
        GW_TRY(gw_runfolder_check(out, simulate_folder_use(s)));
        GW_TRY(gw_alloc(&s->play.log, rows, sizeof *s->play.log));
    }
    if (json)
        GW_TRY(gw_file_create_at(&s->json_file, json));
    if (goal)
        GW_TRY(gw_file_create_at(&s->goal_file, goal));
    if (chakra) {
        GW_TRY(gw_file_make_folder(chakra, &made));
        GW_TRY(simulate_begin_chakra(s, 0));
    }
    if (!goal && !chakra)
        return GW_OK;
    GW_TRY(gw_graph_open(&s->graph, s->play.world.ranks));
    s->watch = gw_graph_watch(s->graph);
    s->play.world.watch = &s->watch;
    return GW_OK;
}

static gw_err simulate_end_files(simulation *s) {
    const gw_sim_play *p = &s->play;
    gw_file *json = s->json_file;
    double ranks = p->world.ranks;
    if (s->graph && s->graph->full)
        return gw_fail(GW_ERR_NOMEM, "simulate: out of memory");
    if (gw_args_given(s->args, "out"))
        GW_TRY(simulate_write_folder(s));
    if (s->goal_file)
        gw_graph_goal(s->graph, gw_file_stream(s->goal_file));
    GW_TRY(gw_file_commit(&s->goal_file));
    for (int r = 0; r < p->world.ranks && gw_args_given(s->args, "chakra"); r++) {
        if (r > 0)
            GW_TRY(simulate_begin_chakra(s, r));
        gw_graph_chakra(s->graph, r, gw_file_stream(s->chakra_file));
        GW_TRY(gw_file_commit(&s->chakra_file));
    }
    s->json_file = NULL;
    return json ? gw_json_commit(json,
                                 gw_json_add(simulate_model(s),
                                             "step_s:f exposed_s:f bubble_s:f wire_bytes:f "
                                             "messages:f unmet:t notes:t",
                                             p->step_s, p->exposed_s, p->bubble_s,
                                             p->sent.bytes / ranks, p->sent.messages / ranks,
                                             gw_sim_alone(p), p->notes),
                                 JSON_INDENT(2), "the figures")
                : GW_OK;
}

static gw_err simulate_play(simulation *s) {
    struct rusage use;
    if (gw_args_flag(s->args, "check")) {
        s->play.steps = 0;
        return gw_sim_play_run(&s->play);
    }
    GW_TRY(simulate_begin_files(s));
    GW_TRY(gw_sim_play_run(&s->play));
    getrusage(RUSAGE_SELF, &use);
    s->cpu_s = (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
               1e-6 * (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec);
    s->memory_bytes = 1024.0 * (double)use.ru_maxrss;
    if (!gw_args_flag(s->args, "quiet"))
        simulate_print(s);
    return simulate_end_files(s);
}

/* With a model's profile, which is measured on this core with a replica's part of the batch. */
static gw_err simulate_body(void *ctx, MPI_Comm comm, bool *own) {
    simulation *s = ctx;
    gw_train_config *c = &s->c;
    gw_bench_run run = {.args = s->args};
    gw_mesh at;
    double spread[2];
    (void)own;
    GW_TRY(gw_step_opts_read(c, s->args, "simulate"));
    GW_TRY(gw_mesh_parse(&c->parallel.shape, c->parallel.mesh));
    GW_TRY(gw_mesh_place(&at, &c->parallel.shape, 0, s->play.world.ranks));
    GW_TRY(gw_bench_place_open(&run.place, comm, c->run.threads));
    if (run.place.ranks > 1)
        return gw_fail(GW_ERR_USAGE,
                       "simulate: one process measures and plays all ranks: start 1, not %d",
                       run.place.ranks);
    int replicas = at.shape.size[GW_DIM_DATA];
    if (!c->local_batch)
        c->batch = (c->batch + replicas - 1) / replicas;
    c->local_batch = true;
    GW_TRY(gw_rig_profile(&run, c, &s->profile, spread));
    GW_TRY(simulate_read(s));
    return simulate_play(s);
}

static bool simulate_trains(int argc, char **argv) {
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--train") == 0)
            return true;
    return false;
}

static int simulate_run(const gw_args *unused, int argc, char **argv) {
    (void)unused;
    if (simulate_trains(argc, argv))
        return gw_simulate_train(argc, argv);
    simulation s = {.command = gw_cli_line(argc, argv)};
    gw_err e = s.command ? GW_OK : gw_fail(GW_ERR_NOMEM, "out of memory");
    GW_THEN(e, gw_args_new(&s.args, opts));
    GW_THEN(e, gw_args_argv(s.args, "simulate", argc, argv, NULL));
    GW_THEN(e, gw_args_check(s.args, rules, "simulate"));
    for (int i = 0; i < 2 && e == GW_OK; i++)
        if (gw_args_given(s.args, i ? "out" : "json"))
            e = gw_cli_utf8("simulate", i ? "out" : "json", argc, argv);
    GW_THEN(e, gw_sim_network_read(&s.play.world, s.args, "simulate"));
    bool measures = e == GW_OK && simulate_measures(&s);
    gw_cli_told told = {.command = "simulate", .args = s.args};
    int status = measures ? gw_cli_parallel(&told, MPI_THREAD_FUNNELED, e, simulate_body, &s) : 0;
    if (!measures) {
        GW_THEN(e, simulate_read(&s));
        GW_THEN(e, simulate_play(&s));
    }
    gw_graph_close(s.graph);
    gw_file_abandon(s.goal_file);
    gw_file_abandon(s.chakra_file);
    gw_file_abandon(s.json_file);
    gw_sim_mesh_close(&s.mesh);
    gw_sim_play_close(&s.play);
    gw_step_profile_free(&s.profile);
    gw_args_free(s.args);
    gw_claim_release(s.claim);
    free(s.play.log);
    free(s.command);
    return e == GW_OK ? status : gw_cli_refuse(e);
}

static bool simulate_help(int argc, char **argv) {
    bool trains = simulate_trains(argc, argv);
    if (trains)
        gw_simulate_train_help();
    return trains;
}

const gw_command gw_command_simulate = {
    .name = "simulate",
    .summary = "play a step on many ranks of a modelled network, in one process",
    .usage =
        "--ranks N --link RATE[,LATENCY[,OVERHEAD]] (--profile FILE | --bytes N | --layers ..)\n"
        "       gradwire simulate --train --ranks N --link RATE.. [options of train]",
    .notes = "docs/simulate.md: the model, and what it cannot predict. `gradwire simulate --train "
             "--help`\n"
             "lists the options of training in virtual time.",
    .help = simulate_help,
    .opts = opts,
    .parses = true,
    .run = simulate_run,
};
