/** Turns to call MPI, for a process with several threads under MPI_THREAD_SERIALIZED, which forbids
 *  two calls at once. A helper thread takes a turn around anything that may call MPI; so does the
 *  main thread while a helper may be active (from the start of an exchange to the wait for it).
 *  Otherwise a turn is an uncontended lock of some nanoseconds. Turns do not nest. */
#ifndef GW_BASE_TURN_H
#define GW_BASE_TURN_H

#include <pthread.h>
#include <stdbool.h>

/** Block until no other thread has the turn. */
void gw_turn_take(void);
void gw_turn_leave(void);

/** True if a thread waits for the turn. A thread that takes turn after turn should let that one
 *  go first. */
bool gw_turn_wanted(void);

/** Holding the turn: release it until `changed` is signalled, as pthread_cond_wait. */
void gw_turn_wait(pthread_cond_t *changed);

/** Report that a helper thread begins (`more`) or has ended; any thread. */
void gw_turn_join(bool more);
/** True if there is a helper. Then nobody may block in MPI, as that would keep the turn. */
bool gw_turn_shared(void);

#endif
