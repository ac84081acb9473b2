/** DIR/interruptions.jsonl: what happened to the run in DIR from outside, a JSON object a line, in
 *  order of time; run.json has them in the end. An entry "ended" comes from experiments/supervise,
 * an entry "resumed" from the start that went on. No MPI. */
#ifndef GW_FOLDER_HISTORY_H
#define GW_FOLDER_HISTORY_H

#include "base/err.h"

#include <jansson.h>

#define GW_HISTORY "interruptions.jsonl"

/** The time as all files of a run have it, e.g. 2026-01-31T12:00:00Z. */
enum { GW_UTC = 32 };
void gw_utc_now(char utc[GW_UTC]);

/** Append `entry` (an object; taken over in any case; NULL: memory ran out) and fsync. GW_ERR_IO.
 */
gw_err gw_history_add(const char *dir, json_t *entry);

/** All entries: an array, the caller's; no file, an empty one. A line that is none, as a crash of
 *  the machine may leave it, is {"event": "unreadable"}. GW_ERR_INPUT: the file cannot be read. */
gw_err gw_history_read(const char *dir, json_t **all);

#endif
