/* What does not hold is printed, and ends the program with 1. */
#include <stdio.h>
#include <unistd.h>

#define CHECK(condition)                                                          \
    do {                                                                          \
        if (!(condition)) {                                                       \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);       \
            _exit(1);                                                             \
        }                                                                         \
    } while (0)
#define OK(call) CHECK((call) == 0)
