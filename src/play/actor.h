/** An actor is one rank that plays the steps of a profile: it is who computes in the walk
 *  (mesh/walk.h), by the profile's times. Two tables say in which world, and how replicas exchange
 *  gradients. So one walk serves `gradwire replay` and `bench pipe`, on the real clock, all
 *  simulated ranks, in virtual time, and the trainer. */
#ifndef GW_PLAY_ACTOR_H
#define GW_PLAY_ACTOR_H

#include "base/probe.h"
#include "comm/fabric/sim.h"
#include "comm/schedule/collective.h"
#include "mesh/walk.h"
#include "play/mesh.h"

typedef struct gw_actor gw_actor;

/** Between two polls of a host that waits for its device. */
#define GW_PLAY_POLL_S 1e-4

/** A world says how time passes. */
typedef struct gw_play_world {
    /** Take this core for so long, to compute or, if the actor sleeps, to wait for its device. */
    void (*spend)(gw_actor *a, double seconds);
    /** Called between the polls of a wait within the replica. NULL: nothing is done. */
    void (*rest)(gw_actor *a);
    /** As gw_sim_count, of a lane that opens. NULL: nobody counts. */
    void (*count)(gw_fabric *f, gw_sim_tally *sent);
} gw_play_world;

/** The processes' own clock and cores: a device that computes is slept for, and a core spins. */
extern const gw_play_world gw_play_real;

/** How gradients travel between replicas. Groups are those that the rank holds, from 0; -1: all.
 *  Each function may be NULL: there is nothing to do. */
typedef struct gw_play_exchange {
    gw_err (*begin)(gw_actor *a); /* a step */
    gw_err (*enter)(gw_actor *a, gw_phase phase);
    gw_err (*draw)(gw_actor *a, int tensor);               /* its gradient is being computed */
    gw_err (*ready)(gw_actor *a, int first, int end);      /* those of these tensors are final */
    gw_err (*finish)(gw_actor *a, int group, size_t *own); /* *own: floats to update here */
    gw_err (*move)(gw_actor *a, int group);                /* they are being updated */
    gw_err (*publish)(gw_actor *a, int group);
    gw_err (*await)(gw_actor *a, int group);
    gw_err (*poll)(gw_actor *a);
    gw_err (*end)(gw_actor *a);
} gw_play_exchange;

/** What is played. */
typedef struct gw_script {
    const gw_step_profile *profile;
    const gw_sim_mesh *mesh;
    bool lazy;     /* --update lazy */
    bool sleeps;   /* another device computes, and the core polls meanwhile; else it computes */
    double speed;  /* times as fast as the profile's device */
    size_t bucket; /* bytes of gradients that are announced together; or 0 */
    bool ahead;    /* lazy: a group is updated while the one before it is computed */
} gw_script;

/** What an actor exchanges within its replica. */
typedef struct gw_actor_lanes {
    gw_lane *hop[GW_HOP_KINDS], *tensor;
    gw_hops *hops;                        /* NULL: one stage */
    int places;                           /* of a boundary's messages of one kind */
    gw_collective join[GW_ALLGATHER + 1]; /* by verb */
    gw_cost joins;                        /* of the first tensor rank: by all of them, so far */
    double message_s;                     /* when the message began that the actor is busy with */
} gw_actor_lanes;

struct gw_actor {
    /* The caller's: */
    const gw_play_world *world;
    const gw_play_exchange *exchange;
    void *ctx;
    gw_fabric *fabric; /* of all ranks; its clock is the actor's */
    gw_script script;
    /* Its own: */
    gw_mesh at;
    bool idle; /* no samples come to this replica */
    const gw_sim_share *has;
    gw_actor_lanes lanes;
    gw_walk walk;
    long step;
    gw_phase phase;
    int left; /* tensors whose gradients are not due in this step */
    struct {
        size_t bytes; /* of gradients that wait for their bucket to be full, */
        int end;      /* those before this tensor, */
        bool first;   /* for a step's first bucket */
    } filling;
    double due_s;               /* when the device is through with what it was given */
    double late_s;              /* sum of how late the host was when a backward pass was over */
    double computed_s;          /* so far, and held up, */
    double phase_s[GW_PHASES];  /* and of that until the caller sets them to 0 */
    double ended_s;             /* its last action */
    double comm_s, bubble_s;    /* of this step, for hops; of that, until they left */
    double joins_s;             /* of this step, for what tensor ranks exchange */
    gw_sim_tally sent[GW_DIMS]; /* by this rank, until the caller sets it to 0 */
    double wake_s;              /* a nap is cut by so much, for it ends later than asked for */
    int polls;                  /* of a wait */
};

/** With the caller's members set, collective over the fabric: the first `servers` replicas are
 *  idle; `exact` and `phantom` (NULL: messages are real) are for lanes. gw_actor_close also after
 *  an error. */
gw_err gw_actor_open(gw_actor *a, int servers, gw_codec *exact, gw_phantom *phantom);
void gw_actor_close(gw_actor *a);

/** Collective over the world: a lane of the ranks that differ only in `d`. */
gw_err gw_actor_lane(gw_actor *a, gw_dim d, gw_lane_setup setup, gw_lane **out);

/** Look at all that is under way. */
gw_err gw_actor_poll(gw_actor *a);

/** Play so many steps. With script.lazy, the last exchange is still under way then. */
gw_err gw_actor_play(gw_actor *a, long steps);

/** Behind steps: end what the next forward pass would have ended. */
gw_err gw_actor_settle(gw_actor *a);

#endif
