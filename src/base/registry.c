#include "base/registry.h"

#include "base/file.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

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
    /* Names are cells of CSV files and parts of specs. */
    size_t len =
        strspn(entry->name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-");
    if (len == 0 || len > GW_ENTRY_NAME || entry->name[len])
        return gw_fail(
            GW_ERR_INPUT,
            "%s plugin %s: invalid name: it must have 1 to %d letters, digits, '_' or '-'",
            reg->kind, path, GW_ENTRY_NAME);
    return GW_OK;
}

/* Returns true if all that an ELF file's headers place in it lies within its `bytes`: the loader
 * maps what they say, and touching what lies beyond the end kills the process (SIGBUS). */
static bool registry_is_whole(FILE *in, uint64_t bytes) {
    ElfW(Ehdr) head;
    if (fread(&head, sizeof head, 1, in) != 1)
        return false;
    uint64_t programs = (uint64_t)head.e_phnum * sizeof(ElfW(Phdr));
    uint64_t sections = (uint64_t)head.e_shnum * head.e_shentsize;
    if (head.e_phoff > bytes || programs > bytes - head.e_phoff || head.e_shoff > bytes ||
        sections > bytes - head.e_shoff || fseeko(in, (off_t)head.e_phoff, SEEK_SET) != 0)
        return false;
    for (int i = 0; i < head.e_phnum; i++) {
        ElfW(Phdr) of;
        if (fread(&of, sizeof of, 1, in) != 1 || of.p_offset > bytes ||
            of.p_filesz > bytes - of.p_offset)
            return false;
    }
    return true;
}

/* The loader itself refuses a file of another class of ELF. */
static gw_err registry_check_file(const gw_registry *reg, const char *path) {
    unsigned char ident[EI_CLASS + 1] = {0};
    size_t bytes;
    FILE *in;
    if (gw_file_open(path, &in, &bytes) != GW_OK)
        return gw_fail(GW_ERR_INPUT, "%s plugin %s: %s: name a shared object", reg->kind, path,
                       gw_err_text());
    bool ours = fread(ident, sizeof ident, 1, in) == 1 && memcmp(ident, ELFMAG, SELFMAG) == 0 &&
                ident[EI_CLASS] == (sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32);
    rewind(in);
    bool whole = !ours || registry_is_whole(in, bytes);
    fclose(in);
    return whole ? GW_OK
                 : gw_fail(GW_ERR_INPUT,
                           "%s plugin %s: truncated: %zu bytes, fewer than its headers tell: build "
                           "or copy it again",
                           reg->kind, path, bytes);
}

static gw_err registry_load(const gw_registry *reg, const char *path, const gw_entry **entry) {
    GW_TRY(registry_check_file(reg, path)); /* the loader would also wait for a pipe */
    /* A plugin calls back into whatever this is a part of. A library that was loaded privately, as
     * interpreters load theirs, is not searched for that. */
    Dl_info us;
    if (dladdr((const void *)&gw_registry_find, &us) != 0 && us.dli_fname) {
        void *own = dlopen(us.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL);
        if (own)
            dlclose(own); /* it stays, and stays seen */
        else
            dlerror();
    }
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

gw_err gw_registry_find(const gw_registry *reg, const char *name, const gw_entry **entry) {
    const char *names[256];
    size_t n = 0;
    if (reg->symbol && strchr(name, '/'))
        return registry_load(reg, name, entry);
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
