/** Registries: strategies, algorithms and codecs are found by name in a table, or, given a path,
 *  in a shared object. Every ops struct begins with a gw_entry, so one lookup serves all three. */
#ifndef GW_BASE_REGISTRY_H
#define GW_BASE_REGISTRY_H

#include "base/args.h"

typedef struct gw_entry {
    int abi;             /* the seam's GW_*_ABI that the entry was compiled against */
    const char *name;    /* what a user types */
    const char *summary; /* one line for `gradwire list` */
    const gw_opt *opts;  /* NULL: none */
} gw_entry;

typedef struct gw_registry {
    const char *kind;               /* "strategy", "algorithm", "codec" */
    const char *symbol;             /* what a plugin exports: a const <ops struct> of this name */
    int abi;                        /* the only version accepted */
    const gw_entry *const *entries; /* NULL-terminated */
} gw_registry;

/** Resolve "name[:opt=value,...]" or "path/to/plugin.so[:...]" (a path holds a '/'). *args is new
 *  and the caller's. GW_ERR_USAGE: unknown name (with the nearest), bad options; GW_ERR_INPUT: a
 *  plugin that cannot be loaded, lacks the symbol or has another abi. Plugins stay loaded. */
gw_err gw_registry_find(const gw_registry *reg, const char *spec, const gw_entry **entry,
                        gw_args **args);

#endif
