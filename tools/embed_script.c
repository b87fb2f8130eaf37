/* Compiles JavaScript modules to QuickJS bytecode and writes it into C. Part of the build.
 *
 *     embed_script OUT.c OUT.h VARIABLE MODULE FILE [VARIABLE MODULE FILE ...]
 *
 * Each module may import those before it, by MODULE. The header declares `const uint8_t VARIABLE[]`
 * and `const size_t VARIABLE_size`. Bytecode fits only the QuickJS that made it; this program
 * and the binary link the same static library. */
#include <quickjs/quickjs.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *read_file(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    char *text = NULL;
    if (file && fseek(file, 0, SEEK_END) == 0) {
        long end = ftell(file);
        text = end >= 0 ? calloc((size_t)end + 1, 1) : NULL; /* QuickJS wants a NUL after it */
        rewind(file);
        *size = text ? fread(text, 1, (size_t)end, file) : 0;
        if (text && *size != (size_t)end) {
            free(text);
            text = NULL;
        }
    }
    if (!text)
        perror(path);
    if (file)
        fclose(file);
    return text;
}

static void print_exception(JSContext *context, const char *path)
{
    JSValue exception = JS_GetException(context);
    const char *text = JS_ToCString(context, exception);
    fprintf(stderr, "%s: %s\n", path, text ? text : "an exception");
    JS_FreeCString(context, text);
    JS_FreeValue(context, exception);
}

static void write_array(FILE *source, const char *variable, const uint8_t *bytes, size_t size)
{
    fprintf(source, "const size_t %s_size = %zu;\nconst uint8_t %s[] = {", variable, size,
            variable);
    for (size_t i = 0; i < size; i++)
        fprintf(source, "%s%u,", i % 32 == 0 ? "\n    " : "", bytes[i]);
    fputs("\n};\n\n", source);
}

static bool embed(JSContext *context, const char *variable, const char *module, const char *path,
                  FILE *source, FILE *header)
{
    size_t size, bytecode_size;
    char *text = read_file(path, &size);
    if (!text)
        return false;
    JSValue compiled =
        JS_Eval(context, text, size, module, JS_EVAL_TYPE_MODULE | JS_EVAL_FLAG_COMPILE_ONLY);
    free(text);
    uint8_t *bytecode = JS_IsException(compiled) ? NULL
                                                 : JS_WriteObject(context, &bytecode_size, compiled,
                                                                  JS_WRITE_OBJ_BYTECODE);
    JS_FreeValue(context, compiled);
    if (!bytecode) {
        print_exception(context, path);
        return false;
    }
    write_array(source, variable, bytecode, bytecode_size);
    fprintf(header, "extern const uint8_t %s[];\nextern const size_t %s_size;\n", variable,
            variable);
    js_free(context, bytecode);
    return true;
}

static bool embed_all(char **words, int count, FILE *source, FILE *header)
{
    JSRuntime *runtime = JS_NewRuntime();
    JSContext *context = runtime ? JS_NewContext(runtime) : NULL;
    bool good = context != NULL;
    if (good)
        JS_SetStripInfo(runtime,
                        JS_STRIP_SOURCE); /* line numbers stay, for a stack trace while debugging */
    for (int i = 0; good && i + 2 < count; i += 3)
        good = embed(context, words[i], words[i + 1], words[i + 2], source, header);
    if (context)
        JS_FreeContext(context);
    if (runtime)
        JS_FreeRuntime(runtime);
    return good;
}

int main(int argc, char **argv)
{
    if (argc < 6 || argc % 3 != 0) {
        fprintf(
            stderr,
            "usage: embed_script OUT.c OUT.h VARIABLE MODULE FILE [VARIABLE MODULE FILE ...]\n");
        return 2;
    }
    FILE *source = fopen(argv[1], "w"), *header = fopen(argv[2], "w");
    bool good = source && header;
    if (good) {
        fputs("#include <stddef.h>\n#include <stdint.h>\n\n", source);
        fputs("#pragma once\n\n#include <stddef.h>\n#include <stdint.h>\n\n", header);
        good = embed_all(argv + 3, argc - 3, source, header);
    } else {
        perror("embed_script");
    }
    good = (!source || fclose(source) == 0) && (!header || fclose(header) == 0) && good;
    return good ? 0 : 1;
}
