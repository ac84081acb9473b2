/** Plays a profile's steps through the library, as a program would that trains the model, on this
 *  machine. Only the computing is replaced, by waiting. */
#ifndef GW_PLAY_PLAYER_H
#define GW_PLAY_PLAYER_H

#include "play/actor.h"
#include "play/gradients.h"
#include <gradwire.h>

#include <stdbool.h>

typedef struct gw_player {
    gw_script script; /* its mesh is the player's own */
    const gw_gradients *gradients;
    int ranks, servers; /* servers: the first ranks, which only serve */
    long steps;         /* to play */
    /* Its own: */
    gradwire *g;
    gw_actor actor;
    gw_sim_mesh mesh; /* data alone */
    float *own;       /* gradients, as PyTorch has them: in memory that the library copies */
    bool lends;       /* or sums in place, for `own` is shared, as the hook's buckets are: */
    int file;         /* its file */
    char copied[256]; /* why gradients are copied in spite of that; "": they are not */
    int *backward;    /* the tensors from the last on, */
    float **grad;     /* and their gradients, in `own` */
    size_t *owned;    /* [group]: floats that this rank updates */
    bool moves;       /* what is sent depends on how parameters change: so they must */
    double since_s;   /* the end of the first step */
    double step_s;    /* mean of those after it */
} gw_player;

/** Declare the profile's tensors to `g`; with a `most`, none larger than so many floats, for a
 *  check. All errors are the library's: negative, and gradwire_error has the line. */
int gw_player_declare(gradwire *g, const gw_step_profile *profile, size_t most);

/** With p's first members set, before gw_player_run. `g` is open. Collective over `comm`, but an
 *  error may be this rank's alone. */
gw_err gw_player_open(gw_player *p, gradwire *g, MPI_Comm comm);

/** Play p->steps steps. Errors are the library's. */
gw_err gw_player_run(gw_player *p);

void gw_player_free(gw_player *p);

#endif
