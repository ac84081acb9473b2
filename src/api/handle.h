/** Shared by the files of the library: the handle, and the beginning and end of each public
 *  function. Nobody else includes this. */
#ifndef GW_API_HANDLE_H
#define GW_API_HANDLE_H

#include "api/inside.h"
#include "api/words.h"
#include "mpi/guard.h"
#include "optim/optimizer.h"
#include "record/recorder.h"
#include "run/codec_stats.h"
#include "run/session.h"
#include <pthread.h>

/** A tensor of the caller's model. */
typedef struct gw_handle_tensor {
    char *name;
    bool tracks;      /* of the program's models; see gw_tensor */
    int group, layer; /* layer: for a codec's rules; the group, unless set */
    gw_span span;     /* of the arenas */
    size_t rows;
    float *param; /* the caller's; NULL: it is in the arena */
    float *grad;  /* of this batch, the caller's; NULL: it is in the arena */
    bool ready;   /* in this batch */
    size_t given; /* floats of this batch's sum that are in grad already */
    bool lent;    /* grad lies in memory given to gradwire_lend */
} gw_handle_tensor;

/** A part of a tensor that this rank updates: floats [from, from + n) of it. */
typedef struct gw_piece {
    int tensor;
    size_t from, n;
} gw_piece;

typedef enum gw_handle_state {
    GW_HANDLE_NEW,     /* tensors are declared */
    GW_HANDLE_BETWEEN, /* open, between two batches */
    GW_HANDLE_BATCH,
    GW_HANDLE_BROKEN /* an error ended the exchange */
} gw_handle_state;

/** What is recorded of a run; see files.c. */
typedef struct gw_files {
    gw_recorder rec;
    int64_t compared, comparisons; /* the step of the last comparison; how many there were */
    double compare_s;
    json_t **keep; /* also put the contents of run.json here; NULL: nowhere */
} gw_files;

/** The tensors, and where they lie. */
typedef struct gw_handle_arena {
    gw_handle_tensor *tensor;
    int n_tensors, room, groups;
    size_t n;          /* floats of all tensors */
    gw_span *group;    /* spans of the groups */
    int *first;        /* [group]: its first tensor; groups + 1 of them */
    gw_tensor *layout; /* of the tensors, for the session */
    float *grads;      /* where the caller may write gradients: the session's arena; or this one, */
    float *late;       /* if the session's is needed until the parameters are updated; else NULL */
    gw_piece *piece;
    int n_pieces;
    const char **names; /* of the tensors */
} gw_handle_arena;

/** The batch, and the state of its exchange. */
typedef struct gw_handle_batch {
    int64_t step;                                /* 1.. */
    int epoch;                                   /* 1.. */
    double validation_loss, validation_accuracy; /* of the epoch's row; NaN: not told */
    int samples;
    double share;
    int phase;         /* a gw_phase that is entered; negative: none */
    bool open;         /* the ledger's */
    bool begun;        /* the exchange of this batch */
    int ready, passed; /* tensors that are ready; groups passed to the session, from the last on */
    int finished, updated, awaited; /* groups, from 0 on */
    bool pending;                   /* an exchange is not over */
    bool fresh;                     /* parameters may have changed outside of batches */
    bool agreed;                    /* the ranks have agreed whether this exchange is void */
    bool abandoned;                 /* it is void, and none of it takes place */
    bool owns;                      /* it has something to update by */
    int moved;                      /* groups that gradwire_update has updated */
    gw_update update;               /* of the last finish */
    uint64_t logical;
} gw_handle_batch;

/** How it ends. */
typedef struct gw_handle_end {
    MPI_Comm comm; /* the ranks', to meet in at the end of the process, and for nothing else */
    bool leaves;   /* it is closed there */
    double loss;   /* of a batch that is open there */
} gw_handle_end;

struct gradwire {
    gradwire *next; /* of this process */
    pthread_t thread;
    bool inside;  /* the program's own: see inside.h; words and files are empty */
    bool records; /* the first of a process: it owns ledger, folder and watchdog, and what others
                     cost is part of its batches */
    int others;   /* handles opened beside it */
    gw_inside_setup told;
    gw_handle_state state;
    gw_words words;
    MPI_Comm comm;
    int rank, ranks;
    gw_host_node node;
    bool oversubscribed;
    gw_session *session;
    bool opened;       /* the session */
    bool publishes;    /* the strategy reads or writes the arena of parameters */
    bool by_group;     /* it finishes groups one by one; else all at once */
    char refused[512]; /* the first refused tensor, and why; "": none */
    bool alone;        /* broken by an error that no other rank learns of */
    gw_handle_arena arena;
    gw_optimizer *optimizer; /* for gradwire_update; NULL: the caller updates */
    gw_guard guard;
    gw_handle_batch batch;
    gw_files files;
    gw_handle_end end;
};

/** Where a function may be called. */
enum {
    GW_IN_NEW = 1 << GW_HANDLE_NEW,
    GW_IN_BETWEEN = 1 << GW_HANDLE_BETWEEN,
    GW_IN_BATCH = 1 << GW_HANDLE_BATCH,
    GW_IN_OPEN = GW_IN_BETWEEN | GW_IN_BATCH
};

/* call.c */

/** What a call has changed and will restore. */
typedef struct gw_call {
    gradwire *g;
    const char *name;
    unsigned long floats; /* the floating-point state */
    int threads;          /* OpenMP's */
    bool together;        /* collective: all ranks return the same error */
    bool inside;          /* the handle is: nothing was changed */
} gw_call;

/** Begin a call of function `name`, allowed `in` these states. GW_ERR_USAGE: the state is another,
 *  or `g` is no handle or another thread's. In any case call gw_call_end with the result. */
gw_err gw_call_begin(gw_call *c, gradwire *g, const char *name, int in, bool together);
int gw_call_end(gw_call *c, gw_err e);

/** Restore what a call changed in its thread, as gw_call_end does. The handle may be gone. */
void gw_call_restore(gw_call *c);

/** Make calls know the handle, or know it no longer. */
void gw_call_remember(gradwire *g);
void gw_call_forget(const gradwire *g);

/** Does a new handle record? Until it is forgotten, others do not. GW_ERR_USAGE: another thread
 *  has a handle, and one thread makes and ends all. */
gw_err gw_call_take(bool *records);

/** Return the last handle of the public header, in any state; NULL: none. */
gradwire *gw_call_open(void);

/** Return the number of handles; and the float32 bytes that they have exchanged together. */
int gw_call_handles(void);
uint64_t gw_call_logical(void);

/** Make this process the one that may call. True: it was not yet. */
bool gw_call_own(void);

/** Is this process a child (fork) of that one? It has copies of the rank's handles and of MPI, and
 *  would disturb the rank's messages by any call; GW_CALL_CHILD says so. */
bool gw_call_child(void);
#define GW_CALL_CHILD                                                                              \
    "this process is a child (fork) of a rank, and has no part in its exchange: call it in the rank"

/** Return GW_ERR_USAGE, with a line that names the function. */
gw_err gw_call_refuse(const char *name, const char *why);

/* start.c */

/** GW_ERR_UNSUPPORTED: MPI was `provided` with a lower thread level than `wanted`. */
gw_err gw_start_check_level(int wanted, int provided);

/** Called when a handle is made: from now on a process that ends with a handle open must not look
 *  successful. */
void gw_start_mind(void);

/* open.c */

/** Make the session of the handle's words. No MPI call. */
gw_err gw_handle_session(gradwire *g);

/* batch.c */

/** Begin the exchange of this batch. */
gw_err gw_batch_exchange(gradwire *g);

/** Check which group a function is called for: if lazy, `next`, the first that it was not called
 *  for yet; else all at once. The second returns the group after the last of them. */
gw_err gw_batch_next(const gradwire *g, const char *name, int group, int next);
int gw_batch_until(const gradwire *g, int group, int next);

/* update.c */

/** Open the rule of --optimizer, if any, before the session opens; check it afterwards. */
gw_err gw_update_open(gradwire *g);
gw_err gw_update_check(const gradwire *g);

/* layout.c */

/** Return a checksum over the tensors. */
uint32_t gw_layout_sum(const gradwire *g);

/** Lay the declared tensors out in arenas. */
gw_err gw_layout_make(gradwire *g);
/** Find what this rank updates, once the session is open. */
gw_err gw_layout_own(gradwire *g);
/** Copy rank 0's parameters to all ranks, and into the arena. Collective. */
gw_err gw_layout_share(gradwire *g);
/** Copy rank 0's memory to all ranks, which have as many bytes there. Collective. */
gw_err gw_layout_send(const gradwire *g, void *memory, size_t bytes);
void gw_layout_free(gradwire *g);

/** Return the CRC-32 of a group's parameters, if the caller owns all of them. */
uint32_t gw_layout_group_sum(const void *handle, int group);

/** Copy the caller's parameters within `s` to the arena, if there is one, and back. */
void gw_layout_take_params(gradwire *g, gw_span s);
void gw_layout_give_params(gradwire *g, gw_span s);

/** Copy a tensor's gradient to the arena, scaled by the share; the guard looks at it. */
void gw_layout_take_grad(gradwire *g, int tensor);
/** True, alike on all ranks, if the guard looks at lent memory only when it is summed, by
 *  gw_layout_look after the exchange: a separate look would take one more pass over memory. */
bool gw_layout_looks_later(const gradwire *g);
void gw_layout_look(gradwire *g);
/** For gw_env.arrived: copy a part of the sum to where the gradients were, while others travel. */
void gw_layout_arrived(void *handle, gw_span part);
/** Copy what `u` has to where the gradients were. */
void gw_layout_give_grads(gradwire *g, const gw_update *u);
/** Write zeros where gradients within `s` were. */
void gw_layout_clear_grads(gradwire *g, gw_span s);

/* files.c, and report.c for run.json */

/** Claim and check the folder, before the session opens. Collective. */
gw_err gw_files_claim(gradwire *g);
/** Replace the folder, open the files, start the ledger, once nothing can be refused any more.
 *  Collective. */
gw_err gw_files_open(gradwire *g);

/** Called around a batch. The second is collective at times. */
void gw_files_begin(gradwire *g);
gw_err gw_files_end(gradwire *g, double loss);

/** Called around what is sent outside of batches. */
void gw_files_aside(const gradwire *g);
void gw_files_aside_end(gradwire *g);

/** Have the strategy settle the replicas, with nothing pending. */
gw_err gw_files_settle(gradwire *g);

/** Write an epoch's row, with nothing pending. Collective. */
gw_err gw_files_epoch(gradwire *g, double test_loss, double test_accuracy);

/** Complete the folder. Collective. */
gw_err gw_files_finish(gradwire *g);
/** Give up what is open. Local. */
void gw_files_close(gradwire *g);

/** Write run.json and algo.csv, on rank 0. */
gw_err gw_files_report(const gradwire *g, const gw_guard_total *nan, uint64_t wire_bytes);

#endif
