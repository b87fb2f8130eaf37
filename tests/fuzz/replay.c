/* Runs a fuzz target without libFuzzer: every file of its corpus, then seeded mutations of each, so
 * that an ordinary build keeps what fuzzing has found and looks a little further.
 *
 * Usage: fuzz-NAME [-n MUTATIONS-OF-EACH] [-s SEED] [-t SECONDS] FOLDER-OR-FILE...
 *
 * The mutations are the same for the same seed; after SECONDS no more are made (slow machines, slow
 * sanitizers). An input that brings the process down, or runs for longer than HANG_SECONDS, is
 * written to ./crash-NAME. */
#include "fuzz.h"

#include "base/clock.h"
#include "base/random.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { INPUT_BYTES_MAX = 1 << 20, INPUTS_MAX = 4096, HANG_SECONDS = 30 };

struct input {
    char *path;
    uint8_t *data;
    size_t size;
};

static struct input inputs[INPUTS_MAX];
static size_t n_inputs;

/* ---- what is running, for the report of a crash ---- */
static const uint8_t *current;
static size_t current_size;
static char crash_path[256];

/* Only async-signal-safe calls. */
static void save_current(void)
{
    if (!current)
        return;
    int file = open(crash_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    bool saved = file >= 0 && write(file, current, current_size) == (ssize_t)current_size;
    static const char words[] = "\nthe input is in ./";
    if (saved && write(STDERR_FILENO, words, sizeof words - 1) > 0 &&
        write(STDERR_FILENO, crash_path, strlen(crash_path)) > 0)
        saved = write(STDERR_FILENO, "\n", 1) > 0;
    current = NULL;
}

static void on_signal(int number)
{
    save_current();
    signal(number, SIG_DFL);
    raise(number);
}

/* With a sanitizer the report of an error does not pass through a signal. */
__attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)(void));

static void catch_crashes(const char *program)
{
    const char *name = strrchr(program, '/');
    snprintf(crash_path, sizeof crash_path, "crash-%s", name ? name + 1 : program);
    if (__sanitizer_set_death_callback)
        __sanitizer_set_death_callback(save_current);
    else
        signal(SIGSEGV, on_signal);
    static const int others[] = {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGALRM};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        signal(others[i], on_signal);
}

/* The target gets an allocation that ends where the input does, so that a sanitizer sees a read
 * past the end. */
static void run(const uint8_t *data, size_t size)
{
    uint8_t *exact = malloc(size ? size : 1);
    if (!exact)
        abort();
    if (size)
        memcpy(exact, data, size);
    current = exact;
    current_size = size;
    alarm(HANG_SECONDS);
    LLVMFuzzerTestOneInput(exact, size);
    alarm(0);
    current = NULL;
    free(exact);
}

/* ---- the corpus ---- */
static bool load_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file || n_inputs == INPUTS_MAX) {
        fprintf(stderr, "%s: %s\n", path, file ? "too many inputs" : "cannot be opened");
        if (file)
            fclose(file);
        return false;
    }
    struct input *input = &inputs[n_inputs++];
    input->path = strdup(path);
    input->data = malloc(INPUT_BYTES_MAX);
    if (!input->path || !input->data)
        abort();
    input->size = fread(input->data, 1, INPUT_BYTES_MAX, file);
    bool whole = !ferror(file) && fgetc(file) == EOF;
    fclose(file);
    if (!whole)
        fprintf(stderr, "%s: larger than %d bytes, or cannot be read\n", path, INPUT_BYTES_MAX);
    return whole;
}

static bool load(const char *path)
{
    struct stat info;
    if (stat(path, &info) != 0 || !S_ISDIR(info.st_mode))
        return load_file(path);
    struct dirent **entries;
    int count = scandir(path, &entries, NULL, alphasort);
    bool ok = count >= 0;
    for (int i = 0; i < count; i++) {
        char name[4096];
        snprintf(name, sizeof name, "%s/%s", path, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.')
            ok &= load_file(name);
        free(entries[i]);
    }
    if (count >= 0)
        free(entries);
    return ok;
}

/* ---- mutations ---- */
struct dice {
    uint64_t seed, counter;
};

static uint64_t roll(struct dice *dice, uint64_t sides)
{
    return random_at(dice->seed, dice->counter++) % (sides ? sides : 1);
}

/* Numbers at which sizes and counts go wrong. */
static uint64_t edge(struct dice *dice)
{
    static const uint64_t edges[] = {
        0,          1,
        7,          8,
        255,        256,
        65535,      65536,
        INT32_MAX,  UINT32_MAX,
        1ULL << 32, INT64_MAX,
        1ULL << 63, UINT64_MAX - 7,
        UINT64_MAX, UINT64_MAX / 8 + 1,
    };
    return edges[roll(dice, sizeof edges / sizeof edges[0])] + roll(dice, 3) - 1;
}

/* Replaces `cut` bytes at `at` by `n` bytes of `from`. */
static size_t replace(uint8_t *data, size_t size, size_t at, size_t cut, const uint8_t *from,
                      size_t n)
{
    if (size - cut + n > INPUT_BYTES_MAX)
        return size;
    memmove(data + at + n, data + at + cut, size - at - cut);
    memmove(data + at, from, n);
    return size - cut + n;
}

static size_t mutate_once(uint8_t *data, size_t size, struct dice *dice)
{
    uint8_t bytes[64];
    size_t at = (size_t)roll(dice, size + 1), left = size - at;
    uint64_t number = edge(dice);
    size_t width = (size_t)1 << roll(dice, 4);
    const struct input *other = &inputs[roll(dice, n_inputs)];
    size_t from = (size_t)roll(dice, other->size + 1),
           length = (size_t)roll(dice, other->size - from + 1);
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)roll(dice, 256);
    switch (roll(dice, 8)) {
    case 0: /* a bit */
        if (left)
            data[at] ^= (uint8_t)(1u << roll(dice, 8));
        return size;
    case 1: /* a byte */
        return left ? replace(data, size, at, 1, bytes, 1) : size;
    case 2: /* a number, little-endian */
        return left >= width ? replace(data, size, at, width, (const uint8_t *)&number, width)
                             : size;
    case 3: /* the end is missing */
        return at;
    case 4: /* a piece is missing */
        return replace(data, size, at, (size_t)roll(dice, left < 64 ? left + 1 : 64), bytes, 0);
    case 5: /* random bytes more */
        return replace(data, size, at, 0, bytes, (size_t)roll(dice, sizeof bytes));
    case 6: /* a piece again */
        memcpy(bytes, data + at, left < sizeof bytes ? left : sizeof bytes);
        return replace(data, size, at, 0, bytes, left < sizeof bytes ? left : sizeof bytes);
    default: /* a piece of another input */
        return replace(data, size, at, length < left ? (size_t)roll(dice, length + 1) : 0,
                       other->data + from, length);
    }
}

static void run_mutation(const struct input *input, uint64_t seed)
{
    static uint8_t data[INPUT_BYTES_MAX];
    struct dice dice = {.seed = seed};
    size_t size = input->size;
    memcpy(data, input->data, size);
    for (uint64_t n = 1 + roll(&dice, 5); n > 0; n--)
        size = mutate_once(data, size, &dice);
    run(data, size);
}

int main(int argc, char **argv)
{
    unsigned long mutations = 500, seconds = 10;
    uint64_t seed = 1, done = 0;
    for (int option; (option = getopt(argc, argv, "n:s:t:")) != -1;) {
        if (option == 'n')
            mutations = strtoul(optarg, NULL, 10);
        else if (option == 's')
            seed = strtoull(optarg, NULL, 10);
        else if (option == 't')
            seconds = strtoul(optarg, NULL, 10);
        else
            return 2;
    }
    catch_crashes(argv[0]);
    bool ok = true;
    for (int i = optind; i < argc; i++)
        ok &= load(argv[i]);
    for (size_t i = 0; i < n_inputs; i++)
        run(inputs[i].data, inputs[i].size);
    uint64_t end_ns = clock_now_ns() + seconds * 1000000000u;
    /* Round after round over the corpus, so that every file has its share when time runs out. */
    for (unsigned long round = 0; round < mutations && clock_now_ns() < end_ns; round++) {
        for (size_t i = 0; i < n_inputs; i++, done++)
            run_mutation(&inputs[i], random_mix(seed) + round * INPUTS_MAX + i);
    }
    printf("%zu inputs, %llu mutations\n", n_inputs, (unsigned long long)done);
    for (size_t i = 0; i < n_inputs; i++) {
        free(inputs[i].path);
        free(inputs[i].data);
    }
    return ok && n_inputs > 0 ? 0 : 1;
}
