#include "base/registry.h"

#include <dlfcn.h>
#include <string.h>
#include <sys/stat.h>

/* Names are cells of CSV files and parts of specs. */
static bool registry_named(const char *name) {
    size_t len = strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-");
    return len > 0 && len <= GW_ENTRY_NAME && !name[len];
}

/* Why an entry of a plugin cannot be used, as a message. */
static gw_err registry_check(const gw_registry *reg, const char *path, const gw_entry *entry) {
    if (entry->abi != reg->abi) /* first: all else may lie elsewhere */
        return gw_fail(GW_ERR_INPUT,
                       "%s plugin %s: built for abi %d, this gradwire has %d: rebuild it",
                       reg->kind, path, entry->abi, reg->abi);
    const char *lacks = !entry->name ? "name" : !entry->summary ? "summary" : NULL;
    for (const gw_hook *h = reg->needs; h->name && !lacks; h++) {
        void *hook;
        memcpy(&hook, (const char *)entry + h->at, sizeof hook);
        lacks = hook ? NULL : h->name;
    }
    if (lacks)
        return gw_fail(GW_ERR_INPUT, "%s plugin %s: '%s' is NULL, and every %s needs it: define it",
                       reg->kind, path, lacks, reg->kind);
    if (!registry_named(entry->name))
        return gw_fail(
            GW_ERR_INPUT,
            "%s plugin %s: invalid name: it must have 1 to %d letters, digits, '_' or '-'",
            reg->kind, path, GW_ENTRY_NAME);
    return GW_OK;
}

/* A plugin calls back into whatever this is a part of. A library that was loaded privately, as
 * interpreters load theirs, is not searched for that. */
static void registry_show_us(void) {
    Dl_info us;
    if (dladdr((const void *)&gw_registry_find, &us) == 0 || !us.dli_fname)
        return;
    void *so = dlopen(us.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL);
    if (so)
        dlclose(so); /* it stays, and stays seen */
    else
        dlerror();
}

static gw_err registry_load(const gw_registry *reg, const char *path, const gw_entry **entry) {
    struct stat st;
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) /* the loader would wait for a pipe */
        return gw_fail(GW_ERR_INPUT, "%s plugin %s: is no file: name a shared object", reg->kind,
                       path);
    registry_show_us();
    void *so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!so)
        return gw_fail(GW_ERR_INPUT, "%s plugin %s: %s", reg->kind, path, dlerror());
    const gw_entry *found = dlsym(so, reg->symbol);
    gw_err e = found ? registry_check(reg, path, found)
                     : gw_fail(GW_ERR_INPUT, "%s plugin %s: exports no '%s'", reg->kind, path,
                               reg->symbol);
    if (e != GW_OK) {
        dlclose(so);
        return e;
    }
    *entry = found;
    return GW_OK;
}

static gw_err registry_builtin(const gw_registry *reg, const char *name, const gw_entry **entry) {
    const char *names[256];
    size_t n = 0;
    for (; reg->entries[n] && n < 256; n++) {
        if (strcmp(reg->entries[n]->name, name) == 0) {
            *entry = reg->entries[n];
            return GW_OK;
        }
        names[n] = reg->entries[n]->name;
    }
    size_t len = strlen(name);
    if (reg->symbol && len > 3 && strcmp(name + len - 3, ".so") == 0)
        return gw_fail(GW_ERR_USAGE,
                       "unknown %s '%s': a plugin's path has a slash in it: write './%s'",
                       reg->kind, name, name);
    return gw_unknown(NULL, reg->kind, name, names, n, "see 'gradwire list'");
}

gw_err gw_registry_find(const gw_registry *reg, const char *name, const gw_entry **entry) {
    return reg->symbol && strchr(name, '/') ? registry_load(reg, name, entry)
                                            : registry_builtin(reg, name, entry);
}
