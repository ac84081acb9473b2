#include "watch/watchdog.h"

#include "base/hook.h"
#include "base/mem.h"
#include "base/nap.h"
#include "comm/schedule/pending.h"
#include "mpi/present.h"
#include "mpi/shared.h"

#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SLICES = 20, WORDS = 16384, SCHEDULES = 12 /* most that are listed */ };

/* A rank of this host. */
typedef struct peer {
    int rank; /* in MPI_COMM_WORLD */
    pid_t pid;
    unsigned long long born; /* by the kernel's count: tells it from a later one with this number */
    bool seen;               /* this process can look at that one */
    int64_t step;            /* that it was last known to be at */
} peer;

typedef struct facts {
    int rank, ranks;
    char host[64];
    double timeout_s, silent_s;
    int asked_by; /* the rank that has spoken before; -1: none */
    const char *stage, *comm, *compress;
    const char *call; /* of the library's functions the one that is at work; NULL: none */
    int64_t step;
    int epoch;
    peer *peers; /* by their rank on this host */
    int n_peers;
} facts;

/* ---- what a rank that is stuck says of itself and of the others on its host ---- */

/* State letter and time of birth of a process, of /proc/PID/stat; 0: there is none. */
static char watchdog_look(pid_t pid, unsigned long long *born) {
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return 0;
    ssize_t n = read(file, text, sizeof text - 1);
    close(file);
    text[n > 0 ? n : 0] = '\0';
    char state = 0, *after = strrchr(text, ')'); /* the name before may hold anything */
    int fields = after ? sscanf(after,
                                ") %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d "
                                "%*d %*d %*d %llu",
                                &state, born)
                       : 0;
    return fields == 2 ? state : 0;
}

/* Collective over the host's ranks: *out: who they are, gw_shared_size(m) of them; free() it. */
static gw_err watchdog_peers(peer **out, const gw_shared *m) {
    int n = gw_shared_size(m);
    peer *peers = NULL, mine = {.pid = getpid()};
    MPI_Comm node = gw_shared_comm(m);
    gw_err e = gw_alloc(&peers, (size_t)n, sizeof *peers);
    *out = peers;
    GW_TRY(gw_agree(node, e));
    watchdog_look(mine.pid, &mine.born);
    GW_MPI(MPI_Allgather(&mine, sizeof mine, MPI_BYTE, peers, sizeof mine, MPI_BYTE, node));
    for (int r = 0; r < n; r++) {
        unsigned long long born = 0;
        peers[r].rank = gw_shared_world(m, r);
        peers[r].seen = watchdog_look(peers[r].pid, &born) && born == peers[r].born;
    }
    return GW_OK;
}

/* Return why the rank does not go on, as the kernel sees it; NULL: it does, or that is not seen. */
static const char *watchdog_ails(const peer *p) {
    unsigned long long born = 0;
    if (!p->seen)
        return NULL;
    char state = watchdog_look(p->pid, &born);
    if (!state || born != p->born || strchr("ZXx", state))
        return "has ended";
    return state == 'T'   ? "is stopped (SIGSTOP or SIGTSTP)"
           : state == 't' ? "is held by a debugger"
           : state == 'D' ? "waits in the kernel (for a disk or a file server, say)"
                          : NULL;
}

/* True unless the kernel says that the host's rank `r` is stopped or gone. */
static bool watchdog_alive(const facts *w, int r) {
    unsigned long long born = 0;
    if (r >= w->n_peers || !w->peers[r].seen)
        return true;
    char state = watchdog_look(w->peers[r].pid, &born);
    return state && born == w->peers[r].born && !strchr("ZXxTt", state);
}

typedef struct page {
    char *text;
    size_t len, room;
    int rank;
} page;

__attribute__((format(printf, 2, 3))) static void watchdog_add(page *p, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int n = vsnprintf(p->text + p->len, p->room - p->len, format, args);
    va_end(args);
    size_t left = p->room - 1 - p->len;
    if (n > 0)
        p->len += (size_t)n < left ? (size_t)n : left;
}

static void watchdog_add_line(void *ctx, const char *line) {
    page *p = ctx;
    watchdog_add(p, "gradwire: rank %d:   %s\n", p->rank, line);
}

static void watchdog_say_calls(page *p, int thread) {
    static const char *const whose[] = {"", " by the progress thread"};
    const gw_present_calls *now = &gw_present[thread];
    const char *call = atomic_load_explicit(&now->call, memory_order_relaxed);
    const char *posted = atomic_load_explicit(&now->posted, memory_order_relaxed);
    bool inside = atomic_load_explicit(&now->inside, memory_order_relaxed);
    char line[256];
    if (!call)
        return;
    snprintf(line, sizeof line, "MPI%s: %s %s%s%s", whose[thread], inside ? "in" : "last call",
             call, posted ? ", last started " : "", posted ? posted : "");
    watchdog_add_line(p, line);
}

static void watchdog_say_peers(page *p, const facts *w) {
    for (int r = 0; r < w->n_peers; r++) {
        const char *ail = watchdog_ails(&w->peers[r]);
        char line[256];
        if (!ail)
            continue;
        snprintf(line, sizeof line, "rank %d on this host (pid %ld, last seen at step %lld) %s",
                 w->peers[r].rank, (long)w->peers[r].pid, (long long)w->peers[r].step, ail);
        watchdog_add_line(p, line);
    }
}

/* Lines, each with its end, that fit in `room`. No MPI call, no lock of the main thread's. */
static void watchdog_report(const facts *w, char *text, size_t room) {
    page p = {.text = text, .room = room, .rank = w->rank};
    int region = atomic_load_explicit(&gw_present_region, memory_order_relaxed);
    watchdog_add(&p, "gradwire: rank %d (%s, pid %ld): ", w->rank, w->host, (long)getpid());
    if (w->asked_by >= 0 && w->silent_s < w->timeout_s)
        watchdog_add(&p,
                     "rank %d makes no progress (--hang-timeout %g); here the last was %.1f s ago",
                     w->asked_by, w->timeout_s, w->silent_s);
    else
        watchdog_add(&p, "no progress for %.1f s (--hang-timeout %g)", w->silent_s, w->timeout_s);
    watchdog_add(&p, ": %s%s, %lld steps done", w->call ? "in gradwire_" : "",
                 w->call ? w->call : w->stage, (long long)w->step);
    if (w->epoch > 0)
        watchdog_add(&p, ", epoch %d", w->epoch);
    if (region >= 0)
        watchdog_add(&p, ", phase %s", gw_phase_name((gw_phase)region));
    watchdog_add(&p, "\n");
    char hook[160], line[512];
    gw_hook_present(hook, sizeof hook);
    snprintf(line, sizeof line, "--comm %s --compress %s%s", w->comm, w->compress, hook);
    watchdog_add_line(&p, line);
    gw_hook_acting(line, sizeof line);
    if (*line)
        watchdog_add_line(&p, line);
    for (int thread = 0; thread < GW_PRESENT_THREADS; thread++)
        watchdog_say_calls(&p, thread);
    if (gw_pending_each(SCHEDULES, watchdog_add_line, &p) == 0)
        watchdog_add_line(&p, "no exchange is under way");
    watchdog_say_peers(&p, w);
    if (p.len == room - 1)
        text[p.len - 1] = '\n';
}

/* ---- what the main thread tells ---- */

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
    facts facts;
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

/* Ranks of this host that could speak and have not. */
static int watchdog_silent(void) {
    int n = 0;
    for (int r = 0; dog.memory && r < gw_shared_size(dog.memory); r++)
        n += !watchdog_spoken(r) && watchdog_alive(&dog.facts, r);
    return n;
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

static void watchdog_speak(double silent_s, int asked_by, double slice_s) {
    facts *f = &dog.facts;
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
    watchdog_report(f, dog.words, sizeof dog.words);
    /* Past stdio, whose locks the thread that is stuck may hold; in one piece, so that the lines of
     * other ranks do not fall between. */
    for (const char *rest = dog.words; *rest;) {
        ssize_t n = write(STDERR_FILENO, rest, strlen(rest));
        if (n <= 0)
            break;
        rest += n;
    }
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
        int asked_by = -1; /* the rank of this host that has spoken first, as far as can be seen */
        for (int r = 0; dog.memory && r < gw_shared_size(dog.memory) && asked_by < 0; r++)
            if (watchdog_spoken(r))
                asked_by = gw_shared_world(dog.memory, r);
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
    dog.facts =
        (facts){.timeout_s = setup->timeout_s, .comm = setup->comm, .compress = setup->compress};
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

gw_err gw_watchdog_meet(MPI_Comm comm) {
    gw_shared *memory = NULL;
    peer *peers = NULL;
    void *mine = NULL;
    if (dog.setup.timeout_s <= 0)
        return GW_OK;
    gw_err e = dog.on ? GW_OK
                      : gw_fail(GW_ERR_INTERNAL, "cannot start the watchdog's thread: %s",
                                strerror(dog.rc));
    GW_TRY(gw_agree(comm, e));
    GW_TRY(gw_shared_open(&memory, comm));
    e = gw_agree(comm, gw_shared_alloc(memory, sizeof(board), &mine));
    GW_THEN(e, gw_agree(comm, watchdog_peers(&peers, memory)));
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
