#include "machine/energy.h"

#include "base/file.h"
#include "base/json.h"
#include "mpi/wait.h"

#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool energy_read(const char *path, uint64_t *out) {
    char line[64], *end = line;
    if (gw_file_first_line(path, line, sizeof line) && *line >= '0' && *line <= '9')
        *out = strtoull(line, &end, 10);
    return end != line && (*end == '\0' || *end == '\n');
}

static void energy_absent(gw_energy *e, const char *path, const char *what) {
    e->zones = 0;
    snprintf(e->why, sizeof e->why, "absent: %.120s: %.60s", path, what);
}

/* Cores are part of their package, psys is more, intel-rapl-mmio counts packages once more. */
static bool energy_wants(const char *root, const char *name) {
    char path[GW_ENERGY_PATH], label[64];
    snprintf(path, sizeof path, "%.200s/%.200s/name", root, name);
    return strncmp(name, "intel-rapl:", 11) == 0 && gw_file_first_line(path, label, sizeof label) &&
           (strncmp(label, "package", 7) == 0 || strncmp(label, "dram", 4) == 0);
}

void gw_energy_open(gw_energy *e, bool reads) {
    const char *named = getenv("GRADWIRE_POWERCAP");
    const char *root = named && *named ? named : "/sys/class/powercap";
    *e = (gw_energy){.reads = reads};
    energy_absent(e, root, "no package's counter");
    DIR *all = reads ? opendir(root) : NULL;
    bool whole = true;
    for (struct dirent *d; all && whole && (d = readdir(all));)
        if (e->zones < GW_ENERGY_ZONES && energy_wants(root, d->d_name)) {
            gw_energy_zone *z = &e->zone[e->zones++];
            char range[GW_ENERGY_PATH];
            snprintf(z->path, sizeof z->path, "%.200s/%.200s/energy_uj", root, d->d_name);
            snprintf(range, sizeof range, "%.200s/%.200s/max_energy_range_uj", root, d->d_name);
            whole = energy_read(range, &z->range) && energy_read(z->path, &z->last);
            if (!whole)
                energy_absent(e, z->path, "not readable (by root alone on many systems)");
        }
    if (all)
        closedir(all);
    if (e->zones > 0)
        snprintf(e->why, sizeof e->why, "measured: powercap, packages and memory, a reader a node");
}

void gw_energy_count(gw_energy *e, bool counting) {
    for (int i = 0; i < e->zones; i++) {
        gw_energy_zone *z = &e->zone[i];
        uint64_t last = z->last;
        if (!energy_read(z->path, &z->last)) {
            energy_absent(e, z->path, "no longer readable");
            return;
        }
        uint64_t taken = z->last >= last ? z->last - last : z->last + (z->range - last);
        e->joules += e->counting ? 1e-6 * (double)taken : 0;
    }
    e->counting = counting;
}

gw_err gw_energy_json(const gw_energy *e, int64_t steps, MPI_Comm comm, json_t **out) {
    double sum = !e->reads ? 0 : e->zones > 0 ? e->joules : NAN;
    GW_TRY(gw_allreduce(MPI_IN_PLACE, &sum, 1, MPI_DOUBLE, MPI_SUM, comm));
    *out = gw_json_object("joules:f joules_per_step:f source:s", sum, sum / (double)steps,
                          isnan(sum) && e->zones > 0 ? "absent: on another node" : e->why);
    return GW_OK;
}
