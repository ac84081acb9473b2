/** A hash table with chains. Its items are members of the caller's structs, so it owns nothing but
 *  the chains, whose number grows with the items. A chain lists its items in the order in which
 *  they were put. One thread at a time. */
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

/** Add *item, which must stay where it is until it is taken out. GW_ERR_NOMEM: it is not in. */
gw_err gw_hash_put(gw_hash *t, gw_hashed *item, uint64_t hash);

/** The place of the first item with this hash for which same(item, like) holds, valid until the
 *  next put or take; NULL: there is none. */
gw_hashed **gw_hash_find(const gw_hash *t, uint64_t hash,
                         bool (*same)(const gw_hashed *item, const void *like), const void *like);

/** Take the item at a place that gw_hash_find returned out of the table, and return it. */
gw_hashed *gw_hash_take(gw_hash *t, gw_hashed **at);

/** Free the table, and by `free_item` each item that is left. NULL: the caller frees the items. */
void gw_hash_close(gw_hash *t, void (*free_item)(gw_hashed *item));

#endif
