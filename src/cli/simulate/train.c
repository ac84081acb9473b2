/* gradwire simulate --train: the trainer on ranks that are coroutines of one process. They compute
 * and exchange what as many processes would, over a simulated network, and each rank's clock goes
 * on by what its computation takes on a free core of this machine. */
#include "cli/simulate/simulate.h"

#include "base/json.h"
#include "base/mem.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/train/step_opts.h"
#include "cli/train/train_job.h"
#include "play/options.h"
#include "play/spend.h"
#include "prof/clock.h"
#include "prof/ledger.h"
#include "watch/signals.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    STACK = 2 << 20, /* bytes; the trainer's frames hold tables of layers */
    MOST_RANKS = 4096
};

/* A simulated rank: its job, its ledger, and what spends its time. */
typedef struct train_rank {
    gw_train_job job;
    gw_ledger *ledger;
    gw_spender spender;
} train_rank;

typedef struct simulated {
    gw_args *args;
    char *command;
    gw_sim_setup world;
    gw_step_profile profile; /* of --step-profile */
    gw_codec_price price;    /* of --coding-ns */
    gw_simulated told;
    gw_stop_together stop;
    train_rank *rank;
    int ranks;
} simulated;

static const gw_opt opts[] = {
    {"train", GW_OPT_FLAG, NULL, 0, 0, NULL, NULL,
     "train for real, in virtual time: takes the options of `train`, too", .group = "Network"},
    {"ranks", GW_OPT_INT, NULL, 1, MOST_RANKS, NULL, "N", "number of ranks"},
#include "play/network.def"
    {"step-profile", GW_OPT_FILE, NULL, 0, 0, NULL, "PROFILE",
     "what computation takes, as `bench layers --profile` writes it [measured here]",
     .group = "Computation"},
    {"speed", GW_OPT_REAL, "1", 1e-3, 1e6, NULL, "X",
     "speed of each rank, as a multiple of what was measured"},
    {"coding-ns", GW_OPT_REAL, NULL, 0, 1e6, NULL, "X",
     "time to encode, decode or add a float, in ns [measured here, for each codec, as is what "
     "strategies compute]"},
#include "cli/train/train_opts.def"
    {0}};

#define NOT_HERE "it is about processes of this machine, and these ranks are simulated"

static const gw_rule rules[] = {
    {"train", NULL, false, "time-limit", NULL, "its clock is virtual: give --steps or --epochs"},
    {"train", NULL, false, "checkpoint-every", NULL, "a simulation starts from its first step"},
    {"train", NULL, false, "resume", NULL, "a simulation starts from its first step"},
    {"train", NULL, false, "hang-timeout", NULL, "the engine knows when no rank can go on"},
    {"train", NULL, false, "trace", NULL, NOT_HERE},
    {"train", NULL, false, "collectives", NULL, NOT_HERE},
    {"train", NULL, false, "bound", NULL, NOT_HERE},
    {"train", NULL, false, "forecast", NULL, NOT_HERE},
    {"train", NULL, false, "overhead", "!0", NOT_HERE},
    {"train", NULL, false, "papi-group", "!auto|none", NOT_HERE},
    {"train", NULL, false, "papi-events", NULL, NOT_HERE},
    {"train", NULL, false, "ceilings", "!auto|off", NOT_HERE},
    {0}};

/* ---- what the trainer asks for ---- */

static gw_err train_times(void *ctx, const gw_model *model, gw_step_times *out) {
    return gw_profile_times(out, &((simulated *)ctx)->profile, model);
}

static const gw_exec *train_open(void *ctx, MPI_Comm comm, const gw_step_times *times) {
    simulated *s = ctx;
    const gw_fabric *fabric = gw_sim_fabric_of(comm);
    gw_spender *spender = &s->rank[fabric->rank].spender;
    *spender =
        (gw_spender){.fabric = fabric, .times = *times, .speed = gw_args_real(s->args, "speed")};
    gw_spender_open(spender);
    return &spender->exec;
}

static json_t *train_json(void *ctx) {
    const simulated *s = ctx;
    const gw_sim_setup *w = &s->world;
    return gw_json_object("engine:s train:b network:o speed:f step_profile:s",
                          "gradwire: LogGP, max-min fair flows", true,
                          gw_json_object("ranks:i per_host:i network:s link:o memory:o", w->ranks,
                                         w->per_host, gw_args_text(s->args, "network"),
                                         gw_sim_link_json(&w->link, NULL),
                                         gw_sim_link_json(&w->memory, NULL)),
                          gw_args_real(s->args, "speed"),
                          s->profile.model ? gw_args_text(s->args, "step-profile") : NULL);
}

/* ---- the command line ---- */

/* Counters and limits are those of a machine, which simulated ranks do not have. */
static gw_err train_read_rank(simulated *s, train_rank *r) {
    gw_train_config *c = &r->job.config;
    r->job.args = s->args;
    r->job.command = s->command;
    GW_TRY(gw_ledger_new(&r->ledger));
    GW_TRY(gw_train_job_read(&r->job));
    c->simulated = &s->told;
    c->ceilings = NULL;
    c->run.hang_timeout_s = 0; /* the engine knows when no rank can go on */
    c->counters = NULL;
    c->overhead = 0;
    c->run.profile = c->run.profile == GW_PROFILE_OFF ? GW_PROFILE_OFF : GW_PROFILE_TIMERS;
    if (!gw_inside_know(r->job.setup.g).codec)
        return gw_fail(GW_ERR_UNSUPPORTED,
                       "simulate: --train: --compress %s: name a codec: `plan` compares them",
                       c->run.compress->text);
    if (r->job.teller.helpers > 0)
        return gw_fail(GW_ERR_UNSUPPORTED,
                       "simulate: --comm %s: simulated ranks have no threads: use progress=poll or "
                       "progress=none",
                       c->run.comm->text);
    return GW_OK;
}

static gw_err train_read(simulated *s, int argc, char **argv) {
    GW_TRY(gw_args_argv(s->args, "simulate", argc, argv, NULL));
    GW_TRY(gw_args_check(s->args, rules, "simulate"));
    GW_TRY(gw_args_check(s->args, gw_train_rules, "simulate"));
    if (gw_args_given(s->args, "profile") && strcmp(gw_args_text(s->args, "profile"), "full") == 0)
        return gw_fail(GW_ERR_USAGE,
                       "simulate: --profile full: counters and the memory split are of a machine: "
                       "use timers or off");
    if (gw_args_given(s->args, "out"))
        GW_TRY(gw_cli_utf8("simulate", "out", argc, argv));
    GW_TRY(gw_sim_network_read(&s->world, s->args, "simulate"));
    if (gw_args_given(s->args, "coding-ns"))
        gw_sim_coding(&s->price, 1e-9 * gw_args_real(s->args, "coding-ns"));
    else
        s->world.clock_s = MPI_Wtime;
    s->world.speed = gw_args_real(s->args, "speed");
    if (gw_args_given(s->args, "step-profile"))
        GW_TRY(gw_step_profile_read(&s->profile, gw_args_text(s->args, "step-profile")));
    s->told = (gw_simulated){.ns = gw_sim_ns,
                             .rate_bits_per_s = 8 * s->world.link.bytes_per_s,
                             .times = s->profile.model ? train_times : NULL,
                             .price = gw_args_given(s->args, "coding-ns") ? &s->price : NULL,
                             .speed = gw_args_real(s->args, "speed"),
                             .open = train_open,
                             .json = train_json,
                             .ctx = s,
                             .stop = &s->stop};
    GW_TRY(gw_alloc(&s->rank, (size_t)s->world.ranks, sizeof *s->rank));
    s->ranks = s->world.ranks;
    gw_algo_messages_only(true);
    for (int r = 0; r < s->ranks; r++)
        GW_TRY(train_read_rank(s, &s->rank[r]));
    return GW_OK;
}

/* The trainer's refusals name its usual command. */
static gw_err train_rename(gw_err e) {
    static const char usual[] = "train: ";
    char text[1024];
    gw_text_copy(text, sizeof text, gw_err_text());
    if (e == GW_OK || strncmp(text, usual, strlen(usual)) != 0)
        return e;
    return gw_fail(e, "simulate: --train: %s", text + strlen(usual));
}

/* ---- the run ---- */

static void train_turn(void *ctx, int rank) {
    gw_ledger_use(((simulated *)ctx)->rank[rank].ledger);
}

static gw_err train_rank_body(void *ctx, gw_fabric *fabric) {
    simulated *s = ctx;
    MPI_Comm comm;
    bool own;
    gw_train_result result;
    GW_TRY(gw_sim_comm(fabric, &comm));
    gw_err e = gw_train(&s->rank[fabric->rank].job.setup, comm, &result, &own);
    gw_comm_free(&comm);
    return e;
}

static gw_err train_body(void *ctx, MPI_Comm comm, bool *own) {
    simulated *s = ctx;
    int ranks;
    (void)own;
    GW_TRY(gw_comm_place(comm, NULL, &ranks));
    if (ranks > 1)
        return gw_fail(GW_ERR_USAGE,
                       "simulate: --train: one process simulates all ranks: start 1, not %d",
                       ranks);
    s->world.carries = true;
    s->world.stack = STACK;
    s->world.turn = train_turn;
    GW_TRY(gw_signals_watch());
    gw_err e = gw_sim_run(&s->world, train_rank_body, s);
    gw_ledger_use(NULL);
    gw_clock_virtual(NULL);
    return train_rename(e);
}

void gw_simulate_train_help(void) {
    printf("gradwire simulate --train: train on simulated ranks, in virtual time\n\n"
           "usage: gradwire simulate --train --ranks N --link RATE[,LATENCY[,OVERHEAD]] "
           "[options]\n\n");
    gw_args_help(opts, "--", stdout);
}

int gw_simulate_train(int argc, char **argv) {
    simulated s = {.command = gw_cli_line(argc, argv)};
    gw_err e = s.command ? GW_OK : gw_fail(GW_ERR_NOMEM, "out of memory");
    GW_THEN(e, gw_args_new(&s.args, opts));
    GW_THEN(e, train_rename(train_read(&s, argc, argv)));
    gw_cli_told told = {.command = "simulate", .args = s.args};
    int status = gw_cli_parallel(&told, MPI_THREAD_FUNNELED, e, train_body, &s);
    if (s.stop.signal && status == 0)
        status = 128 + s.stop.signal; /* as the shell says of whom a signal ended */
    if (status == 0 && *gw_algo_replaced() && !gw_args_flag(s.args, "quiet"))
        printf("note: %s: MPI's own or in shared memory: modelled as halving:chunk=0\n",
               gw_algo_replaced());
    for (int r = 0; r < s.ranks; r++) {
        gw_train_job_free(&s.rank[r].job);
        free(s.rank[r].ledger);
    }
    free(s.rank);
    gw_network_close(s.world.network);
    gw_step_profile_free(&s.profile);
    gw_args_free(s.args);
    free(s.command);
    return status;
}
