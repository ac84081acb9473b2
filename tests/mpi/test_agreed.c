/* int8sum over algo=native: the ranks agree on the scales, then MPI adds int8 codes. Blocking and
 * overlapped sums are compared with sums in double precision, and the bytes with the formula. With
 * error feedback the residuals of the ranks hold what the sums lack. */
#include "base/mem.h"
#include "base/rng.h"
#include "mpi/wait.h"

#include "lane_rig.h"

#include <math.h>
#include <sched.h>
#include <string.h>

enum { BUCKET = 512, SPANS = 3, N = 5000, BAD = 3333 };

static const gw_span spans[SPANS] = {{0, 1}, {1, 1500}, {1501, N - 1501}};

static rig native;
static gw_schedule *schedules[SPANS];

static float value(int rank, uint64_t step, size_t i) {
    uint64_t key = gw_rng_key(gw_rng_key(21, (uint64_t)rank), step);
    float scale = (float)(1 + i / 300 % 5) * (float)(1 + 3 * rank);
    return i % 7 == 0 ? 0.0f : scale * (float)(gw_rng_unit(key, i) - 0.5);
}

static void fill(uint64_t step, bool bad) {
    gw_lane_begin_at(native.lane, step);
    for (size_t i = 0; i < N; i++)
        native.base[i] = value(me, step, i);
    if (bad && me == ranks - 1)
        native.base[BAD] = NAN;
}

static void open_all(bool feedback) {
    rig_open(&native, "native", "int8sum", N, feedback);
    for (int s = 0; s < SPANS; s++)
        schedules[s] = rig_sum(&native, spans[s]);
}

static void close_all(void) {
    for (int s = 0; s < SPANS; s++)
        gw_schedule_free(schedules[s]);
    rig_close(&native);
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
                CHECK(isnan(native.base[i]), "element %zu: %g, a rank has a NaN in its bucket", i,
                      native.base[i]);
            else if (!bad || ranks > 1)
                CHECK(fabs(native.base[i] - want) <= most, "element %zu: %g, not %g within %g", i,
                      native.base[i], want, most);
        }
}

static void check_bytes(const gw_batch_cost *c) {
    gw_cost want = {0};
    uint64_t exact = 0;
    for (int s = 0; s < SPANS; s++) {
        size_t scales = (spans[s].n + BUCKET - 1) / BUCKET;
        exact += 2 * (uint64_t)(ranks - 1) * (spans[s].n + 4 * scales);
        want = gw_cost_sum(want, gw_algo_cost(&native.algo, native.lane, GW_ALLREDUCE, spans[s].n));
    }
    CHECK(want.bytes == exact, "the formula says %llu bytes, not %llu",
          (unsigned long long)want.bytes, (unsigned long long)exact);
    check_charges("int8sum", c, want);
}

static void run(void (*exchange)(void), uint64_t step, bool bad, float *result) {
    gw_batch_cost cost;
    fill(step, bad);
    gw_ledger_begin();
    exchange();
    gw_ledger_end(&cost);
    judge(step, bad);
    CHECK(same_on_all(native.base, N * sizeof(float)), "ranks differ");
    check_bytes(&cost);
    memcpy(result, native.base, N * sizeof *result);
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
        CHECK(same_on_all(native.base, N * sizeof(float)), "ranks differ");
        for (size_t i = 0; i < N; i++) {
            arrived[i] += native.base[i];
            for (int r = 0; r < ranks; r++)
                in[i] += value(r, step, i);
        }
    }
    for (size_t i = 0; i < N; i++)
        left[i] = gw_lane_encoder(native.lane)->residual[i];
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
    check_start(argc, argv);
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
