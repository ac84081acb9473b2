/** What is found by its hash: items that lie in structs of the caller's, in chains that grow in
 *  number with them. A chain has what was put first in front. */
#ifndef GW_COMM_FABRIC_HASH_H
#define GW_COMM_FABRIC_HASH_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct gw_hashed {
    struct gw_hashed *next;
    uint64_t hash;
} gw_hashed;

/** Zeroed: empty. */
typedef struct gw_hash {
    gw_hashed **chain;
    size_t chains, n; /* chains: a power of two, or none yet */
} gw_hash;

/** The struct that has *item as its `member`. */
#define GW_HASHED(type, member, item) ((type *)((char *)(item)-offsetof(type, member)))

gw_err gw_hash_put(gw_hash *t, gw_hashed *item, uint64_t hash);

/** Where the first item is that has this hash and is the `same` as *like; NULL: there is none. */
gw_hashed **gw_hash_find(const gw_hash *t, uint64_t hash,
                         bool (*same)(const gw_hashed *item, const void *like), const void *like);

/** The item that is there, no more in the table. */
gw_hashed *gw_hash_take(gw_hash *t, gw_hashed **at);

/** free_item: NULL: they stay the caller's. */
void gw_hash_close(gw_hash *t, void (*free_item)(gw_hashed *item));

#endif
