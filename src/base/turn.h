/** Turns at MPI, for a process in which more than one thread calls it under MPI_THREAD_SERIALIZED:
 *  never two at once. A thread beside the main one takes a turn around whatever may call MPI; so
 *  does the main thread wherever such a thread may be at work (between the start of an exchange and
 *  the wait for it). Else an uncontended lock, some nanoseconds. Turns do not nest. */
#ifndef GW_BASE_TURN_H
#define GW_BASE_TURN_H

#include <pthread.h>
#include <stdbool.h>

/** Blocks until no other thread has the turn. */
void gw_turn_take(void);
void gw_turn_leave(void);

/** Does anybody wait for the turn? A thread that takes turn after turn lets others go first. */
bool gw_turn_wanted(void);

/** With the turn: give it up until `changed` is signalled, as pthread_cond_wait. */
void gw_turn_wait(pthread_cond_t *changed);

/** A thread that takes turns begins (more) or has ended; any thread. */
void gw_turn_join(bool more);
/** Is there one? Then nobody may block in MPI: it would keep the turn. */
bool gw_turn_shared(void);

#endif
