/** Ceilings as JSON: the cache between runs, and what `--ceilings FILE` reads. */
#ifndef GW_ROOFLINE_CEILINGS_FILE_H
#define GW_ROOFLINE_CEILINGS_FILE_H

#include "roofline/ceilings.h"

#include <jansson.h>

/** Bumped when a key changes its meaning. */
#define GW_CEILINGS_FORMAT 1

/** The whole set, named times included; json_decref(). NULL: out of memory, or a text that is not
 * UTF-8. Figures that were not measured are null. */
json_t *gw_ceilings_json(const gw_ceilings *c);

/** Read PATH. GW_ERR_INPUT: it cannot be read, is not such a file, or holds a figure that cannot
 * be: the message names file, key and value. */
gw_err gw_ceilings_load(gw_ceilings *out, const char *path);

/** GW_OK, or GW_ERR_INPUT with what differs: host, CPU, kernels, threads, or oversubscription. The
 *  host's name is not looked at where `any_host`. `path` is for the message. */
gw_err gw_ceilings_fit(const gw_ceilings *got, const gw_ceilings *want, bool any_host,
                       const char *path);

enum { GW_CEILINGS_PATH = 4096 };

/** Where sets for this host, CPU, kernels and threads are cached:
 *  $XDG_CACHE_HOME/gradwire/ceilings-HASH.json, else ~/.cache/..; "": there is no such place. */
void gw_ceilings_cache(const gw_ceilings *want, char path[GW_CEILINGS_PATH]);

/** Write the set to PATH, whole or not at all, making its folders; whoever writes last wins.
 *  GW_ERR_IO, GW_ERR_INPUT: it could not be written. */
gw_err gw_ceilings_store(const gw_ceilings *c, const char *path);

#endif
