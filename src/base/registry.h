/** Registries find strategies, algorithms, codecs, timetables, optimizers, models and the like: by
 *  name in a table or, given a path, in a shared object. Every ops struct begins with a gw_entry,
 *  so one lookup serves all of them. */
#ifndef GW_BASE_REGISTRY_H
#define GW_BASE_REGISTRY_H

#include "base/args.h"

#include <stddef.h>

enum { GW_ENTRY_NAME = 63 }; /* most characters of a name */

typedef struct gw_entry {
    int abi;             /* the seam's GW_*_ABI that the entry was compiled against */
    const char *name;    /* what a user types: letters, digits, '_' and '-' */
    const char *summary; /* one line for `gradwire list` */
    const gw_opt *opts;  /* NULL: none */
} gw_entry;

/** A hook that every entry of a registry must provide. */
typedef struct gw_hook {
    const char *name;
    size_t at; /* offset in the ops struct */
} gw_hook;

#define GW_HOOK(ops, member)                                                                       \
    { #member, offsetof(ops, member) }

typedef struct gw_registry {
    const char *kind;               /* "strategy", "algorithm", "codec", .. */
    const char *symbol;             /* what a plugin exports: a const <ops struct> of this name;
                                       NULL: there are no plugins */
    int abi;                        /* the only version accepted */
    const gw_entry *const *entries; /* NULL-terminated */
    const gw_hook *needs;           /* what a plugin must not leave NULL; ends with {0} */
} gw_registry;

/** Find an entry by its name, or by the path of a plugin, which contains a '/'. A name is looked up
 *  only in the table, never where the loader searches. Plugins stay loaded. GW_ERR_USAGE: unknown
 *  name (with the nearest); GW_ERR_INPUT: a plugin that cannot be loaded, lacks the symbol or a
 *  needed hook, or has another abi or an invalid name. */
gw_err gw_registry_find(const gw_registry *reg, const char *name, const gw_entry **entry);

#endif
