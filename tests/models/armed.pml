/*
 * A flag that stays armed from one sleep to the next (CellLink::stays_armed), and is armed for more while its thread
 * sleeps (CellLink::rearm). The end takes records, and posts messages, whose consumption it awaits. It polls the link
 * now and then while it is awake for others, and takes a doorbell perhaps before it looks. Callers post while it
 * sleeps. The peer rings once for each value of the flag: for records if it says asleep, for what it has consumed if
 * it also says that the end waits for that. No doorbell is lost, so the end must get everything.
 *
 * The end must be found asleep for ever: if a doorbell that was taken does not end the armed state, at a sleep
 * (STAYS_TAKEN) or while callers post (REARMED_TAKEN); if a post leaves the flag as it is, while the end is awake
 * (POST_STAYS) or asleep (OLD_WISHES); if the flag is armed again with its old value (SAME_FLAG); and if rearm leaves
 * out the fence (NO_FENCE) or the second look (NO_SECOND_LOOK).
 */
#define kRecords 1
#define kPosts 2
#define kOthers 1 /* wake-ups by other links, or timers */

#define RECORDS 0  /* how many were written, in the end's memory */
#define CONSUMED 1 /* how many of the end's messages the peer has consumed, in the end's memory */
#define FLAG 2     /* sequence << 2 | waits << 1 | asleep, in the peer's memory */
#define POSTED 3   /* how many messages, in the peer's memory */

#define kAsleep 1
#define kWaits 2

byte memory[4];
bit doorbell;

#include "memory.inc"

Buffer end_stores, peer_stores;
MEMORY_SYSTEM(end_memory, end_stores)
MEMORY_SYSTEM(peer_memory, peer_stores)

/* FabricLink::ring_if_asleep. wanted: what the flag must say. */
inline ring(wanted) {
  FENCE(peer_stores);
  flag = memory[FLAG];
  if
  :: (flag & (wanted)) == (wanted) && flag != rung_for -> rung_for = flag; doorbell = 1
  :: else -> skip
  fi
}

active proctype peer() {
  byte written, consumed, flag, rung_for;
  do
  :: written < kRecords -> written++; STORE(peer_stores, RECORDS, written); ring(kAsleep)
  :: memory[POSTED] > consumed ->
     consumed++;
     STORE(peer_stores, CONSUMED, consumed);
     ring(kAsleep | kWaits)
  :: written == kRecords && consumed == kPosts -> break
  od
}

#define NEWS (memory[RECORDS] > seen || memory[CONSUMED] > done)
#define TAKE_NEWS atomic { seen = memory[RECORDS]; done = memory[CONSUMED] }
#define TAKE_DOORBELL atomic { doorbell == 1 -> doorbell = 0; taken = 1 }

#ifdef SAME_FLAG
#define kSequenceMax 0
#else
#define kSequenceMax 63
#endif

/* FabricLink::set_armed */
inline set_armed(flags) {
  atomic {
    assert(sequence < 63);
    sequence = (sequence < kSequenceMax -> sequence + 1 : sequence);
    armed = flags
  }
  STORE(end_stores, FLAG, (sequence << 2) | armed)
}

inline wish() { wanted = (posted > done -> kAsleep | kWaits : kAsleep) }

inline post() {
  posted++;
  STORE(end_stores, POSTED, posted)
}

active proctype end() {
  byte seen, done, posted, others, sequence, armed, wanted;
  bit taken, undelivered;

awake:
  do
  :: seen == kRecords && done == kPosts -> goto finished
  :: TAKE_DOORBELL
  :: NEWS -> goto news
  :: posted < kPosts ->
#ifndef POST_STAYS
     if
     :: armed != 0 -> set_armed(0)
     :: else -> skip
     fi;
#endif
     post()
  :: seen < kRecords || done < kPosts -> break
  od;

  /* Sleep. */
  if
#ifdef STAYS_TAKEN
  :: armed != 0 && !undelivered -> goto asleep
#else
  :: armed != 0 && !undelivered && !taken -> goto asleep
#endif
  :: else -> doorbell = 0
  fi;
  wish();
  set_armed(wanted);
  taken = 0;
  FENCE(end_stores);
  if
  :: NEWS -> goto news
  :: else -> undelivered = (posted > done)
  fi;

asleep:
  if
  :: doorbell == 1 -> goto news
  :: others < kOthers -> others++; goto awake
  :: posted < kPosts ->
     /* A caller drives the adapter for the thread that sleeps on. */
     do
     :: TAKE_DOORBELL
     :: NEWS -> TAKE_NEWS
     :: break
     od;
     post();
     wish();
     wanted = wanted | (armed & kWaits);
#ifdef OLD_WISHES
     wanted = armed;
#endif
     if
#ifdef REARMED_TAKEN
     :: armed == wanted -> goto asleep
#else
     :: armed == wanted && !taken -> goto asleep
#endif
     :: else -> set_armed(wanted)
     fi;
     taken = 0;
#ifndef NO_FENCE
     FENCE(end_stores);
#endif
     if
#ifndef NO_SECOND_LOOK
     :: NEWS -> goto news /* and the caller wakes the thread */
     :: else ->
#else
     :: true ->
#endif
        undelivered = (posted > done);
        goto asleep
     fi
  fi;

news:
  if
  :: armed != 0 -> set_armed(0)
  :: else -> skip
  fi;
  TAKE_NEWS;
  goto awake;

finished:
  skip
}
