#include "text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int read_all(gpt_text *text, FILE *file) {
    size_t room = 1 << 16;
    text->at = malloc(room);
    while (text->at) {
        text->n += fread(text->at + text->n, 1, room - text->n, file);
        if (text->n < room) {
            return ferror(file) ? -1 : 0;
        }
        room *= 2;
        uint8_t *more = realloc(text->at, room);
        if (!more) {
            break;
        }
        text->at = more;
    }
    errno = ENOMEM;
    return -1;
}

int gpt_text_read(gpt_text *text, const char *path) {
    memset(text, 0, sizeof *text);
    FILE *file = fopen(path, "rb");
    if (!file) {
        return -1;
    }
    int e = read_all(text, file), cause = errno;
    fclose(file);
    if (e) {
        free(text->at);
        errno = cause;
        return e;
    }
    uint8_t seen[256] = {0}, number[256];
    for (size_t i = 0; i < text->n; i++) {
        seen[text->at[i]] = 1;
    }
    for (int byte = 0; byte < 256; byte++) {
        if (seen[byte]) {
            text->letter[text->vocabulary] = (uint8_t)byte;
            number[byte] = (uint8_t)text->vocabulary++;
        }
    }
    for (size_t i = 0; i < text->n; i++) {
        text->at[i] = number[text->at[i]];
    }
    return 0;
}

size_t gpt_text_draw(uint64_t seed, uint64_t number, size_t span) { /* SplitMix64 */
    uint64_t z = (seed << 40) + number * 0x9e3779b97f4a7c15U;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return (size_t)((z ^ (z >> 31)) % span);
}
