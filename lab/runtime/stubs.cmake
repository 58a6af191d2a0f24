# Writes the stubs of one stand-in from its name list: cmake -P, when pump is built.
#   NAMES   one exported name per line; "#" begins a comment
#   OUTPUT  the C file; OUTPUT.map, the version script, comes with it
#   VERSION of the symbols: NVIDIA's, which is the library's SONAME, or any where it has none
#   STATUS  what a stub answers: "not supported" in that library's numbers
file(STRINGS ${NAMES} names REGEX "^[^#]")
set(text "/* Generated from ${VERSION}'s name list. */\n")
string(APPEND text "void rt_stub(const char *name);\n")
string(APPEND text "#define STUB(name) __attribute__((weak, visibility(\"default\"))) int name(void) { rt_stub(#name)")
string(APPEND text "; return ${STATUS}; }\n")
set(exported "")
foreach(name IN LISTS names)
  string(APPEND text "int ${name}(void); STUB(${name})\n")
  string(APPEND exported " ${name};")
endforeach()
file(WRITE ${OUTPUT} "${text}")
file(WRITE ${OUTPUT}.map "${VERSION} { global:${exported} pump_*; _ZN3c10*; local: *; };\n")
