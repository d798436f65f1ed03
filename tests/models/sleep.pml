/*
 * The sleeping rule of a link: the producer stores, fences (S1), looks at the consumer's armed flag and rings; the
 * consumer arms, fences (S2), looks again, sleeps. No doorbell is lost here, and nobody looks again after a while:
 * the rule alone must wake the consumer for every record.
 *
 * Without S1, S2 or the second look (NO_S1, NO_S2, NO_SECOND_LOOK) the consumer must be found asleep beside a record.
 */
#define kRecords 3
#define RECORDS 0 /* how many were written, in the consumer's memory */
#define ARMED 1   /* the armed flag, in the producer's memory */

byte memory[2];
bit doorbell;

#include "memory.inc"

Buffer producer_stores, consumer_stores;
MEMORY_SYSTEM(producer_memory, producer_stores)
MEMORY_SYSTEM(consumer_memory, consumer_stores)

active proctype producer() {
  byte written = 0;
  do
  :: written < kRecords ->
     written++;
     STORE(producer_stores, RECORDS, written);
#ifndef NO_S1
     FENCE(producer_stores);
#endif
     if
     :: memory[ARMED] == 1 -> doorbell = 1
     :: else -> skip
     fi
  :: written == kRecords -> break
  od
}

active proctype consumer() {
  byte seen = 0;
  do
  :: seen == kRecords -> break
  :: atomic { memory[RECORDS] > seen -> seen = memory[RECORDS] }
  :: atomic { memory[RECORDS] == seen && seen < kRecords -> doorbell = 0 };
     STORE(consumer_stores, ARMED, 1);
#ifndef NO_S2
     FENCE(consumer_stores);
#endif
     if
#ifndef NO_SECOND_LOOK
     :: memory[RECORDS] > seen -> skip
     :: memory[RECORDS] == seen ->
#else
     :: true ->
#endif
        doorbell == 1 /* asleep until it rings */
     fi;
     STORE(consumer_stores, ARMED, 0)
  od
}
