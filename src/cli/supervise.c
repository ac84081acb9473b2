/* gradwire supervise: a run that is started again from its last checkpoint when it breaks down. */
#include "base/file.h"
#include "base/json.h"
#include "cli/cli.h"
#include "cli/offspring.h"
#include "train/claim.h"
#include "train/history.h"
#include "train/runfolder.h"
#include "train/signals.h"
#include "train/store.h"

#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

static const gw_opt opts[] = {
    {"restarts", GW_OPT_INT, "10", 0, 1e6, NULL, "N", "start the command again at most so often"},
    {"backoff", GW_OPT_REAL, "1", 0, 3600, NULL, "SECONDS",
     "wait before the first restart; twice as long before each further one, up to 60 s, until a "
     "run gets further than the one before"},
    {0}};

enum { MORE = 3 }; /* --resume auto NULL */
static const double longest_s = 60;
/* For ranks that no launcher waits for, and their last checkpoint. */
static const double grace_s = 60;

typedef struct supervised {
    int restarts;
    double backoff_s;
    char **command; /* the user's, up to a NULL */
    int words;
    const char *out, *resume; /* of the command; resume NULL: not given */
    bool overwrite, checkpoints;
    char ckpt_dir[GW_STORE_PATH], run_json[GW_STORE_PATH];
    int64_t found_ns; /* before the first start: when the last checkpoint was written */
    int64_t told_ns;  /* before this start: when run.json was */
    char **argv;      /* what is started */
} supervised;

/* ---- the command ---- */

/* The value of --NAME VALUE or --NAME=VALUE at command[i], "" if it ends there; NULL: it is another
 * word. */
static const char *value_at(const supervised *s, int i, const char *name) {
    const char *word = s->command[i];
    size_t len = strlen(name);
    if (strncmp(word, "--", 2) != 0 || strncmp(word + 2, name, len) != 0)
        return NULL;
    word += 2 + len;
    if (*word == '=')
        return word + 1;
    return *word ? NULL : s->command[i + 1] ? s->command[i + 1] : "";
}

static gw_err read_command(supervised *s) {
    for (s->words = 0; s->command[s->words]; s->words++) {
        const char *out = value_at(s, s->words, "out");
        const char *resume = value_at(s, s->words, "resume");
        s->out = out ? out : s->out;
        s->resume = resume ? resume : s->resume;
        s->checkpoints |= value_at(s, s->words, "checkpoint-every") != NULL;
        s->overwrite |= strcmp(s->command[s->words], "--overwrite") == 0;
        if (strcmp(s->command[s->words], ":") == 0)
            return gw_fail(GW_ERR_USAGE, "supervise: ':' in the command: it can start one program "
                                         "on all ranks only");
    }
    if (s->words == 0)
        return gw_fail(GW_ERR_USAGE, "supervise: no command: e.g. gradwire supervise -- mpiexec -n "
                                     "2 gradwire train --out DIR --checkpoint-every 500");
    if (!s->out || !*s->out)
        return gw_fail(GW_ERR_USAGE, "supervise: the command has no --out DIR: nothing is kept "
                                     "that a restart could go on from");
    if (!s->checkpoints)
        return gw_fail(GW_ERR_USAGE,
                       "supervise: the command has no --checkpoint-every: a restart would begin "
                       "from the start");
    if (snprintf(s->ckpt_dir, sizeof s->ckpt_dir, "%s/" GW_CHECKPOINTS, s->out) >=
        (int)sizeof s->ckpt_dir)
        return gw_fail(GW_ERR_USAGE, "supervise: --out: the path is too long");
    snprintf(s->run_json, sizeof s->run_json, "%s/run.json", s->out); /* is shorter */
    s->argv = calloc((size_t)s->words + MORE, sizeof *s->argv);
    return s->argv ? GW_OK : gw_fail(GW_ERR_NOMEM, "out of memory");
}

/* Whether what --overwrite or --resume asked for is yet to be done: there is no checkpoint but
 * those that an older run has left, be it that the clearing was cut short. */
static bool none_of_its_own(const supervised *s) {
    int64_t last_ns;
    return gw_store_last(s->ckpt_dir, &last_ns) < 0 || last_ns <= s->found_ns;
}

/* What the user asked for comes first: to replace a run, or to begin from a checkpoint elsewhere.
 * A restart goes on with what the run itself has left. */
static void set_argv(supervised *s, bool again) {
    static char resume[] = "--resume", automatic[] = "auto";
    bool as_told = !again || ((s->resume || s->overwrite) && none_of_its_own(s));
    int n = 0;
    for (int i = 0; i < s->words; i++) {
        bool names = strcmp(s->command[i], "--resume") == 0;
        bool drop = !as_told &&
                    (value_at(s, i, "resume") != NULL || strcmp(s->command[i], "--overwrite") == 0);
        if (!drop)
            s->argv[n++] = s->command[i];
        else if (names && s->command[i + 1])
            i++;
    }
    if (!as_told || !(s->resume || s->overwrite)) {
        s->argv[n++] = resume;
        s->argv[n++] = automatic;
    }
    s->argv[n] = NULL;
}

/* ---- a start ---- */

typedef struct ending {
    int status, signal; /* exit status, or -1 and the signal that ended the command */
    int asked;          /* the signal that was handed on; 0: none */
    double seconds;
} ending;

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The signal that cut the run short, by its own word; 0: none. A launcher that has handed a signal
 * on may call that a success (docs/faults.md). What was asked to end and has told nothing had not
 * begun. */
static int cut_short_by(const supervised *s, int asked) {
    static const int signals[] = {SIGTERM, SIGINT};
    int by = 0;
    if (gw_file_written_ns(AT_FDCWD, s->run_json) <= s->told_ns)
        return asked;
    json_t *run = gw_runfolder_read(s->out);
    const char *why =
        json_string_value(json_object_get(json_object_get(run, "results"), "stopped_by"));
    for (size_t i = 0; why && i < sizeof signals / sizeof *signals; i++)
        if (strcmp(why, gw_signals_name(signals[i])) == 0)
            by = signals[i];
    json_decref(run);
    return by;
}

static gw_err run_once(supervised *s, ending *end) {
    static const double same_s = 0.2; /* whoever signals us and the command does it within this */
    pid_t pid;
    double from = now_s();
    *end = (ending){.status = -1};
    s->told_ns = gw_file_written_ns(AT_FDCWD, s->run_json);
    GW_TRY(gw_offspring_start(s->argv, &pid));
    for (;;) {
        gw_offspring_event e = gw_offspring_wait(pid, -1);
        if (e.signal) {
            end->asked = e.signal;
            kill(pid, e.signal);
        }
        if (!e.ended)
            continue;
        end->seconds = now_s() - from;
        if (WIFSIGNALED(e.status))
            end->signal = WTERMSIG(e.status);
        else
            end->status = WEXITSTATUS(e.status);
        break;
    }
    if (!end->asked && end->status != 0)
        end->asked = gw_offspring_wait(0, same_s).signal;
    if (end->asked) /* a shell dies of it at once and tells nobody: the launcher is behind it */
        gw_offspring_hand_on(end->asked, grace_s);
    int by = end->status == 0 ? cut_short_by(s, end->asked) : 0;
    if (by)
        end->status = 128 + by;
    if (end->asked || end->status != 0) /* a launcher that dies may leave ranks behind */
        gw_offspring_end(pid);
    return GW_OK;
}

static int status_of(const ending *end) {
    return end->signal ? 128 + end->signal : end->status;
}

static void say_end(const ending *end) {
    fprintf(stderr, "gradwire: supervise: the command ended %s %d after %.1f s",
            end->signal ? "by signal" : "with status", end->signal ? end->signal : end->status,
            end->seconds);
}

/* For run.json. Without it the run is none the worse. */
static void record(const supervised *s, const ending *end, int attempt, int64_t step) {
    char utc[GW_UTC];
    gw_utc_now(utc);
    json_t *entry = json_pack(
        "{s:s, s:s, s:i, s:o, s:o, s:o, s:f, s:o}", "event", "ended", "utc", utc, "attempt",
        attempt, "status", end->signal ? json_null() : json_integer(end->status), "signal",
        end->signal ? json_integer(end->signal) : json_null(), "asked_by",
        end->asked ? json_integer(end->asked) : json_null(), "seconds", end->seconds, "checkpoint",
        step < 0 ? json_null() : json_integer(step));
    gw_err e = gw_claim_folder(s->out, NULL);
    if (e == GW_OK)
        e = gw_history_add(s->out, entry);
    else
        json_decref(entry);
    if (e != GW_OK)
        fprintf(stderr, "gradwire: supervise: this end is not recorded: %s\n", gw_err_text());
}

/* ---- again and again ---- */

/* Then until ranks of the last start that outlived their launcher, on another host perhaps, have
 * given the folder back; who holds it for longer is none of them, and the next start is refused.
 * False: a signal came meanwhile. */
static bool pause_s(const supervised *s, double seconds) {
    static const double look_s = 0.1;
    double until = now_s() + seconds + grace_s;
    bool quiet = !gw_offspring_wait(0, seconds).signal;
    while (quiet && now_s() < until && gw_claim_is_held(s->out))
        quiet = !gw_offspring_wait(0, look_s).signal;
    return quiet;
}

static gw_err supervise(supervised *s, int *status) {
    int64_t before = gw_store_last(s->ckpt_dir, &s->found_ns);
    double wait_s = s->backoff_s;
    GW_TRY(gw_offspring_open());
    for (int attempt = 1;; attempt++) {
        ending end;
        set_argv(s, attempt > 1);
        GW_TRY(run_once(s, &end));
        *status = status_of(&end);
        if (*status == 0 || end.status == gw_err_status(GW_ERR_USAGE))
            return GW_OK;
        int64_t step = gw_store_last(s->ckpt_dir, NULL);
        record(s, &end, attempt, step);
        say_end(&end);
        if (end.asked || attempt > s->restarts) {
            if (end.asked)
                fprintf(stderr, ", as it was told to\n");
            else
                fprintf(stderr, "; no restart is left of %d\n", s->restarts);
            return GW_OK;
        }
        if (step > before)
            wait_s = s->backoff_s;
        before = step;
        fprintf(stderr, "; restart %d of %d in %.1f s\n", attempt, s->restarts, wait_s);
        if (!pause_s(s, wait_s))
            return GW_OK;
        wait_s = fmin(2 * wait_s, fmax(longest_s, s->backoff_s));
    }
}

static gw_err read_own(supervised *s, gw_args *args, int argc, char **argv) {
    int own = 1;
    while (own < argc && strcmp(argv[own], "--") != 0)
        own++;
    GW_TRY(gw_args_argv(args, "supervise", own, argv, NULL));
    if (own == argc)
        return gw_fail(GW_ERR_USAGE, "supervise: the command to start comes after '--', e.g. "
                                     "gradwire supervise -- mpiexec -n 2 gradwire train ..");
    s->restarts = (int)gw_args_int(args, "restarts");
    s->backoff_s = gw_args_real(args, "backoff");
    s->command = argv + own + 1;
    return read_command(s);
}

/* One process that starts no MPI: it outlives those that do. */
static int run(int argc, char **argv) {
    supervised s = {0};
    gw_args *args = NULL;
    int status = 0;
    gw_err e = gw_args_new(&args, opts);
    if (e == GW_OK)
        e = read_own(&s, args, argc, argv);
    if (e == GW_OK)
        e = supervise(&s, &status);
    gw_args_free(args);
    free(s.argv);
    return e == GW_OK ? status : gw_cli_fail(e);
}

const gw_command gw_command_supervise = {
    .name = "supervise",
    .summary = "start a run again from its last checkpoint when it breaks down",
    .usage = "[options] -- mpiexec -n 2 gradwire train --out DIR --checkpoint-every 500 ..",
    .notes =
        "The command gets '--resume auto'. It is not started again when it succeeds (status 0), "
        "was\nwrong (2), or ends by a SIGTERM or SIGINT that was sent to supervise, which "
        "hands it on.",
    .opts = opts,
    .run = run,
};
