/*
 * How far the receiver has consumed is said by slots of the opposite ring, or by the tail line. Before the receiver
 * sleeps it also pushes the line, if only slots have said it (SlotReceiver::line_behind): a sender that does not
 * receive meanwhile knows the line alone, and would ring for what was consumed long ago. Then it rings, if the sender
 * sleeps and waits for that, and arms. The sender waits for room in a ring of two places.
 *
 * A receiver that sleeps beside an old line must be found when a slot's report is taken for the line's
 * (REPORTED_BY_SLOT), a sender that sleeps for ever when the line is pushed after the last look at its flag
 * (LINE_AFTER_RING), and either when the receiver leaves out its fence (NO_FENCE).
 */
#define kCells 4
#define kPlaces 2

#define LINE 0   /* the tail line: how many were consumed, in the sender's memory */
#define SLOT 1   /* what the newest slot of the opposite ring says, likewise */
#define ASLEEP 2 /* the receiver's flag, likewise */
#define CELLS 3  /* how many were sent, in the receiver's memory */
#define WAITS 4  /* the sender's flag, likewise */

byte memory[5];
bit doorbell, sender_doorbell;

#include "memory.inc"

Buffer sender_stores, receiver_stores;
MEMORY_SYSTEM(sender_memory, sender_stores)
MEMORY_SYSTEM(receiver_memory, receiver_stores)

#define SAID (memory[LINE] > memory[SLOT] -> memory[LINE] : memory[SLOT])

active proctype sender() {
  byte sent, tail;
  do
  :: tail == kCells -> break
  :: sent < kCells && sent - tail < kPlaces ->
     sent++;
     STORE(sender_stores, CELLS, sent);
     FENCE(sender_stores);
     if
     :: memory[ASLEEP] == 1 -> doorbell = 1
     :: else -> skip
     fi
  :: SAID > tail -> tail = SAID
  :: SAID == tail && (sent == kCells || sent - tail == kPlaces) && tail < kCells ->
     sender_doorbell = 0;
     STORE(sender_stores, WAITS, 1);
     FENCE(sender_stores);
     if
     :: SAID > tail -> skip
     :: SAID == tail -> sender_doorbell == 1
     fi;
     STORE(sender_stores, WAITS, 0)
  od
}

/* FabricLink::ring_if_asleep: something was said since the last time. */
inline ring() {
  if
  :: reported > notified ->
     notified = reported;
     FENCE(receiver_stores);
     if
     :: memory[WAITS] == 1 -> sender_doorbell = 1
     :: else -> skip
     fi
  :: else -> skip
  fi
}

inline push_line() {
  if
#ifdef REPORTED_BY_SLOT
  :: reported < tail ->
#else
  :: pushed < tail ->
#endif
     STORE(receiver_stores, LINE, tail);
     atomic { pushed = tail; reported = tail }
  :: else -> skip
  fi
}

active proctype receiver() {
  byte tail, pushed, reported, notified;
  do
  :: memory[CELLS] > tail -> tail++
  :: reported < tail -> STORE(receiver_stores, SLOT, tail); reported = tail; ring()
  :: pushed < tail -> push_line(); ring()
  :: memory[CELLS] == tail -> /* asleep, perhaps */
#ifdef LINE_AFTER_RING
     ring();
     push_line();
#else
     push_line();
     ring();
#endif
     doorbell = 0;
     STORE(receiver_stores, ASLEEP, 1);
#ifndef NO_FENCE
     FENCE(receiver_stores);
#endif
     if
     :: memory[CELLS] > tail -> skip
     :: memory[CELLS] == tail ->
        assert(memory[LINE] == tail);
end_asleep:
        doorbell == 1
     fi;
     STORE(receiver_stores, ASLEEP, 0)
  od
}
