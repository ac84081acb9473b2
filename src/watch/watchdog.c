#include "watch/watchdog.h"

#include "base/nap.h"
#include "mpi/present.h"
#include "mpi/shared.h"
#include "watch/last_words.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SLICES = 20, WORDS = 16384 };

/* In memory that the ranks of a host share: one rank's, written by its watchdog alone. */
typedef struct board {
    atomic_int_fast64_t step;
    atomic_bool spoken;
} board;

static struct {
    gw_watchdog_setup setup;
    bool on;
    int rc; /* why not */
    pthread_t thread;
    pthread_mutex_t lock; /* over the rest */
    pthread_cond_t woken;
    bool stop;
    gw_last_words facts;
    gw_shared *memory; /* NULL: not met yet, or left */
    board *mine;
    char words[WORDS];
} dog = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Told by the main thread. */
static atomic_uint_fast64_t beats;
static atomic_int_fast64_t steps;
static atomic_int epochs;
static _Atomic(const char *) stages = "starting";
static _Atomic(const char *) calls; /* of the library's functions the one that is at work */
static atomic_bool rests;           /* none is */

void gw_watchdog_beat(void) {
    atomic_fetch_add_explicit(&beats, 1, memory_order_relaxed);
}

void gw_watchdog_step(int64_t step, int epoch) {
    atomic_store_explicit(&steps, step, memory_order_relaxed);
    atomic_store_explicit(&epochs, epoch, memory_order_relaxed);
    gw_watchdog_beat();
}

void gw_watchdog_stage(const char *stage) {
    atomic_store_explicit(&stages, stage, memory_order_relaxed);
    gw_watchdog_beat();
}

void gw_watchdog_inside(const char *call) {
    atomic_store_explicit(&calls, call, memory_order_relaxed);
    atomic_store_explicit(&rests, !call, memory_order_relaxed);
    gw_watchdog_beat();
}

/* ---- the thread; it holds the lock but where it sleeps ---- */

/* Sleep, or less if it is to stop. How long that was. */
static double watchdog_doze(double seconds) {
    double from = gw_nap_now(), till = from + seconds;
    struct timespec t = {.tv_sec = (time_t)till, .tv_nsec = (long)(1e9 * (till - floor(till)))};
    for (int rc = 0; !dog.stop && rc == 0;)
        rc = pthread_cond_timedwait(&dog.woken, &dog.lock, &t);
    return gw_nap_now() - from;
}

static bool watchdog_spoken(int r) {
    const board *b = gw_shared_twin(dog.memory, dog.mine, r);
    return atomic_load_explicit(&b->spoken, memory_order_acquire);
}

/* The rank of this host that has spoken first, as far as can be seen; -1: none has. */
static int watchdog_who_spoke(void) {
    for (int r = 0; dog.memory && r < gw_shared_size(dog.memory); r++)
        if (watchdog_spoken(r))
            return gw_shared_world(dog.memory, r);
    return -1;
}

/* Ranks of this host that could speak and have not. */
static int watchdog_silent(void) {
    int n = 0;
    for (int r = 0; dog.memory && r < gw_shared_size(dog.memory); r++)
        n += !watchdog_spoken(r) && gw_last_words_alive(&dog.facts, r);
    return n;
}

static void watchdog_gather(double silent_s, int asked_by) {
    gw_last_words *f = &dog.facts;
    f->silent_s = silent_s;
    f->asked_by = asked_by;
    bool out = atomic_load_explicit(&rests, memory_order_relaxed);
    f->stage = out ? "between two calls of the library" : atomic_load(&stages);
    f->call = atomic_load_explicit(&calls, memory_order_relaxed);
    f->step = atomic_load_explicit(&steps, memory_order_relaxed);
    f->epoch = atomic_load_explicit(&epochs, memory_order_relaxed);
    for (int r = 0; dog.memory && r < f->n_peers; r++) {
        const board *b = gw_shared_twin(dog.memory, dog.mine, r);
        f->peers[r].step = atomic_load_explicit(&b->step, memory_order_relaxed);
    }
}

/* Whoever ends first may take the others with it: the launcher sees to that. So wait for those of
 * this host, and for the time that others may need, whom one cannot see. */
static void watchdog_let_others_speak(double slice_s) {
    bool all_here = dog.memory && gw_shared_size(dog.memory) == dog.facts.ranks;
    double most_s = fmin(fmax(dog.setup.timeout_s / 10, 1), 10), waited_s = 0;
    while (waited_s < most_s && !dog.stop && (!all_here || watchdog_silent() > 0))
        waited_s += watchdog_doze(slice_s);
    watchdog_doze(
        0.2); /* a launcher that learns of an end may leave what was printed before unread */
}

/* Past stdio, whose locks the thread that is stuck may hold; in one piece, so that the lines of
 * other ranks do not fall between. */
static void watchdog_cry(const char *lines) {
    size_t left = strlen(lines);
    while (left > 0) {
        ssize_t n = write(STDERR_FILENO, lines, left);
        if (n <= 0)
            return;
        lines += n;
        left -= (size_t)n;
    }
}

static void watchdog_speak(double silent_s, int asked_by, double slice_s) {
    watchdog_gather(silent_s, asked_by);
    gw_last_words_write(&dog.facts, dog.words, sizeof dog.words);
    watchdog_cry(dog.words);
    if (dog.mine)
        atomic_store_explicit(&dog.mine->spoken, true, memory_order_release);
    watchdog_let_others_speak(slice_s);
    /* No MPI call is allowed beside the main thread's, MPI_Abort neither. A launcher takes a
     * process that ends like this for a failed one, and ends the others, stopped ones included. */
    if (!dog.stop)
        _exit(1);
}

static void *watchdog_watch(void *arg) {
    (void)arg;
    double slice_s = fmin(dog.setup.timeout_s / SLICES, 1), silent_s = 0;
    uint_fast64_t heard = 0;
    pthread_mutex_lock(&dog.lock);
    while (!dog.stop) {
        double slept_s = watchdog_doze(slice_s);
        uint_fast64_t now = atomic_load_explicit(&beats, memory_order_relaxed);
        bool waits = now == heard && !atomic_load_explicit(&rests, memory_order_relaxed);
        silent_s = waits ? silent_s + fmin(slept_s, 2 * slice_s) : 0;
        heard = now;
        if (dog.mine)
            atomic_store_explicit(&dog.mine->step, atomic_load(&steps), memory_order_relaxed);
        int asked_by = watchdog_who_spoke();
        if (!dog.stop && (silent_s >= dog.setup.timeout_s || asked_by >= 0)) {
            watchdog_speak(silent_s, asked_by, slice_s);
            break;
        }
    }
    pthread_mutex_unlock(&dog.lock);
    return NULL;
}

/* ---- its life; main thread ---- */

/* Signals are for the thread that runs the steps. */
void gw_watchdog_start(const gw_watchdog_setup *setup, MPI_Comm comm) {
    sigset_t all, before;
    pthread_condattr_t attr;
    dog.setup = *setup;
    if (setup->timeout_s <= 0)
        return;
    gw_present_start();
    atomic_store_explicit(&steps, 0, memory_order_relaxed);
    dog.memory = NULL; /* what a broken exchange has left stays */
    dog.mine = NULL;
    dog.facts = (gw_last_words){
        .timeout_s = setup->timeout_s, .comm = setup->comm, .compress = setup->compress};
    gethostname(dog.facts.host, sizeof dog.facts.host - 1);
    MPI_Comm_rank(comm, &dog.facts.rank);
    MPI_Comm_size(comm, &dog.facts.ranks);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&dog.woken, &attr);
    pthread_condattr_destroy(&attr);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    dog.rc = pthread_create(&dog.thread, NULL, watchdog_watch, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    dog.on = dog.rc == 0;
}

/* The ranks of this host: what one has to know to see how they are. */
static gw_err watchdog_meet(MPI_Comm comm) {
    gw_shared *memory = NULL;
    void *mine = NULL;
    GW_TRY(gw_shared_open(&memory, comm));
    gw_err e = gw_agree(comm, gw_shared_alloc(memory, sizeof(board), &mine));
    gw_peer *peers = NULL;
    GW_THEN(e, gw_agree(comm, gw_last_words_peers(&peers, memory)));
    if (e != GW_OK) {
        free(peers);
        gw_shared_close(memory);
        return e;
    }
    pthread_mutex_lock(&dog.lock);
    dog.memory = memory;
    dog.mine = mine;
    dog.facts.peers = peers;
    dog.facts.n_peers = gw_shared_size(memory);
    pthread_mutex_unlock(&dog.lock);
    return GW_OK;
}

gw_err gw_watchdog_meet(MPI_Comm comm) {
    if (dog.setup.timeout_s <= 0)
        return GW_OK;
    gw_err e = dog.on ? GW_OK
                      : gw_fail(GW_ERR_INTERNAL, "cannot start the watchdog's thread: %s",
                                strerror(dog.rc));
    GW_TRY(gw_agree(comm, e));
    return watchdog_meet(comm);
}

void gw_watchdog_leave(void) {
    pthread_mutex_lock(&dog.lock);
    gw_shared *memory = dog.memory;
    dog.memory = NULL;
    dog.mine = NULL;
    dog.facts.n_peers = 0;
    pthread_mutex_unlock(&dog.lock);
    gw_shared_close(memory);
}

void gw_watchdog_close(void) {
    if (!dog.on)
        return;
    pthread_mutex_lock(&dog.lock);
    dog.stop = true;
    pthread_cond_signal(&dog.woken);
    pthread_mutex_unlock(&dog.lock);
    pthread_join(dog.thread, NULL);
    pthread_cond_destroy(&dog.woken);
    free(dog.facts.peers);
    dog.facts.peers = NULL;
    dog.on = dog.stop = false;
}
