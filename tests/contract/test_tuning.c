/* algo=auto measures only what the lane can carry, leaves the lane unchanged, and reads back the
 * table that it wrote. A table that cannot be right is refused in one line. */
#include "comm/lane.h"
#include "comm/schedule/collective.h"
#include "comm/tuning.h"
#include "mpi/wait.h"

#include "../mpi/check.h"
#include "../specs.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N = 40000 };

extern const gw_algo_ops gw_algo_auto;

static gw_lane_notes notes;

static gw_lane *open_lane(gw_codec *codec, bool yield) {
    gw_lane *lane = NULL;
    gw_lane_setup setup = {.codec = codec,
                           .n = N,
                           .feedback = true,
                           .seed = 3,
                           .yield = yield,
                           .shared = true,
                           .name = "gradients",
                           .notes = &notes};
    CHECK_OK(gw_lane_open(&lane, MPI_COMM_WORLD, &setup));
    return lane;
}

/* ---- measuring ---- */

static void check_table(const gw_tuning *t, const gw_lane *lane) {
    CHECK(t->n_sizes >= 1 && t->n_sizes <= GW_TUNING_SIZES, "%d sizes", t->n_sizes);
    for (int i = 0; i < t->n_sizes; i++) {
        const gw_tuning_row *row = &t->row[i];
        CHECK(row->bytes <= gw_lane_encoder(lane)->of->n * sizeof(float), "%zu bytes", row->bytes);
        CHECK(row->time_s[row->chosen] > 0, "chosen without a time");
        for (int a = 0; a < t->n_algos; a++)
            CHECK(!(row->time_s[a] < row->time_s[row->chosen]), "%s is faster than the choice",
                  t->algo[a].ops->head.name);
    }
    for (int a = 0; a < t->n_algos; a++)
        CHECK(t->algo[a].ops != &gw_algo_auto, "auto measures itself");
    for (size_t n = 1; n <= N; n *= 3)
        CHECK(gw_tuning_choice(t, n) >= 0 && gw_tuning_choice(t, n) < t->n_algos, "n=%zu", n);
}

/* Measure, print, read: the same choices; the residual as it was. */
static void round_trip(const char *compress, bool yield) {
    gw_codec codec;
    gw_tuning t, again;
    char *rows, *back, text[1 << 16];
    CHECK_OK(open_codec(&codec, compress));
    gw_lane *lane = open_lane(&codec, yield);
    float *residual = gw_lane_encoder(lane)->residual;
    for (size_t i = 0; residual && i < N; i++)
        residual[i] = (float)i;
    uint64_t ticket = gw_lane_ticket(lane);
    CHECK_OK(gw_tuning_measure(&t, lane, &gw_algo_auto, 0.01));
    CHECK(gw_lane_ticket(lane) == ticket, "measuring takes tickets");
    for (size_t i = 0; residual && i < N; i++)
        CHECK(residual[i] == (float)i, "measuring changes the residual at %zu", i);
    check_table(&t, lane);
    CHECK_OK(gw_tuning_print(&t, lane, &rows));
    CHECK(same_on_all(rows, strlen(rows)), "ranks measured different tables");
    snprintf(text, sizeof text, "%s%s", GW_TUNING_HEADER, rows);
    CHECK_OK(gw_tuning_read(&again, lane, &gw_algo_auto, "f", text));
    CHECK(again.n_sizes == t.n_sizes, "%d sizes", again.n_sizes);
    for (size_t n = 1; n <= N; n *= 3)
        CHECK(again.algo[gw_tuning_choice(&again, n)].ops == t.algo[gw_tuning_choice(&t, n)].ops,
              "n=%zu: another choice", n);
    CHECK_OK(gw_tuning_print(&again, lane, &back));
    CHECK(strlen(back) == strlen(rows), "printed again: %s", back);
    free(rows);
    free(back);
    gw_tuning_clear(&t);
    gw_tuning_clear(&again);
    gw_lane_close(lane);
    gw_codec_close(&codec);
}

/* ---- how it measures ---- */

enum { MOST_RUNS = 4096 };

static struct {
    int *left; /* how many ranks have left each run, in memory that all see */
    int schedule[MOST_RUNS], runs;
} watched;

/* One rank in turn lingers in each run. Without a barrier the others would be in the next run
 * before it has left this one. */
static void watch(gw_exchange_event event, const gw_exchange *x) {
    int run = watched.runs;
    if (event == GW_EXCHANGE_START) {
        CHECK(run < MOST_RUNS, "more than %d runs", MOST_RUNS);
        CHECK(run == 0 || __atomic_load_n(&watched.left[run - 1], __ATOMIC_SEQ_CST) == ranks,
              "run %d starts before all ranks have left run %d", run, run - 1);
        watched.schedule[run] = x->schedule;
    } else if (event == GW_EXCHANGE_UNBLOCK) {
        if (run % ranks == me)
            usleep(300);
        __atomic_add_fetch(&watched.left[run], 1, __ATOMIC_SEQ_CST);
        watched.runs++;
    }
}

/* How many rounds the first size ran; its schedules are laid down first. */
static void check_orders(int algos) {
    int rounds = 0, moved = 0;
    for (int at = 0; at + algos <= watched.runs && watched.schedule[at] < algos; at += algos) {
        uint64_t seen = 0;
        for (int i = 0; i < algos; i++) {
            if (watched.schedule[at + i] >= algos)
                return; /* fewer take part: hopeless candidates were dropped */
            seen |= UINT64_C(1) << watched.schedule[at + i];
            moved += rounds > 0 && watched.schedule[at + i] != watched.schedule[i];
        }
        if (rounds < 2)
            CHECK(seen == (UINT64_C(1) << algos) - 1, "round %d leaves one of %d out", rounds,
                  algos);
        rounds++;
    }
    CHECK(rounds >= 2 && moved > 0, "%d rounds in one order", rounds);
}

static void starts_together_in_any_order(void) {
    gw_codec codec;
    gw_tuning t;
    MPI_Win window;
    MPI_Aint size;
    int unit, *own;
    CHECK_MPI(MPI_Win_allocate_shared(me == 0 ? MOST_RUNS * (MPI_Aint)sizeof(int) : 0, sizeof(int),
                                      MPI_INFO_NULL, MPI_COMM_WORLD, &own, &window));
    CHECK_MPI(MPI_Win_shared_query(window, 0, &size, &unit, &watched.left));
    if (me == 0)
        memset(watched.left, 0, (size_t)size);
    CHECK_OK(open_codec(&codec, "none"));
    gw_lane *lane = open_lane(&codec, true);
    CHECK_OK(gw_barrier(MPI_COMM_WORLD));
    gw_probe_hooks.exchange = watch;
    CHECK_OK(gw_tuning_measure(&t, lane, &gw_algo_auto, 0.05));
    gw_probe_hooks.exchange = NULL;
    check_orders(t.n_algos);
    CHECK(same_on_all(watched.schedule, sizeof watched.schedule), "ranks run different orders");
    gw_tuning_clear(&t);
    gw_lane_close(lane);
    gw_codec_close(&codec);
    MPI_Win_free(&window);
}

/* ---- a table of our own ---- */

static void write_table(const char *path, const char *rows) {
    if (me == 0) {
        FILE *to = fopen(path, "w");
        CHECK(to, "%s", path);
        fprintf(to, "%s%s", GW_TUNING_HEADER, rows);
        fclose(to);
    }
    CHECK_OK(gw_barrier(MPI_COMM_WORLD));
}

/* A span uses the algorithm of the nearest size in the table, and the run reports it. */
static void obeys_table(const char *path) {
    char rows[512], spec[512];
    snprintf(rows, sizeof rows,
             "%d,gradients,none,4000,sra,1e-5,1\n%d,gradients,none,4000,shm,1e-6,0\n"
             "9,gradients,none,8000,sra,1e-5,1\n%d,parameters,none,9,nosuch,1,1\n"
             "%d,gradients,none,16000,shm,1e-5,1\n",
             ranks, ranks, ranks, ranks);
    write_table(path, rows);
    snprintf(spec, sizeof spec, "auto:table=%s", path);
    gw_codec codec;
    gw_algo algo;
    float *base;
    CHECK_OK(open_codec(&codec, "none"));
    CHECK_OK(open_algo(&algo, spec, &codec));
    gw_lane *lane = open_lane(&codec, true);
    CHECK_OK(gw_lane_floats(lane, N, &base));
    gw_collective sum = {.algo = &algo, .lane = lane, .base = base};
    static const size_t n[] = {1, 1990, 2010, N}; /* the border: sqrt(4000 * 16000) bytes */
    for (int k = 0; k < 4; k++) {
        for (size_t i = 0; i < n[k]; i++)
            base[i] = 1;
        CHECK_OK(gw_collective_run(&sum, (gw_span){0, n[k]}));
        CHECK(base[0] == (float)ranks && base[n[k] - 1] == (float)ranks, "n=%zu", n[k]);
        gw_cost c = gw_algo_cost(&algo, lane, GW_ALLREDUCE, n[k]);
        CHECK((c.messages > 0) == (ranks > 1 && k < 2), "n=%zu: %llu messages", n[k],
              (unsigned long long)c.messages);
    }
    if (ranks > 1) {
        CHECK(strstr(notes.lines, "up to 7.81 KiB sra, above shm"), "notes: %s", notes.lines);
        CHECK(strstr(notes.choices, ",16000,shm,1e-05,1\n"), "choices: %s", notes.choices);
    }
    gw_collective_clear(&sum);
    gw_lane_close(lane);
    gw_algo_close(&algo);
    gw_codec_close(&codec);
}

/* ---- hostile tables ---- */

static void bad_table(const gw_lane *lane, const char *text, const char *words) {
    gw_tuning t;
    gw_err e = gw_tuning_read(&t, lane, &gw_algo_auto, "some/algo.csv", text);
    CHECK(e == GW_ERR_INPUT, "%d for: %s", (int)e, text);
    CHECK(strstr(gw_err_text(), words) && strstr(gw_err_text(), "some/algo.csv") &&
              !strchr(gw_err_text(), '\n'),
          "'%s' should mention '%s'", gw_err_text(), words);
}

static void bad_rows(const gw_lane *lane, const char *rows, const char *words) {
    char text[1024], mine[512];
    size_t at = 0;
    for (const char *c = rows; *c && at < sizeof mine - 8; c++) /* P stands for our ranks */
        at += *c == 'P' ? (size_t)snprintf(mine + at, 8, "%d", ranks) : (mine[at] = *c, (size_t)1);
    mine[at] = '\0';
    snprintf(text, sizeof text, "%s%s", GW_TUNING_HEADER, mine);
    bad_table(lane, text, words);
}

static void hostile_tables(void) {
    gw_codec codec, qsgd;
    CHECK_OK(open_codec(&codec, "none"));
    CHECK_OK(open_codec(&qsgd, "qsgd"));
    gw_lane *lane = open_lane(&codec, true), *lossy = open_lane(&qsgd, true);
    bad_table(lane, "", "header");
    bad_table(lane, "\n\n", "header");
    bad_table(lane, "ranks,lane\n", "header");
    bad_rows(lane, "", "no rows");
    bad_rows(lane, "77,gradients,none,8,sra,1,1\n", "on 77 ranks");
    bad_rows(lane, "P,gradients,fp16,8,sra,1,1\n", "no rows");
    bad_rows(lane, "P,gradients,none,8,sra,1\n", "7 fields");
    bad_rows(lane, "P,gradients,none,8,sra,1,1,1\n", "7 fields");
    bad_rows(lane, "x,gradients,none,8,sra,1,1\n", "invalid ranks 'x'");
    bad_rows(lane, "P,gradients,none,-8,sra,1,1\n", "invalid bytes");
    bad_rows(lane, "P,gradients,none,0,sra,1,1\n", "ascend");
    bad_rows(lane, "P,gradients,none,99999999999999999999,sra,1,1\n", "invalid bytes");
    bad_rows(lane, "P,gradients,none,8,sra,1,1\nP,gradients,none,4,sra,1,1\n", "ascend");
    bad_rows(lane, "P,gradients,none,8,sra,nan,1\n", "time");
    bad_rows(lane, "P,gradients,none,8,sra,,1\n", "time");
    bad_rows(lane, "P,gradients,none,8,sra,-1,1\n", "time");
    bad_rows(lane, "P,gradients,none,8,sra,1,2\n", "0 or 1");
    bad_rows(lane, "P,gradients,none,8,nosuch,1,1\n", "nosuch");
    bad_rows(lane, "P,gradients,none,8,auto,1,1\n", "auto");
    bad_rows(lane, "P,gradients,none,8,./evil.so,1,1\n", "evil");
    bad_rows(lane, "P,gradients,none,8,sra,1,0\n", "nothing was chosen");
    bad_rows(lane, "P,gradients,none,8,sra,1,0\nP,gradients,none,9,sra,1,1\n", "nothing was");
    bad_rows(lane, "P,gradients,none,8,sra,1,1\nP,gradients,none,8,sra,1,0\n", "second time");
    bad_rows(lane, "P,gradients,none,8,sra,1,1\nP,gradients,none,8,shm,1,1\n", "second choice");
    bad_rows(lossy, "P,gradients,qsgd,8,native,1,1\n", "cannot carry codec qsgd");
    char many[1024] = "";
    for (int i = 1; i <= GW_TUNING_SIZES + 1; i++)
        sprintf(many + strlen(many), "P,gradients,none,%d,sra,1,1\n", i);
    bad_rows(lane, many, "too many sizes");
    gw_lane_close(lane);
    gw_lane_close(lossy);
    gw_codec_close(&codec);
    gw_codec_close(&qsgd);
}

/* All ranks report a table that cannot be read. */
static void missing_table(const char *path) {
    char spec[512];
    snprintf(spec, sizeof spec, "auto:table=%s.missing", path);
    gw_codec codec;
    gw_algo algo;
    gw_schedule *s;
    float *base;
    CHECK_OK(open_codec(&codec, "none"));
    CHECK_OK(open_algo(&algo, spec, &codec));
    gw_lane *lane = open_lane(&codec, true);
    CHECK_OK(gw_lane_floats(lane, N, &base));
    CHECK_OK(gw_schedule_new(&s, lane, base, (gw_span){0, N}));
    gw_err e = gw_algo_lay_down(&algo, s, GW_ALLREDUCE, 0);
    CHECK(e == (ranks > 1 ? GW_ERR_INPUT : GW_OK), "%d: %s", (int)e, gw_err_text());
    gw_schedule_free(s);
    gw_lane_close(lane);
    gw_algo_close(&algo);
    gw_codec_close(&codec);
}

int main(int argc, char **argv) {
    check_start(argc, argv);
    round_trip("none", true);
    round_trip("qsgd", true);
    if (ranks < sysconf(_SC_NPROCESSORS_ONLN))
        round_trip("bf16", false);
    starts_together_in_any_order();
    char path[] = "/tmp/gw_tuning_XXXXXX";
    if (me == 0)
        CHECK(mkdtemp(path), "cannot make %s", path);
    CHECK_OK(gw_bcast(path, sizeof path, MPI_CHAR, 0, MPI_COMM_WORLD));
    char file[64];
    snprintf(file, sizeof file, "%s/algo.csv", path);
    obeys_table(file);
    missing_table(file);
    hostile_tables();
    if (me == 0)
        CHECK(unlink(file) == 0 && rmdir(path) == 0, "cannot remove %s", path);
    MPI_Finalize();
    return 0;
}
