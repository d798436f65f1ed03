/*
 * Consumption is acknowledgement, but for what was refused. The responder consumes messages in order; message kRefused
 * it refuses: it publishes the answer, then counts it in the tail line, then stores settled. The requester loads
 * settled, then the answers' count, takes the answers up to it, and only then completes what was settled.
 *
 * A refused message that completes as done, or one after it, is the bug. It must be found when settled is stored first
 * (SETTLED_FIRST), without the barrier before it (NO_BARRIER), and when the count is loaded before it (COUNT_FIRST).
 */
#define kMessages 4
#define kRefused 2

#define ANSWER 0  /* the refused message's number, in the requester's memory */
#define ANSWERS 1 /* the tail line: how many answers */
#define SETTLED 2 /* the tail line: how many messages */

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
     /* The tail line may be pushed for each message or for several. */
     if
     :: message == kMessages || true ->
#ifdef SETTLED_FIRST
        STORE(responder_stores, SETTLED, message);
        BARRIER(responder_stores);
        STORE(responder_stores, ANSWERS, answers)
#else
        STORE(responder_stores, ANSWERS, answers);
#ifndef NO_BARRIER
        BARRIER(responder_stores);
#endif
        STORE(responder_stores, SETTLED, message)
#endif
     :: message < kMessages -> skip
     fi;
     message++
  od
}

active proctype requester() {
  byte done = 0, settled, answers, refused = 0;
  do
  :: done == kMessages || refused > 0 -> break
  :: else ->
#ifdef COUNT_FIRST
     answers = memory[ANSWERS];
     settled = memory[SETTLED];
#else
     settled = memory[SETTLED];
     answers = memory[ANSWERS];
#endif
     if
     :: answers > 0 -> refused = memory[ANSWER]; assert(refused == kRefused); settled = kRefused - 1
     :: else -> skip
     fi;
     assert(settled < kRefused);
     done = (settled > done -> settled : done)
  od
}
