# Fails unless PAGE contains exactly what PROGRAM prints.
execute_process(COMMAND "${PROGRAM}" OUTPUT_VARIABLE table COMMAND_ERROR_IS_FATAL ANY)
file(READ "${PAGE}" page)
string(FIND "${page}" "\n\n${table}\n" found)
if(found EQUAL -1 OR table STREQUAL "")
  message(FATAL_ERROR "${PAGE} has other limits than the code, which has these:\n${table}")
endif()
