/** The timetable seam: in WHICH ORDER each stage of a pipe works on the microbatches of a step.
 *
 *  The layers are cut into `stages` * `chunks` runs, in order; run g lies on stage g % stages as
 *  its chunk g / stages. A timetable lays down the actions of each stage. Which hops they need is
 *  not its affair: an activation goes from run to run, a delta (the gradient of an activation)
 *  back, and both follow from the placement. It is pure: no MPI, no clock, the same on all ranks.
 *
 *  To add one: ONE new file comm/timetable/NAME.c that defines `const gw_timetable_ops
 *  gw_timetable_NAME` and ONE line X(NAME) in timetables.def. Out of tree: a shared object that
 *  exports `gw_timetable_plugin`.
 *
 *  All functions may be called from any thread; a gw_timetable does not change once it is open. */
#ifndef GW_COMM_TIMETABLE_H
#define GW_COMM_TIMETABLE_H

#include "base/act.h"
#include "base/registry.h"

#define GW_TIMETABLE_ABI 1

/** Seconds that a microbatch takes; B takes input_s + weights_s. */
typedef struct gw_act_cost {
    double forward_s, input_s, weights_s;
} gw_act_cost;

typedef struct gw_timetable gw_timetable;

typedef struct gw_timetable_ops {
    gw_entry head;
    /** For `gradwire list`: what `bubble` and `held` return; p, m, v, s, F, I, W, B = I + W. */
    const char *idle_formula, *held_formula;
    /** Why it cannot serve so many stages and microbatches ("..."; completes "--timetable T: "), or
     *  NULL when it can. NULL function: serves all. */
    const char *(*refuses)(const gw_args *args, int stages, int micro);
    /** Chunks a stage. NULL: 1. */
    int (*chunks)(const gw_args *args);
    /** Add the actions of a step of `stage` to t, by gw_timetable_add. */
    gw_err (*lay_down)(const gw_args *args, gw_timetable *t, int stage);
    /** Seconds that each stage waits in a step, one step after another: of equal stages, which take
     *  `cost` for a microbatch with all their chunks, hops that take no time, and no fewer
     *  microbatches than stages. The simulator must find the same. */
    double (*bubble)(const gw_args *args, int stages, const gw_act_cost *cost);
    /** Activations that `stage` holds at a time, at most, over all its chunks. The actions must
     *  hold as many. */
    int (*held)(const gw_args *args, int stages, int micro, int stage);
} gw_timetable_ops;

extern const gw_registry gw_timetables;

/** Open `spec` for so many stages and microbatches (1 or more); NULL: `1f1b`. Lays down all stages,
 *  and makes sure that the step can end. GW_ERR_USAGE: an unknown name or option;
 *  GW_ERR_UNSUPPORTED: it refuses, with the reason; GW_ERR_INPUT: a plugin whose actions are not
 *  valid or run into a deadlock, named by stage and action. Free with gw_timetable_close, which
 *  takes NULL. */
gw_err gw_timetable_open(gw_timetable **out, const gw_spec *spec, int stages, int micro);
void gw_timetable_close(gw_timetable *t);

/** The same of `ops` that are in no registry. */
gw_err gw_timetable_lay_down(gw_timetable **out, const gw_timetable_ops *ops, const gw_spec *spec,
                             int stages, int micro);

/** For lay_down: the stage's next action is `kind` of `chunk`, of the lowest microbatch that is due
 *  there. GW_ERR_INPUT: none is. */
gw_err gw_timetable_add(gw_timetable *t, gw_act_kind kind, int chunk);

const char *gw_timetable_name(const gw_timetable *t);
int gw_timetable_stages(const gw_timetable *t);
int gw_timetable_micro(const gw_timetable *t);
int gw_timetable_chunks(const gw_timetable *t); /* a stage */

/** The actions of a step of `stage`, in order: *n of them, the timetable's. */
const gw_act *gw_timetable_acts(const gw_timetable *t, int stage, int *n);

/** Microbatches that a chunk of `stage` holds at a time, at most. */
int gw_timetable_slots(const gw_timetable *t, int stage, int chunk);

/** Most microbatches of a chunk whose deltas are kept for their weights' gradients, or 1. */
int gw_timetable_kept(const gw_timetable *t, int stage, int chunk);

/** As the ops promise. */
double gw_timetable_bubble(const gw_timetable *t, const gw_act_cost *cost);
int gw_timetable_held(const gw_timetable *t, int stage);

/** A chunk of a stage; stage -1: none. */
typedef struct gw_place {
    int stage, chunk;
} gw_place;

/** Where the activation (F) or delta (B, I) that action `a` of `stage` takes comes from: a hop, of
 *  the same microbatch. None: F of the first run takes samples, B and I of the last run the loss, W
 *  what I left. The own stage: no message. */
gw_place gw_timetable_source(const gw_timetable *t, int stage, gw_act a);

/** Where its result goes. None: of F at the last run, of B and I at the first, and of W. */
gw_place gw_timetable_target(const gw_timetable *t, int stage, gw_act a);

/* ---- the simulator ---- */

/** Of one run: seconds of its actions on a microbatch, and of the hops that leave it. */
typedef struct gw_run_cost {
    gw_act_cost act;
    double activation_s, delta_s;               /* to the next run; to the one before */
    double tensor_forward_s, tensor_backward_s; /* sums over tensor ranks, in F and in B or I */
    double early_s;                             /* the delta leaves so long before the end of a B */
    double after_s; /* of chunk 0: what its stage does behind its last action of a step */
} gw_run_cost;

/** What an action of that run takes. */
double gw_act_seconds(const gw_run_cost *cost, gw_act_kind kind);

/** How a send ends. Either way a stage keeps two receives posted, of the next activation and of the
 *  next delta that it needs in this step, and a message travels once it is sent and its receive
 *  is posted. */
typedef enum gw_sends {
    GW_SENDS_BUFFERED,   /* waited for where its buffer is written again: each slot has one for
                            an activation and one for a delta */
    GW_SENDS_SYNCHRONOUS /* waited for at once: what ends so ends with any MPI */
} gw_sends;

typedef struct gw_stage_times {
    double busy_s; /* a step's actions, and what comes behind them */
    double idle_s; /* step_s less these */
    double wait_s; /* of idle_s, for hops whose other end was not there yet: the bubble */
    int held;      /* activations at a time, at most, over all chunks */
} gw_stage_times;

typedef struct gw_pipe_times {
    double first_s; /* of a first step, from its start to the end of its last action */
    double step_s;  /* of each later one: a stage begins it as soon as it has ended the last */
} gw_pipe_times;

/** Simulate steps of cost[gw_timetable_stages * chunks], by run, into *out and, unless it is NULL,
 *  stage[gw_timetable_stages]. GW_ERR_INPUT: a deadlock, with the first stage that is stuck and its
 *  action (no timetable that gw_timetable_open returns). */
gw_err gw_timetable_simulate(const gw_timetable *t, const gw_run_cost *cost, gw_sends sends,
                             gw_pipe_times *out, gw_stage_times *stage);

#endif
