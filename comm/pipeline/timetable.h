/** The timetable seam: in WHICH ORDER each stage of a pipe works on the microbatches of a step.
 *
 *  The layers are cut into `stages` * `chunks` runs, in order; run g lies on stage g % stages as
 *  its chunk g / stages. A timetable lays down the actions of each stage. It does not deal with
 *  hops, which follow from the placement: an activation goes from run to run, a delta (the gradient
 *  of an activation) back. It is pure: no MPI, no clock, the same on all ranks.
 *
 *  To add one: ONE new file comm/pipeline/timetable/NAME.c that defines `const gw_timetable_ops
 *  gw_timetable_NAME` and ONE line X(NAME) in timetables.def. Out of tree: a shared object that
 *  exports `gw_timetable_plugin`.
 *
 *  All functions may be called from any thread; a gw_timetable does not change once it is open. */
#ifndef GW_COMM_PIPELINE_TIMETABLE_H
#define GW_COMM_PIPELINE_TIMETABLE_H

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
    /** For `gradwire list`: what `bubble` and `held` return, in p, m, v, s, F, I, W, B = I + W. */
    const char *idle_formula, *held_formula;
    /** Return why it cannot serve so many stages and microbatches ("..."; completes
     *  "--timetable T: "), or NULL if it can. NULL function: serves all. */
    const char *(*refuses)(const gw_args *args, int stages, int micro);
    /** Return the chunks per stage. NULL: 1. */
    int (*chunks)(const gw_args *args);
    /** Add the actions of a step of `stage` to t, with gw_timetable_add. */
    gw_err (*lay_down)(const gw_args *args, gw_timetable *t, int stage);
    /** Return the seconds that each stage waits per step, in a series of steps. All stages are
     *  equal and take `cost` for a microbatch with all their chunks; hops take no time; there are
     *  no fewer microbatches than stages. The simulator (play/play.h) must find the same. */
    double (*bubble)(const gw_args *args, int stages, const gw_act_cost *cost);
    /** Return the most activations that `stage` holds at a time, over all its chunks. The actions
     *  must hold as many. */
    int (*held)(const gw_args *args, int stages, int micro, int stage);
} gw_timetable_ops;

extern const gw_registry gw_timetables;

/** Open `spec` (NULL: `1f1b`) for so many stages and microbatches (1 or more). Lay down all stages,
 *  and make sure that a step can end. GW_ERR_USAGE: an unknown name or option;
 *  GW_ERR_UNSUPPORTED: it refuses, with the reason; GW_ERR_INPUT: a plugin whose actions are not
 *  valid or run into a deadlock, with stage and action. Free with gw_timetable_close, which takes
 *  NULL. */
gw_err gw_timetable_open(gw_timetable **out, const gw_spec *spec, int stages, int micro);
void gw_timetable_close(gw_timetable *t);

/** The same for `ops` that are in no registry. */
gw_err gw_timetable_lay_down(gw_timetable **out, const gw_timetable_ops *ops, const gw_spec *spec,
                             int stages, int micro);

/** For lay_down: add the stage's next action, `kind` of `chunk` for the lowest microbatch that is
 *  due there. GW_ERR_INPUT: none is due. */
gw_err gw_timetable_add(gw_timetable *t, gw_act_kind kind, int chunk);

const char *gw_timetable_name(const gw_timetable *t);
int gw_timetable_stages(const gw_timetable *t);
int gw_timetable_micro(const gw_timetable *t);
int gw_timetable_chunks(const gw_timetable *t); /* per stage */

/** Return the *n actions of a step of `stage`, in order; the timetable owns them. */
const gw_act *gw_timetable_acts(const gw_timetable *t, int stage, int *n);

/** Return the most microbatches that a chunk of `stage` holds at a time. */
int gw_timetable_slots(const gw_timetable *t, int stage, int chunk);

/** Return the most microbatches of a chunk whose deltas wait for W, or 1. */
int gw_timetable_kept(const gw_timetable *t, int stage, int chunk);

/** What the ops of the same name return. */
double gw_timetable_bubble(const gw_timetable *t, const gw_act_cost *cost);
int gw_timetable_held(const gw_timetable *t, int stage);

/** A chunk of a stage; stage -1: none. */
typedef struct gw_place {
    int stage, chunk;
} gw_place;

/** Return where the activation (F) or delta (B, I) comes from that action `a` of `stage` takes, of
 *  the same microbatch. Another stage: by a hop; the same stage: no message. None for F of the
 *  first run, which takes samples, B and I of the last run (the loss), and W (what I left). */
gw_place gw_timetable_source(const gw_timetable *t, int stage, gw_act a);

/** Return where its result goes. None: F of the last run, B and I of the first, and W. */
gw_place gw_timetable_target(const gw_timetable *t, int stage, gw_act a);

#endif
