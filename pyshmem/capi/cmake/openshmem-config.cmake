# find_package(OpenSHMEM) with CMAKE_PREFIX_PATH=$(oshcc --prefix): pyshmem under the names that other packages look for
include("${CMAKE_CURRENT_LIST_DIR}/pyshmem-config.cmake")
if(NOT TARGET OpenSHMEM::OpenSHMEM)
  add_library(OpenSHMEM::OpenSHMEM INTERFACE IMPORTED)
  set_target_properties(OpenSHMEM::OpenSHMEM PROPERTIES INTERFACE_LINK_LIBRARIES pyshmem::pyshmem)
endif()
get_target_property(OpenSHMEM_INCLUDE_DIRS pyshmem::pyshmem INTERFACE_INCLUDE_DIRECTORIES)
set(OpenSHMEM_LIBRARIES OpenSHMEM::OpenSHMEM)
