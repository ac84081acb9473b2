/** How a played model lies on the ranks, as that of a real run does (mesh/pipeline.h). A whole
 *  model is one stage that takes its batch at once. Tensor ranks hold parts of the tensors that the
 *  profile has them divide, and sum where it says so (Shoeybi et al., "Megatron-LM", 2019). */
#ifndef GW_PLAY_MESH_H
#define GW_PLAY_MESH_H

#include "comm/algo.h"
#include "comm/pipeline/timetable.h"
#include "config/config.h"
#include "nn/model.h"
#include "play/profile.h"

/** A group: a layer of the walk (mesh/walk.h). */
typedef struct gw_sim_group {
    int first;                         /* tensor */
    size_t joins[GW_MOMENT_DELTA + 1]; /* floats of a sample that tensor ranks exchange */
    bool scatters;                     /* the sum of its input's gradient, in parts */
} gw_sim_group;

/** What a rank of a stage holds, chunk after chunk. */
typedef struct gw_sim_share {
    gw_step_tensor *of; /* with times, size and what is exchanged of the part that it has */
    gw_tensor *tensors;
    gw_span *layers;     /* groups that the profile names */
    gw_sim_group *group; /* [n_layers + 1]: the same; the last one is behind them */
    int *first;          /* [chunks + 1]: groups before each chunk */
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
    int micros, samples; /* of a replica's step */
    bool shared;         /* times are those of parts */
    int *sizes;          /* [runs]: of parts that the model can be cut into */
    gw_sim_edge *edge;   /* [runs] */
    size_t widest, room; /* floats: of a hop; that those of a rank lie in */
    size_t joined;       /* that tensor ranks exchange at most at once */
    gw_cost cost;        /* of the hops of a replica's step */
    gw_sim_share *share; /* [stages][tensor] */
    gw_algo algo;        /* of what tensor ranks exchange, */
    int pieces;          /* each in so many */
    double *sent;        /* when a hop left: [replicas][runs][kinds][micros] */
} gw_sim_mesh;

/** As gw_algo_open; what works in shared memory is opened, too. MPI's own collectives are replaced
 *  (gw_algo_replace), for no schedule of theirs is known. */
gw_err gw_sim_algo_open(gw_algo *out, const gw_spec *spec, const gw_codec *codec);

/** Options of ranks that hold the whole model each, and take their batch at once. */
extern const gw_parallel gw_parallel_plain;

/** Cut the model for `ranks` ranks into stages that compute alike, or as o->stages lists them, in
 *  parts that the profile can be cut into. `o`: shape, timetable, microbatches, what tensor ranks
 *  exchange by. GW_ERR_USAGE: the refusals of a real run; the profile does not say what passes on,
 *  or what tensor ranks divide. */
gw_err gw_sim_mesh_open(gw_sim_mesh *m, const gw_parallel *o, const gw_step_profile *of, int ranks);
void gw_sim_mesh_close(gw_sim_mesh *m); /* also after an error, and of zeros */

/** What the rank at these coordinates holds. */
const gw_sim_share *gw_sim_mesh_share(const gw_sim_mesh *m, const gw_mesh *at);

/** As in run.json, the caller's; null: each rank has the whole model, and its batch at once. */
json_t *gw_sim_mesh_json(const gw_sim_mesh *m);

/** Samples of a microbatch, and floats of each that tensor rank `part` hands on behind a run. */
size_t gw_sim_mesh_rows(const gw_sim_mesh *m, int micro);
size_t gw_sim_mesh_edge(const gw_sim_mesh *m, int run, int part);

#endif
