/** How a played model lies on the ranks, and how a step passes the stages of a pipe: as of a real
 *  run (mesh/pipeline.h), by the same timetables, hops and runner, over lanes on simulated fabrics.
 *  A whole model is one stage that takes its batch at once. */
#ifndef GW_CLI_SIMULATE_MESH_H
#define GW_CLI_SIMULATE_MESH_H

#include "cli/replay/profile.h"
#include "comm/collective.h"
#include "comm/lane_parts.h"
#include "comm/runner.h"
#include "config/config.h"

/** What the ranks of a stage hold, chunk after chunk. */
typedef struct gw_sim_share {
    gw_step_tensor *of;
    gw_tensor *tensors;
    gw_span *layers; /* groups that the profile names */
    int *first;      /* [chunks + 1]: tensors before each chunk */
    int n_tensors, n_layers;
    size_t n; /* floats */
} gw_sim_share;

typedef struct gw_sim_mesh {
    gw_mesh_shape shape; /* data known */
    gw_timetable *timetable;
    int micros, samples; /* of a replica's step */
    int *sizes;          /* [runs]: of parts that the model can be cut into */
    size_t *edge;        /* [runs]: floats of a sample that pass on behind it */
    size_t widest, room; /* floats: of a hop; that those of a rank lie in */
    gw_cost cost;        /* of the hops of a replica's step */
    gw_sim_share *share; /* [stages] */
    double *sent;        /* when a hop left: [replicas][runs][kinds][micros] */
    double bubble_s;     /* of a play: of a step, mean over ranks and steps after the first */
} gw_sim_mesh;

/** Cut the model into stages that compute alike, for `ranks` ranks. `o`: shape, timetable,
 *  microbatches; NULL: data alone. GW_ERR_USAGE: the refusals of a real run; the profile does not
 *  say what passes on. GW_ERR_UNSUPPORTED: tensor ranks, too. */
gw_err gw_sim_mesh_open(gw_sim_mesh *m, const gw_parallel *o, const gw_step_profile *of, int ranks);
void gw_sim_mesh_close(gw_sim_mesh *m); /* also after an error, and of zeros */

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
    double ended_s;          /* its last action */
    double comm_s, bubble_s; /* of this step, for hops; of that, until they left */
    gw_cost sent;            /* by its hops */
} gw_sim_pipe;

/** Collective over the world, with the caller's members set; the first `servers` replicas are idle.
 *  gw_sim_pipe_close also after an error. */
gw_err gw_sim_pipe_open(gw_sim_pipe *p, int servers, gw_codec *exact, gw_phantom *phantom);
void gw_sim_pipe_close(gw_sim_pipe *p);

/** Collective over the world: a lane of the ranks that differ in `d` alone. */
gw_err gw_sim_pipe_lane(const gw_sim_pipe *p, gw_dim d, gw_lane_setup setup, gw_lane **out);

/** Hand the result of an action on, if there is somebody to take it. */
gw_err gw_sim_pipe_send(gw_sim_pipe *p, gw_act act);

/** All actions of a step. */
gw_err gw_sim_pipe_step(gw_sim_pipe *p);

#endif
