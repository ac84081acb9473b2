/* Memory that a node's ranks share, and what works on it: twins, sums, lent gradients. */
#include "base/mem.h"
#include "base/norm.h"
#include "comm/channel.h"
#include "comm/lent.h"
#include "comm/schedule/collective.h"
#include "comm/schedule/crew.h"
#include "comm/sum.h"
#include "mpi/wait.h"

#include "../mpi/lane_rig.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- gw_shared ---- */

static void check_twins(const gw_shared *m, const unsigned *mine, size_t n, unsigned salt) {
    for (int r = 0; r < ranks; r++) {
        const unsigned *twin = gw_shared_twin(m, mine, r);
        CHECK(twin, "no twin of rank %d", r);
        CHECK((r == me) == (twin == mine), "twin of rank %d", r);
        CHECK(twin[0] == salt + (unsigned)r && twin[n - 1] == 2 * salt + (unsigned)r,
              "rank %d's memory holds %u, %u", r, twin[0], twin[n - 1]);
        CHECK(gw_shared_twin(m, mine + n / 2, r) == twin + n / 2, "inside an allocation");
    }
}

/* Small allocations, then one larger than any window, then a small one again: all stay valid. */
static void twins_and_growth(void) {
    static const size_t sizes[] = {1, 100, 1000000, 17};
    enum { COUNT = sizeof sizes / sizeof *sizes };
    unsigned *mine[COUNT];
    gw_shared *m = NULL;
    CHECK_OK(gw_shared_open(&m, MPI_COMM_WORLD));
    CHECK(gw_shared_size(m) == ranks && gw_shared_rank(m) == me, "all ranks are on this node");
    for (unsigned i = 0; i < COUNT; i++) {
        void *fresh;
        CHECK_OK(gw_shared_alloc(m, sizes[i] * sizeof(unsigned), &fresh));
        mine[i] = fresh;
        CHECK((size_t)fresh % 64 == 0, "aligned to a cache line");
        for (size_t k = 0; k < sizes[i]; k++)
            CHECK(mine[i][k] == 0, "zeroed");
        mine[i][sizes[i] - 1] = 200 * (i + 1) + (unsigned)me;
        mine[i][0] = sizes[i] > 1 ? 100 * (i + 1) + (unsigned)me : mine[i][0];
    }
    CHECK_OK(gw_barrier(MPI_COMM_WORLD));
    for (unsigned i = 1; i < COUNT; i++)
        check_twins(m, mine[i], sizes[i], 100 * (i + 1));
    CHECK(!gw_shared_twin(m, &ranks, 0), "a variable of this rank has no twin");
    CHECK_OK(gw_barrier(MPI_COMM_WORLD));
    gw_shared_close(m);
}

/* ---- a crew's counts: nobody passes a meeting before all are there ---- */

static void meetings(void) {
    enum { ROUNDS = 300 };
    gw_shared *m = NULL;
    gw_crew *c = NULL;
    void *mine;
    CHECK_OK(gw_shared_open(&m, MPI_COMM_WORLD));
    CHECK_OK(gw_shared_alloc(m, sizeof(int), &mine));
    CHECK_OK(gw_crew_new(&c, m, 0, ranks));
    for (int k = 1; k <= ROUNDS; k++) {
        bool done = false;
        if (k % 2) /* one round writes, the next reads */
            *(int *)mine = k;
        for (int r = 0; r < ranks && k % 2 == 0; r++)
            CHECK(*(int *)gw_crew_twin(c, mine, r) == k - 1, "round %d: rank %d is late", k, r);
        CHECK_OK(gw_crew_signal(c));
        while (!done) {
            CHECK_OK(gw_crew_all(c, &done));
            if (!done)
                sched_yield();
        }
    }
    free(c);
    CHECK_OK(gw_barrier(MPI_COMM_WORLD));
    gw_shared_close(m);
}

/* ---- sums ---- */

static void parts_tile(void) {
    for (size_t n = 0; n < 200; n++)
        for (int parts = 1; parts < 6; parts++) {
            gw_span s = {37, n};
            size_t at = s.off;
            for (int i = 0; i < parts; i++) {
                gw_span part = gw_sum_part(s, i, parts);
                CHECK(part.off == at, "n=%zu, part %d of %d", n, i, parts);
                CHECK(i == 0 || part.n == 0 || part.off % 16 == 0, "cut inside a line");
                at = gw_span_end(part);
            }
            CHECK(at == gw_span_end(s), "n=%zu in %d parts", n, parts);
        }
}

static void sums_of_rows(void) {
    enum { N = 5000 };
    static float data[4][N], copy[4][N];
    static const float weights[] = {0.3f, 1, 0.7f, 2}, ones[] = {1, 1, 1, 1};
    uint32_t most[4];
    for (int rows = 1; rows <= 4; rows++)
        for (int way = 0; way < 4; way++) {
            bool one = way & 1;
            const float *w = way & 2 ? weights : ones;
            float *row[4], want;
            for (int r = 0; r < 4; r++) {
                row[r] = data[r];
                for (int i = 0; i < N; i++)
                    data[r][i] = copy[r][i] = (float)(i % 97) * 0.37f - (float)(r * 11);
                copy[r][N / 2] = data[r][N / 2] = (float)(r * way) * 1e3f;
            }
            gw_sum_rows(row, way & 2 ? w : NULL, rows, one ? row + rows - 1 : row, one ? 1 : rows,
                        N - 1, way & 2 ? most : NULL);
            for (int r = 0; r < rows && way & 2; r++)
                CHECK(most[r] == gw_norm_greatest(copy[r], N - 1), "rows=%d row %d", rows, r);
            for (int r = 0; r < 4; r++)
                for (int i = 0; i < N; i++) {
                    want = copy[0][i] * w[0];
                    for (int k = 1; k < rows; k++)
                        want += copy[k][i] * w[k];
                    bool summed = i < N - 1 && r < rows && (!one || r == rows - 1);
                    CHECK(data[r][i] == (summed ? want : copy[r][i]), "rows=%d row %d[%d]", rows, r,
                          i);
                }
        }
}

/* ---- collectives over shared memory ---- */

static float value(int rank, size_t i) {
    return (float)((int)(i * 7 + (size_t)rank * 13) % 101) -
           50.0f; /* sums are exact in any order */
}

enum { MOST = 20000, SKIP = 3 /* spans that do not start on a cache line */ };

/* The collective several times over n floats; the last result is out[0..n). */
static void collect(rig *r, gw_verb what, size_t n, float *out) {
    enum { STEPS = 3 };
    gw_collective c = {
        .algo = &r->algo, .lane = r->lane, .base = r->base, .verb = what, .root = ranks - 1};
    for (int k = 0; k < STEPS; k++) {
        gw_lane_begin(r->lane);
        for (size_t i = 0; i < n; i++)
            r->base[SKIP + i] = value(me, i);
        r->base[0] = 12345;
        CHECK_OK(gw_collective_run(&c, (gw_span){SKIP, n}));
        CHECK(r->base[0] == 12345, "%s writes outside its span", r->algo.ops->head.name);
    }
    memcpy(out, r->base + SKIP, n * sizeof *out);
    gw_collective_clear(&c);
}

static double sum_of(size_t i) {
    double sum = 0;
    for (int r = 0; r < ranks; r++)
        sum += value(r, i);
    return sum;
}

/* shm with a codec gives the same bits as sra, error feedback included. */
static void same_as_sra(const char *compress) {
    static const size_t sizes[] = {1, 2, 5, 1003};
    static float a[1003], b[1003];
    rig sra, shm;
    rig_open(&sra, "sra", compress, MOST + SKIP, true);
    rig_open(&shm, "shm", compress, MOST + SKIP, true);
    for (int what = GW_ALLREDUCE; what <= GW_ALLGATHER; what++)
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
            size_t n = sizes[k];
            collect(&sra, (gw_verb)what, n, a);
            collect(&shm, (gw_verb)what, n, b);
            gw_span part = {0, n};
            if (what == GW_REDUCE_SCATTER)
                part = gw_span_part(part, me, ranks);
            if (what == GW_REDUCE && me != ranks - 1)
                part.n = 0;
            CHECK(memcmp(a + part.off, b + part.off, part.n * sizeof *a) == 0, "%s, verb %d, n=%zu",
                  compress, what, n);
        }
    rig_close(&sra);
    rig_close(&shm);
}

/* ---- memory that is lent ---- */

static const gw_tensor tensors[] = {{{0, 40}, 0, 1, 40},
                                    {{40, 1500}, 0, 1, 1500},
                                    {{1540, MOST + SKIP - 1540}, 0, 1, MOST + SKIP - 1540}};
enum { TENSORS = sizeof tensors / sizeof *tensors };

/* What all ranks lend, as many bytes each. */
static float *lend(gw_lent *l, int *file) {
    size_t bytes = (MOST + SKIP) * sizeof(float);
    *file = memfd_create("lent", 0);
    CHECK(*file >= 0 && ftruncate(*file, (off_t)bytes) == 0, "memory to lend");
    float *mine = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, *file, 0);
    CHECK(mine != MAP_FAILED, "memory to lend");
    CHECK(gw_lent_add(l, mine, bytes, me == ranks - 1 ? -1 : *file) == GW_ERR_UNSUPPORTED,
          "a rank lends nothing");
    CHECK(gw_lent_add(l, mine + 1024, bytes - 4096, *file) == GW_ERR_UNSUPPORTED,
          "not from the file's beginning");
    CHECK(gw_lent_add(l, mine, bytes + (1 << 20), *file) == GW_ERR_UNSUPPORTED, "too long");
    CHECK_OK(gw_lent_add(l, mine, bytes, *file));
    CHECK(!gw_lent_put(l, 1, mine + SKIP + MOST - 5, 1), "ends behind what is lent");
    return mine;
}

/* Some tensors stay in the arena: others than the neighbour's. */
static float *place(const rig *r, float *lent, int t, float weight) {
    float *at = (t + me) % 2 ? lent + tensors[t].span.off : NULL;
    CHECK(gw_lent_put(gw_lane_channel(r->lane)->lent, t, at, weight) == (at != NULL), "tensor %d",
          t);
    return at ? lent : r->base;
}

/* A sum of what lies there times its weight, or a copy of it, is that of the arenas. */
static void from_lent(rig *r, gw_verb what, gw_span s, float *lent) {
    gw_collective c = {
        .algo = &r->algo, .lane = r->lane, .base = r->base, .verb = what, .root = ranks - 1};
    bool sums = what != GW_BCAST && what != GW_ALLGATHER;
    float *base[TENSORS];
    gw_span own = what == GW_REDUCE_SCATTER ? gw_span_part(s, me, ranks) : s;
    if (what == GW_REDUCE && me != ranks - 1)
        own.n = 0;
    for (int t = 0; t < TENSORS; t++) {
        base[t] = place(r, lent, t, 0.25f);
        for (size_t i = tensors[t].span.off; i < gw_span_end(tensors[t].span); i++)
            base[t][i] = value(me, i) * (sums && base[t] == lent ? 4 : 1);
    }
    CHECK_OK(gw_collective_run(&c, s));
    for (int t = 0; t < TENSORS; t++) {
        gw_span part = gw_span_common(tensors[t].span, own);
        for (size_t i = part.off; i < gw_span_end(part); i++) {
            int from = what == GW_BCAST ? ranks - 1 : 0;
            while (what == GW_ALLGATHER && i >= gw_span_end(gw_span_part(s, from, ranks)))
                from++;
            double want = sums ? sum_of(i) : (double)value(from, i);
            CHECK((double)base[t][i] == want, "verb %d: %zu: %g", what, i, (double)base[t][i]);
        }
    }
    gw_collective_clear(&c);
}

static void lent_memory(void) {
    static const gw_span spans[] = {{0, MOST + SKIP}, {SKIP, 30}, {39, 2}, {17, 1600}};
    int file;
    rig r;
    rig_open(&r, "shm", "none", MOST + SKIP, true);
    CHECK_OK(gw_lent_open(&gw_lane_channel(r.lane)->lent, gw_lane_channel(r.lane)->shared, r.base,
                          tensors, TENSORS));
    float *lent = lend(gw_lane_channel(r.lane)->lent, &file);
    for (int what = GW_ALLREDUCE; what <= GW_ALLGATHER; what++)
        for (size_t k = 0; k < sizeof spans / sizeof *spans; k++)
            from_lent(&r, (gw_verb)what, spans[k], lent);
    gw_lent_close(gw_lane_channel(r.lane)->lent);
    munmap(lent, (MOST + SKIP) * sizeof *lent);
    close(file);
    rig_close(&r);
}

/* ---- refusals ---- */

static void refused(gw_err e, const char *words) {
    CHECK(e == GW_ERR_UNSUPPORTED, "%d: %s", (int)e, gw_err_text());
    CHECK(strstr(gw_err_text(), words), "'%s' should mention '%s'", gw_err_text(), words);
}

static void refusals(void) {
    gw_codec codec;
    gw_algo algo;
    CHECK_OK(open_codec(&codec, "none"));
    refused(open_algo(&algo, "hier:inner=native", &codec), "different orders");
    refused(open_algo(&algo, "hier:inner=shm", &codec), "shared memory");
    refused(open_algo(&algo, "hier:inner=hier", &codec), "shared memory");
    refused(open_algo(&algo, "hier:inner=nosuch", &codec), "nosuch");
    static const char *const specs[] = {"shm", "hier"};
    static float own[100];
    for (int i = 0; i < 2 && ranks > 1; i++)
        for (int shared = 0; shared < 2; shared++) {
            gw_schedule *s = NULL;
            CHECK_OK(open_algo(&algo, specs[i], &codec));
            gw_lane *lane = NULL;
            gw_lane_setup setup = {.codec = &codec, .n = 100, .yield = true, .shared = shared};
            CHECK_OK(gw_lane_open(&lane, MPI_COMM_WORLD, &setup));
            CHECK_OK(gw_schedule_new(&s, lane, own, (gw_span){0, 100}));
            refused(gw_algo_lay_down(&algo, s, GW_ALLREDUCE, 0),
                    shared ? "gw_lane_floats" : "share no memory");
            gw_schedule_free(s);
            gw_lane_close(lane);
            gw_algo_close(&algo);
        }
    gw_codec_close(&codec);
}

int main(int argc, char **argv) {
    check_start(argc, argv);
    twins_and_growth();
    meetings();
    parts_tile();
    sums_of_rows();
    same_as_sra("none");
    same_as_sra("qsgd");
    if (ranks > 1)
        lent_memory();
    refusals();
    MPI_Finalize();
    return 0;
}
