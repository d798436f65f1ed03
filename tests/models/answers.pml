/*
 * Consumption is acknowledgement, but for what was refused. The responder consumes messages in order; message kRefused
 * it refuses: it publishes the answer, then counts it in the tail line, then stores the tail. The requester loads the
 * tail, then the answers' count, takes the answers up to it, and only then completes what was consumed.
 *
 * A refused message that completes as done, or one after it, is the bug. It must be found when the tail is stored first
 * (TAIL_FIRST), without the barrier before it (NO_BARRIER), and when the count is loaded before the tail (COUNT_FIRST).
 */
#define kMessages 4
#define kRefused 2

#define ANSWER 0  /* the refused message's number, in the requester's memory */
#define ANSWERS 1 /* the tail line: how many answers */
#define TAIL 2    /* the tail line: how many messages */

byte memory[3];

#include "memory.inc"

Buffer responder_stores;
MEMORY_SYSTEM(responder_memory, responder_stores)

active proctype responder() {
  byte message = 1, answers = 0;
  do
  :: message > kMessages -> break
  :: else ->
     if
     :: message == kRefused ->
        STORE(responder_stores, ANSWER, message);
        BARRIER(responder_stores);
        answers++
     :: else -> skip
     fi;
     /* The tail may be pushed for each message or for several. */
     if
     :: message == kMessages || true ->
#ifdef TAIL_FIRST
        STORE(responder_stores, TAIL, message);
        BARRIER(responder_stores);
        STORE(responder_stores, ANSWERS, answers)
#else
        STORE(responder_stores, ANSWERS, answers);
#ifndef NO_BARRIER
        BARRIER(responder_stores);
#endif
        STORE(responder_stores, TAIL, message)
#endif
     :: message < kMessages -> skip
     fi;
     message++
  od
}

active proctype requester() {
  byte done = 0, tail, answers, refused = 0;
  do
  :: done == kMessages || refused > 0 -> break
  :: else ->
#ifdef COUNT_FIRST
     answers = memory[ANSWERS];
     tail = memory[TAIL];
#else
     tail = memory[TAIL];
     answers = memory[ANSWERS];
#endif
     if
     :: answers > 0 -> refused = memory[ANSWER]; assert(refused == kRefused); tail = kRefused - 1
     :: else -> skip
     fi;
     assert(tail < kRefused);
     done = (tail > done -> tail : done)
  od
}
