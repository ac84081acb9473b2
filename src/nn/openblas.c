#include "nn/openblas.h"

#include <stddef.h>
#include <strings.h>

static bool openblas_among(const char *name, const char *const *list) {
    for (; *list; list++)
        if (strcasecmp(name, *list) == 0)
            return true;
    return false;
}

/* Kernel sets written for AVX-512, and for AVX2 with FMA. */
static const char *const sets_avx512[] = {"SkylakeX", "Cooperlake", "SapphireRapids", NULL};
static const char *const sets_avx2[] = {"Haswell", "Zen", "Excavator", NULL};

gw_openblas_verdict gw_openblas_judge(const gw_openblas_facts *f, const char **core_type) {
    *core_type = f->avx512 ? "SkylakeX" : f->avx2 ? "Haswell" : NULL;
    if (!f->core || !*core_type || openblas_among(f->core, sets_avx512) ||
        (!f->avx512 && openblas_among(f->core, sets_avx2)))
        return GW_OPENBLAS_FINE;
    if (f->mended_from) /* first, since mending sets OPENBLAS_CORETYPE, too */
        return GW_OPENBLAS_STILL_WEAK;
    if (f->user_core)
        return GW_OPENBLAS_USER_WEAK;
    return f->dynamic ? GW_OPENBLAS_MEND : GW_OPENBLAS_STILL_WEAK;
}
