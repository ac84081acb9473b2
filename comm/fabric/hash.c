#include "comm/fabric/hash.h"

#include "base/mem.h"

#include <stdlib.h>

static void hash_append(gw_hash *t, gw_hashed *item) {
    gw_hashed **at = &t->chain[item->hash & (t->chains - 1)];
    while (*at)
        at = &(*at)->next;
    item->next = NULL;
    *at = item;
}

gw_err gw_hash_put(gw_hash *t, gw_hashed *item, uint64_t hash) {
    if (t->n >= t->chains) {
        gw_hash old = *t;
        gw_hashed **chain = NULL;
        size_t chains = old.chains ? 2 * old.chains : 1024;
        GW_TRY(gw_alloc(&chain, chains, sizeof(gw_hashed *)));
        t->chain = chain;
        t->chains = chains;
        for (size_t i = 0; i < old.chains; i++)
            for (gw_hashed *moved = old.chain[i], *next; moved; moved = next) {
                next = moved->next;
                hash_append(t, moved);
            }
        free(old.chain);
    }
    item->hash = hash;
    hash_append(t, item);
    t->n++;
    return GW_OK;
}

gw_hashed **gw_hash_find(const gw_hash *t, uint64_t hash,
                         bool (*same)(const gw_hashed *item, const void *like), const void *like) {
    gw_hashed **at = t->chains ? &t->chain[hash & (t->chains - 1)] : NULL;
    while (at && *at && !((*at)->hash == hash && same(*at, like)))
        at = &(*at)->next;
    return at && *at ? at : NULL;
}

gw_hashed *gw_hash_take(gw_hash *t, gw_hashed **at) {
    gw_hashed *item = *at;
    *at = item->next;
    t->n--;
    return item;
}

void gw_hash_close(gw_hash *t, void (*free_item)(gw_hashed *item)) {
    for (size_t i = 0; free_item && i < t->chains; i++)
        for (gw_hashed *item = t->chain[i], *next; item; item = next) {
            next = item->next;
            free_item(item);
        }
    free(t->chain);
    *t = (gw_hash){0};
}
