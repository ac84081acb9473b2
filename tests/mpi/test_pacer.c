/* The clock of a paced run: a step ends no earlier than its tape says, polls come between pieces,
 * what one rank took longer for than others delays its next step, and real work within a segment or
 * a rest is no time on top. */
#include "base/nap.h"
#include "machine/pacer.h"

#include "check.h"

#include <stdbool.h>
#include <string.h>

enum { SEGMENTS = 5, PIECES = 8, STEPS = 4 };
#define PIECE_S  5e-4
#define UPDATE_S 2e-3
#define ROUNDING 1e-6
#define SKEW_S   3e-3

static int me, ranks;
static int pieces[SEGMENTS] = {1, 2, 1, 3, 1};
static double seconds[PIECES];
static int polls;

static void poll(void *ctx) {
    ++*(int *)ctx;
}

static void open_pacer(gw_pacer *p, double factor) {
    memset(p, 0, sizeof *p);
    for (int i = 0; i < PIECES; i++)
        seconds[i] = PIECE_S;
    p->factor = factor;
    p->comm = MPI_COMM_WORLD;
    p->parameters = 100;
    p->n_tapes = 2;
    p->tape[0] = (gw_tape){.samples = 7, .segments = SEGMENTS};
    p->tape[1] = (gw_tape){.samples = 8,
                           .segments = SEGMENTS,
                           .pieces = pieces,
                           .s = {seconds, PIECES, PIECES},
                           .update_s = UPDATE_S};
    p->wake_s = gw_pacer_wake();
    gw_pacer_between(p, poll, &polls);
}

/* Of a step with half an update, so many seconds after its start. */
static double step(gw_pacer *p, double more_s) {
    CHECK_OK(gw_pacer_begin(p, 8));
    for (int s = 0; s < SEGMENTS; s++)
        gw_pacer_segment(p, false);
    double since = gw_nap_now();
    if (more_s > 0)
        gw_nap_until(since + more_s);
    gw_pacer_rest(p, since, gw_pacer_update_s(p, 50) + more_s);
    return gw_nap_now() - p->start_s;
}

static void deadlines(double factor, int parts) {
    gw_pacer p;
    open_pacer(&p, factor);
    double least = factor * (PIECES * PIECE_S + UPDATE_S / 2);
    for (int k = 0; k < STEPS; k++) {
        polls = 0;
        double took = step(&p, 0);
        CHECK(took >= least - ROUNDING, "a step of %g s took %g s", least, took);
        int want = 0;
        for (int s = 0; s < SEGMENTS; s++)
            want += pieces[s] * parts - 1;
        CHECK(polls == want, "%d polls, not %d", polls, want);
        gw_pacer_end(&p, false);
    }
    CHECK(p.steps == STEPS && p.late_sum_s >= 0, "%ld steps, late by %g s", p.steps, p.late_sum_s);
}

/* The last rank takes longer: its next clock starts later, by as much and no more. */
static void skew(bool meets) {
    gw_pacer p;
    double took, all[4];
    open_pacer(&p, 1);
    took = step(&p, me == ranks - 1 ? SKEW_S : 0);
    gw_pacer_end(&p, meets);
    double behind = p.behind_s;
    CHECK(meets ? behind == 0 : behind >= took - ROUNDING, "%g s behind after %g s", behind, took);
    CHECK_OK(gw_pacer_begin(&p, 8));
    CHECK_MPI(MPI_Allgather(&behind, 1, MPI_DOUBLE, all, 1, MPI_DOUBLE, MPI_COMM_WORLD));
    double first = all[0];
    for (int r = 1; r < ranks; r++)
        first = all[r] < first ? all[r] : first;
    CHECK(p.behind_s == behind - first, "%g s behind, not %g", p.behind_s, behind - first);
    CHECK(p.start_s >= p.agreed_s + p.behind_s, "the clock starts early");
    CHECK_MPI(MPI_Allgather(&p.agreed_s, 1, MPI_DOUBLE, all, 1, MPI_DOUBLE, MPI_COMM_WORLD));
    for (int r = 1; r < ranks; r++)
        CHECK(all[r] == all[0], "rank %d starts %g s after rank 0", r, all[r] - all[0]);
}

/* Lateness is made up for by what follows, and by waiting that would have been longer without. */
static void lateness(void) {
    gw_pacer p;
    open_pacer(&p, 1);
    CHECK_OK(gw_pacer_begin(&p, 8));
    double start = gw_nap_now();
    gw_nap_until(start + PIECE_S);
    gw_pacer_spent(&p, gw_nap_now() - start); /* at work on the first segment, or longer */
    gw_pacer_segment(&p, false);
    CHECK(gw_nap_now() >= start + PIECE_S - ROUNDING, "a segment ends early");
    p.late_s = 1;
    double before = gw_nap_now();
    gw_pacer_segment(&p, false); /* should have ended long ago */
    CHECK(p.late_s >= 1 - 2 * PIECE_S, "%g s late", p.late_s);
    CHECK(gw_nap_now() - before + 1 - 2 * PIECE_S >= p.late_s - ROUNDING, "it slept all the same");
    gw_pacer_waited(&p, 0.25);
    CHECK(p.late_s <= 0.75 + gw_nap_now() - before, "%g s late", p.late_s);
    gw_pacer_waited(&p, 10);
    CHECK(p.late_s == 0, "%g s late after a wait", p.late_s);
}

/* Segments that need not be exact are so together, once they are settled. */
static void loosely(void) {
    gw_pacer p;
    open_pacer(&p, 1);
    CHECK_OK(gw_pacer_begin(&p, 8));
    polls = 0;
    for (int s = 0; s < SEGMENTS; s++)
        gw_pacer_segment(&p, true);
    CHECK(polls == PIECES - SEGMENTS, "%d polls", polls);
    gw_pacer_settle(&p);
    CHECK(gw_nap_now() - p.start_s >= PIECES * PIECE_S - ROUNDING, "settled early");
    CHECK(p.late_s >= 0, "%g s late", p.late_s);
}

static void refusals(void) {
    gw_pacer p;
    open_pacer(&p, 1);
    CHECK(gw_pacer_begin(&p, 9) == GW_ERR_INTERNAL, "a size that was not measured is taken");
    CHECK_OK(gw_pacer_check(1, MPI_COMM_WORLD));
    CHECK(gw_pacer_check(4096, MPI_COMM_WORLD) == GW_ERR_UNSUPPORTED, "4096 threads are measured");
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    ranks = check_ranks(argc, argv);
    gw_nap_lightly();
    deadlines(1, 1);
    deadlines(2.5, 3); /* a slower core polls as often */
    skew(false);
    skew(true);
    lateness();
    loosely();
    refusals();
    MPI_Finalize();
    return 0;
}
