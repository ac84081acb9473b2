/* The public functions: MPI's start; and how a process ends that has used the library. */
#include "api/handle.h"
#include "base/nap.h"
#include "base/text.h"
#include "mpi/alike.h"
#include "mpi/launcher.h"
#include "mpi/wait.h"
#include "mpi/world.h"
#include "watch/watchdog.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static struct {
    bool ours;      /* the library started MPI, */
    MPI_Comm world; /* and all ranks have met in this one */
} mpi = {.world = MPI_COMM_NULL};

/* ---- the end ---- */

/* One line, past stdio. */
static bool start_say(const char *how, const char *remedy) {
    char line[512];
    int rank = 0, over = 0;
    MPI_Finalized(&over);
    if (!over)
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    size_t n = gw_text_print(line, sizeof line, "gradwire: rank %d: %s: %s\n", rank, how, remedy);
    return write(STDERR_FILENO, line, n) > 0;
}

/* One line, and the whole job ends: other ranks may wait for this one. */
static void start_abort(int status, const char *how, const char *remedy) {
    int over = 0;
    MPI_Finalized(&over);
    if (start_say(how, remedy)) /* a launcher drops what it has not read by then */
        nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
    if (!over)
        MPI_Abort(MPI_COMM_WORLD, status);
    _exit(status);
}

static void start_abort_open(const gradwire *g, const char *when) {
    char how[160];
    snprintf(how, sizeof how, "%s with a handle open, after %lld batches", when,
             (long long)g->batch.step);
    start_abort(1, how,
                "others may wait for this rank, and no run is complete: call gradwire_close (in "
                "Python, close the session) on all ranks first");
}

/* Wait until all ranks of `comm` are about to end. A rank that has failed ends the job if the
 * others do not end within FAILED_S; any other says after LONG_S, if `tells`, that it waits. */
static void start_meet_end(MPI_Comm comm, int status, bool tells) {
    enum { FAILED_S = 5, LONG_S = 10 };
    char how[64];
    MPI_Request request;
    int done = MPI_Ibarrier(comm, &request) != MPI_SUCCESS;
    double from_s = gw_nap_now(), waited_s = 0;
    while (!done && (status == 0 || waited_s < FAILED_S)) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        waited_s = gw_nap_now() - from_s;
        if (tells && status == 0 && waited_s > LONG_S) {
            tells = false;
            start_say("the program has ended, and waits for other ranks to end, too",
                      "if that takes longer than --hang-timeout, the job is ended");
        }
        if (MPI_Test(&request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS)
            break;
    }
    snprintf(how, sizeof how, "ends with exit status %d, and others do not end", status);
    if (!done)
        start_abort(status, how, "they would wait for this rank, and so the job is ended");
}

/* Close a handle at the end of the process: on all ranks, once they end, too. */
static void start_close(gradwire *g, int status) {
    gw_watchdog_inside("leave");
    start_meet_end(g->end.comm, status, true);
    int e = GW_OK, groups = g->arena.groups;
    bool within = g->state == GW_HANDLE_BATCH && g->batch.begun;
    bool finished = within && g->batch.finished == groups;
    g->thread = pthread_self(); /* other threads have ended */
    if (finished && g->batch.updated < groups)
        e = gradwire_updated(g, GRADWIRE_ALL);
    if (finished && e >= 0)
        e = gradwire_end(g, g->end.loss);
    if (e >= 0 || status != 0)
        e = gradwire_close(g);
    if (e < 0 && status == 0)
        start_abort(1, "the program has ended, and its run is not complete", gradwire_error());
}

/* Close the handles that the program leaves to this; the first comes last. */
static void start_close_all(int status) {
    for (gradwire *g = gw_call_open(); g && g->end.leaves; g = gw_call_open())
        start_close(g, status);
}

int gradwire_leave(gradwire *g, double loss) {
    gw_call c;
    gw_err e = gw_call_begin(&c, g, "leave", GW_IN_OPEN | 1 << GW_HANDLE_BROKEN, false);
    if (e == GW_OK) {
        g->end.leaves = true;
        g->end.loss = loss;
    }
    return gw_call_end(&c, e);
}

/* Called by MPI_Finalize, as an attribute of MPI_COMM_SELF is deleted before all else (MPI 4.0,
 * 11.2.4). */
static int start_finalizing(MPI_Comm comm, int key, void *value, void *extra) {
    (void)comm, (void)key, (void)value, (void)extra;
    if (gw_call_child())
        return MPI_SUCCESS;
    start_close_all(0); /* no more is known of how the program ends */
    const gradwire *g = gw_call_open();
    /* All ranks know of an error that all have, and each may end as it likes. */
    if (g && (g->state != GW_HANDLE_BROKEN || g->alone))
        start_abort_open(g, "MPI_Finalize was called");
    return MPI_SUCCESS;
}

static void start_end_mpi(int status) {
    if (mpi.world != MPI_COMM_NULL) {
        start_meet_end(mpi.world, status, false);
        MPI_Comm_free(&mpi.world);
    }
    gw_world_part(MPI_COMM_WORLD);
    MPI_Finalize();
}

/* With a handle open MPI does not end, so that no launcher takes that for success. */
static void start_exit(int status, void *none) {
    (void)none;
    int over = 0;
    if (gw_call_child() || MPI_Finalized(&over) != MPI_SUCCESS)
        return;
    if (!over)
        start_close_all(status);
    const gradwire *g = gw_call_open();
    if (g && status == 0)
        start_abort_open(g, "the program ends, with exit status 0,");
    else if (g && !over && g->end.comm != MPI_COMM_NULL)
        start_meet_end(g->end.comm, status, false);
    else if (!g && !over && mpi.ours)
        start_end_mpi(status);
}

void gw_start_mind(void) {
    static bool attached;
    int key;
    if (gw_call_own())
        on_exit(start_exit, NULL);
    if (attached ||
        MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, start_finalizing, &key, NULL) != MPI_SUCCESS)
        return;
    attached = MPI_Comm_set_attr(MPI_COMM_SELF, key, NULL) == MPI_SUCCESS;
    MPI_Comm_free_keyval(&key);
}

/* ---- the start ---- */

gw_err gw_start_check_level(int wanted, int provided) {
    if (provided >= wanted)
        return GW_OK;
    return gw_fail(GW_ERR_UNSUPPORTED,
                   "gradwire: MPI was started with %s, and the strategy needs %s: start it so, or "
                   "use another progress=",
                   gw_world_thread_level(provided), gw_world_thread_level(wanted));
}

/* The thread level that the words' strategy asks for. */
static gw_err start_level_of(gw_words *w, const char *words, int *level) {
    gw_strategy strategy = {0};
    gw_err e = gw_words_read(w, words);
    GW_THEN(e, gw_strategy_find(&strategy, w->run.comm));
    *level = e == GW_OK ? gw_strategy_thread_level(&strategy) : MPI_THREAD_FUNNELED;
    gw_strategy_free(&strategy);
    return e;
}

static gw_err start_mpi(int level) {
    int started = 0, over = 0, provided = 0;
    MPI_Initialized(&started);
    MPI_Finalized(&over);
    if (over)
        return gw_fail(GW_ERR_USAGE, "gradwire_start: MPI has ended: it can start only once in a "
                                     "process");
    if (!started) {
        if (MPI_Init_thread(NULL, NULL, level, &provided) != MPI_SUCCESS)
            return gw_fail(GW_ERR_MPI, "gradwire_start: MPI_Init_thread failed");
        mpi.ours = true;
        gw_start_mind();
    }
    MPI_Query_thread(&provided);
    GW_TRY(gw_launcher_check());
    return gw_start_check_level(level, provided);
}

/* Words may differ here: groups of ranks may go on to handles with words of their own. */
static gw_err start_meet(const gw_words *w, int ranks, gw_err e) {
    bool watches = e == GW_OK && ranks > 1 && !gw_call_open();
    gw_watchdog_setup dog = {.timeout_s = watches ? w->run.hang_timeout_s : 0,
                             .comm = watches ? w->run.comm->text : NULL,
                             .compress = watches ? w->run.compress->text : NULL};
    if (watches)
        gw_watchdog_start(&dog, MPI_COMM_WORLD);
    gw_watchdog_inside("start");
    gw_alike alike;
    e = gw_agree(MPI_COMM_WORLD, e);
    if (e == GW_OK) {
        gw_alike_begin(&alike, "a program of its own");
        e = gw_alike_compare(&alike, "gradwire_start", MPI_COMM_WORLD);
    }
    if (e == GW_OK && mpi.ours && mpi.world == MPI_COMM_NULL)
        e = gw_comm_dup(MPI_COMM_WORLD, &mpi.world);
    gw_watchdog_inside(NULL);
    if (watches)
        gw_watchdog_close();
    return e;
}

int gradwire_start(const char *words, int *rank, int *ranks) {
    int level, at = 0, of = 1, up = 0;
    gw_words w;
    if (gw_call_child())
        return gw_call_refuse("start", GW_CALL_CHILD);
    gw_err read = start_level_of(&w, words, &level);
    char why[1024];
    gw_text_copy(why, sizeof why, gw_err_text());
    gw_err e = start_mpi(level);
    if (read != GW_OK)
        e = gw_fail(read, "%s", why);
    MPI_Initialized(&up);
    MPI_Finalized(&of);
    if (up && !of) {
        MPI_Comm_rank(MPI_COMM_WORLD, &at);
        MPI_Comm_size(MPI_COMM_WORLD, &of);
        if (rank)
            *rank = at;
        if (ranks)
            *ranks = of;
        e = start_meet(&w, of, e);
    }
    gw_words_free(&w);
    return e;
}
