/* Gives a fuzz target every file of its corpus, without libFuzzer: how an ordinary build tests what
 * fuzzing has found. Usage: fuzz-NAME FOLDER-OR-FILE... */
#include "fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

static unsigned replayed;

static int replay_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        return 1;
    }
    fseek(file, 0, SEEK_END);
    const long size = ftell(file);
    rewind(file);
    /* An exact allocation, so that a sanitizer sees a read past the end. */
    uint8_t *data = size >= 0 ? malloc((size_t)size) : NULL;
    const bool read = data && fread(data, 1, (size_t)size, file) == (size_t)size;
    fclose(file);
    if (read)
        LLVMFuzzerTestOneInput(data, (size_t)size);
    else
        fprintf(stderr, "%s: could not be read\n", path);
    free(data);
    replayed++;
    return read ? 0 : 1;
}

static int replay_folder(const char *path)
{
    struct dirent **entries;
    const int count = scandir(path, &entries, NULL, alphasort);
    if (count < 0) {
        perror(path);
        return 1;
    }
    int failed = 0;
    for (int i = 0; i < count; i++) {
        char name[4096];
        if (entries[i]->d_name[0] != '.') {
            snprintf(name, sizeof name, "%s/%s", path, entries[i]->d_name);
            failed |= replay_file(name);
        }
        free(entries[i]);
    }
    free(entries);
    return failed;
}

int main(int argc, char **argv)
{
    int failed = 0;
    for (int i = 1; i < argc; i++) {
        struct stat info;
        const bool folder = stat(argv[i], &info) == 0 && S_ISDIR(info.st_mode);
        failed |= folder ? replay_folder(argv[i]) : replay_file(argv[i]);
    }
    printf("%u inputs\n", replayed);
    return failed || replayed == 0;
}
