#include "prof/ledger.h"

#include "base/mem.h"
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

/* Of one rank. Most is the main thread's only. */
struct gw_ledger {
    uint64_t zero, begin, mark; /* mark: where the current slice began */
    uint64_t flown;             /* ticks with requests in flight, until mark */
    struct {
        uint64_t ticks[GW_PHASES], inflight, regions;
        uint64_t dim_ticks[GW_EXCHANGE_DIMS], dim_bytes[GW_EXCHANGE_DIMS],
            dim_messages[GW_EXCHANGE_DIMS];
        uint64_t part[GW_PARTS], coded[GW_CODINGS];
    } of; /* the batch */
    uint64_t part_since, action_since;
    gw_phase stack[DEPTH];
    int depth;
    int dim; /* of the rank's present exchange, while another rank runs */
    gw_ledger_sums before;
    /* Changed by the main thread under `telling`; other threads read them under it. */
    const gw_ledger_sink *sinks[GW_LEDGER_SINKS];
    atomic_int n_sinks;
    gw_profile profile;
    /* Any thread: */
    atomic_bool running;
    atomic_uint_fast64_t bytes_sent, messages_sent, collectives_called, batches_ended;
    atomic_uint_fast64_t run_collectives[GW_EXCHANGE_DIMS],
        run_modelled[GW_EXCHANGE_DIMS]; /* of all batches */
    /* How long requests were in flight so far. Slices of the main thread begin and end, as
     * stretches in flight do, at instants that are read under `lock`: their order is the order in
     * which the two are added up. So what is counted as in flight in a slice is what listeners hear
     * of both, to the tick. */
    struct {
        atomic_flag lock;
        uint64_t now; /* the latest of these instants: two cores' clocks may differ by some ticks */
        long outstanding;
        uint64_t since; /* when outstanding last rose from 0 */
        uint64_t total; /* ticks of the closed stretches */
    } flight;
};

static gw_ledger of_process = {.flight.lock = ATOMIC_FLAG_INIT};
static gw_ledger *led = &of_process;

/* Tell all sinks that listen to `event`. */
#define TELL(event, ...)                                                                           \
    do {                                                                                           \
        for (int i_ = 0; i_ < led->n_sinks; i_++)                                                  \
            if (led->sinks[i_]->event)                                                             \
                led->sinks[i_]->event(__VA_ARGS__);                                                \
    } while (0)

static _Thread_local bool is_main;

static void ledger_lock(atomic_flag *lock) {
    while (atomic_flag_test_and_set_explicit(lock, memory_order_acquire))
        sched_yield();
}

static void ledger_unlock(atomic_flag *lock) {
    atomic_flag_clear_explicit(lock, memory_order_release);
}

/* Serializes calls of listeners from different threads. */
static atomic_flag telling = ATOMIC_FLAG_INIT;

/* The caller holds the lock. */
static uint64_t ledger_flight_now(void) {
    uint64_t now = gw_clock_ticks();
    led->flight.now = now > led->flight.now ? now : led->flight.now;
    return led->flight.now;
}

void gw_ledger_posted(int requests) {
    if (requests <= 0 || !gw_probe_hooks.enter)
        return;
    ledger_lock(&led->flight.lock);
    if (led->flight.outstanding == 0)
        led->flight.since = ledger_flight_now();
    led->flight.outstanding += requests;
    ledger_unlock(&led->flight.lock);
}

void gw_ledger_completed(int requests) {
    if (requests <= 0 || !gw_probe_hooks.enter)
        return;
    ledger_lock(&led->flight.lock);
    long open = led->flight.outstanding;
    /* A request posted by a call that is not interposed can be seen complete here. */
    led->flight.outstanding = open > requests ? open - requests : 0;
    if (open > 0 && led->flight.outstanding == 0) {
        uint64_t now = ledger_flight_now();
        led->flight.total += now - led->flight.since;
        ledger_lock(&telling);
        TELL(flight, led->flight.since, now);
        ledger_unlock(&telling);
    }
    ledger_unlock(&led->flight.lock);
}

/* A slice ends, and the next begins; return the ticks of it in which a request was in flight. */
static uint64_t ledger_cut(void) {
    uint64_t before = led->flown;
    ledger_lock(&led->flight.lock);
    led->mark = ledger_flight_now();
    led->flown =
        led->flight.total + (led->flight.outstanding > 0 ? led->mark - led->flight.since : 0);
    ledger_unlock(&led->flight.lock);
    return led->flown - before;
}

/* Charge the slice that ends now to the innermost region; return the instant. */
static uint64_t ledger_charge(void) {
    gw_phase phase = led->stack[led->depth];
    uint64_t start = led->mark, flown = ledger_cut(), ticks = led->mark - start;
    led->of.ticks[phase] += ticks;
    _Static_assert(GW_PHASE_MPI_WAIT - GW_PHASE_ENCODE == 4, "encode, decode, post, poll, wait");
    if (phase >= GW_PHASE_ENCODE && phase <= GW_PHASE_MPI_WAIT)
        led->of.dim_ticks[gw_probe_dim] += ticks;
    if (gw_phase_computes(phase))
        led->of.inflight += flown;
    if (ticks > 0)
        TELL(slice, phase, start, led->mark);
    return led->mark;
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

static void ledger_enter(gw_phase phase) {
    if (!is_main) {
        if (aside.depth++ > 0)
            return;
        aside.phase = phase;
        if (ledger_codes(phase)) /* only then somebody is told */
            aside.start = gw_clock_ticks();
        return;
    }
    if (!gw_ledger_counting())
        return;
    assert(led->depth + 1 < DEPTH && "regions nest too deep: one is never left");
    /* Whoever waits may do so by polling: it is waiting all the same. */
    if (phase == GW_PHASE_MPI_POLL && led->stack[led->depth] == GW_PHASE_MPI_WAIT)
        phase = GW_PHASE_MPI_WAIT;
    TELL(edge, led->stack[led->depth], phase);
    ledger_charge();
    led->stack[++led->depth] = phase;
    gw_present_phase((int)phase);
    led->of.regions++;
}

static void ledger_leave(void) {
    if (!is_main) {
        if (aside.depth == 0) /* the probe was not there yet when it was entered */
            return;
        if (--aside.depth > 0 || !ledger_codes(aside.phase) || led->n_sinks == 0)
            return;
        uint64_t now = gw_clock_ticks();
        ledger_lock(&telling);
        TELL(aside, aside.phase, aside.start, now);
        ledger_unlock(&telling);
        return;
    }
    if (!gw_ledger_counting())
        return;
    assert(led->depth > 0 && "a region is left that was not entered in this batch");
    ledger_charge();
    led->depth--;
    gw_present_phase((int)led->stack[led->depth]);
    TELL(edge, led->stack[led->depth + 1], led->stack[led->depth]);
}

/* A part is no slice: two readings of the clock, and the phase goes on. */
static void ledger_part(gw_part which, int begins) {
    if (!is_main || !gw_ledger_counting())
        return;
    uint64_t now = gw_clock_ticks();
    if (begins)
        led->part_since = now;
    else
        led->of.part[which] += now > led->part_since ? now - led->part_since : 0;
}

static void ledger_turns(int dim) {
    (void)dim; /* what came before was for the other one */
    if (is_main && gw_ledger_counting())
        ledger_charge();
}

static void ledger_posted(int sends, size_t bytes) {
    gw_ledger_posted(1);
    if (sends)
        gw_ledger_count(bytes, 1, 0);
}

static void ledger_completed(void) {
    gw_ledger_completed(1);
}

static void ledger_coded(gw_coding kind, size_t floats) {
    if (is_main && gw_ledger_counting())
        led->of.coded[kind] += floats;
}

/* Exchanges end on whichever thread sees it. */
static void ledger_exchange(gw_exchange_event event, const gw_exchange *x) {
    if (led->n_sinks == 0)
        return;
    bool blocks = event == GW_EXCHANGE_BLOCK || event == GW_EXCHANGE_UNBLOCK;
    bool cuts = blocks && is_main && gw_ledger_counting();
    uint64_t now = cuts ? ledger_charge() : gw_clock_ticks();
    ledger_lock(&telling);
    TELL(exchange, event, x, now);
    ledger_unlock(&telling);
}

static void ledger_action(const gw_action *a, int begins) {
    if (!is_main || !gw_ledger_counting() || led->n_sinks == 0)
        return;
    uint64_t now = gw_clock_ticks();
    if (begins)
        led->action_since = now;
    else
        TELL(action, a, led->action_since, now > led->action_since ? now : led->action_since);
}

gw_err gw_ledger_new(gw_ledger **out) {
    return gw_alloc(out, 1, sizeof **out);
}

void gw_ledger_use(gw_ledger *l) {
    led->dim = gw_probe_dim;
    led = l ? l : &of_process;
    gw_probe_dim = led->dim;
}

void gw_ledger_start(void) {
    gw_clock_start();
    is_main = true;
    gw_present_start();
    gw_usage_start();
    atomic_store(&led->running, false);
    led->flown = 0;
    led->flight.now = 0; /* A virtual clock starts below the real one that ran before it. */
    memset(&led->of, 0, sizeof led->of);
    led->n_sinks = led->depth = 0;
    for (int d = 0; d < GW_EXCHANGE_DIMS; d++) {
        atomic_store(&led->run_collectives[d], 0);
        atomic_store(&led->run_modelled[d], 0);
    }
    gw_ledger_set_profile(GW_PROFILE_FULL);
    led->zero = gw_clock_ticks();
}

/* The zero may come to lie before the clock's own: what counts are differences, modulo 2^64. */
void gw_ledger_resume(double s) {
    led->zero -= (uint64_t)(s / gw_clock_seconds(1));
}

void gw_ledger_set_profile(gw_profile profile) {
    static const gw_probe none = {0};
    gw_probe hooks = {.enter = ledger_enter,
                      .leave = ledger_leave,
                      .exchange = ledger_exchange,
                      .turns = ledger_turns,
                      .posted = ledger_posted,
                      .completed = ledger_completed,
                      .action = ledger_action};
    if (profile == GW_PROFILE_FULL) {
        hooks.part = ledger_part;
        hooks.coded = ledger_coded;
    }
    assert(!gw_ledger_counting() && "the profile is switched inside a batch");
    led->profile = profile;
    led->before = gw_ledger_totals();
    ledger_lock(&led->flight.lock);
    led->flight.outstanding = 0;
    ledger_unlock(&led->flight.lock);
    gw_probe_hooks = profile == GW_PROFILE_OFF ? none : hooks;
}

gw_profile gw_ledger_profile(void) {
    return led->profile;
}

/* What the profile leaves out is NaN. */
static void ledger_end_parts(gw_batch_cost *cost) {
    bool full = led->profile == GW_PROFILE_FULL;
    for (int p = 0; p < GW_PARTS; p++)
        cost->part_s[p] = full ? gw_clock_seconds(led->of.part[p]) : NAN;
    for (int k = 0; k < GW_CODINGS; k++)
        cost->coded[k] = full ? (double)led->of.coded[k] : NAN;
}

/* Nothing but the wall time. */
static void ledger_end_unmeasured(gw_batch_cost *cost) {
    double wall = gw_clock_seconds(gw_clock_ticks() - led->begin);
    *cost = (gw_batch_cost){.start_s = gw_clock_seconds(led->begin - led->zero),
                            .start_ticks = led->begin,
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
    if (led->profile == GW_PROFILE_OFF) {
        led->begin = gw_clock_ticks();
        return;
    }
    assert(is_main && !gw_ledger_counting() && "a batch is open already");
    memset(&led->of, 0, sizeof led->of);
    led->depth = 0;
    led->stack[0] = GW_PHASE_OTHER;
    gw_usage_begin(gw_clock_ticks());
    ledger_cut();
    led->begin = led->mark;
    gw_present_phase(GW_PHASE_OTHER);
    atomic_store(&led->running, true);
}

void gw_ledger_end(gw_batch_cost *cost) {
    if (led->profile == GW_PROFILE_OFF) {
        ledger_end_unmeasured(cost);
        return;
    }
    assert(is_main && gw_ledger_counting() && "no batch is open");
    assert(led->depth == 0 && "a region is still open at the end of the batch");
    uint64_t end = ledger_charge();
    atomic_store(&led->running, false);
    gw_present_phase(-1);
    gw_batch_cost c = {.start_s = gw_clock_seconds(led->begin - led->zero),
                       .start_ticks = led->begin,
                       .wall_s = gw_clock_seconds(end - led->begin)};
    gw_usage use = {.nivcsw = -1, .minflt = -1, .cpu_s = NAN}; /* of a process: not a rank's */
    if (!gw_clock_is_virtual())
        use = gw_usage_end(end);
    c.nivcsw = use.nivcsw;
    c.minflt = use.minflt;
    c.cpu_s = use.cpu_s;
    for (int p = 0; p < GW_PHASES; p++)
        c.phase_s[p] = gw_clock_seconds(led->of.ticks[p]);
    ledger_end_parts(&c);
    c.inflight_s = gw_clock_seconds(led->of.inflight);
    gw_ledger_sums now = gw_ledger_totals();
    c.wire_bytes = now.wire_bytes - led->before.wire_bytes;
    c.messages = now.messages - led->before.messages;
    c.collectives = now.collectives - led->before.collectives;
    led->before = now;
    /* Other threads exchange gradients alone: what is left is along the data dimension. */
    uint64_t bytes = c.wire_bytes, messages = c.messages;
    for (int d = GW_EXCHANGE_DIMS - 1; d >= 0; d--) {
        c.dim[d] = (gw_dim_cost){gw_clock_seconds(led->of.dim_ticks[d]),
                                 d == 0 ? bytes : led->of.dim_bytes[d],
                                 d == 0 ? messages : led->of.dim_messages[d]};
        bytes -= led->of.dim_bytes[d];
        messages -= led->of.dim_messages[d];
    }
    c.regions = led->of.regions;
    atomic_fetch_add(&led->batches_ended, 1);
    TELL(batch, led->begin, end);
    *cost = c;
}

gw_ledger_sums gw_ledger_totals(void) {
    return (gw_ledger_sums){atomic_load(&led->bytes_sent), atomic_load(&led->messages_sent),
                            atomic_load(&led->collectives_called),
                            atomic_load(&led->batches_ended)};
}

bool gw_ledger_counting(void) {
    return atomic_load_explicit(&led->running, memory_order_relaxed);
}

bool gw_ledger_counts(void) {
    return gw_ledger_counting() || !is_main;
}

void gw_ledger_count(uint64_t bytes, unsigned messages, unsigned collectives) {
    if (!gw_ledger_counts())
        return;
    atomic_fetch_add_explicit(&led->bytes_sent, bytes, memory_order_relaxed);
    if (is_main) {
        led->of.dim_bytes[gw_probe_dim] += bytes;
        led->of.dim_messages[gw_probe_dim] += messages;
    }
    if (messages)
        atomic_fetch_add_explicit(&led->messages_sent, messages, memory_order_relaxed);
    if (!collectives)
        return;
    atomic_fetch_add_explicit(&led->collectives_called, collectives, memory_order_relaxed);
    atomic_fetch_add_explicit(&led->run_collectives[gw_probe_dim], collectives,
                              memory_order_relaxed);
    atomic_fetch_add_explicit(&led->run_modelled[gw_probe_dim], bytes, memory_order_relaxed);
}

void gw_ledger_collectives(int dim, uint64_t *calls, uint64_t *bytes) {
    *calls = atomic_load(&led->run_collectives[dim]);
    *bytes = atomic_load(&led->run_modelled[dim]);
}

double gw_ledger_now(void) {
    return gw_clock_seconds(gw_clock_ticks() - led->zero);
}

uint64_t gw_ledger_zero(void) {
    return led->zero;
}

double gw_ledger_region_cost(void) {
    int sinks = led->n_sinks;
    led->n_sinks = 0; /* the trace must not fill with this */
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
    led->n_sinks = sinks;
    return least;
}

/* Where `sink` is, or would be; locks. */
static int ledger_listening(const gw_ledger_sink *sink) {
    assert(!gw_ledger_counting() && "listeners change inside a batch");
    ledger_lock(&telling);
    int i = 0;
    while (i < led->n_sinks && led->sinks[i] != sink)
        i++;
    return i;
}

void gw_ledger_listen(const gw_ledger_sink *sink) {
    int i = ledger_listening(sink);
    assert(i < GW_LEDGER_SINKS && "too many listen to the ledger");
    led->sinks[i] = sink;
    led->n_sinks += i == led->n_sinks;
    ledger_unlock(&telling);
}

void gw_ledger_unlisten(const gw_ledger_sink *sink) {
    int i = ledger_listening(sink);
    if (i < led->n_sinks)
        led->sinks[i] = led->sinks[--led->n_sinks];
    ledger_unlock(&telling);
}
