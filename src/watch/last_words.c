#include "watch/last_words.h"

#include "base/hook.h"
#include "base/mem.h"
#include "comm/schedule/pending.h"
#include "mpi/present.h"

#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

enum { SCHEDULES = 12 /* most that are listed */ };

/* State letter and time of birth of a process, of /proc/PID/stat; 0: there is none. */
static char words_look(pid_t pid, unsigned long long *born) {
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

gw_err gw_last_words_peers(gw_peer **out, const gw_shared *m) {
    int n = gw_shared_size(m);
    gw_peer *peers = NULL, mine = {.pid = getpid()};
    MPI_Comm node = gw_shared_comm(m);
    gw_err e = gw_alloc(&peers, (size_t)n, sizeof *peers);
    *out = peers;
    GW_TRY(gw_agree(node, e));
    words_look(mine.pid, &mine.born);
    GW_MPI(MPI_Allgather(&mine, sizeof mine, MPI_BYTE, peers, sizeof mine, MPI_BYTE, node));
    for (int r = 0; r < n; r++) {
        unsigned long long born = 0;
        peers[r].rank = gw_shared_world(m, r);
        peers[r].seen = words_look(peers[r].pid, &born) && born == peers[r].born;
    }
    return GW_OK;
}

/* What keeps the rank from going on, as the kernel sees it; NULL: nothing, or it cannot be seen. */
static const char *words_ails(const gw_peer *p) {
    unsigned long long born = 0;
    if (!p->seen)
        return NULL;
    char state = words_look(p->pid, &born);
    if (!state || born != p->born || strchr("ZXx", state))
        return "has ended";
    return state == 'T'   ? "is stopped (SIGSTOP or SIGTSTP)"
           : state == 't' ? "is held by a debugger"
           : state == 'D' ? "waits in the kernel (for a disk or a file server, say)"
                          : NULL;
}

bool gw_last_words_alive(const gw_last_words *w, int r) {
    unsigned long long born = 0;
    if (r >= w->n_peers || !w->peers[r].seen)
        return true;
    char state = words_look(w->peers[r].pid, &born);
    return state && born == w->peers[r].born && !strchr("ZXxTt", state);
}

typedef struct page {
    char *text;
    size_t len, room;
    int rank;
} page;

__attribute__((format(printf, 2, 3))) static void words_add(page *p, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int n = vsnprintf(p->text + p->len, p->room - p->len, format, args);
    va_end(args);
    size_t left = p->room - 1 - p->len;
    if (n > 0)
        p->len += (size_t)n < left ? (size_t)n : left;
}

static void words_add_line(void *ctx, const char *line) {
    page *p = ctx;
    words_add(p, "gradwire: rank %d:   %s\n", p->rank, line);
}

static void words_say_calls(page *p, int thread) {
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
    words_add_line(p, line);
}

static void words_say_peers(page *p, const gw_last_words *w) {
    for (int r = 0; r < w->n_peers; r++) {
        const char *ail = words_ails(&w->peers[r]);
        char line[256];
        if (!ail)
            continue;
        snprintf(line, sizeof line, "rank %d on this host (pid %ld, last seen at step %lld) %s",
                 w->peers[r].rank, (long)w->peers[r].pid, (long long)w->peers[r].step, ail);
        words_add_line(p, line);
    }
}

void gw_last_words_write(const gw_last_words *w, char *text, size_t room) {
    page p = {.text = text, .room = room, .rank = w->rank};
    int region = atomic_load_explicit(&gw_present_region, memory_order_relaxed);
    words_add(&p, "gradwire: rank %d (%s, pid %ld): ", w->rank, w->host, (long)getpid());
    if (w->asked_by >= 0 && w->silent_s < w->timeout_s)
        words_add(&p, "rank %d makes no progress (--hang-timeout %g); here the last was %.1f s ago",
                  w->asked_by, w->timeout_s, w->silent_s);
    else
        words_add(&p, "no progress for %.1f s (--hang-timeout %g)", w->silent_s, w->timeout_s);
    words_add(&p, ": %s%s, %lld steps done", w->call ? "in gradwire_" : "",
              w->call ? w->call : w->stage, (long long)w->step);
    if (w->epoch > 0)
        words_add(&p, ", epoch %d", w->epoch);
    if (region >= 0)
        words_add(&p, ", phase %s", gw_phase_name((gw_phase)region));
    words_add(&p, "\n");
    char hook[160], line[512];
    gw_hook_present(hook, sizeof hook);
    snprintf(line, sizeof line, "--comm %s --compress %s%s", w->comm, w->compress, hook);
    words_add_line(&p, line);
    gw_hook_acting(line, sizeof line);
    if (*line)
        words_add_line(&p, line);
    for (int thread = 0; thread < GW_PRESENT_THREADS; thread++)
        words_say_calls(&p, thread);
    if (gw_pending_each(SCHEDULES, words_add_line, &p) == 0)
        words_add_line(&p, "no exchange is under way");
    words_say_peers(&p, w);
    if (p.len == room - 1)
        text[p.len - 1] = '\n';
}
