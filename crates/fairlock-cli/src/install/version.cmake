# As SemVer has it: below 1.0 the second number may break, from 1.0 on the first.

set(PACKAGE_VERSION "@VERSION@")
set(PACKAGE_VERSION_COMPATIBLE FALSE)

if(NOT PACKAGE_FIND_VERSION VERSION_GREATER PACKAGE_VERSION)
  string(REGEX MATCH "^(0\\.[0-9]+|[1-9][0-9]*)" _fairlock_series "${PACKAGE_VERSION}")
  if(PACKAGE_FIND_VERSION STREQUAL "0" OR "${PACKAGE_FIND_VERSION}." MATCHES "^${_fairlock_series}\\.")
    set(PACKAGE_VERSION_COMPATIBLE TRUE)
  endif()
  unset(_fairlock_series)
endif()

if(PACKAGE_FIND_VERSION VERSION_EQUAL PACKAGE_VERSION)
  set(PACKAGE_VERSION_EXACT TRUE)
endif()
