/* Times of whole exchanges at four sizes, and what lies between the sizes. */
#include "predict/exchange.h"

#include "comm/channel.h"
#include "comm/timing.h"
#include "mpi/agree.h"
#include "predict/codec.h"

#include <math.h>

/* ---- measuring ---- */

static const size_t wanted[] = {1 << 10, 16 << 10, 256 << 10, 4 << 20};

typedef struct probe {
    gw_timed timed;
    gw_curve *curve;
    double *sent;
} probe;

static gw_err exchange_run(void *ctx, int i, double *seconds) {
    (void)i;
    return gw_timed_run(&((probe *)ctx)->timed, seconds);
}

static gw_err exchange_keep(void *ctx, size_t n) {
    probe *p = ctx;
    const gw_timed *t = &p->timed;
    if (!t->schedule)
        return GW_OK;
    p->curve->bytes[p->curve->n] = (double)(n * sizeof(float));
    p->curve->time_s[p->curve->n++] = gw_stats_typical(t->times.x, t->times.n);
    gw_cost cost = gw_algo_cost(t->algo, t->lane, GW_ALLREDUCE, n);
    *p->sent = (double)cost.bytes / (double)gw_lane_size(t->lane) / (double)n;
    return GW_OK;
}

gw_err gw_exchange_measure(const gw_exchange_job *job, const gw_algo *algo, const gw_codec *like,
                           gw_curve *out, double *sent) {
    probe p = {.timed = {.algo = algo}, .curve = out, .sent = sent};
    gw_codec codec;
    gw_lane_setup setup = {.codec = &codec,
                           .apart = !(algo->ops->caps & GW_ALGO_ORDERED),
                           .n = job->n,
                           .feedback = job->feedback,
                           .seed = job->seed,
                           .yield = job->yield,
                           .shared = algo->ops->caps & GW_ALGO_SHARED,
                           .name = "measured"};
    gw_timing timing = {
        .rounds = {.comm = job->comm, .seed = job->seed, .once = exchange_run, .ctx = &p},
        .timed = {&p.timed},
        .n = 1};
    gw_timing_plan plan = {.wanted = wanted,
                           .n_wanted = sizeof wanted / sizeof *wanted,
                           .arena = job->n * sizeof(float),
                           .budget_s = job->budget_s,
                           .least = 3,
                           .most = 51,
                           .hopeless = INFINITY,
                           .end = exchange_keep};
    out->n = 0;
    *sent = 0;
    GW_TRY(gw_agree(job->comm, gw_codec_like(like, &codec)));
    gw_err e = gw_lane_open(&p.timed.lane, job->comm, &setup);
    GW_THEN(e, gw_lane_floats(p.timed.lane, job->n, &p.timed.base));
    if (e == GW_OK && gw_lane_size(p.timed.lane) > 1)
        e = gw_timing_sizes(&timing, &plan);
    gw_timed_close(&p.timed);
    gw_lane_close(p.timed.lane);
    gw_codec_close(&codec);
    return e;
}

/* ---- playing ---- */

static double exchange_seconds(const void *of, size_t floats) {
    return gw_curve_at(of, (double)(floats * sizeof(float)));
}

static gw_err exchange_meet(void *schedule) {
    gw_schedule *s = schedule;
    gw_fabric *f = gw_lane_channel(gw_schedule_lane(s))->fabric;
    return gw_sim_exchange(f, gw_schedule_span(s).n);
}

static gw_err exchange_meet_half(void *schedule) {
    gw_schedule *s = schedule;
    gw_fabric *f = gw_lane_channel(gw_schedule_lane(s))->fabric;
    return gw_sim_exchange(f, (gw_schedule_span(s).n + 1) / 2);
}

/* The message of a float stands for the exchange, where links carry it. */
static gw_err exchange_lay_down(gw_schedule *s, gw_verb what, bool beside) {
    const gw_lane *lane = gw_schedule_lane(s);
    gw_span one = {gw_schedule_span(s).off, 1};
    int out, in, rank = gw_lane_rank(lane), ranks = gw_lane_size(lane);
    if (beside)
        GW_TRY(gw_schedule_recv(s, one, (rank + ranks - 1) % ranks, true, &in));
    GW_TRY(gw_schedule_work(s, what == GW_ALLREDUCE ? exchange_meet : exchange_meet_half, s));
    if (!beside)
        return GW_OK;
    GW_TRY(gw_schedule_pack(s, one, false, &out));
    return gw_schedule_send(s, out, (rank + 1) % ranks);
}

static gw_err exchange_on_cores(const gw_args *args, gw_schedule *s, gw_verb what, int root) {
    (void)args, (void)root;
    return exchange_lay_down(s, what, false);
}

static gw_err exchange_on_links(const gw_args *args, gw_schedule *s, gw_verb what, int root) {
    (void)args, (void)root;
    return exchange_lay_down(s, what, true);
}

static gw_cost exchange_cost(const gw_args *args, gw_lane *lane, gw_verb what, size_t n) {
    (void)args, (void)lane, (void)what, (void)n;
    return (gw_cost){0};
}

gw_algo gw_exchange_play(gw_sim_setup *w, const gw_curve *curve, bool beside) {
    static const gw_algo_ops on[] = {
        {.head = {GW_ALGO_ABI, "measured", "as measured, on the cores", NULL},
         .verbs = ~0u,
         .lay_down = exchange_on_cores,
         .cost = exchange_cost},
        {.head = {GW_ALGO_ABI, "measured", "as measured, on links", NULL},
         .verbs = ~0u,
         .lay_down = exchange_on_links,
         .cost = exchange_cost}};
    w->measured = (gw_sim_measured){exchange_seconds, curve, beside};
    return (gw_algo){.ops = &on[beside]};
}
