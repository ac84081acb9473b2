/** The clock of a paced run (--pace): a rank sleeps for the time that its share of the computation
 *  takes on a free core, times a factor. What it is to sleep lies on a tape, which was measured
 *  before the run (step/paced.h): the segments of a step in their order, each in the pieces between
 *  which real kernels poll.
 *
 *  Each segment ends at an absolute time, so sleeps that last too long do not add up: the next one
 *  is shorter. What a rank does between two segments, for the exchange, takes its real time.
 */
#ifndef GW_MACHINE_PACER_H
#define GW_MACHINE_PACER_H

#include "base/probe.h"
#include "base/stats.h"
#include "mpi/check.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

enum { GW_PACER_SIZES = 8 /* local batches of different size, an empty one included */ };

/** The arithmetic of a step of so many samples, as the walk over the model has it: each stretch
 *  between two moments at which others may be told of something is a segment; of the naive backend,
 *  all of it is one. The update comes last, and is not a segment. */
typedef struct gw_tape {
    int samples, segments, repetitions;
    int *pieces;               /* of each segment */
    gw_samples s;              /* seconds of all pieces, one behind another */
    double update_s;           /* of all parameters */
    int in_phase[GW_PHASES];   /* segments; of the naive backend 0, and so is */
    double phase_s[GW_PHASES]; /* what they take */
} gw_tape;

/** Read by all, written by the functions below and where it is said. */
typedef struct gw_pacer {
    double factor;
    MPI_Comm comm;
    size_t parameters;
    int n_tapes, measured_by; /* the rank that did */
    gw_tape tape[GW_PACER_SIZES];
    json_t
        *shares;   /* of ranks that hold parts of a model, for run.json; NULL: all hold all of it */
    double wake_s; /* a nap ends so much later than asked for, nine times in ten */
    void (*poll)(void *ctx); /* between two pieces; NULL: nothing */
    void *ctx;
    /* of the present step: */
    const gw_tape *playing;
    int segment, piece;
    double agreed_s;   /* the clock of the earliest rank was to start then, by gw_nap_now; */
    double start_s;    /* this rank's did start then */
    double behind_s;   /* it began so much later than that of the earliest rank */
    double late_s;     /* this rank is so much later than it would be on a core of its own */
    double latest_s;   /* the most of that in this step, at the end of a segment */
    double answered_s; /* the last meeting's result was there so long after the last rank came */
    /* of the run: */
    double late_sum_s; /* of all steps' latest_s */
    long steps;
} gw_pacer;

void gw_pacer_close(gw_pacer *p);

/** GW_ERR_UNSUPPORTED on all ranks, collectively: the ranks do not share one machine and its clock,
 *  or a rank's `threads` have no core each even while all other ranks sleep. */
gw_err gw_pacer_check(int threads, MPI_Comm comm);

/** What gw_nap_until oversleeps here: the median of some naps. */
double gw_pacer_wake(void);

/** Collective, before a step of `samples` local samples, for which there is a tape: return when
 *  this rank's clock starts. All ranks start at one instant, but that who ended the step before
 *  later than others starts later by as much. So waiting neither hides between two clocks nor comes
 *  from there. */
gw_err gw_pacer_begin(gw_pacer *p, int samples);

/** The step is over; `meets`: the ranks begin the next one together. */
void gw_pacer_end(gw_pacer *p, bool meets);

/** From now on call f(ctx) between the pieces of segments; NULL: nothing. */
void gw_pacer_between(gw_pacer *p, void (*f)(void *ctx), void *ctx);

/** Sleep through the next segment, with polls between its pieces. `loosely`: it may end early by
 *  what naps are cut short: many short segments one behind another are slept as one.
 *  gw_pacer_settle then sleeps what is left, before others see that it ended. */
void gw_pacer_segment(gw_pacer *p, bool loosely);
void gw_pacer_settle(gw_pacer *p);

/** Sleep for `seconds`, which began at `since_s`. */
void gw_pacer_rest(gw_pacer *p, double since_s, double seconds);

/** So long it was at work on what the next segment covers, too. */
void gw_pacer_spent(gw_pacer *p, double seconds);

/** For so long this rank had to wait for others: had it come earlier, it would have waited longer.
 */
void gw_pacer_waited(gw_pacer *p, double seconds);

/** Seconds of an update of so many parameters. */
double gw_pacer_update_s(const gw_pacer *p, size_t n);

/** For run.json; late_s: of the rank with the most, outside_s: seconds outside the clock. */
json_t *gw_pacer_json(const gw_pacer *p, double late_s, double outside_s);

#endif
