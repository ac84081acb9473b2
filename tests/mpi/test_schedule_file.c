/* algo=file against what it must equal. The ring and the halving, written as data, give the bits,
 * residuals and costs of the algorithms themselves, with every kind of codec. So do random valid
 * schedules the sum: exactly, or, with error feedback, all but what the residuals kept. */
#include "base/mem.h"
#include "base/rng.h"
#include "comm/schedule/transfers.h"
#include "mpi/wait.h"

#include "lane_rig.h"

#include <math.h>
#include <string.h>
#include <sys/mman.h>

enum { N = 1003, STEPS = 3, MOST = 1024, RANDOM = 12 };

/* ---- schedules ---- */

typedef struct plan {
    int blocks, n, rounds, fd;
    gw_move x[MOST];
    char path[64];
} plan;

static void move(plan *p, int round, int from, int to, int first, int count, bool add) {
    CHECK(p->n < MOST, "no room for another transfer");
    p->x[p->n++] = (gw_move){round, from, to, first, count, add};
    p->rounds = round >= p->rounds ? round + 1 : p->rounds;
}

static plan ring(void) {
    plan p = {.blocks = ranks};
    for (int hop = 1; hop < ranks; hop++)
        for (int r = 0; r < ranks; r++) {
            move(&p, hop - 1, r, (r + 1) % ranks, (r + ranks - hop) % ranks, 1, true);
            move(&p, ranks + hop, r, (r + 1) % ranks, (r + ranks - hop + 1) % ranks, 1, false);
        }
    return p;
}

static plan halving(void) {
    int core = gw_kit_core(ranks), round = 1;
    plan p = {.blocks = core};
    for (int r = core; r < ranks; r++)
        move(&p, 0, r, r - core, 0, core, true);
    for (int half = core / 2; half > 0; half /= 2, round++)
        for (int r = 0; r < core; r++)
            move(&p, round, r, r ^ half, (r ^ half) & -half, half, true);
    for (int have = 1; have < core; have *= 2, round++)
        for (int r = 0; r < core; r++)
            move(&p, round, r, r ^ have, r & -have, have, false);
    for (int r = core; r < ranks; r++)
        move(&p, round, r - core, r, 0, core, false);
    return p;
}

static int below(uint64_t key, uint64_t *drawn, int n) {
    return (int)(gw_rng_u64(key, (*drawn)++) % (uint64_t)n);
}

/* Of blocks [first, first + count): two random trees, to a random rank and from it. */
static void add_trees(plan *p, uint64_t key, int first, int count) {
    uint64_t drawn = 0;
    int left[16], n = ranks, free_from[16] = {0}; /* the first round in which its sum is at rest */
    for (int i = 0; i < ranks; i++)
        left[i] = i;
    while (n > 1) {
        int i = below(key, &drawn, n), from = left[i];
        left[i] = left[--n];
        int to = left[below(key, &drawn, n)], round = free_from[from] + below(key, &drawn, 2);
        move(p, round, from, to, first, count, true);
        free_from[to] = round >= free_from[to] ? round + 1 : free_from[to];
    }
    int whole[16] = {left[0]}, waiting[16], m = 0;
    for (int i = 0; i < ranks; i++)
        if (i != left[0])
            waiting[m++] = i;
    for (; m > 0; n++) {
        int i = below(key, &drawn, m), to = waiting[i], from = whole[below(key, &drawn, n)];
        waiting[i] = waiting[--m];
        int round = free_from[from] + below(key, &drawn, 2);
        move(p, round, from, to, first, count, false);
        whole[n] = to;
        free_from[to] = round + 1;
    }
}

static plan draw(uint64_t key) {
    plan p = {.blocks = 0};
    uint64_t drawn = 0;
    for (int groups = 1 + below(key, &drawn, 5); groups > 0; groups--) {
        int count = 1 + below(key, &drawn, 3);
        add_trees(&p, gw_rng_key(key, (uint64_t)groups), p.blocks, count);
        p.blocks += count;
    }
    return p;
}

/* In memory, so that nothing is left over. */
static void write_plan(plan *p) {
    p->fd = memfd_create("schedule", 0);
    FILE *to = fdopen(dup(p->fd), "w");
    CHECK(to, "no memory for a file");
    fprintf(to, "{\"gradwire_schedule\":1,\"ranks\":%d,\"blocks\":%d,\"rounds\":[", ranks,
            p->blocks);
    for (int k = 0; k < p->rounds; k++) {
        const char *comma = "";
        fprintf(to, "%s[", k ? "," : "");
        for (const gw_move *x = p->x; x < p->x + p->n; x++)
            if (x->round == k) {
                fprintf(to, "%s{\"from\":%d,\"to\":%d,\"block\":%d,\"count\":%d,\"op\":\"%s\"}",
                        comma, x->from, x->to, x->first, x->count, x->add ? "add" : "set");
                comma = ",";
            }
        fprintf(to, "]");
    }
    fprintf(to, "]}");
    CHECK(fclose(to) == 0, "cannot write a file");
    snprintf(p->path, sizeof p->path, "/proc/self/fd/%d", p->fd);
}

/* ---- running one ---- */

typedef struct result {
    float sum[STEPS][N], residual[N];
} result;

static float value(int rank, int step, size_t i) {
    uint64_t key = gw_rng_key(gw_rng_key(41, (uint64_t)rank), (uint64_t)step);
    return i % 5 == 0 ? -0.0f : (float)(gw_rng_unit(key, i) - 0.5);
}

static gw_cost run(const char *algo, const char *spec, result *out) {
    rig r;
    rig_open(&r, algo, spec, N, true);
    gw_cost before = gw_algo_cost(&r.algo, r.lane, GW_ALLREDUCE, N); /* nothing is laid down yet */
    gw_schedule *s = rig_sum(&r, (gw_span){0, N});
    gw_cost cost = gw_algo_cost(&r.algo, r.lane, GW_ALLREDUCE, N);
    CHECK(before.bytes == cost.bytes && before.messages == cost.messages, "%s: another cost", algo);
    for (int k = 0; k < STEPS; k++) {
        gw_batch_cost counted;
        for (size_t i = 0; i < N; i++)
            r.base[i] = value(me, k, i);
        gw_lane_begin(r.lane);
        gw_ledger_begin();
        CHECK_OK(gw_schedule_run(s));
        gw_ledger_end(&counted);
        if (r.codec.caps & GW_CODEC_FIXED)
            check_charges(algo, &counted, cost);
        memcpy(out->sum[k], r.base, sizeof out->sum[k]);
    }
    memset(out->residual, 0, sizeof out->residual);
    if (gw_lane_encoder(r.lane)->residual)
        memcpy(out->residual, gw_lane_encoder(r.lane)->residual, sizeof out->residual);
    gw_schedule_free(s);
    rig_close(&r);
    return cost;
}

static void check_same(plan p, const char *other, const char *codec) {
    static result one, two;
    char algo[128];
    write_plan(&p);
    snprintf(algo, sizeof algo, "file:path=%s", p.path);
    gw_cost a = run(algo, codec, &one), b = run(other, codec, &two);
    CHECK(memcmp(&one, &two, sizeof one) == 0, "%s %s: other bits as data", other, codec);
    CHECK(a.bytes == b.bytes && a.messages == b.messages, "%s %s: other costs as data", other,
          codec);
    close(p.fd);
}

/* What was dropped on the way is in the residuals, so that nothing is lost and nothing counted
 * twice: the sums of all steps and what is kept add up to the contributions. */
static void check_sums(plan p, const char *options, const char *codec, int number) {
    static result r;
    static float kept[N];
    char algo[128];
    write_plan(&p);
    snprintf(algo, sizeof algo, "file:path=%s%s", p.path, options);
    run(algo, codec, &r);
    CHECK(same_on_all(r.sum, sizeof r.sum), "schedule %d, %s: ranks differ", number, codec);
    CHECK_OK(gw_allreduce(r.residual, kept, N, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD));
    for (size_t i = 0; i < N; i++) {
        double want = 0, have = kept[i];
        for (int k = 0; k < STEPS; k++) {
            have += (double)r.sum[k][i];
            for (int rank = 0; rank < ranks; rank++)
                want += (double)value(rank, k, i);
        }
        CHECK(fabs(have - want) < 1e-5, "schedule %d, %s: element %zu is %g in all, must be %g",
              number, codec, i, have, want);
    }
    close(p.fd);
}

/* ---- what only shows on the lane ---- */

static void check_other_ranks(void) {
    gw_codec codec;
    gw_algo a;
    gw_lane *lane;
    gw_schedule *s;
    float base[N];
    char algo[128];
    ranks++;
    plan p = ring();
    write_plan(&p);
    ranks--;
    snprintf(algo, sizeof algo, "file:path=%s", p.path);
    CHECK_OK(open_codec(&codec, "none"));
    CHECK_OK(open_algo(&a, algo, &codec));
    gw_lane_setup setup = {.codec = &codec, .n = N, .seed = 5, .yield = true};
    CHECK_OK(gw_lane_open(&lane, MPI_COMM_WORLD, &setup));
    CHECK_OK(gw_schedule_new(&s, lane, base, (gw_span){0, N}));
    gw_err want = ranks > 1 ? GW_ERR_UNSUPPORTED : GW_OK; /* one rank exchanges nothing */
    CHECK(gw_algo_lay_down(&a, s, GW_ALLREDUCE, 0) == want, "%s", gw_err_text());
    CHECK(ranks == 1 || strstr(gw_err_text(), "ranks, and"), "%s", gw_err_text());
    gw_schedule_free(s);
    gw_lane_close(lane);
    gw_algo_close(&a);
    gw_codec_close(&codec);
    close(p.fd);
}

int main(int argc, char **argv) {
    static const char *const codecs[] = {"none", "qsgd:bits=4", "topk:ratio=0.1"};
    check_start(argc, argv);
    check_other_ranks();
    for (int c = 0; c < 3 && ranks > 1; c++) {
        check_same(ring(), "ring:chunk=0", codecs[c]);
        check_same(halving(), "halving:chunk=0", codecs[c]);
        for (int k = 0; k < RANDOM; k++)
            check_sums(draw(gw_rng_key(7, (uint64_t)k)), k % 3 ? "" : ",chunk=400,window=2",
                       codecs[c], k);
    }
    MPI_Finalize();
    return 0;
}
