/** An allreduce as data: rounds of transfers between ranks, read from a JSON file and checked
 *  before anything is sent. docs/schedules.md has the format.
 *
 *  The rule that is checked keeps the bits equal on all ranks, whatever the codec. Of each block of
 *  the span, "add" moves a rank's sum to another rank, which adds it to its own; a rank does so
 *  once, and its block takes nothing from then on but the whole sum. So the contributions come
 *  together on one rank, each exactly once. "set" hands on the whole sum as it is, from that rank
 *  and from those that have it by then. All transfers of a round read what was there before it. */
#ifndef GW_COMM_TRANSFERS_H
#define GW_COMM_TRANSFERS_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

enum {
    GW_TRANSFERS_CELLS = 1 << 18, /* ranks x blocks, at most */
    GW_TRANSFERS_BYTES = 8 << 20  /* of a file, at most */
};

typedef struct gw_move {
    int round, from, to;
    int first, count; /* blocks */
    bool add;         /* else set */
} gw_move;

typedef struct gw_transfers {
    int ranks, blocks, n;
    gw_move *x; /* n of them, round by round */
} gw_transfers;

/** Read and check what is in the file at `path`. GW_ERR_INPUT: it cannot be read, or a rule is
 *  broken; the message names round and transfer, block and rank. Free with gw_transfers_clear, also
 *  after an error. */
gw_err gw_transfers_load(gw_transfers *t, const char *path);

/** The same of its text; `path` is for messages. */
gw_err gw_transfers_read(gw_transfers *t, const char *path, const char *text, size_t len);

void gw_transfers_clear(gw_transfers *t);

#endif
