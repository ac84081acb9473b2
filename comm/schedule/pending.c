#include "comm/schedule/pending.h"

#include "comm/schedule/crew.h"
#include "comm/schedule/schedule_parts.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

enum {
    LINE = 400,   /* bytes of a line at most */
    MESSAGES = 6, /* of a round that are listed */
    STRANDS = 3   /* of a schedule */
};

/* All schedules that have run, in the order of their first run. Entered and left where schedules
 * are laid down and freed, so a step takes no lock. */
static struct {
    pthread_mutex_t lock;
    gw_schedule *first, *last;
} list = {.lock = PTHREAD_MUTEX_INITIALIZER};

void gw_pending_add(gw_schedule *s) {
    if (s->listed)
        return;
    pthread_mutex_lock(&list.lock);
    s->listed = true;
    s->previous = list.last;
    *(list.last ? &list.last->next : &list.first) = s;
    list.last = s;
    pthread_mutex_unlock(&list.lock);
}

void gw_pending_remove(gw_schedule *s) {
    if (!s->listed)
        return;
    pthread_mutex_lock(&list.lock);
    *(s->previous ? &s->previous->next : &list.first) = s->next;
    *(s->next ? &s->next->previous : &list.last) = s->previous;
    pthread_mutex_unlock(&list.lock);
}

void gw_pending_defer(gw_schedule *s, bool waits) {
    gw_pending_add(s);
    GW_SET(s->deferred, waits);
}

/* A line that is cut where it is full. */
typedef struct line {
    char text[LINE];
    size_t len;
} line;

__attribute__((format(printf, 2, 3))) static void pending_add(line *l, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int n = vsnprintf(l->text + l->len, sizeof l->text - l->len, format, args);
    va_end(args);
    size_t room = sizeof l->text - 1 - l->len;
    if (n > 0)
        l->len += (size_t)n < room ? (size_t)n : room;
}

/* The rounds of a strand, and the one that it is in, from 1. */
static int pending_rounds(const gw_schedule *s, const gw_strand *t, int end) {
    int rounds = 1;
    for (int i = t->first; i < end; i++)
        rounds += s->ops.x[i].kind == GW_OP_ROUND && i + 1 < t->end;
    return rounds;
}

static void pending_add_message(line *l, const gw_schedule *s, const gw_op *o) {
    const gw_fabric *f = gw_lane_channel(o->lane)->fabric;
    switch (o->kind) {
    case GW_OP_SEND:
        pending_add(l, " to rank %d (up to %zu bytes)", f->world[o->peer], s->slots.x[o->slot].cap);
        break;
    case GW_OP_RECV:
        pending_add(l, " from rank %d (up to %zu bytes)", f->world[o->peer],
                    s->slots.x[o->slot].cap);
        break;
    default: pending_add(l, " an MPI collective of %d ranks", f->size);
    }
}

/* What was posted last, and MPI has not said to be complete: `n` messages before operation `pc`. */
static void pending_add_messages(line *l, const gw_schedule *s, const gw_strand *t, int pc, int n) {
    int told = 0, left = n;
    for (int i = pc - 1; i >= t->first && left > 0; i--) {
        gw_op_kind kind = s->ops.x[i].kind;
        if (kind != GW_OP_SEND && kind != GW_OP_RECV && kind != GW_OP_CALL)
            continue;
        left--;
        if (told++ >= MESSAGES)
            continue;
        pending_add(l, "%s", told > 1 ? "," : "");
        pending_add_message(l, s, &s->ops.x[i]);
    }
    if (told > MESSAGES)
        pending_add(l, " and %d more", told - MESSAGES);
}

static void pending_add_strand(line *l, const gw_schedule *s, const gw_strand *t) {
    int pc = GW_GET(t->pc), pending = GW_GET(t->pending);
    const gw_op *o = pc < t->end ? &s->ops.x[pc] : NULL;
    pending_add(l, "; strand %d of %d, round %d of %d:", (int)(t - s->strands.x) + 1, s->strands.n,
                pending_rounds(s, t, pc), pending_rounds(s, t, t->end));
    if (o && o->kind == GW_OP_AWAIT) {
        bool lead = o->call.poll == gw_crew_lead;
        int missing = lead || o->call.poll == gw_crew_all ? gw_crew_missing(o->ctx, lead) : -1;
        if (missing >= 0)
            pending_add(l, " waits for the signal of rank %d in shared memory", missing);
        else
            pending_add(l, " waits for an event of its algorithm's");
    } else if (o && o->kind == GW_OP_CALL) {
        pending_add(l, " blocked in");
        pending_add_message(l, s, o);
    } else if (pending > 0 && (!o || o->kind == GW_OP_ROUND)) {
        pending_add(l, " waits for messages");
        pending_add_messages(l, s, t, pc, pending);
    } else {
        pending_add(l, " at its operation %d of %d", pc - t->first + 1, t->end - t->first);
    }
}

static void pending_describe(line *l, const gw_schedule *s) {
    const gw_exchange *x = &s->told;
    *l = (line){0};
    pending_add(l, "lane %d (%s), schedule %d, [%zu, %zu)", x->lane, x->name ? x->name : "unnamed",
                x->schedule, x->off, x->off + x->n);
    if (GW_GET(s->deferred)) {
        pending_add(l, ": waits for its turn in the queue");
        return;
    }
    int stage = GW_GET(s->stage), told = 0;
    pending_add(l, ", run %" PRIuFAST64 ", stage %d of %d", GW_GET(s->runs), stage + 1,
                s->stages.n);
    for (int i = 0; i < s->strands.n; i++) {
        const gw_strand *t = &s->strands.x[i];
        bool begun = GW_GET(t->pc) > t->first; /* later ones of a window have posted nothing */
        if (GW_GET(t->running) && t->stage == stage && begun && told++ < STRANDS)
            pending_add_strand(l, s, t);
    }
    if (told > STRANDS)
        pending_add(l, "; and %d strands more", told - STRANDS);
    for (int i = 0; i < s->strands.n && told == 0; i++)
        if (GW_GET(s->strands.x[i].running) && s->strands.x[i].stage == stage) {
            pending_add_strand(l, s, &s->strands.x[i]); /* in its first operation */
            told++;
        }
}

int gw_pending_each(int most, void (*tell)(void *ctx, const char *text), void *ctx) {
    int n = 0;
    line l;
    pthread_mutex_lock(&list.lock);
    for (const gw_schedule *s = list.first; s; s = s->next) {
        if (!GW_GET(s->running) && !GW_GET(s->deferred))
            continue;
        if (n++ >= most)
            continue;
        pending_describe(&l, s);
        tell(ctx, l.text);
    }
    pthread_mutex_unlock(&list.lock);
    if (n > most) {
        l = (line){0};
        pending_add(&l, "and %d schedules more", n - most);
        tell(ctx, l.text);
    }
    return n;
}
