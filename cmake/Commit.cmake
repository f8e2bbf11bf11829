# Writes OUTPUT, a header with the commit of the sources at the time of the build; unchanged where it is the same.
cmake_minimum_required(VERSION 3.25)
execute_process(COMMAND git -C ${SOURCE} describe --always --dirty OUTPUT_VARIABLE commit
                OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT "#define VOX_COMMIT \"@commit@\"\n" @ONLY)
