/** How a played model lies on the ranks, and how a step passes the stages of a pipe: as of a real
 *  run (mesh/pipeline.h), by the same timetables, hops and runner, over lanes on simulated fabrics.
 *  A whole model is one stage that takes its batch at once. Tensor ranks hold parts of the tensors
 *  that the profile has them divide, and sum where it says so (Shoeybi et al., "Megatron-LM",
 *  2019). */
#ifndef GW_PLAY_MESH_H
#define GW_PLAY_MESH_H

#include "comm/collective.h"
#include "comm/fabric/sim.h"
#include "comm/lane_parts.h"
#include "comm/runner.h"
#include "config/config.h"
#include "play/profile.h"

/** What a rank of a stage holds, chunk after chunk. */
typedef struct gw_sim_share {
    gw_step_tensor *of; /* with times, size and what is exchanged of the part that it has */
    gw_tensor *tensors;
    gw_span *layers; /* groups that the profile names */
    int *first;      /* [chunks + 1]: tensors before each chunk */
    int n_tensors, n_layers;
    size_t n; /* floats */
} gw_sim_share;

/** What passes on behind a run: floats of a sample, of which tensor ranks may have parts. */
typedef struct gw_sim_edge {
    size_t n;
    bool divided;
} gw_sim_edge;

typedef struct gw_sim_mesh {
    gw_mesh_shape shape; /* data known */
    gw_timetable *timetable;
    int micros, samples;  /* of a replica's step */
    int *sizes;           /* [runs]: of parts that the model can be cut into */
    gw_sim_edge *edge;    /* [runs] */
    size_t widest, room;  /* floats: of a hop; that those of a rank lie in */
    size_t joined;        /* that tensor ranks exchange at most at once */
    gw_cost cost;         /* of the hops of a replica's step */
    gw_sim_share *share;  /* [stages][tensor] */
    gw_algo algo;         /* of what tensor ranks exchange, */
    const char *modelled; /* as gw_sim_algo_open says, */
    int pieces;           /* each in so many */
    double *sent;         /* when a hop left: [replicas][runs][kinds][micros] */
    double bubble_s;      /* of a play: of a step, mean over ranks and steps after the first */
} gw_sim_mesh;

/** As gw_algo_open; what works in shared memory is opened, too. No schedule of MPI's own
 *  collectives is known: `halving` in one piece stands for them, by which MPICH reduces long spans
 *  (R. Thakur, R. Rabenseifner, W. Gropp, IJHPCA 2005). *modelled: the name of what it stands for;
 *  else NULL. */
gw_err gw_sim_algo_open(gw_algo *out, const gw_spec *spec, const gw_codec *codec,
                        const char **modelled);

/** Cut the model into stages that compute alike, for `ranks` ranks. `o`: shape, timetable,
 *  microbatches, what tensor ranks exchange by; NULL: data alone. GW_ERR_USAGE: the refusals of a
 *  real run; the profile does not say what passes on, or what tensor ranks divide. */
gw_err gw_sim_mesh_open(gw_sim_mesh *m, const gw_parallel *o, const gw_step_profile *of, int ranks);
void gw_sim_mesh_close(gw_sim_mesh *m); /* also after an error, and of zeros */

/** Reserve address space for what lanes over such a mesh hand out to one rank of a model of n
 *  floats. *out: zeroed before; call gw_sim_mesh_unreserve also after an error. */
gw_err gw_sim_mesh_reserve(const gw_sim_mesh *m, size_t n, gw_phantom *out);
void gw_sim_mesh_unreserve(const gw_sim_mesh *m, size_t n, gw_phantom *p);

/** What the rank at these coordinates holds. */
const gw_sim_share *gw_sim_mesh_share(const gw_sim_mesh *m, const gw_mesh *at);

/** As in run.json, the caller's; null: each rank has the whole model, and its batch at once. */
json_t *gw_sim_mesh_json(const gw_sim_mesh *m);

/** One rank's place, and what it hands on. */
typedef struct gw_sim_pipe {
    const gw_sim_mesh *mesh;
    gw_fabric *world;
    /* The caller's, as these two: compute such a part of the batch's time, and call
     * gw_sim_pipe_send as soon as its result is there; poll what else is under way. */
    gw_err (*compute)(void *ctx, gw_act act, double part);
    gw_err (*beside)(void *ctx);
    void *ctx;
    gw_mesh at;
    bool idle; /* no samples come to this replica */
    gw_lane *lane[GW_HOP_KINDS];
    gw_hops *hops; /* NULL: one stage */
    gw_runner runner;
    gw_lane *among;                       /* the tensor ranks */
    gw_collective join[GW_ALLGATHER + 1]; /* by verb */
    gw_cost joins;                        /* of the first tensor rank: by all of them, so far */
    double ended_s;                       /* its last action */
    double comm_s, bubble_s;              /* of this step, for hops; of that, until they left */
    double joins_s;                       /* of this step, for what tensor ranks exchange */
    gw_sim_tally sent[GW_DIMS];           /* by this rank, since the caller set it to 0 */
} gw_sim_pipe;

/** Collective over the world, with the caller's members set; the first `servers` replicas are idle.
 *  gw_sim_pipe_close also after an error. */
gw_err gw_sim_pipe_open(gw_sim_pipe *p, int servers, gw_codec *exact, gw_phantom *phantom);
void gw_sim_pipe_close(gw_sim_pipe *p);

/** Collective over the world: a lane of the ranks that differ in `d` alone. */
gw_err gw_sim_pipe_lane(gw_sim_pipe *p, gw_dim d, gw_lane_setup setup, gw_lane **out);

/** Hand the result of an action on, if there is somebody to take it. */
gw_err gw_sim_pipe_send(gw_sim_pipe *p, gw_act act);

/** What tensor ranks exchange of a piece of a microbatch's samples: a collective over so many
 *  floats of each. Pieces may be under way at once, but not beside another such exchange. */
typedef struct gw_sim_join {
    gw_verb verb;
    size_t floats; /* 0: nothing */
    int micro, pieces, piece;
} gw_sim_join;

/** How many pieces there are of `floats` of each sample: 1 where there is nothing to exchange. */
int gw_sim_pipe_pieces(const gw_sim_pipe *p, int micro, size_t floats);
gw_err gw_sim_pipe_join(gw_sim_pipe *p, const gw_sim_join *j, bool starts); /* else waits for it */

/** All actions of a step. */
gw_err gw_sim_pipe_step(gw_sim_pipe *p);

#endif
