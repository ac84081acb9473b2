#include "cli/tools.h"

#include "base/text.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char prefix[] = "gradwire-";

/* The folder that this program lies in. */
static gw_err tools_folder(char path[PATH_MAX]) {
    ssize_t n = readlink("/proc/self/exe", path, PATH_MAX - 1);
    path[n > 0 ? n : 0] = '\0';
    char *end = strrchr(path, '/');
    if (!end)
        return gw_fail(GW_ERR_INPUT, "/proc/self/exe: cannot tell where gradwire's tools are: %s",
                       strerror(errno));
    *end = '\0';
    return GW_OK;
}

static void tools_join(char path[2 * PATH_MAX], const char *folder, const char *name) {
    snprintf(path, 2 * PATH_MAX, "%s/%s%s", folder, prefix, name);
}

static int tools_match(const struct dirent *entry) {
    return strncmp(entry->d_name, prefix, sizeof prefix - 1) == 0;
}

static void tools_read_summary(gw_tool *tool, const char *path) {
    char line[256] = "", head[64];
    FILE *in = fopen(path, "r");
    for (int i = 0; in && i < 2 && fgets(line, sizeof line, in); i++)
        line[strcspn(line, "\n")] = '\0';
    if (in)
        fclose(in);
    snprintf(head, sizeof head, "gradwire %s: ", tool->name);
    char *found = strstr(line, head);
    gw_text_copy(tool->summary, sizeof tool->summary, found ? found + strlen(head) : "");
    gw_text_line(tool->summary);
}

gw_err gw_tools_find(gw_tool tools[GW_TOOLS_MOST], size_t *count) {
    char folder[PATH_MAX], path[2 * PATH_MAX];
    struct dirent **found = NULL;
    size_t n = 0;
    GW_TRY(tools_folder(folder));
    int all = scandir(folder, &found, tools_match, alphasort);
    for (int i = 0; i < all; i++) {
        gw_tool *tool = &tools[n];
        const char *name = found[i]->d_name + sizeof prefix - 1;
        tools_join(path, folder, name);
        if (n < GW_TOOLS_MOST && strlen(name) < sizeof tool->name && access(path, X_OK) == 0) {
            gw_text_copy(tool->name, sizeof tool->name, name);
            tools_read_summary(tool, path);
            n++;
        }
        free(found[i]);
    }
    free(found);
    *count = n;
    return GW_OK;
}

static bool tools_first_rank(void) {
    static const char *const ranks[] = {"PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK",
                                        "SLURM_PROCID"};
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) {
        const char *rank = getenv(ranks[i]);
        if (rank)
            return strcmp(rank, "0") == 0;
    }
    return true;
}

gw_err gw_tool_run(char **argv) {
    char folder[PATH_MAX], path[2 * PATH_MAX];
    if (!tools_first_rank())
        exit(0);
    GW_TRY(tools_folder(folder));
    tools_join(path, folder, argv[0]);
    execv(path, argv);
    return gw_fail(GW_ERR_INPUT, "%s: %s", path, strerror(errno));
}
