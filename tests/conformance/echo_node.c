/* The API with a model that says what the last message says, for clients' packages that are tried
 * with calls of tools: "PORT" on the standard output, until the standard input ends. */
#include "../unit/api_world.h"

#include <stdio.h>
#include <unistd.h>

int main(void)
{
    char byte;
    api_world_start((struct fake_driver_options){
        .n_slots = 4, .queue_max = 16, .context = 65536, .token_us = 20});
    printf("%u\n", api_world_port());
    fflush(stdout);
    while (read(STDIN_FILENO, &byte, 1) > 0) {
    }
    api_world_stop();
    return 0;
}
