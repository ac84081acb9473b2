/* Several handles of a process: two models that train in turns, one's batches within the other's or
 * not, come to the bits that each comes to alone; the first one's record has what both sent. And
 * gradwire_mean, gradwire_share and gradwire_words. */
#include "client.h"

#include <math.h>
#include <string.h>

enum { N = 300, STEPS = 6, MODELS = 2 };
static float param[MODELS][N], grad[MODELS][N], alone[MODELS][N];
static double sent; /* by a rank, in the batches of what records */

static const char *const words[][MODELS] = {
    {"--comm iallreduce --compress onebit", "--comm sparse --compress topk:ratio=0.1"},
    {"--comm delayed", "--comm sharded"},
    {"--comm local:period=2", "--comm allreduce --compress qsgd:bits=4"}};

static gradwire *open_model(int m, const char *its) {
    gradwire *g;
    for (int i = 0; i < N; i++)
        param[m][i] = (float)((i * 37 + m) % 11) - 5;
    ok(gradwire_new(&g, -1, its));
    ok(gradwire_tensor(g, "w", 0, N - 20, 10, param[m]));
    ok(gradwire_tensor(g, "b", 1, 20, 0, param[m] + N - 20));
    ok(gradwire_open(g));
    return g;
}

/* The half of a batch: gradients begin their way. */
static void hand_over(gradwire *g, int m, int step) {
    float *grads[] = {grad[m] + N - 20, grad[m]};
    ok(gradwire_begin(g, 1, ranks));
    ok(gradwire_phase(g, GRADWIRE_BACKWARD));
    for (int i = 0; i < N; i++)
        grad[m][i] = param[m][i] * (float)((i + step + me) % 7) / 7 - 0.3f;
    ok(gradwire_ready(g, 2, (int[]){1, 0}, grads));
}

static void take(gradwire *g, int m) {
    int update = ok(gradwire_finish(g, GRADWIRE_ALL)), t;
    size_t from, n;
    ok(gradwire_phase(g, GRADWIRE_UPDATE));
    for (int i = 0; update && ok(gradwire_owned(g, i, &t, &from, &n)); i++)
        for (size_t k = from + (t ? N - 20 : 0), end = k + n; k < end; k++)
            param[m][k] -= 0.1f * grad[m][k];
    ok(gradwire_updated(g, GRADWIRE_ALL));
    ok(gradwire_end(g, 1));
    double bytes = gradwire_figure(g, "wire_bytes");
    sent += isnan(bytes) ? 0 : bytes;
}

static void train(int m, const char *its) {
    gradwire *g = open_model(m, its);
    for (int step = 0; step < STEPS; step++) {
        hand_over(g, m, step);
        take(g, m);
    }
    ok(gradwire_settle(g));
    ok(gradwire_epoch(g, NAN, NAN));
    ok(gradwire_close(g));
    memcpy(alone[m], param[m], sizeof alone[m]);
}

static void both(const char *const *its) {
    sent = 0;
    for (int m = 0; m < MODELS; m++)
        train(m, its[m]);
    double apart = sent;
    sent = 0;
    gradwire *g = open_model(0, its[0]), *h = open_model(1, its[1]);
    for (int step = 0; step < STEPS; step++) { /* what the second sends belongs to a batch */
        hand_over(g, 0, step);
        hand_over(h, 1, step);
        if (step % 2) {
            take(h, 1);
            take(g, 0);
        } else {
            ok(gradwire_poll(g));
            take(h, 1);
            ok(gradwire_poll(h));
            take(g, 0);
        }
    }
    CHECK(isnan(gradwire_figure(h, "wall_s")), "a row of what has no record");
    for (int k = 0; k < MODELS; k++) {
        ok(gradwire_settle(k ? h : g));
        ok(gradwire_epoch(k ? h : g, NAN, NAN));
        CHECK(memcmp(alone[k], param[k], sizeof alone[k]) == 0, "%s: other bits than alone",
              its[k]);
    }
    CHECK(sent == apart, "%s: %.0f bytes, not %.0f", its[0], sent, apart);
    refused(gradwire_close(g), "other handles of this process are open");
    ok(gradwire_close(h));
    ok(gradwire_close(g));
}

/* In turns, a batch after the other: the second's is beside the record. */
static void in_turns(void) {
    train(0, words[0][0]);
    train(1, words[0][1]);
    gradwire *g = open_model(0, words[0][0]), *h = open_model(1, words[0][1]);
    for (int step = 0; step < STEPS; step++)
        for (int m = 0; m < MODELS; m++) {
            hand_over(m ? h : g, m, step);
            take(m ? h : g, m);
        }
    ok(gradwire_close(h));
    ok(gradwire_settle(g));
    for (int m = 0; m < MODELS; m++)
        CHECK(memcmp(alone[m], param[m], sizeof alone[m]) == 0, "model %d: other bits", m);
    ok(gradwire_close(g));
}

static void words_of_the_second(void) {
    gradwire *g = open_model(0, NULL), *h;
    refused(gradwire_new(&h, -1, "--out runs/b"),
            "--out: the first handle of this process records");
    refused(gradwire_new(&h, -1, "--hang-timeout 3"), "--hang-timeout: the first");
    refused(gradwire_new(&h, -1, "--log json:b"), "--log: the first");
    setenv("GRADWIRE", "--verify-every 1 --comm allreduce",
           1); /* of which the first half is not its */
    h = open_model(1, "--comm ps");
    unsetenv("GRADWIRE");
    CHECK(strcmp(gradwire_text(h, "strategy"), "allreduce") == 0, "GRADWIRE does not win");
    ok(gradwire_close(h));
    ok(gradwire_close(g));
}

static void mean(void) {
    gradwire *g = open_model(0, NULL);
    double value[] = {me, 1, me ? 7 : NAN}, sum = ranks * (ranks - 1) / 2.0;
    ok(gradwire_mean(g, 2, value, 1));
    CHECK(value[0] == sum / ranks && value[1] == 1, "%g %g", value[0], value[1]);
    hand_over(g, 0, 0);
    value[0] = me;
    ok(gradwire_mean(g, 3, value, me)); /* that of rank 0 is not read */
    double squares = 0;
    for (int r = 0; r < ranks; r++)
        squares += (double)r * r;
    CHECK(ranks == 1 ? isnan(value[2]) : value[0] == squares / sum && fabs(value[2] - 7) < 1e-12,
          "%g %g", value[0], value[2]);
    take(g, 0);
    ok(gradwire_close(g));
}

/* Rank 0's bytes, and no byte beside them; ranks with other sizes are told. */
static void share(void) {
    gradwire *g = open_model(0, NULL);
    double value[3] = {me + 0.5, NAN, me};
    ok(gradwire_share(g, value, 2 * sizeof *value));
    CHECK(value[0] == 0.5 && isnan(value[1]) && value[2] == me, "%g %g", value[0], value[2]);
    ok(gradwire_share(g, NULL, 0));
    refused(gradwire_share(g, NULL, 1), "memory is NULL");
    if (ranks > 1)
        refused(gradwire_share(g, value, me ? 8 : 16), "has size '8 bytes', and rank 0");
    hand_over(g, 0, 0);
    refused(gradwire_share(g, value, 1), "a batch is open");
    take(g, 0);
    ok(gradwire_close(g));
}

/* gradwire_words knows the traits without MPI that a handle of these words has. */
static void words_alone(void) {
    static const char *const said[][3] = {{"--comm sharded", "mean", "no"},
                                          {"--comm delayed", "late", "yes"},
                                          {"--compress topk", "algorithm", "gathersum"},
                                          {"--optimizer sgd", "optimizer", "sgd"},
                                          {NULL, "mpi", ""}};
    for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
        const char *text = gradwire_words(said[i][0], said[i][1]);
        CHECK(text && strcmp(text, said[i][2]) == 0, "%s: %s", said[i][0], text ? text : "refused");
    }
    CHECK(gradwire_words("--comm sharded", NULL), "%s", gradwire_error());
}

int main(int argc, char **argv) {
    words_alone();
    CHECK(gradwire_start(NULL, &me, &ranks) == 0, "%s", gradwire_error());
    CHECK(check_ranks(argc, argv) == ranks, "ranks");
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        both(words[i]);
    in_turns();
    words_of_the_second();
    mean();
    share();
    return 0;
}
