# find_package(pyshmem) with CMAKE_PREFIX_PATH=$(oshcc --prefix): the target pyshmem::pyshmem for C and C++ programs
get_filename_component(_pyshmem "${CMAKE_CURRENT_LIST_DIR}" DIRECTORY)
if(NOT TARGET pyshmem::pyshmem)
  add_library(pyshmem::pyshmem SHARED IMPORTED)
  set_target_properties(pyshmem::pyshmem PROPERTIES
    IMPORTED_LOCATION "${_pyshmem}/libpyshmem.so"
    INTERFACE_INCLUDE_DIRECTORIES "${_pyshmem}/include")
endif()
