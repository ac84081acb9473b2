/** Plays a profile's steps through the library, as a program would that trains the model, on this
 *  machine. Only the computing is replaced, by waiting. */
#ifndef GW_PLAY_PLAYER_H
#define GW_PLAY_PLAYER_H

#include "api/inside.h"
#include "play/actor.h"

/** The gradients that are exchanged: normal numbers with each tensor's deviation, or captured. */
typedef struct gw_gradients {
    const gw_step_profile *profile;
    float *table; /* normal numbers; NULL: captured */
    uint64_t key;
    const float *captured; /* all tensors in forward order, one step after another */
    size_t bytes;
    long steps;
} gw_gradients;

typedef struct gw_player {
    gw_script script; /* its mesh is the player's own */
    /** "normal", or a file of float32 in host order, all tensors in forward order, for one step or
     *  more, one after another; each rank begins at another one. */
    const char *from;
    uint64_t seed; /* of normal numbers */
    int servers;   /* the first ranks, which only serve */
    long steps;    /* to play; 0: check all that can be checked without one */
    json_t **keep; /* gets what is in run.json, on rank 0; NULL: nobody asks */
    /* What came of it: */
    char copied[256]; /* why gradients are copied, not summed in place; "": they need not be */
    double step_s;    /* mean of the steps after the first */
    /* Its own: */
    int ranks;
    gradwire *g;
    gw_actor actor;
    gw_sim_mesh mesh; /* data alone */
    gw_gradients gradients;
    float *own;     /* gradients, as PyTorch has them: in memory that the library copies */
    bool lends;     /* or sums in place, for `own` is shared, as the hook's buckets are: */
    int file;       /* its file */
    int *backward;  /* the tensors from the last on, */
    float **grad;   /* and their gradients, in `own` */
    size_t *owned;  /* [group]: floats that this rank updates */
    bool moves;     /* what is sent depends on how parameters change: so they must */
    double since_s; /* the end of the first step */
} gw_player;

/** With p's first members set: play its steps over `comm`, by a handle of these words, and close
 *  it. Collective. *alone: the error is this rank's, and has to end the job. GW_ERR_INPUT: `from`
 *  is not such a file. Else the library's errors. */
gw_err gw_player_play(gw_player *p, const char *words, MPI_Comm comm, bool *alone);

#endif
