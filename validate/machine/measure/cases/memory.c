#define NEXT p = *(void **)p;
void *chase(void *p, long steps) {
    for (long i = 0; i < steps; i += 8) { NEXT NEXT NEXT NEXT NEXT NEXT NEXT NEXT }
    return p;
}
/* A chain of operations that take a cycle each; the empty asm keeps the compiler from merging them. */
#define TURN x ^= y; __asm__ volatile("" : "+r"(x));
unsigned long spin(unsigned long x, unsigned long y, long turns) {
    for (long i = 0; i < turns; i += 8) { TURN TURN TURN TURN TURN TURN TURN TURN }
    return x;
}
