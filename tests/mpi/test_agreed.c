/* int8sum over algo=native: the ranks agree on the scales, then MPI adds int8 codes. Blocking and
 * overlapped sums are compared with sums in double precision, and the bytes with the formula. With
 * error feedback the residuals of the ranks hold what the sums lack. */
#include "base/mem.h"
#include "base/rng.h"
#include "comm/algo.h"
#include "comm/lane.h"
#include "mpi/wait.h"
#include "prof/clock.h"
#include "prof/ledger.h"

#include "../specs.h"
#include "check.h"

#include <math.h>
#include <sched.h>
#include <string.h>

enum { BUCKET = 512, SPANS = 3, N = 5000, BAD = 3333 };

static int me, ranks;

static const gw_span spans[SPANS] = {{0, 1}, {1, 1500}, {1501, N - 1501}};

static gw_codec codec;
static gw_algo native;
static gw_lane *lane;
static float base[N];
static gw_schedule *schedules[SPANS];

static float value(int rank, uint64_t step, size_t i) {
    uint64_t key = gw_rng_key(gw_rng_key(21, (uint64_t)rank), step);
    float scale = (float)(1 + i / 300 % 5) * (float)(1 + 3 * rank);
    return i % 7 == 0 ? 0.0f : scale * (float)(gw_rng_unit(key, i) - 0.5);
}

static void fill(uint64_t step, bool bad) {
    gw_lane_begin_at(lane, step);
    for (size_t i = 0; i < N; i++)
        base[i] = value(me, step, i);
    if (bad && me == ranks - 1)
        base[BAD] = NAN;
}

static void open_all(bool feedback) {
    CHECK_OK(open_codec(&codec, "int8sum"));
    CHECK_OK(open_algo(&native, "native", &codec));
    gw_lane_setup setup = {.codec = &codec, .n = N, .feedback = feedback, .seed = 5, .yield = true};
    CHECK_OK(gw_lane_open(&lane, MPI_COMM_WORLD, &setup));
    for (int s = 0; s < SPANS; s++) {
        CHECK_OK(gw_schedule_new(&schedules[s], lane, base, spans[s]));
        CHECK_OK(gw_algo_lay_down(&native, schedules[s], GW_ALLREDUCE, 0));
    }
}

static void close_all(void) {
    for (int s = 0; s < SPANS; s++)
        gw_schedule_free(schedules[s]);
    gw_lane_close(lane);
    gw_algo_close(&native);
    gw_codec_close(&codec);
}

/* All exchanges at once. Each rank polls them in its own order, so that the second collective of
 * one begins before that of another on some ranks, and after it on others. */
static void overlapped(void) {
    for (int s = 0; s < SPANS; s++)
        CHECK_OK(gw_schedule_start(schedules[s]));
    bool done[SPANS] = {0};
    for (int left = SPANS; left > 0;)
        for (int k = 0; k < SPANS; k++) {
            int s = (k * (me % 2 ? SPANS - 1 : 1) + me) % SPANS;
            bool before = done[s];
            CHECK_OK(gw_schedule_test(schedules[s], &done[s]));
            left -= done[s] && !before;
            sched_yield();
        }
}

static void blocking(void) {
    for (int s = 0; s < SPANS; s++)
        CHECK_OK(gw_schedule_run(schedules[s]));
}

/* The largest float of the bucket over all ranks. It is cached: the next element is usually in the
 * same bucket. */
static double top_of(uint64_t step, gw_span span, size_t i) {
    static uint64_t kept_step;
    static size_t kept_lo;
    static double top;
    size_t lo = span.off + (i - span.off) / BUCKET * BUCKET;
    if (kept_step == step && kept_lo == lo)
        return top;
    kept_step = step;
    kept_lo = lo;
    top = 0;
    for (size_t k = lo; k < lo + BUCKET && k < gw_span_end(span); k++)
        for (int r = 0; r < ranks; r++)
            top = fmax(top, fabsf(value(r, step, k)));
    return top;
}

static bool spoilt(gw_span span, size_t i) {
    return (i - span.off) / BUCKET == (BAD - span.off) / BUCKET;
}

static void judge(uint64_t step, bool bad) {
    for (int s = 0; s < SPANS; s++)
        for (size_t i = spans[s].off; i < gw_span_end(spans[s]); i++) {
            double want = 0, most = ranks * top_of(step, spans[s], i) / (127 / ranks) * (1 + 1e-5);
            for (int r = 0; r < ranks; r++)
                want += value(r, step, i);
            if (ranks == 1)
                most = 0; /* sends nothing, loses nothing */
            if (bad && s == SPANS - 1 && ranks > 1 && spoilt(spans[s], i))
                CHECK(isnan(base[i]), "element %zu: %g, a rank has a NaN in its bucket", i,
                      base[i]);
            else if (!bad || ranks > 1)
                CHECK(fabs(base[i] - want) <= most, "element %zu: %g, not %g within %g", i, base[i],
                      want, most);
        }
}

static void same_everywhere(void) {
    static float first[N];
    memcpy(first, base, sizeof first);
    CHECK_MPI(MPI_Bcast(first, N, MPI_FLOAT, 0, MPI_COMM_WORLD));
    CHECK(memcmp(first, base, sizeof first) == 0, "ranks differ");
}

static void check_bytes(const gw_batch_cost *c) {
    uint64_t sent = c->wire_bytes, want = 0, exact = 0;
    for (int s = 0; s < SPANS; s++) {
        size_t scales = (spans[s].n + BUCKET - 1) / BUCKET;
        exact += 2 * (uint64_t)(ranks - 1) * (spans[s].n + 4 * scales);
        want += gw_algo_cost(&native, lane, GW_ALLREDUCE, spans[s].n).bytes;
    }
    CHECK_OK(gw_allreduce(MPI_IN_PLACE, &sent, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD));
    CHECK(want == exact, "the formula says %llu bytes, not %llu", (unsigned long long)want,
          (unsigned long long)exact);
    /* The ledger charges each rank a whole number of bytes a collective. */
    CHECK(sent <= want && sent + 2 * SPANS * (uint64_t)ranks >= want,
          "%llu bytes on the wire, the formula says %llu", (unsigned long long)sent,
          (unsigned long long)want);
}

static void run(void (*exchange)(void), uint64_t step, bool bad, float *result) {
    gw_batch_cost cost;
    fill(step, bad);
    gw_ledger_begin();
    exchange();
    gw_ledger_end(&cost);
    judge(step, bad);
    same_everywhere();
    check_bytes(&cost);
    memcpy(result, base, sizeof base);
}

/* Over all steps, the received sums plus the residuals of all ranks equal the gradients. */
static void nothing_is_lost(void) {
    enum { STEPS = 10 };
    static double arrived[N], in[N], left[N];
    double most = STEPS * ranks * 5.0 * (1 + 3 * ranks) * 0x1p-22, held = 0;
    for (uint64_t step = 1; step <= STEPS; step++) {
        fill(step, false);
        if (step % 2)
            blocking();
        else
            overlapped();
        same_everywhere();
        for (size_t i = 0; i < N; i++) {
            arrived[i] += base[i];
            for (int r = 0; r < ranks; r++)
                in[i] += value(r, step, i);
        }
    }
    for (size_t i = 0; i < N; i++)
        left[i] = gw_lane_encoder(lane)->residual[i];
    CHECK_MPI(MPI_Allreduce(MPI_IN_PLACE, left, N, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD));
    for (size_t i = 0; i < N; i++) {
        held = fmax(held, fabs(left[i]));
        CHECK(fabs(arrived[i] + left[i] - in[i]) <= most,
              "element %zu: of %g came %g, and %g is left, not within %g", i, in[i], arrived[i],
              left[i], most);
    }
    CHECK((held > 10 * most) == (ranks > 1), "the residuals hold up to %g", held);
}

int main(int argc, char **argv) {
    enum { STEPS = 20 };
    static float one[N], other[N];
    int level;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    ranks = check_ranks(argc, argv);
    gw_wait_yields(true);
    gw_clock_start();
    gw_ledger_start();
    open_all(false);
    for (uint64_t step = 1; step <= STEPS; step++) {
        bool bad = step % 5 == 0;
        run(blocking, step, bad, one);
        run(overlapped, step, bad, other);
        CHECK(memcmp(one, other, sizeof one) == 0, "overlapped and blocking differ");
    }
    close_all();
    open_all(true);
    nothing_is_lost();
    close_all();
    MPI_Finalize();
    return 0;
}
