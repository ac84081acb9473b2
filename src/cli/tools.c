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

/* The path of a tool; of all: NAME is "". */
static void tool_path(char path[PATH_MAX], const char *name) {
    ssize_t n = readlink("/proc/self/exe", path, PATH_MAX - 1);
    path[n > 0 ? n : 0] = '\0';
    char *end = strrchr(path, '/');
    size_t at = end ? (size_t)(end - path) : 0;
    gw_text_print(path + at, PATH_MAX - at, "/%s%s", prefix, name);
}

static int tool_named(const struct dirent *entry) {
    return strncmp(entry->d_name, prefix, sizeof prefix - 1) == 0;
}

static void read_summary(gw_tool *tool, const char *path) {
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

size_t gw_tools_find(gw_tool tools[GW_TOOLS_MOST]) {
    char path[PATH_MAX];
    struct dirent **found = NULL;
    size_t n = 0;
    tool_path(path, "");
    *strrchr(path, '/') = '\0';
    int all = scandir(path, &found, tool_named, alphasort);
    for (int i = 0; i < all; i++) {
        gw_tool *tool = &tools[n];
        const char *name = found[i]->d_name + sizeof prefix - 1;
        tool_path(path, name);
        if (n < GW_TOOLS_MOST && strlen(name) < sizeof tool->name && access(path, X_OK) == 0) {
            gw_text_copy(tool->name, sizeof tool->name, name);
            read_summary(tool, path);
            n++;
        }
        free(found[i]);
    }
    free(found);
    return n;
}

static bool first_rank(void) {
    static const char *const ranks[] = {"PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK",
                                        "SLURM_PROCID"};
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) {
        const char *rank = getenv(ranks[i]);
        if (rank)
            return strcmp(rank, "0") == 0;
    }
    return true;
}

gw_err gw_tool_run(const char *name, char **argv) {
    char path[PATH_MAX];
    if (!first_rank())
        exit(0);
    tool_path(path, name);
    execv(path, argv);
    return gw_fail(GW_ERR_INPUT, "%s: %s", path, strerror(errno));
}
