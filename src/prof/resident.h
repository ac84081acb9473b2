/** The peak resident memory of this process, phase by phase of a run: VmHWM of /proc/self/status.
 *  Writing 5 to /proc/self/clear_refs resets it to what is resident now (proc_pid_clear_refs(5),
 *  proc_pid_status(5)). A change of phase takes a few system calls, tens of microseconds: between
 *  batches, never within one. Main thread. */
#ifndef GW_PROF_RESIDENT_H
#define GW_PROF_RESIDENT_H

/** The phases of a run; and the maximum over all of them. */
typedef enum gw_resident_phase {
    GW_RESIDENT_SETUP, /* since the process began */
    GW_RESIDENT_TRAINING,
    GW_RESIDENT_EVALUATION,
    GW_RESIDENT_TOTAL,
    GW_RESIDENT_PHASES
} gw_resident_phase;

extern const char *const gw_resident_names[GW_RESIDENT_PHASES];

/** Bytes; NaN: not known. `shared`, when the phase ended: pages of shared memory and of files (the
 *  program, its libraries), of which the ranks of a node have one copy. */
typedef struct gw_resident_bytes {
    double peak, shared;
} gw_resident_bytes;

typedef struct gw_resident {
    const char *proc; /* "/proc/self" */
    gw_resident_phase now;
    gw_resident_bytes most[GW_RESIDENT_PHASES];
    char why[96]; /* the phases cannot be told apart; "": they can */
} gw_resident;

/** Start in the setup, which may have begun long before. `proc` (kept): "/proc/self". */
void gw_resident_start(gw_resident *r, const char *proc);

/** End a phase, and begin `next`. A phase may come several times. */
void gw_resident_enter(gw_resident *r, gw_resident_phase next);

/** End the last phase and fill `most`; if the system cannot reset the peak, only TOTAL: the
 *  process's peak by getrusage(2). */
void gw_resident_end(gw_resident *r);

#endif
