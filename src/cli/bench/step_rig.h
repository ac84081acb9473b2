/** A training step: model, optimizer and session on a fixed batch of random numbers, which lies in
 *  the model's input, so that no data are loaded, unless the setup has a set. What `bench step`
 *  times and `plan` predicts. */
#ifndef GW_CLI_BENCH_STEP_RIG_H
#define GW_CLI_BENCH_STEP_RIG_H

#include "cli/bench/bench.h"
#include "play/profile.h"
#include "predict/bound.h"
#include "predict/chooser.h"
#include "predict/placed.h"

typedef struct gw_rig {
    gw_session *session; /* the handle's */
    gradwire *g;
    gw_chooser *choice; /* NULL: the codec was named */
    bool lazy;
    bool yield; /* with its helpers there are more threads than CPUs */
    gw_placed at;
    gw_stepper stepper;
    double loss;     /* of the last step, summed over this rank's samples */
    gw_samples wall; /* of the steps of gw_rig_take_turns, the slowest rank's; */
    gw_samples mean; /* the mean over the ranks */
} gw_rig;

/** A setup holds what all rigs of a command have in common, which gw_rig_setup_of sets, and the
 *  mesh that one of them may have. */
typedef struct gw_rig_setup {
    gw_place_setup at;
    const gw_bench_place *place;
    const gw_parallel *parallel; /* NULL: the whole model on each rank */
} gw_rig_setup;

/** The rows of an option table that gw_rig_setup_of reads beside step_opts.def. */
#define GW_RIG_OPTS                                                                                \
    {"inputs", GW_OPT_INT, "784", 1, 1 << 24, NULL, "N", "features per sample"}, {                 \
        "classes", GW_OPT_INT, "10", 2, GW_MAX_CLASSES, NULL, "N", "classes of the labels"         \
    }

/** A setup without `set`. */
gw_rig_setup gw_rig_setup_of(const gw_train_config *c, const gw_bench_place *place);

/** Before MPI starts: r->session, as gw_session_new makes it, and its handle, which owns it. */
gw_err gw_rig_new(gw_rig *r, const gw_spec *comm, gw_mix *mix, const char *feedback);

/** Collective: the model and its batch, for r->session, r->choice and r->lazy, which are set; and
 *  the choice. r stays where it is. */
gw_err gw_rig_open(gw_rig *r, const gw_rig_setup *s);

/** Collective: open the exchange. GW_ERR_UNSUPPORTED: steps are not alike, and timed one by one. */
gw_err gw_rig_start(gw_rig *r);

/** Print what is wrong with the library of the products, if anything; on rank 0. */
void gw_rig_say_warning(void);

enum { GW_RIG_BLOCK = 1000 };

/** Rigs that take turns. */
typedef struct gw_rig_turns {
    const gw_bench_place *place;
    gw_rig *(*rig)(int i);
    int n, steps, block, warmup; /* block <= GW_RIG_BLOCK: timed steps of a turn */
    uint64_t seed;
    /** Optional: this rank's costs of the timed steps of a turn of rig i. */
    gw_err (*keep)(int i, const gw_batch_cost *cost, int n);
} gw_rig_turns;

/** Collective: `steps` timed steps of each into its `wall`, in turns whose order is drawn anew each
 *  round. A turn begins with a step that is not timed, and ends with nothing in flight. Starts the
 *  ledger anew. */
gw_err gw_rig_take_turns(gw_rig_turns *t);

/** Collective; bench_layers.c: measure steps of the model of `c` by layers, without any exchange,
 *  but with products in pieces, as under one that overlaps. *profile is the caller's. spread: as of
 *  gw_layer_times. */
gw_err gw_rig_profile(const gw_bench_run *run, const gw_train_config *c, gw_step_profile *profile,
                      double spread[2]);

/** Collective where it was started: close the exchange. */
void gw_rig_stop(gw_rig *r);

/** Free the rest, and all of a rig that was not started. Collective where it has a mesh. Safe on
 *  a zeroed rig. */
void gw_rig_free(gw_rig *r);

#endif
