#include "prof/ledger.h"

#include "mpi/present.h"
#include "prof/clock.h"
#include "prof/usage.h"

/* Broken nesting would charge time to the wrong phase: it stops release builds too. */
#undef NDEBUG
#include <assert.h>
#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

enum { DEPTH = 32, COST_REGIONS = 2000, COST_RUNS = 20 };

/* Main thread only. */
static struct {
    uint64_t zero, begin, mark; /* mark: where the current slice began */
    uint64_t busy;              /* ledger_flight_until(mark) */
    struct {
        uint64_t ticks[GW_PHASES], inflight, regions;
        uint64_t dim_ticks[GW_EXCHANGE_DIMS], dim_bytes[GW_EXCHANGE_DIMS],
            dim_messages[GW_EXCHANGE_DIMS];
        uint64_t part[GW_PARTS], coded[GW_CODINGS];
    } of; /* the batch */
    uint64_t part_since, action_since;
    gw_phase stack[DEPTH];
    int depth;
    gw_ledger_sums before;
    /* Changed by the main thread under ledger_tell_lock; other threads read them under it. */
    const gw_ledger_sink *sinks[GW_LEDGER_SINKS];
    atomic_int n_sinks;
    gw_profile profile;
} led;

/* Tell all sinks that listen to `event`. */
#define TELL(event, ...)                                                                           \
    do {                                                                                           \
        for (int i_ = 0; i_ < led.n_sinks; i_++)                                                   \
            if (led.sinks[i_]->event)                                                              \
                led.sinks[i_]->event(__VA_ARGS__);                                                 \
    } while (0)

static _Thread_local bool is_main;

/* Any thread. */
static atomic_bool running;
static atomic_uint_fast64_t bytes_sent, messages_sent, collectives_called, batches_ended;
static atomic_uint_fast64_t run_collectives[GW_EXCHANGE_DIMS],
    run_modelled[GW_EXCHANGE_DIMS]; /* of all batches */

/* How long requests were in flight so far. Writers take turns by making `turn` odd; a reader that
 * saw it change looks again (a seqlock), so the main thread never waits for a lock's owner longer
 * than a few stores take. */
static struct {
    atomic_uint turn;
    atomic_long outstanding;
    atomic_uint_fast64_t since; /* when outstanding last rose from 0 */
    atomic_uint_fast64_t total; /* ticks of the closed stretches */
} flight;

static unsigned ledger_flight_lock(void) {
    for (;;) {
        unsigned turn = atomic_load_explicit(&flight.turn, memory_order_relaxed);
        if ((turn & 1) == 0 &&
            atomic_compare_exchange_weak_explicit(&flight.turn, &turn, turn + 1,
                                                  memory_order_acq_rel, memory_order_relaxed))
            return turn;
        sched_yield();
    }
}

/* What listeners hear from any thread they hear one at a time. */
static atomic_flag telling = ATOMIC_FLAG_INIT;

static void ledger_tell_lock(void) {
    while (atomic_flag_test_and_set_explicit(&telling, memory_order_acquire))
        sched_yield();
}

static void ledger_tell_unlock(void) {
    atomic_flag_clear_explicit(&telling, memory_order_release);
}

static void ledger_flight_unlock(unsigned turn) {
    atomic_store_explicit(&flight.turn, turn + 2, memory_order_release);
}

/* Ticks up to `now` during which at least one request was in flight. */
static uint64_t ledger_flight_until(uint64_t now) {
    for (;;) {
        unsigned turn = atomic_load_explicit(&flight.turn, memory_order_acquire);
        uint64_t total = atomic_load_explicit(&flight.total, memory_order_acquire);
        uint64_t since = atomic_load_explicit(&flight.since, memory_order_acquire);
        long open = atomic_load_explicit(&flight.outstanding, memory_order_acquire);
        if ((turn & 1) == 0 && turn == atomic_load_explicit(&flight.turn, memory_order_relaxed))
            return total + (open > 0 && now > since ? now - since : 0);
        sched_yield();
    }
}

void gw_ledger_posted(int requests) {
    if (requests <= 0 || !gw_probe_hooks.enter)
        return;
    unsigned turn = ledger_flight_lock();
    long open = atomic_load_explicit(&flight.outstanding, memory_order_relaxed);
    if (open == 0)
        atomic_store_explicit(&flight.since, gw_clock_ticks(), memory_order_release);
    atomic_store_explicit(&flight.outstanding, open + requests, memory_order_release);
    ledger_flight_unlock(turn);
}

void gw_ledger_completed(int requests) {
    if (requests <= 0 || !gw_probe_hooks.enter)
        return;
    unsigned turn = ledger_flight_lock();
    long open = atomic_load_explicit(&flight.outstanding, memory_order_relaxed);
    /* A request posted by a call that is not interposed can be seen complete here. */
    long left = open > requests ? open - requests : 0;
    atomic_store_explicit(&flight.outstanding, left, memory_order_release);
    if (open > 0 && left == 0) {
        uint64_t now = gw_clock_ticks();
        uint64_t since = atomic_load_explicit(&flight.since, memory_order_relaxed);
        uint64_t total = atomic_load_explicit(&flight.total, memory_order_relaxed);
        now = now > since ? now : since;
        atomic_store_explicit(&flight.total, total + (now - since), memory_order_release);
        ledger_tell_lock();
        TELL(flight, since, now);
        ledger_tell_unlock();
    }
    ledger_flight_unlock(turn);
}

static bool ledger_communicates(gw_phase phase) {
    return phase >= GW_PHASE_ENCODE && phase <= GW_PHASE_MPI_WAIT;
}
_Static_assert(GW_PHASE_MPI_WAIT - GW_PHASE_ENCODE == 4, "encode, decode, post, poll, wait");

/* Charge the slice that ends now to the innermost region; the next one begins. */
static void ledger_charge(uint64_t now) {
    gw_phase phase = led.stack[led.depth];
    now = now > led.mark ? now : led.mark;
    uint64_t ticks = now - led.mark, busy = ledger_flight_until(now);
    led.of.ticks[phase] += ticks;
    if (ledger_communicates(phase))
        led.of.dim_ticks[gw_probe_dim] += ticks;
    if (gw_phase_computes(phase) && busy > led.busy) {
        uint64_t hidden = busy - led.busy;
        led.of.inflight += hidden < ticks ? hidden : ticks;
    }
    if (ticks > 0)
        TELL(slice, phase, led.mark, now);
    led.mark = now;
    led.busy = busy;
}

/* The outermost region of a thread beside the main one. */
static _Thread_local struct {
    int depth;
    gw_phase phase;
    uint64_t start;
} aside;

static bool ledger_codes(gw_phase phase) {
    return phase == GW_PHASE_ENCODE || phase == GW_PHASE_DECODE;
}

static void ledger_enter_aside(gw_phase phase) {
    if (aside.depth++ > 0)
        return;
    aside.phase = phase;
    if (ledger_codes(phase)) /* only then somebody is told */
        aside.start = gw_clock_ticks();
}

static void ledger_leave_aside(void) {
    if (aside.depth == 0) /* the probe was not there yet when it was entered */
        return;
    if (--aside.depth > 0 || !ledger_codes(aside.phase) || led.n_sinks == 0)
        return;
    uint64_t now = gw_clock_ticks();
    ledger_tell_lock();
    TELL(aside, aside.phase, aside.start, now);
    ledger_tell_unlock();
}

static void ledger_enter(gw_phase phase) {
    if (!is_main) {
        ledger_enter_aside(phase);
        return;
    }
    if (!gw_ledger_counting())
        return;
    assert(led.depth + 1 < DEPTH && "regions nest too deep: one is never left");
    /* Whoever waits may do so by polling: it is waiting all the same. */
    if (phase == GW_PHASE_MPI_POLL && led.stack[led.depth] == GW_PHASE_MPI_WAIT)
        phase = GW_PHASE_MPI_WAIT;
    TELL(edge, led.stack[led.depth], phase);
    ledger_charge(gw_clock_ticks());
    led.stack[++led.depth] = phase;
    gw_present_phase((int)phase);
    led.of.regions++;
}

static void ledger_leave(void) {
    if (!is_main) {
        ledger_leave_aside();
        return;
    }
    if (!gw_ledger_counting())
        return;
    assert(led.depth > 0 && "a region is left that was not entered in this batch");
    ledger_charge(gw_clock_ticks());
    led.depth--;
    gw_present_phase((int)led.stack[led.depth]);
    TELL(edge, led.stack[led.depth + 1], led.stack[led.depth]);
}

/* A part is no slice: two readings of the clock, and the phase goes on. */
static void ledger_part(gw_part which, int begins) {
    if (!is_main || !gw_ledger_counting())
        return;
    uint64_t now = gw_clock_ticks();
    if (begins)
        led.part_since = now;
    else
        led.of.part[which] += now > led.part_since ? now - led.part_since : 0;
}

static void ledger_turns(int dim) {
    (void)dim; /* what came before was for the other one */
    if (is_main && gw_ledger_counting())
        ledger_charge(gw_clock_ticks());
}

static void ledger_coded(gw_coding kind, size_t floats) {
    if (is_main && gw_ledger_counting())
        led.of.coded[kind] += floats;
}

/* Exchanges end on whichever thread sees it. */
static void ledger_exchange(gw_exchange_event event, const gw_exchange *x) {
    if (led.n_sinks == 0)
        return;
    bool cuts = event == GW_EXCHANGE_BLOCK || event == GW_EXCHANGE_UNBLOCK;
    uint64_t now = gw_clock_ticks();
    if (cuts && is_main && gw_ledger_counting())
        ledger_charge(now);
    ledger_tell_lock();
    TELL(exchange, event, x, now);
    ledger_tell_unlock();
}

static void ledger_action(const gw_action *a, int begins) {
    if (!is_main || !gw_ledger_counting() || led.n_sinks == 0)
        return;
    uint64_t now = gw_clock_ticks();
    if (begins)
        led.action_since = now;
    else
        TELL(action, a, led.action_since, now > led.action_since ? now : led.action_since);
}

void gw_ledger_start(void) {
    gw_clock_start();
    is_main = true;
    gw_present_start();
    gw_usage_start();
    atomic_store(&running, false);
    memset(&led, 0, sizeof led);
    atomic_store(&flight.total, 0);
    for (int d = 0; d < GW_EXCHANGE_DIMS; d++) {
        atomic_store(&run_collectives[d], 0);
        atomic_store(&run_modelled[d], 0);
    }
    gw_ledger_set_profile(GW_PROFILE_FULL);
    led.zero = gw_clock_ticks();
}

/* The zero may come to lie before the clock's own: what counts are differences, modulo 2^64. */
void gw_ledger_resume(double s) {
    led.zero -= (uint64_t)(s / gw_clock_seconds(1));
}

void gw_ledger_set_profile(gw_profile profile) {
    static const gw_probe none = {0};
    gw_probe hooks = {.enter = ledger_enter,
                      .leave = ledger_leave,
                      .exchange = ledger_exchange,
                      .turns = ledger_turns,
                      .action = ledger_action};
    if (profile == GW_PROFILE_FULL) {
        hooks.part = ledger_part;
        hooks.coded = ledger_coded;
    }
    assert(!gw_ledger_counting() && "the profile is switched inside a batch");
    led.profile = profile;
    led.before = gw_ledger_totals();
    atomic_store(&flight.outstanding, 0);
    gw_probe_hooks = profile == GW_PROFILE_OFF ? none : hooks;
}

gw_profile gw_ledger_profile(void) {
    return led.profile;
}

/* What the profile leaves out is NaN. */
static void ledger_end_parts(gw_batch_cost *cost) {
    bool full = led.profile == GW_PROFILE_FULL;
    for (int p = 0; p < GW_PARTS; p++)
        cost->part_s[p] = full ? gw_clock_seconds(led.of.part[p]) : NAN;
    for (int k = 0; k < GW_CODINGS; k++)
        cost->coded[k] = full ? (double)led.of.coded[k] : NAN;
}

/* Nothing but the wall time. */
static void ledger_end_unmeasured(gw_batch_cost *cost) {
    double wall = gw_clock_seconds(gw_clock_ticks() - led.begin);
    *cost = (gw_batch_cost){.start_s = gw_clock_seconds(led.begin - led.zero),
                            .start_ticks = led.begin,
                            .wall_s = wall,
                            .inflight_s = NAN,
                            .wire_bytes = GW_UNCOUNTED,
                            .messages = GW_UNCOUNTED,
                            .collectives = GW_UNCOUNTED,
                            .regions = GW_UNCOUNTED,
                            .nivcsw = -1,
                            .minflt = -1,
                            .cpu_s = NAN};
    for (int p = 0; p < GW_PHASES; p++)
        cost->phase_s[p] = NAN;
    for (int d = 0; d < GW_EXCHANGE_DIMS; d++)
        cost->dim[d] = (gw_dim_cost){NAN, GW_UNCOUNTED, GW_UNCOUNTED};
    ledger_end_parts(cost);
}

void gw_ledger_begin(void) {
    if (led.profile == GW_PROFILE_OFF) {
        led.begin = gw_clock_ticks();
        return;
    }
    assert(is_main && !gw_ledger_counting() && "a batch is open already");
    memset(&led.of, 0, sizeof led.of);
    led.depth = 0;
    led.stack[0] = GW_PHASE_OTHER;
    gw_usage_begin(gw_clock_ticks());
    led.begin = led.mark = gw_clock_ticks();
    led.busy = ledger_flight_until(led.mark);
    gw_present_phase(GW_PHASE_OTHER);
    atomic_store(&running, true);
}

/* Other threads exchange gradients alone: what is left is along the data dimension. */
static void ledger_end_dims(gw_batch_cost *c) {
    uint64_t bytes = c->wire_bytes, messages = c->messages;
    for (int d = GW_EXCHANGE_DIMS - 1; d >= 0; d--) {
        bool data = d == 0;
        c->dim[d] =
            (gw_dim_cost){gw_clock_seconds(led.of.dim_ticks[d]), data ? bytes : led.of.dim_bytes[d],
                          data ? messages : led.of.dim_messages[d]};
        bytes -= led.of.dim_bytes[d];
        messages -= led.of.dim_messages[d];
    }
}

void gw_ledger_end(gw_batch_cost *cost) {
    if (led.profile == GW_PROFILE_OFF) {
        ledger_end_unmeasured(cost);
        return;
    }
    assert(is_main && gw_ledger_counting() && "no batch is open");
    assert(led.depth == 0 && "a region is still open at the end of the batch");
    uint64_t end = gw_clock_ticks();
    ledger_charge(end);
    atomic_store(&running, false);
    gw_present_phase(-1);
    gw_batch_cost c = {.start_s = gw_clock_seconds(led.begin - led.zero),
                       .start_ticks = led.begin,
                       .wall_s = gw_clock_seconds(end - led.begin)};
    gw_usage use = gw_usage_end(end);
    c.nivcsw = use.nivcsw;
    c.minflt = use.minflt;
    c.cpu_s = use.cpu_s;
    for (int p = 0; p < GW_PHASES; p++)
        c.phase_s[p] = gw_clock_seconds(led.of.ticks[p]);
    ledger_end_parts(&c);
    c.inflight_s = gw_clock_seconds(led.of.inflight);
    gw_ledger_sums now = gw_ledger_totals();
    c.wire_bytes = now.wire_bytes - led.before.wire_bytes;
    c.messages = now.messages - led.before.messages;
    c.collectives = now.collectives - led.before.collectives;
    led.before = now;
    ledger_end_dims(&c);
    c.regions = led.of.regions;
    atomic_fetch_add(&batches_ended, 1);
    TELL(batch, led.begin, end);
    *cost = c;
}

gw_ledger_sums gw_ledger_totals(void) {
    return (gw_ledger_sums){atomic_load(&bytes_sent), atomic_load(&messages_sent),
                            atomic_load(&collectives_called), atomic_load(&batches_ended)};
}

bool gw_ledger_counting(void) {
    return atomic_load_explicit(&running, memory_order_relaxed);
}

bool gw_ledger_counts(void) {
    return gw_ledger_counting() || !is_main;
}

void gw_ledger_count(uint64_t bytes, unsigned messages, unsigned collectives) {
    if (!gw_ledger_counts())
        return;
    atomic_fetch_add_explicit(&bytes_sent, bytes, memory_order_relaxed);
    if (is_main) {
        led.of.dim_bytes[gw_probe_dim] += bytes;
        led.of.dim_messages[gw_probe_dim] += messages;
    }
    if (messages)
        atomic_fetch_add_explicit(&messages_sent, messages, memory_order_relaxed);
    if (!collectives)
        return;
    atomic_fetch_add_explicit(&collectives_called, collectives, memory_order_relaxed);
    atomic_fetch_add_explicit(&run_collectives[gw_probe_dim], collectives, memory_order_relaxed);
    atomic_fetch_add_explicit(&run_modelled[gw_probe_dim], bytes, memory_order_relaxed);
}

void gw_ledger_collectives(int dim, uint64_t *calls, uint64_t *bytes) {
    *calls = atomic_load(&run_collectives[dim]);
    *bytes = atomic_load(&run_modelled[dim]);
}

double gw_ledger_now(void) {
    return gw_clock_seconds(gw_clock_ticks() - led.zero);
}

uint64_t gw_ledger_zero(void) {
    return led.zero;
}

double gw_ledger_region_cost(void) {
    int sinks = led.n_sinks;
    led.n_sinks = 0; /* the trace must not fill with this */
    double least = 1;
    for (int run = 0; run < COST_RUNS; run++) {
        gw_batch_cost cost;
        gw_ledger_begin();
        for (int i = 0; i < COST_REGIONS; i++) {
            gw_phase_enter(GW_PHASE_FORWARD);
            gw_phase_leave();
        }
        gw_ledger_end(&cost);
        double each = cost.wall_s / COST_REGIONS;
        least = each < least ? each : least;
    }
    led.n_sinks = sinks;
    return least;
}

/* Where `sink` is, or would be; locks. */
static int ledger_listening(const gw_ledger_sink *sink) {
    assert(!gw_ledger_counting() && "listeners change inside a batch");
    ledger_tell_lock();
    int i = 0;
    while (i < led.n_sinks && led.sinks[i] != sink)
        i++;
    return i;
}

void gw_ledger_listen(const gw_ledger_sink *sink) {
    int i = ledger_listening(sink);
    assert(i < GW_LEDGER_SINKS && "too many listen to the ledger");
    led.sinks[i] = sink;
    led.n_sinks += i == led.n_sinks;
    ledger_tell_unlock();
}

void gw_ledger_unlisten(const gw_ledger_sink *sink) {
    int i = ledger_listening(sink);
    if (i < led.n_sinks)
        led.sinks[i] = led.sinks[--led.n_sinks];
    ledger_tell_unlock();
}
