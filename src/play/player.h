/** Plays a profile's steps through the library, as a program would that trains the model: the
 *  smallest client of gradwire.h. Only the computing is replaced, by waiting. */
#ifndef GW_PLAY_PLAYER_H
#define GW_PLAY_PLAYER_H

#include "play/gradients.h"
#include <gradwire.h>

#include <stdbool.h>

typedef struct gw_player {
    const gw_step_profile *profile;
    const gw_gradients *gradients;
    bool sleeps;        /* another device computes, else this core */
    bool lazy;          /* --update lazy */
    double speed;       /* times as fast as the profile's device */
    int ranks, servers; /* the first ranks, which only serve */
    bool serves;        /* this one does */
    size_t bucket;      /* bytes of gradients that are announced together; or 0 */
    long steps;         /* to play */
    /* Its own: */
    gradwire *g;
    size_t *at;       /* [tensor]: floats before it */
    float *own;       /* gradients, as PyTorch has them: in memory that the library copies */
    bool lends;       /* or sums in place, for `own` is shared, as the hook's buckets are: */
    int file;         /* its file */
    char copied[256]; /* why gradients are copied in spite of that; "": they are not */
    float **grad;     /* [tensor]: in `own` */
    struct {
        int *tensor, n; /* that wait for their bucket to be full, */
        float **grad;   /* and their gradients */
        size_t bytes;
        bool first; /* the next one is a step's first */
    } filling;
    double *owned; /* [group]: share of all parameters that this rank updates */
    bool moves;    /* what is sent depends on how parameters change: so they must */
    double due_s;  /* when the device is through with what it was given, by gw_nap_now */
    double wake_s; /* a nap is cut by so much, for it ends later than asked for */
    double late_s; /* sum of how late the host was when the backward pass of a step was over */
    long step;
    double step_s; /* mean of those after the first */
} gw_player;

/** Declare the profile's tensors to `g`; with a `most`, none larger than so many floats, for a
 *  check. All errors are the library's: negative, and gradwire_error has the line. */
int gw_player_declare(gradwire *g, const gw_step_profile *profile, size_t most);

/** With p's first members set, before gw_player_run: memory. `g` is open. Local. */
int gw_player_open(gw_player *p, gradwire *g);

/** Play p->steps steps. */
int gw_player_run(gw_player *p);

void gw_player_free(gw_player *p);

#endif
