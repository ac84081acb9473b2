#include "compress/scratch.h"

#include <stdlib.h>
#include <string.h>

struct gw_block {
    size_t room;
    _Alignas(64) unsigned char data[];
};

gw_err gw_scratch_take(gw_scratch *s, const char *owner, size_t bytes, void *data,
                       gw_block **block) {
    gw_block *b = atomic_exchange(&s->spare, NULL);
    if (!b || b->room < bytes) {
        free(b);
        size_t whole = (sizeof *b + bytes + 63) / 64 * 64;
        b = aligned_alloc(64, whole);
        if (!b)
            return gw_fail(GW_ERR_NOMEM, "%s: out of memory: %zu bytes of scratch memory", owner,
                           bytes);
        b->room = bytes;
    }
    void *at = b->data;
    memcpy(data, &at, sizeof at);
    *block = b;
    return GW_OK;
}

void gw_scratch_give(gw_scratch *s, gw_block *block) {
    gw_block *other = atomic_exchange(&s->spare, NULL);
    if (other && other->room > block->room) { /* the next call may need as much */
        gw_block *larger = other;
        other = block;
        block = larger;
    }
    free(other);
    free(atomic_exchange(&s->spare, block));
}

void gw_scratch_clear(gw_scratch *s) {
    free(atomic_exchange(&s->spare, NULL));
}
