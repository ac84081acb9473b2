/* gradwire replay: the step of any model, exchanged as it would be, by its profile. */
#include "api/words.h"
#include "base/json.h"
#include "cli/cli.h"
#include "comm/mix.h"
#include "comm/strategy.h"
#include "comm/strategy/plain.h"
#include "config/opts.h"
#include "folder/claim.h"
#include "folder/runfolder.h"
#include "machine/host.h"
#include "mpi/agree.h"
#include "play/player.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TO(member) 0, 0

static const gw_opt opts[] = {
    {"compute", GW_OPT_CHOICE, "sleep", 0, 0, "sleep|spin", NULL,
     "sleep: another device computes, and the core polls meanwhile; spin: this core computes",
     .group = "Computation"},
    {"speed", GW_OPT_REAL, "1", 1e-3, 1e6, NULL, "X",
     "speed of the device, as a multiple of the profile's"},
    {"gradients", GW_OPT_FILE, "normal", 0, 0, NULL, "normal|FILE",
     "normal numbers with each tensor's deviation, or captured gradients: float32, all tensors in "
     "the profile's order, one step after another"},
    {"bucket-mb", GW_OPT_REAL, "0", 0, 1e6, NULL, "X",
     "announce gradients in buckets of X MB, as DistributedDataParallel does; 0: one by one"},
    {"steps", GW_OPT_INT, "20", 1, 1e9, NULL, "N", "play N steps"},
#include "config/comm_opts.def"
    {"gradient", GW_OPT_CHOICE, NULL, 0, 0, "mean|scaled", NULL,
     "what a gradient is; no effect on times"},
    GW_RUN_OPT_MOMENTUM,
    GW_RUN_OPT_OUT,
    GW_RUN_OPT_OVERWRITE,
    GW_RUN_OPT_TRACE,
    GW_RUN_OPT_LOG,
    GW_RUN_OPT_LOG_EVERY,
    GW_RUN_OPT_COLLECTIVES,
    GW_RUN_OPT_STATS,
    GW_RUN_OPT_PROFILE,
    GW_RUN_OPT_SEED,
    GW_RUN_OPT_HANG,
    {"check", GW_OPT_FLAG, NULL, 0, 0, NULL, NULL, "check everything, play nothing",
     .group = "Output"},
    {"quiet", GW_OPT_FLAG, NULL, 0, 0, NULL, NULL, "print errors only"},
    {0}};

/* Options that the library does not know. */
static const char *const own[] = {"compute", "speed", "gradients", "bucket-mb",
                                  "steps",   "check", "quiet",     NULL};

typedef struct job {
    gw_args *args;
    char *text;     /* the words for the library */
    gw_words words; /* as it reads them */
    gw_step_profile profile;
    gw_player player;
    char file[PATH_MAX]; /* the profile's */
    json_t *run;         /* rank 0, once it is over: what is in run.json */
    bool check, quiet, data_dependent;
    int level;
} job;

/* ---- what is to be played ---- */

static bool replay_passes(const job *j, const gw_opt *o) {
    for (int i = 0; own[i]; i++)
        if (strcmp(own[i], o->name) == 0)
            return false;
    /* A check leaves no folder. */
    bool folder = strcmp(o->name, "out") == 0 || strcmp(o->name, "overwrite") == 0 ||
                  strcmp(o->name, "trace") == 0 || strcmp(o->name, "collectives") == 0 ||
                  strncmp(o->name, "log", 3) == 0;
    return gw_args_given(j->args, o->name) && !(j->check && folder);
}

/* Words are in quotation marks, as the library takes them off again. */
static gw_err replay_put_words(job *j) {
    size_t len;
    FILE *to = open_memstream(&j->text, &len);
    if (!to)
        return gw_fail(GW_ERR_NOMEM, "replay: out of memory");
    for (const gw_opt *o = opts; o->name; o++) {
        if (!replay_passes(j, o))
            continue;
        fprintf(to, " --%s", o->name);
        if (o->type == GW_OPT_FLAG)
            continue;
        fputs(" '", to);
        for (const char *c = gw_args_text(j->args, o->name); *c; c++)
            fprintf(to, "%.*s", *c == '\'' ? 5 : 1, *c == '\'' ? "'\"'\"'" : c);
        fputc('\'', to);
    }
    return fclose(to) == 0 ? GW_OK : gw_fail(GW_ERR_NOMEM, "replay: out of memory");
}

static gw_err replay_read_args(job *j, int argc, char **argv) {
    int files = 0;
    gw_strategy strategy = {0};
    gw_mix mix;
    GW_TRY(gw_args_argv(j->args, "replay", argc, argv, &files));
    if (files != 1)
        return gw_fail(GW_ERR_USAGE, "replay: %d profiles: give one", files);
    j->check = gw_args_flag(j->args, "check");
    j->quiet = gw_args_flag(j->args, "quiet");
    GW_TRY(gw_cli_utf8("replay", "out", argc, argv));
    GW_TRY(replay_put_words(j));
    GW_TRY(gw_words_read(&j->words, j->text));
    GW_TRY(gw_mix_open(&mix, j->words.run.compress, j->words.run.wire_check));
    for (int i = 0; i < mix.n; i++) {
        unsigned caps = mix.codec[i].caps;
        bool picks = caps & GW_CODEC_SPARSE && !(caps & GW_CODEC_SHARED);
        j->data_dependent |= picks || !mix.codec[i].fixed;
    }
    gw_mix_close(&mix);
    GW_TRY(gw_step_profile_find(j->file, argv[1]));
    GW_TRY(gw_step_profile_read(&j->profile, j->file));
    GW_TRY(gw_strategy_find(&strategy, j->words.run.comm));
    j->level = gw_strategy_thread_level(&strategy);
    j->data_dependent |= strategy.plan.picks;
    j->player =
        (gw_player){.script = {.profile = &j->profile,
                               .sleeps = strcmp(gw_args_text(j->args, "compute"), "sleep") == 0,
                               .lazy = j->words.run.lazy,
                               .bucket = (size_t)(gw_args_real(j->args, "bucket-mb") * 0x1p20),
                               .speed = gw_args_real(j->args, "speed")},
                    .from = gw_args_text(j->args, "gradients"),
                    .seed = j->words.run.seed,
                    .servers = strategy.plan.servers,
                    .keep = &j->run,
                    .steps = j->check ? 0 : (long)gw_args_int(j->args, "steps")};
    gw_strategy_free(&strategy);
    return GW_OK;
}

/* ---- what is said of it; rank 0 ---- */

/* Bytes or time of the exchange depend on gradients, and these are drawn. */
static bool replay_depends(const job *j) {
    return j->data_dependent && strcmp(j->player.from, "normal") == 0;
}

static double replay_number(const json_t *summary, const char *key) {
    const json_t *value = json_object_get(summary, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

static void replay_print_part(const char *name, double seconds) {
    if (!isnan(seconds))
        printf(", %s %.3f ms", name, 1e3 * seconds);
}

static void replay_print(const job *j, const json_t *run, double floor_s) {
    const gw_script *p = &j->player.script;
    const json_t *summary = json_object_get(json_object_get(run, "results"), "summary");
    printf("replayed: %s, %d tensors, %zu parameters; batch %ld on %s (%s), %g times as fast, %s\n",
           p->profile->model, p->profile->n_tensors, p->profile->n, p->profile->batch,
           p->profile->device, p->profile->machine, p->speed,
           p->sleeps ? "slept" : "spun on this core");
    double step_s = replay_number(summary, "wall_s");
    if (isnan(step_s))
        printf("step absent: the exchange repeats after %.0f steps; play more",
               replay_number(summary, "period"));
    else
        printf("step %.3f ms", 1e3 * step_s);
    if (strcmp(json_string_value(json_object_get(summary, "statistic")), "plain mean") == 0)
        printf(" (plain mean of %.0f)", replay_number(summary, "counted"));
    replay_print_part("exposed communication", replay_number(summary, "exposed_s"));
    replay_print_part("in flight under computation", replay_number(summary, "hidden_s"));
    replay_print_part("codec and copies", replay_number(summary, "codec_s"));
    if (!isnan(step_s))
        printf("; %.0f wire bytes a rank", replay_number(summary, "wire_bytes"));
    if (!isnan(floor_s))
        printf(", which take the link %.3f ms", 1e3 * floor_s);
    printf("\n");
    json_t *busy =
        json_object_get(json_object_get(json_object_get(run, "machine"), "busy"), "during");
    if (json_is_true(json_object_get(busy, "warned")))
        printf("warning: during this run %s: its times are not to be trusted\n",
               json_string_value(json_object_get(busy, "text")));
    if (*j->player.copied)
        printf("note: gradients are copied, not summed in place: %s\n", j->player.copied);
    const json_t *comm = json_object_get(run, "comm");
    const char *notes = json_string_value(json_object_get(comm, "notes"));
    json_t *unmet = json_object_get(comm, "unmet"), *item;
    size_t i;
    fputs(notes ? notes : "", stdout);
    json_array_foreach(unmet, i, item) {
        const char *option, *value, *what, *why;
        if (json_unpack(item, "{s:s, s:s, s:s, s:s}", "option", &option, "value", &value, "what",
                        &what, "why", &why) == 0)
            printf("note: --%s %s: %s: %s\n", option, value, what, why);
    }
    if (replay_depends(j))
        printf("note: bytes or time of the exchange depend on the gradients, and these are normal "
               "numbers: give captured ones by --gradients FILE\n");
    if (j->words.run.out)
        printf("run folder: %s\n", j->words.run.out);
}

static gw_err replay_report(job *j) {
    json_t *summary = json_object_get(json_object_get(j->run, "results"), "summary");
    double wire_bytes = replay_number(summary, "wire_bytes"), floor_s = NAN;
    gw_host_link link;
    /* What the link alone takes for a rank's bytes, unless ranks share one. */
    if (gw_host_link_read(&link) == GW_OK && link.emulated && link.hosts >= j->player.ranks)
        floor_s = 8 * wire_bytes / (double)link.rate_bits_per_s;
    const gw_script *p = &j->player.script;
    const gw_step_profile *of = p->profile;
    json_t *profile = gw_json_object(
        "model:s source:s device:s machine:s date:s torch:s threads:i batch:i tensors:i "
        "forward_s:f backward_s:f optimizer_s:f",
        of->model, of->source, of->device, of->machine, of->date, of->torch, (int)of->threads,
        (int)of->batch, of->n_tensors, of->forward_s, of->backward_s, of->optimizer_s);
    json_t *replay = gw_json_object(
        "profile:o compute:s speed:f bucket_mb:f gradients:s data_dependent:b late_s:f "
        "link_floor_s:f",
        profile, p->sleeps ? "sleep" : "spin", p->speed, (double)p->bucket / 0x1p20, j->player.from,
        replay_depends(j), p->sleeps ? j->player.actor.late_s / (double)j->player.steps : NAN,
        floor_s);
    j->run = gw_json_add(j->run, "program:s replay:o", "replay", replay);
    if (!j->run)
        return gw_fail(GW_ERR_NOMEM, "replay: out of memory");
    if (!j->quiet)
        replay_print(j, j->run, floor_s);
    if (!j->words.run.out)
        return GW_OK;
    gw_claim *claim; /* the run is closed, and its folder free: it is claimed for this, too */
    GW_TRY(gw_claim_take(&claim, j->words.run.out));
    gw_err e = gw_runfolder_write(j->words.run.out, json_incref(j->run));
    gw_claim_release(claim);
    return e;
}

/* ---- on all ranks ---- */

static gw_err replay_body(void *ctx, MPI_Comm comm, bool *alone) {
    job *j = ctx;
    int rank;
    GW_TRY(gw_comm_place(comm, &rank, NULL));
    GW_TRY(gw_player_play(&j->player, j->text, comm, alone));
    return j->check ? GW_OK : gw_agree(comm, rank == 0 ? replay_report(j) : GW_OK);
}

static int replay_run(const gw_args *args, int argc, char **argv) {
    (void)args;
    job j = {.level = MPI_THREAD_FUNNELED};
    gw_err e = gw_args_new(&j.args, opts);
    GW_THEN(e, replay_read_args(&j, argc, argv));
    gw_cli_told told = {.command = "replay", .args = j.args, .file = e == GW_OK ? j.file : NULL};
    int status = gw_cli_parallel(&told, j.level, e, replay_body, &j);
    gw_step_profile_free(&j.profile);
    gw_words_free(&j.words);
    gw_args_free(j.args);
    json_decref(j.run);
    free(j.text);
    return status;
}

const gw_command gw_command_replay = {
    .name = "replay",
    .summary = "play a model's step by its profile, and exchange its gradients as training would",
    .usage = "PROFILE [options]",
    .opts = opts,
    .parses = true,
    .run = replay_run,
};
