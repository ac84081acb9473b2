#include "options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char gpt_options_help[] =
    "usage: gpt --text FILE [--OPTION NUMBER].. [-- GRADWIRE'S OPTIONS]\n"
    "Trains a small GPT on the characters of a text; the last tenth of it is the test.\n"
    "  --steps 3000      batches\n"
    "  --batch 12        sequences a batch, over all ranks\n"
    "  --context 64      characters a sequence\n"
    "  --layers 4        blocks\n"
    "  --heads 4         of attention; they share the width\n"
    "  --width 128       of the residual stream\n"
    "  --rate 0.001      of AdamW: rises over --warmup 100 batches, then falls to a tenth by a cosine\n"
    "  --test 500        batches between tests; 0: none\n"
    "  --held 0          hundredths of the text before that tenth, kept to choose options by\n"
    "  --windows 0       of a test at most, evenly spread; 0: all\n"
    "  --seed 1          of weights and batches\n"
    "Behind --: what `gradwire train` has, such as --comm iallreduce --compress qsgd --out runs/gpt\n";

typedef struct setting {
    const char *name;
    int *small;
    long *large, least, most;
} setting;

static int number(const char *text, long least, long most, long *value) {
    char *end;
    *value = strtol(text, &end, 10);
    return *text && !*end && *value >= least && *value <= most ? 0 : -1;
}

static int set(gpt_options *o, const char *name, const char *value, char *message, size_t room) {
    long seed = -1;
    const setting all[] = {{"--steps", NULL, &o->steps, 1, 100000000},
                           {"--batch", &o->batch, NULL, 1, 4096},
                           {"--context", &o->shape.context, NULL, 1, 4096},
                           {"--layers", &o->shape.layers, NULL, 1, 100},
                           {"--heads", &o->shape.heads, NULL, 1, 128},
                           {"--width", &o->shape.width, NULL, 1, 8192},
                           {"--warmup", NULL, &o->warmup, 0, 100000000},
                           {"--test", NULL, &o->every, 0, 100000000},
                           {"--held", NULL, &o->held, 0, 50},
                           {"--windows", NULL, &o->windows, 0, 100000000},
                           {"--seed", NULL, &seed, 0, 1000000}};
    if (!strcmp(name, "--text")) {
        o->text = value;
        return 0;
    }
    if (!strcmp(name, "--rate")) {
        char *end;
        o->rate = strtod(value, &end);
        if (!*value || *end || !(o->rate > 0 && o->rate < 1)) {
            snprintf(message, room, "--rate %s: must be a number between 0 and 1", value);
            return -1;
        }
        return 0;
    }
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const setting *s = &all[i];
        if (!strcmp(name, s->name)) {
            long n;
            if (number(value, s->least, s->most, &n)) {
                snprintf(message, room, "%s %s: must be a number from %ld to %ld", name, value,
                         s->least, s->most);
                return -1;
            }
            *(s->large ? s->large : &n) = n;
            *(s->small ? s->small : &(int){0}) = (int)n;
            o->seed = seed < 0 ? o->seed : (uint64_t)seed;
            return 0;
        }
    }
    snprintf(message, room, "%s: no such option; see --help", name);
    return -1;
}

static int join(gpt_options *o, int count, char **words, char *message, size_t room) {
    size_t used = 0;
    for (int i = 0; i < count; i++) {
        int n =
            snprintf(o->gradwire + used, sizeof o->gradwire - used, "%s%s", i ? " " : "", words[i]);
        used += (size_t)n;
        if (used >= sizeof o->gradwire) {
            snprintf(message, room, "more than %zu characters behind --", sizeof o->gradwire - 1);
            return -1;
        }
    }
    return 0;
}

int gpt_options_read(gpt_options *o, int argc, char **argv, char *message, size_t room) {
    *o = (gpt_options){.shape = {.context = 64, .layers = 4, .heads = 4, .width = 128},
                       .batch = 12,
                       .steps = 3000,
                       .warmup = 100,
                       .every = 500,
                       .rate = 1e-3,
                       .seed = 1};
    *message = 0;
    int i = 1;
    for (; i < argc && strcmp(argv[i], "--") != 0; i += 2) {
        if (!strcmp(argv[i], "--help")) {
            return -1;
        }
        if (i + 1 == argc) {
            snprintf(message, room, "%s: a value is missing; see --help", argv[i]);
            return -1;
        }
        if (set(o, argv[i], argv[i + 1], message, room)) {
            return -1;
        }
    }
    if (!o->text) {
        snprintf(message, room, "--text FILE is missing; see --help");
        return -1;
    }
    if (o->shape.width % o->shape.heads) {
        snprintf(message, room, "--width %d: not a multiple of --heads %d", o->shape.width,
                 o->shape.heads);
        return -1;
    }
    return i < argc ? join(o, argc - i - 1, argv + i + 1, message, room) : 0;
}
