/** The walk over a model, the only one: the actions of a timetable in order, on what this rank
 *  holds, with the hops between stages and the sums over tensor ranks. A whole model is one stage
 *  that takes its batch as one microbatch, and sends nothing. An executor is told of the
 *  arithmetic, and may let time pass for it. Gradients are the session's affair, as in step/step.h;
 *  hooks tell it of them.
 *
 *  That over a mesh is made in three steps: gw_pipeline_new (options), gw_pipeline_divide (what
 *  this rank holds), gw_pipeline_open (what it sends); that over a whole model by
 *  gw_pipeline_open_whole. All calls come from the thread that initialised MPI. */
#ifndef GW_MESH_PIPELINE_H
#define GW_MESH_PIPELINE_H

#include "config/config.h"
#include "data/data.h"

#include <jansson.h>

typedef struct gw_pipeline gw_pipeline;
struct gw_session;
struct gw_codec;

/** What a pipeline's step does for the exchange of gradients. Members may be NULL: then there is
 *  nothing to do, and gradients go to the model's own arena. */
typedef struct gw_pipeline_hooks {
    void *ctx;
    /** Layer l's parameters are needed now: before its first forward pass of a step. */
    gw_err (*await)(void *ctx, int l);
    /** The first backward pass begins: say where gradients go instead, an arena of the shard, and
     *  whether they are added to what is there. */
    gw_err (*begin)(void *ctx, float **grads, bool *add);
    /** Layer l's gradient is final, in this arena. */
    gw_err (*ready)(void *ctx, int l, float *grads);
    /** The sum of the local losses is known (0 on ranks that compute none). No layer is ready. */
    void (*loss)(void *ctx, double sum);
    /** A bounded poll of what else is under way: between kernels and while the pipeline waits, or
     *  `within` a kernel. */
    gw_err (*poll)(void *ctx, bool within);
} gw_pipeline_hooks;

/** GW_ERR_USAGE, with a message that may name the command: options that would change nothing;
 *  fewer layers than chunks; fewer samples of a replica than microbatches. */
gw_err gw_pipeline_check_idle(const gw_parallel *o, const char *owner);
gw_err gw_pipeline_check_layers(const gw_parallel *o, int stages, int chunks, int layers);
gw_err gw_pipeline_check_samples(const gw_parallel *o, int samples);

/** Read sizes[0..runs) out of `text`, as --stages has them ("2,1,1"). GW_ERR_USAGE, or GW_ERR_INPUT
 *  of one that a checkpoint has kept: they are not numbers from 1 on that add up to `layers`. */
gw_err gw_pipeline_read_cut(const char *text, bool resumed, int layers, int runs, int *sizes);

/** Before MPI starts: check what needs no ranks, open codecs and the algorithm. The errors of their
 *  registries; GW_ERR_USAGE, GW_ERR_UNSUPPORTED: options that do not go together. *out is NULL
 *  where the options ask for nothing that the plain step does not do. */
gw_err gw_pipeline_new(gw_pipeline **out, const gw_train_config *c,
                       const struct gw_session *session);
const char *gw_pipeline_note(const gw_pipeline *p); /* of its codecs, for people; NULL: none */
/** Text of the codec of activations (way 0) or of their gradients (1). */
const char *gw_pipeline_codec(const gw_pipeline *p, int way);
/** Put the codecs of what its ranks send each other into out[0..n), at most GW_PIPELINE_CODECS;
 *  return n. */
int gw_pipeline_codecs(gw_pipeline *p, struct gw_codec **out);
enum { GW_PIPELINE_CODECS = 6 };

/** Collective, at the end: *idle: that codec was asked for and has encoded nothing. */
gw_err gw_pipeline_idle(const gw_pipeline *p, int way, MPI_Comm comm, bool *idle);
/** Frames that were checked so far, on its lanes. */
uint64_t gw_pipeline_frames(const gw_pipeline *p);
void gw_pipeline_free(gw_pipeline *p); /* p may be NULL; gw_pipeline_close comes first */

/** This replica's samples of a full batch, and of the shorter last one of an epoch, which may be
 *  none, or even one more. */
typedef struct gw_pipeline_rows {
    int full, last;
} gw_pipeline_rows;

/** Collective over `comm`, all ranks of the mesh, before anything is opened: lays the timetable
 *  down and says which part of the model `whole` this rank holds, and how much of it at a time.
 *  `mesh` must outlive the pipeline; shard and room stay the pipeline's. GW_ERR_USAGE,
 *  GW_ERR_UNSUPPORTED on all ranks alike. */
gw_err gw_pipeline_divide(gw_pipeline *p, const gw_mesh *mesh, const gw_model_spec *whole,
                          gw_pipeline_rows rows, MPI_Comm comm);

/** Before that: take this cut (kept) where --stages would have one measured. */
void gw_pipeline_recut(gw_pipeline *p, const char *stages);

/** How the layers are cut, as --stages takes it: "2,1,1". */
enum { GW_PIPELINE_STAGES = 4 * GW_MAX_LAYERS };
void gw_pipeline_stages(const gw_pipeline *p, char out[GW_PIPELINE_STAGES]);
const gw_shard *gw_pipeline_shard(const gw_pipeline *p);
const gw_model_room *gw_pipeline_room(const gw_pipeline *p);

/** Collective over `comm`, all ranks of the mesh: lanes, hops and sums over `model`, which was
 *  opened with gw_pipeline_shard and gw_pipeline_room. The model and what the hooks' ctx points to
 *  must outlive the pipeline's use. gw_pipeline_close is collective, too; it takes NULL, and what
 *  was opened in part or not at all. */
gw_err gw_pipeline_open(gw_pipeline *p, gw_model *model, const gw_pipeline_hooks *hooks,
                        uint64_t seed, bool yield, MPI_Comm comm);
void gw_pipeline_close(gw_pipeline *p);

/** The walk over a whole model: one stage that takes its batch at once, and sends nothing. Nothing
 *  else needs to be opened for gw_pipeline_step; without steps `hooks` may be NULL. Local;
 *  gw_pipeline_close and gw_pipeline_free. */
gw_err gw_pipeline_open_whole(gw_pipeline **out, gw_model *model, const gw_pipeline_hooks *hooks);
bool gw_pipeline_is_whole(const gw_pipeline *p);

/** Arithmetic of a step. */
typedef enum gw_computed {
    GW_COMPUTED_DATA,    /* samples gathered */
    GW_COMPUTED_FORWARD, /* a layer's forward pass; again, if it is recomputed */
    GW_COMPUTED_LOSS,
    GW_COMPUTED_INPUT,   /* the gradient of a layer's input */
    GW_COMPUTED_WEIGHTS, /* of its parameters */
    GW_COMPUTED_UPDATE   /* parameters moved */
} gw_computed;

/** Who executes what the walk comes to; play/spend.h has one. Members may be NULL: then it is
 *  computed for real, its messages are sent, and time is the machine's. */
typedef struct gw_exec {
    void *ctx;
    /** Told after arithmetic, in the phase that it belongs to: `what` was computed of layer l, of
     *  those held here, on `n` samples (UPDATE: of n parameters). n is 0 for what comes before or
     *  behind that, as what tensor ranks exchange is packed. Under a virtual clock, let its time
     *  pass; other ranks go on meanwhile. */
    void (*spend)(void *ctx, gw_computed what, int l, size_t n);
    /** Under a virtual clock: let `seconds` pass, in which the rank is held up. */
    void (*rest)(void *ctx, double seconds);
    /** Arithmetic begins, in a phase that was entered. */
    void (*begin)(void *ctx);
    /** From now on poll(of) is to be called between pieces of arithmetic; NULL: not any more. */
    void (*between)(void *ctx, void (*poll)(void *of), void *of);
    bool alone; /* no other rank takes part: nothing is sent or awaited */
    bool aside; /* not the run's own step: timeline and tempo are not told */
} gw_exec;

/** Which samples a step takes, and who executes it. */
typedef struct gw_pipeline_job {
    const gw_dataset
        *set;            /* NULL: the samples lie in the model's input, their labels in `labels` */
    const uint32_t *idx; /* of this replica's samples */
    gw_label *labels;    /* room for theirs */
    int local, global;
    bool pieces;         /* products are computed in pieces, with polls between them */
    uint64_t step;       /* by which codecs draw random numbers */
    const gw_exec *exec; /* NULL: the machine */
} gw_pipeline_job;

/** Collective over a replica: forward and backward pass inside the caller's ledger batch.
 *  *loss_sum: over the local samples, on the ranks of which gw_pipeline_counts is true; 0 on
 *  others. By an executor that is `alone` it is not collective, calls no hook, takes any number of
 *  samples that there is room for, and may leave anything in the work arena. */
gw_err gw_pipeline_step(gw_pipeline *p, const gw_pipeline_job *job, double *loss_sum);

/** Give a pipeline that is divided but not opened its model. It can then take steps by an executor
 *  that is `alone`. */
void gw_pipeline_lend(gw_pipeline *p, gw_model *model);

/** The mesh that it was divided over. */
const gw_mesh *gw_pipeline_mesh(const gw_pipeline *p);

/** Does this rank compute the loss for its replica? One of each does. */
bool gw_pipeline_counts(const gw_pipeline *p);

/** Samples of an evaluation: at most gw_pipeline_room()->rows, the same on all ranks of a
 *  replica. */
typedef struct gw_pipeline_samples {
    const gw_dataset *set;
    const uint32_t *idx;
    int n;
    const gw_label *labels;
} gw_pipeline_samples;

/** What a rank that gw_pipeline_counts found; zeros on others. */
typedef struct gw_pipeline_result {
    double loss; /* the sum over the samples */
    int correct; /* targets predicted rightly, by the model's own reading (gw_model_predictions) */
    double forward_s; /* in layers, with what ranks wait for each other there */
} gw_pipeline_result;

/** Collective over a replica: their forward pass, without codecs. After the last samples comes
 *  gw_pipeline_tested, which waits for what was sent. */
gw_err gw_pipeline_test(gw_pipeline *p, const gw_pipeline_samples *s, gw_pipeline_result *out);
gw_err gw_pipeline_tested(gw_pipeline *p);

/** Put the whole arena together at rank 0 of the mesh: `whole` there, out of `own`, the arenas of
 *  the ranks of its replica. Collective over `comm`, all ranks of the mesh, though replicas other
 *  than rank 0's send nothing. */
gw_err gw_pipeline_collect(const gw_pipeline *p, const float *own, float *whole, MPI_Comm comm);
/** And back: `own` on the ranks of rank 0's replica, out of its `whole`. */
gw_err gw_pipeline_deal(const gw_pipeline *p, const float *whole, float *own, MPI_Comm comm);

/** The name of the hops of activations (way 0), of their gradients (1), or of an evaluation (2). */
const char *gw_pipeline_hop_name(int way);

/** Chunks of layers of this rank. */
int gw_pipeline_chunks(const gw_pipeline *p);

/** Do tensor ranks sum by MPI's own collectives, which do not say what they send? */
bool gw_pipeline_sums_by_mpi(const gw_pipeline *p);

/** For run.json, owned by the caller; null where there is no pipeline. */
json_t *gw_pipeline_json(const gw_pipeline *p);

#endif
