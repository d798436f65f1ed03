/*
 * The biased lock (fabric/threads/biased_lock.h), two threads. The one to which it is biased says that it is inside,
 * and looks again whether the bias still stands; the other one revokes the bias, makes both processors execute a fence
 * (membarrier), and waits until the first is outside. Each may then bias the lock to itself.
 *
 * Never are two of them in it, nobody sleeps for ever, and what one stores inside is visible before it is outside.
 * Without the kernel's fence, the second look, the wait or the look on leaving (NO_MEMBARRIER, NO_SECOND_LOOK, NO_WAIT,
 * NO_WAKE), or with one flag for both threads (ONE_FLAG), this must fail. So must NO_RELEASE on weak processors.
 */
#define kTimes 3
#define BIAS 0          /* the number of the thread + 1; 0: nobody */
#define INSIDE(who) (1 + who)
#define USED(who) (3 + who) /* what the lock protects: stored inside, and back again */

byte memory[5];
bit locked;    /* the mutex */
bit asleep[2]; /* on the flag of this thread */
byte in_it;

#include "memory.inc"

#ifdef ONE_FLAG
#define FLAG(who) INSIDE(0)
#define STANDS(who) (memory[BIAS] != 0)
#else
#define FLAG(who) INSIDE(who)
#define STANDS(who) (memory[BIAS] == who + 1)
#endif

Buffer stores[2];
MEMORY_SYSTEM(first_memory, stores[0])
MEMORY_SYSTEM(second_memory, stores[1])

inline leave() {
#ifndef NO_RELEASE
  BARRIER(stores[me]);
#endif
  STORE(stores[me], FLAG(me), 0);
#ifndef NO_WAKE
  if
  :: memory[BIAS] != me + 1 -> FENCE(stores[me]); asleep[me] = 0 /* futex(2) fences before it looks who sleeps */
  :: else -> skip
  fi
#endif
}

inline revoke() {
  STORE(stores[me], BIAS, 0);
#ifndef NO_MEMBARRIER
  FENCE(stores[me]);
  FENCE(stores[1 - me]);
#endif
#ifndef NO_WAIT
  do
  :: atomic { memory[FLAG(1 - me)] == 0 -> break }
  :: atomic { memory[FLAG(1 - me)] == 1 -> asleep[1 - me] = 1 };
     asleep[1 - me] == 0
  od
#endif
}

proctype thread(byte me) {
  byte times = 0;
  bit biased;
  do
  :: times == kTimes -> break
  :: times < kTimes ->
     times++;
     biased = 0;
     if
     :: memory[BIAS] == me + 1 ->
        STORE(stores[me], FLAG(me), 1);
        if
#ifdef NO_SECOND_LOOK
        :: true -> biased = 1
#else
        :: STANDS(me) -> biased = 1
        :: else -> leave()
#endif
        fi
     :: else -> skip
     fi;
     if
     :: biased -> skip
     :: else ->
        atomic { locked == 0 && stores[me].used == 0 -> locked = 1 };
        if
        :: memory[BIAS] != 0 -> revoke()
        :: else -> skip
        fi
     fi;
     in_it++;
     assert(in_it == 1 && memory[USED(1 - me)] == 0);
     STORE(stores[me], USED(me), 1);
     STORE(stores[me], USED(me), 0);
     in_it--;
     if
     :: biased -> leave()
     :: else ->
        if
        :: STORE(stores[me], BIAS, me + 1)
        :: skip
        fi;
        FENCE(stores[me]);
        locked = 0
     fi
  od
}

init { atomic { run thread(0); run thread(1) } }
