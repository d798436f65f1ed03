# Fails unless PAGE contains exactly the text of PROGRAM as a block of C++.
file(READ "${PROGRAM}" program)
file(READ "${PAGE}" page)
string(FIND "${page}" "```cpp\n${program}```\n" found)
if(found EQUAL -1)
  message(FATAL_ERROR "${PAGE} has no block of C++ that is ${PROGRAM}: put the program there as it is now")
endif()
