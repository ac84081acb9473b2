/** The seam between the code that works and the ledger that times it. A region belongs to one
 *  phase; rooms below src/prof only name the phase and never see a clock. Without an installed
 *  probe, entering and leaving cost one predictable branch each. */
#ifndef GW_BASE_PROBE_H
#define GW_BASE_PROBE_H

#include <stddef.h>
#include <stdint.h>

typedef enum gw_phase {
    GW_PHASE_OTHER = 0, /* outside all regions */
    GW_PHASE_DATA,      /* gathering and converting a local batch */
    GW_PHASE_FORWARD,
    GW_PHASE_BACKWARD,
    GW_PHASE_RECOMPUTE, /* forward pass again, where outputs were not kept */
    GW_PHASE_UPDATE,    /* the optimizer */
    GW_PHASE_ENCODE,    /* codec, error feedback included */
    GW_PHASE_DECODE,
    GW_PHASE_MPI_POST, /* starting a nonblocking operation */
    GW_PHASE_MPI_POLL, /* testing for completion */
    GW_PHASE_MPI_WAIT, /* blocked in MPI */
    GW_PHASE_CHECKPOINT,
    GW_PHASES
} gw_phase;

/** Return whether a phase is computation: forward, backward, recompute or update. */
static inline int gw_phase_computes(gw_phase phase) {
    return phase >= GW_PHASE_FORWARD && phase <= GW_PHASE_UPDATE;
}

/** Return the seconds of computation among those of all phases. */
double gw_phases_computation(const double phase_s[GW_PHASES]);

/** Work inside a phase that is also counted separately; it contains no region. */
typedef enum gw_part {
    GW_PART_FORWARD_POINTWISE,  /* biases and activations */
    GW_PART_BACKWARD_POINTWISE, /* their derivatives, and the gradients of the biases */
    GW_PART_LOSS,               /* within forward */
    GW_PARTS
} gw_part;

/** The kinds of coding in an exchange. */
typedef enum gw_coding {
    GW_CODING_ENCODE, /* encode what is sent */
    GW_CODING_ADOPT,  /* encode what all receive, and adopt the decoded values */
    GW_CODING_ADD,    /* decode and add */
    GW_CODING_SET,    /* decode */
    GW_CODING_SUM,    /* add encodings without decoding, inside an MPI collective */
    GW_CODINGS
} gw_coding;

/** Dimensions of a mesh (mpi/mesh.h): data, which is 0, pipe, tensor. */
enum { GW_EXCHANGE_PEERS = 4, GW_EXCHANGE_DIMS = 3 };
extern const char *const gw_dim_names[GW_EXCHANGE_DIMS + 1]; /* the last is NULL */

/** One run of a schedule (comm/schedule/schedule.h): the exchange of one part of an arena among the
 *  ranks of a lane. (lane, schedule, run) names the same exchange on all of them. */
typedef struct gw_exchange {
    int dim;            /* the dimension that the ranks of the lane lie along */
    int lane, schedule; /* numbers in order of opening, and of laying down; from 0 */
    uint64_t run;       /* 1.. */
    size_t off, n;      /* the part, in floats */
    const char *name;   /* what the lane carries; NULL: unnamed; lives as long as the program */
    int n_peers;        /* 0: all ranks of the lane take part; else this rank and these, */
    int peer[GW_EXCHANGE_PEERS]; /* by their rank on the lane */
} gw_exchange;

typedef enum gw_exchange_event {
    GW_EXCHANGE_START,  /* this rank has arrived: it may send its first message */
    GW_EXCHANGE_DONE,   /* seen complete; any thread */
    GW_EXCHANGE_BLOCK,  /* from now on the caller only waits for it */
    GW_EXCHANGE_UNBLOCK /* the wait is over; same thread */
} gw_exchange_event;

/** An action of a pipeline's step (comm/pipeline/timetable.h): F, B, I or W of a microbatch in a
 *  chunk. It includes exchanges with tensor ranks, but not its hops. */
typedef struct gw_action {
    char letter;
    int chunk, micro;
} gw_action;

typedef struct gw_probe {
    void (*enter)(gw_phase phase);
    void (*leave)(void);
    void (*exchange)(gw_exchange_event event, const gw_exchange *x); /* all hooks may be NULL */
    void (*part)(gw_part part, int begins);                          /* else it ends */
    void (*coded)(gw_coding kind, size_t floats);
    /** A message of a world without MPI was posted, sent or received; and seen complete. MPI's own
     *  are seen by src/prof/pmpi*.c. */
    void (*posted)(int sends, size_t bytes);
    void (*completed)(void);
    void (*turns)(int dim); /* this thread now works for exchanges along `dim` */
    void (*action)(const gw_action *a, int begins); /* else it ends */
} gw_probe;

/** The installed probe; all NULL: nobody listens. Set by src/prof before any thread starts. */
extern gw_probe gw_probe_hooks;

/** Spends virtual time on the core of the rank that runs; NULL: the clock is real. Set while a
 *  simulated world runs. */
extern void (*gw_probe_spend)(double seconds);

/** Times a strategy's own work, or that of a rule of feedback, by the machine's clock, and spends
 *  that; NULL: the clock is real, or there is nothing to work on. */
extern void (*gw_probe_work)(int begins);

/** The dimension of this thread's present exchange. */
extern _Thread_local int gw_probe_dim;

/** Declare that what follows on this thread is for exchanges along `dim`. Return the previous
 *  dimension, to which the caller returns in the same way. */
static inline int gw_dim_turn(int dim) {
    int before = gw_probe_dim;
    if (dim != before && gw_probe_hooks.turns)
        gw_probe_hooks.turns(dim);
    gw_probe_dim = dim;
    return before;
}

/** Return the column stem of a phase: "forward", "mpi_wait", ... */
const char *gw_phase_name(gw_phase phase);

/** Enter a region on this thread; regions nest, and each enter has its leave. */
static inline void gw_phase_enter(gw_phase phase) {
    if (gw_probe_hooks.enter)
        gw_probe_hooks.enter(phase);
}

static inline void gw_phase_leave(void) {
    if (gw_probe_hooks.leave)
        gw_probe_hooks.leave();
}

/** Enter and leave a region of such work, in which nobody waits. */
static inline void gw_work_enter(gw_phase phase) {
    gw_phase_enter(phase);
    if (gw_probe_work)
        gw_probe_work(1);
}

static inline void gw_work_leave(void) {
    if (gw_probe_work)
        gw_probe_work(0);
    gw_phase_leave();
}

/** Begin and end a part of a phase, in a region of that phase, on the thread that entered it. */
static inline void gw_part_begin(gw_part part) {
    if (gw_probe_hooks.part)
        gw_probe_hooks.part(part, 1);
}

static inline void gw_part_end(gw_part part) {
    if (gw_probe_hooks.part)
        gw_probe_hooks.part(part, 0);
}

/** Report that `floats` floats were encoded or decoded, inside the region that did it. */
static inline void gw_coded_tell(gw_coding kind, size_t floats) {
    if (gw_probe_hooks.coded)
        gw_probe_hooks.coded(kind, floats);
}

/** Report that an action begins or ends: on the main thread, outside regions. */
static inline void gw_action_tell(const gw_action *a, int begins) {
    if (gw_probe_hooks.action)
        gw_probe_hooks.action(a, begins);
}

static inline void gw_exchange_tell(gw_exchange_event event, const gw_exchange *x) {
    if (gw_probe_hooks.exchange)
        gw_probe_hooks.exchange(event, x);
}

#endif
