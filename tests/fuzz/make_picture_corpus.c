/* Writes inputs of the fuzzers `picture` and `picture_answer` into FOLDER/picture and
 * FOLDER/picture_answer. */
#include "picture/picture_process.h"
#include "picture_world.h"

#include <png.h>
#include <stdio.h>
#include <stdlib.h>

static void keep(const char *folder, const char *name, struct buffer bytes)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(bytes.data, 1, bytes.size, file) != bytes.size || fclose(file))
        exit(EXIT_FAILURE);
    buffer_deinit(&bytes);
}

static struct buffer answer_of(const struct picture_head *head, const void *bytes, size_t size)
{
    struct buffer answer = {0};
    buffer_append(&answer, head, sizeof *head);
    buffer_append(&answer, bytes, size);
    return answer;
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return EXIT_FAILURE;
    struct picture drawn = picture_drawn(9, 5, 13);
    const uint8_t rgba[] = {10, 20, 30, 255, 10, 20, 30, 0, 10, 20, 30, 128, 99, 99, 99, 0};
    struct buffer exif = {0}, png = picture_png(drawn.rgb, 9, 5, PNG_FORMAT_RGB);
    picture_exif(5, false, &exif);
    picture_png_chunk(&png, "eXIf", exif.data, (uint32_t)exif.size);
    keep(argv[1], "picture/rgb.png", png);
    keep(argv[1], "picture/alpha.png", picture_png(rgba, 2, 2, PNG_FORMAT_RGBA));
    keep(argv[1], "picture/grey.png", picture_png(rgba, 4, 4, PNG_FORMAT_GRAY));
    keep(argv[1], "picture/plain.jpg", picture_jpeg(&drawn, JPEG_PLAIN, 6));
    keep(argv[1], "picture/progressive.jpg", picture_jpeg(&drawn, JPEG_PROGRESSIVE, 0));
    keep(argv[1], "picture/cmyk.jpg", picture_jpeg(&drawn, JPEG_ADOBE_CMYK, 0));
    keep(argv[1], "picture/grey.jpg", picture_jpeg(&drawn, JPEG_GREY, 0));
    keep(argv[1], "picture/alpha.webp", picture_webp(rgba, 2, 2));
    keep(argv[1], "picture/canvas.webp", picture_webp_canvas(rgba, 2, 2, 2, 5, 8));
    keep(argv[1], "picture_answer/pixels",
         answer_of(&(const struct picture_head){.width = 2, .height = 1}, rgba, 6));
    keep(argv[1], "picture_answer/error",
         answer_of(&(const struct picture_head){.code = ERROR_INVALID, .size = 5}, "hello", 5));
    buffer_deinit(&exif);
    picture_free(&drawn);
    return EXIT_SUCCESS;
}
