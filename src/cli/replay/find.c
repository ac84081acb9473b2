/* Profiles by name: those that came with the program. */
#include "base/text.h"
#include "cli/replay/profile.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* From the program's folder: where it is installed, and where it is built. */
static const char *const folders[] = {"../share/gradwire/profiles", "../../profiles"};
static const char suffix[] = ".json";

static bool find_folder(char *folder, size_t cap) {
    char here[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", here, sizeof here - 1);
    here[n > 0 ? n : 0] = '\0';
    char *end = strrchr(here, '/');
    if (end)
        *end = '\0';
    for (size_t i = 0; end && i < sizeof folders / sizeof *folders; i++) {
        gw_text_print(folder, cap, "%s/%s", here, folders[i]);
        if (access(folder, R_OK) == 0)
            return true;
    }
    return false;
}

static int find_match(const struct dirent *entry) {
    const char *dot = strchr(entry->d_name, '.');
    return dot && dot > entry->d_name && strcmp(dot, suffix) == 0;
}

static gw_err find_refuse(const char *name, const char *folder) {
    char names[512] = "";
    struct dirent **found = NULL;
    int n = scandir(folder, &found, find_match, alphasort);
    for (int i = 0; i < n; i++) {
        size_t at = strlen(names);
        gw_text_print(names + at, sizeof names - at, "%s%.*s", i ? ", " : "",
                      (int)strcspn(found[i]->d_name, "."), found[i]->d_name);
        free(found[i]);
    }
    free(found);
    return gw_fail(GW_ERR_INPUT,
                   "%s: no such file, and no profile of that name: name one of %s, or a file", name,
                   names);
}

gw_err gw_step_profile_find(char path[PATH_MAX], const char *name) {
    char folder[PATH_MAX] = "";
    size_t n = strlen(name);
    bool file =
        strchr(name, '/') || (n > strlen(suffix) && strcmp(name + n - strlen(suffix), suffix) == 0);
    gw_text_copy(path, PATH_MAX, name);
    if (file || access(name, F_OK) == 0 || !find_folder(folder, sizeof folder))
        return GW_OK;
    gw_text_print(path, PATH_MAX, "%s/%s%s", folder, name, suffix);
    return access(path, F_OK) == 0 ? GW_OK : find_refuse(name, folder);
}
