/* Write texts as JSON. */
#ifndef JSON_H
#define JSON_H

#include <stdio.h>

static inline void json_text(FILE *out, const char *text)
{
    putc('"', out);
    for (; *text; text++)
        if (*text == '"' || *text == '\\')
            fprintf(out, "\\%c", *text);
        else if ((unsigned char)*text < 32)
            fprintf(out, "\\u%04x", (unsigned)*text);
        else
            putc(*text, out);
    putc('"', out);
}

#endif
