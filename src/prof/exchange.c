#include "prof/exchange.h"

#include "base/mem.h"
#include "base/rng.h"
#include "prof/ledger.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* About 5 MiB. */
enum { ENTRIES = 16384, STRETCHES = 65536, SCHEDULES = 8192, SLOTS = 2 * SCHEDULES };

/* Where the latest run of a schedule is found. */
typedef struct place {
    int lane, schedule;
    int entry; /* -1: not in the log any more */
    bool used;
} place;

static struct {
    gw_exchange_entry *entries;
    bool *finished, *lost;
    gw_exchange_stretch *stretches;
    place *places;
    int n_entries, n_stretches, n_places;
    int viewed;               /* entries of the last view */
    int row, rows, most_rows; /* row: the open one, -1: none */
    int64_t step, next;       /* of the open row, else 0; of the one after the last */
    int blocked;              /* the entry that the main thread is blocked for, -1: none */
    int entries_before, stretches_before;   /* of the open row */
    int most_entries, most_stretches;       /* of a row, what was dropped included */
    int dropped_entries, dropped_stretches; /* of the open row */
    uint64_t dropped;
} lg;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* over lg */

static _Thread_local bool is_main;

/* The place of a schedule, a new one where `add`; NULL: none, or no more room. */
static place *exchange_place_of(const gw_exchange *x, bool add) {
    uint64_t key = (uint64_t)(uint32_t)x->lane << 32 | (uint32_t)x->schedule;
    for (uint64_t at = gw_rng_mix(key);; at++) {
        place *p = &lg.places[at % SLOTS];
        if (p->used && p->lane == x->lane && p->schedule == x->schedule)
            return p;
        if (p->used)
            continue;
        if (!add || lg.n_places == SCHEDULES)
            return NULL;
        lg.n_places++;
        *p = (place){x->lane, x->schedule, -1, true};
        return p;
    }
}

static void exchange_log_lose(int *what) {
    (*what)++;
    if (lg.row >= 0)
        lg.lost[lg.row] = true;
}

static void exchange_log_hear(gw_exchange_event event, const gw_exchange *x, uint64_t now) {
    pthread_mutex_lock(&lock);
    place *p = exchange_place_of(x, event == GW_EXCHANGE_START);
    bool here = p && p->entry >= 0 && lg.entries[p->entry].x.run == x->run;
    gw_exchange_entry *entry = here ? &lg.entries[p->entry] : NULL;
    if (event == GW_EXCHANGE_START && (!p || lg.n_entries == ENTRIES)) {
        exchange_log_lose(&lg.dropped_entries);
        lg.dropped++;
    } else if (event == GW_EXCHANGE_START) {
        int64_t step = lg.row < 0 && !is_main ? lg.next : lg.step;
        p->entry = lg.n_entries++;
        lg.entries[p->entry] =
            (gw_exchange_entry){.x = *x, .step = step, .start = now, .last_rank = -1};
        lg.finished[p->entry] = false;
    } else if (event == GW_EXCHANGE_DONE && entry) {
        entry->done = now;
    } else if (event == GW_EXCHANGE_BLOCK && is_main) {
        lg.blocked = entry ? p->entry : -1;
        if (!entry)
            exchange_log_lose(&lg.dropped_stretches); /* what is waited for was dropped */
        else if (!entry->block)
            entry->block = now;
    } else if (event == GW_EXCHANGE_UNBLOCK && is_main) {
        lg.blocked = -1;
        if (entry)
            entry->unblock = now;
    }
    pthread_mutex_unlock(&lock);
}

/* Main thread; `blocked` and the stretches are its own. */
static void exchange_log_slice(gw_phase phase, uint64_t start, uint64_t end) {
    if (phase != GW_PHASE_MPI_WAIT || lg.blocked < 0 || lg.row < 0)
        return;
    gw_exchange_stretch *last = lg.n_stretches ? &lg.stretches[lg.n_stretches - 1] : NULL;
    if (last && last->entry == lg.blocked && last->row == lg.row && last->end == start)
        last->end = end;
    else if (lg.n_stretches == STRETCHES)
        exchange_log_lose(&lg.dropped_stretches);
    else
        lg.stretches[lg.n_stretches++] = (gw_exchange_stretch){lg.blocked, lg.row, start, end};
}

static const gw_ledger_sink sink = {.slice = exchange_log_slice, .exchange = exchange_log_hear};

gw_err gw_exchange_log_open(int rows) {
    gw_exchange_log_close();
    gw_err e = gw_alloc_unset(&lg.entries, ENTRIES, sizeof *lg.entries);
    GW_THEN(e, gw_alloc_unset(&lg.finished, ENTRIES, sizeof *lg.finished));
    GW_THEN(e, gw_alloc_unset(&lg.stretches, STRETCHES, sizeof *lg.stretches));
    GW_THEN(e, gw_alloc(&lg.places, SLOTS, sizeof *lg.places));
    GW_THEN(e, gw_alloc(&lg.lost, (size_t)rows, sizeof *lg.lost));
    if (e != GW_OK) {
        gw_exchange_log_close();
        return e;
    }
    lg.row = lg.blocked = -1;
    lg.most_rows = rows;
    is_main = true;
    gw_ledger_listen(&sink);
    return GW_OK;
}

void gw_exchange_log_close(void) {
    if (lg.entries)
        gw_ledger_unlisten(&sink);
    free(lg.entries);
    free(lg.finished);
    free(lg.stretches);
    free(lg.places);
    free(lg.lost);
    memset(&lg, 0, sizeof lg);
}

void gw_exchange_log_begin(int64_t step) {
    if (!lg.entries || lg.rows == lg.most_rows)
        return;
    pthread_mutex_lock(&lock);
    lg.step = step;
    lg.next = step + 1;
    lg.row = lg.rows++;
    lg.lost[lg.row] = false;
    lg.entries_before = lg.n_entries;
    lg.stretches_before = lg.n_stretches;
    lg.dropped_entries = lg.dropped_stretches = 0;
    pthread_mutex_unlock(&lock);
}

void gw_exchange_log_end(void) {
    if (!lg.entries || lg.row < 0)
        return;
    pthread_mutex_lock(&lock);
    int entries = lg.n_entries - lg.entries_before + lg.dropped_entries;
    int stretches = lg.n_stretches - lg.stretches_before + lg.dropped_stretches;
    lg.most_entries = entries > lg.most_entries ? entries : lg.most_entries;
    lg.most_stretches = stretches > lg.most_stretches ? stretches : lg.most_stretches;
    lg.step = 0;
    lg.row = -1;
    pthread_mutex_unlock(&lock);
}

gw_exchange_view gw_exchange_log_view(void) {
    pthread_mutex_lock(&lock);
    for (int i = 0; i < lg.n_entries; i++)
        lg.finished[i] = lg.entries[i].done != 0;
    lg.viewed = lg.n_entries;
    gw_exchange_view v = {.entries = lg.entries,
                          .finished = lg.finished,
                          .n_entries = lg.n_entries,
                          .stretches = lg.stretches,
                          .n_stretches = lg.n_stretches,
                          .lost = lg.lost,
                          .rows = lg.rows,
                          .dropped = lg.dropped};
    pthread_mutex_unlock(&lock);
    return v;
}

void gw_exchange_log_clear(bool all) {
    int kept = 0;
    if (!lg.entries)
        return;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < SLOTS; i++)
        lg.places[i].entry = -1;
    for (int i = 0; i < lg.n_entries && !all; i++) {
        if (i < lg.viewed && lg.finished[i])
            continue;
        lg.entries[kept] = lg.entries[i];
        exchange_place_of(&lg.entries[kept].x, true)->entry = kept;
        kept++;
    }
    lg.n_entries = kept;
    lg.n_stretches = lg.viewed = lg.rows = 0;
    if (all) {
        lg.most_entries = lg.most_stretches = 0;
        lg.dropped = 0;
    }
    pthread_mutex_unlock(&lock);
}

static int exchange_at_most(int limit, int room, int a_row) {
    int rows = a_row > 0 ? room / 2 / a_row : limit;
    return rows < limit ? rows : limit;
}

int gw_exchange_log_room(void) {
    int rows = exchange_at_most(lg.most_rows, ENTRIES, lg.most_entries);
    rows = exchange_at_most(rows, STRETCHES, lg.most_stretches);
    return rows > 1 ? rows : 1;
}
