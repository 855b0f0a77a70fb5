/* A library that contains a copy with which no other can work. */
struct copy_facts {
    unsigned abi, size;
    const char *version;
    const void *functions;
};

static const struct copy_facts facts = { 1000, 8, "1000.0.1", 0 };
const struct copy_facts *const stranger = &facts;

__asm__(".pushsection .note.fairlock, \"a\", %note\n"
        ".p2align 2\n"
        ".long 9, 4, 1\n"
        ".asciz \"Fairlock\"\n"
        ".p2align 2\n"
        ".long stranger - .\n"
        ".popsection\n"
        ".hidden stranger\n");

int is_loaded(void);
int is_loaded(void) {
    return stranger == &facts;
}
