# find_package(fairlock) gives the targets fairlock::fairlock, the shared library, and
# fairlock::fairlock-static.

include(CMakeFindDependencyMacro)
find_dependency(Threads)

get_filename_component(_fairlock_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)

if(NOT TARGET fairlock::fairlock)
  add_library(fairlock::fairlock SHARED IMPORTED)
  set_target_properties(fairlock::fairlock PROPERTIES
    IMPORTED_LOCATION "${_fairlock_prefix}/lib/libfairlock.so.@VERSION@"
    IMPORTED_SONAME "libfairlock.so.0"
    INTERFACE_INCLUDE_DIRECTORIES "${_fairlock_prefix}/include")
endif()

if(NOT TARGET fairlock::fairlock-static)
  add_library(fairlock::fairlock-static STATIC IMPORTED)
  set_target_properties(fairlock::fairlock-static PROPERTIES
    IMPORTED_LOCATION "${_fairlock_prefix}/lib/libfairlock.a"
    INTERFACE_INCLUDE_DIRECTORIES "${_fairlock_prefix}/include"
    INTERFACE_LINK_LIBRARIES "Threads::Threads;${CMAKE_DL_LIBS};m;rt")
endif()

unset(_fairlock_prefix)
