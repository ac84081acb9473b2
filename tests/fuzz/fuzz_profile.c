/* The profile of a training step, as `gradwire replay` reads it.
 *
 * An input's first byte, modulo 2: 0, the rest is the whole file; 1, the rest are edits of the
 * right one (see gw_fuzz_edited). */
#include "harness.h"

#include "play/profile.h"

#include <limits.h>
#include <string.h>

static const char right[] =
    "{\"schema\": 1, \"model\": \"m\", \"source\": \"s\", \"device\": \"cpu\", \"machine\": \"x\", "
    "\"date\": \"2026-11-24\", \"torch\": null, \"threads\": 1, \"batch\": 8, \"steps\": 3, "
    "\"optimizer_s\": 0.5, \"tensors\": ["
    "{\"name\": \"a.b\", \"shape\": [3, 4], \"group\": 0, \"forward_s\": 1, \"backward_s\": 0.25, "
    "\"std\": 1e-3}, "
    "{\"name\": \"a.c\", \"shape\": [4], \"group\": 0, \"forward_s\": 0, \"backward_s\": 0, "
    "\"std\": 0}, "
    "{\"name\": \"d\", \"shape\": [5, 1, 2], \"group\": 1, \"forward_s\": 2.5, \"backward_s\": 3, "
    "\"std\": 0.5}]}";
static const char *const file_name = "profile.json";
static const char *const words[] = {
    "-1",           "0",       "1e308",    "2147483647", "2147483648",
    "65536",        "1e400",   "null",     "true",       "\"\"",
    "[]",           "{}",      "{",        "]",          "\"name\":",
    "\"\\u0000\"",  "\\u001b", "\xc2\x9b", "\xff",       "99999999999999999999",
    "\"tensors\":", NULL};
static gw_fuzz_folder folder;

static void open_folder(const char *spec) {
    (void)spec;
    gw_fuzz_folder_open(&folder, &file_name, 1);
}

static void close_folder(void) {
    gw_fuzz_folder_close(&folder);
}

static void check(const gw_step_profile *p) {
    size_t n = 0;
    int group = 0;
    MUST(p->n_tensors >= 1 && p->batch >= 1 && p->threads >= 1 && p->optimizer_s >= 0);
    MUST(*p->model && *p->source && *p->device && *p->machine && strlen(p->date) == 10);
    for (int t = 0; t < p->n_tensors; t++) {
        const gw_step_tensor *of = &p->tensor[t];
        MUST(of->n >= 1 && of->n <= INT_MAX && *of->name);
        MUST(of->rows == 0 || of->n % of->rows == 0);
        MUST(of->forward_s >= 0 && of->backward_s >= 0 && of->std >= 0);
        MUST(of->group == group || (t > 0 && of->group == group + 1));
        group = of->group;
        n += of->n;
    }
    MUST(n == p->n && group == p->groups - 1);
}

static void one(const uint8_t *data, size_t size) {
    char path[128];
    gw_step_profile p;
    if (size < 1)
        return;
    char *edited = data[0] % 2 ? gw_fuzz_edited(right, data + 1, size - 1, words) : NULL;
    gw_fuzz_folder_put(&folder, 0, edited ? edited : (const char *)data + 1,
                       edited ? strlen(edited) : size - 1);
    free(edited);
    snprintf(path, sizeof path, "%s/%s", folder.path, file_name);
    gw_fuzz_forget();
    gw_err e = gw_step_profile_read(&p, path);
    gw_fuzz_answer(e);
    if (e == GW_OK)
        check(&p);
    gw_step_profile_free(&p);
}

const gw_fuzz_target gw_fuzz_profile = {.name = "profile",
                                        .mutations = 20000,
                                        .words = words,
                                        .open = open_folder,
                                        .close = close_folder,
                                        .one = one};
