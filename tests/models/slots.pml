/*
 * A slot ring of four lines with a payload ring of two places, and messages that take a slot of one line and a payload
 * place (odd numbers) or a slot of two lines (even numbers), over more than two laps. Lines carry the number of their
 * lap's line as sequence word; the body of a line and a payload carry the message's number.
 *
 * It must fail without the release before the sequence word (NO_RELEASE), without the acquire after it (NO_ACQUIRE),
 * when the tail is pushed before the bytes were read (TAIL_EARLY), and when room is not asked for (NO_ROOM).
 */
#define kMessages 7
#define kLines 4
#define kPlaces 2

#define SEQUENCE 0 /* of line 0 .. 3 */
#define BODY 4     /* of line 0 .. 3 */
#define PAYLOAD 8  /* of place 0, 1 */
#define TAIL 10    /* lines consumed */

byte memory[11];

#include "memory.inc"

Buffer sender_stores, receiver_stores;
MEMORY_SYSTEM(sender_memory, sender_stores)
MEMORY_SYSTEM(receiver_memory, receiver_stores)

active proctype sender() {
  byte message = 1, head = 0, tail = 0, places = 0, freed = 0, lines, k;
  byte place_after[kLines];
  do
  :: message > kMessages -> break
  :: else ->
     lines = (message % 2 == 1 -> 1 : 2);
     /* Room, by the tail alone: it frees payload with the slots. */
#ifndef NO_ROOM
     do
     :: atomic { head + lines - tail <= kLines && places + (message % 2) - freed <= kPlaces -> break }
     :: atomic { memory[TAIL] > tail ->
          tail = memory[TAIL];
          freed = place_after[(tail - 1) % kLines] }
     od;
#endif
     if
     :: message % 2 == 1 -> STORE(sender_stores, PAYLOAD + places % kPlaces, message); places++
     :: else ->
        STORE(sender_stores, BODY + (head + 1) % kLines, message);
        STORE(sender_stores, SEQUENCE + (head + 1) % kLines, head + 2)
     fi;
     STORE(sender_stores, BODY + head % kLines, message);
#ifndef NO_RELEASE
     BARRIER(sender_stores);
#endif
     STORE(sender_stores, SEQUENCE + head % kLines, head + 1);
     atomic { head = head + lines; place_after[(head - 1) % kLines] = places };
     message++
  od
}

active proctype receiver() {
  byte message = 1, tail = 0, places = 0, early, late, rest;
  do
  :: message > kMessages -> break
  :: else ->
#ifdef NO_ACQUIRE
     /* A load that the processor has made before that of the sequence word. */
     early = (message % 2 == 1 -> memory[PAYLOAD + places % kPlaces] : memory[BODY + (tail + 1) % kLines]);
#endif
     memory[SEQUENCE + tail % kLines] == tail + 1;
#ifdef TAIL_EARLY
     STORE(receiver_stores, TAIL, tail + (message % 2 == 1 -> 1 : 2));
#endif
     assert(memory[BODY + tail % kLines] == message);
#ifndef NO_ACQUIRE
     early = (message % 2 == 1 -> memory[PAYLOAD + places % kPlaces] : memory[BODY + (tail + 1) % kLines]);
#endif
     assert(early == message);
     if
     :: message % 2 == 1 -> places++; tail++
     :: else -> assert(memory[SEQUENCE + (tail + 1) % kLines] == tail + 2); tail = tail + 2
     fi;
#ifndef TAIL_EARLY
     BARRIER(receiver_stores);
     STORE(receiver_stores, TAIL, tail);
#endif
     message++
  od
}
