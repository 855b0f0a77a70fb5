/* A program that does nothing: for what the library says when it is loaded. */

int main(void) {
    return 0;
}
