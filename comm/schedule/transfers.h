/** An allreduce as data: rounds of transfers between ranks, read from a JSON file and checked
 *  before anything is sent. docs/schedules.md defines the format.
 *
 *  The checked rule keeps the bits equal on all ranks with any codec. For each block of the span,
 *  "add" moves a rank's sum to another rank, which adds it to its own. A rank does so once; from
 *  then on its block takes only the whole sum. So the contributions meet on one rank, each exactly
 *  once. "set" passes the whole sum on unchanged, from that rank and from those that have it by
 *  then. All transfers of a round read what was there before the round. */
#ifndef GW_COMM_SCHEDULE_TRANSFERS_H
#define GW_COMM_SCHEDULE_TRANSFERS_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

enum {
    GW_TRANSFERS_CELLS = 1 << 18, /* most ranks x blocks */
    GW_TRANSFERS_BYTES = 8 << 20  /* most bytes of a file */
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

/** Read and check the file at `path`. GW_ERR_INPUT: it is not readable, or breaks a rule: the
 *  message names round, transfer, block and rank. Free with gw_transfers_clear, also after an
 *  error. */
gw_err gw_transfers_load(gw_transfers *t, const char *path);

/** The same for a text; `path` is for messages. */
gw_err gw_transfers_read(gw_transfers *t, const char *path, const char *text, size_t len);

void gw_transfers_clear(gw_transfers *t);

#endif
