# cmake -DFILES=a.grp|b.grp -DOUT=FILE.c -P GwEmbed.cmake: writes FILE.c, the event groups as C strings
# (src/counters/group.h), in the order of FILES.
string(REPLACE "|" ";" files "${FILES}")
set(table "")
set(count 0)
foreach(file IN LISTS files)
  get_filename_component(name ${file} NAME_WE)
  file(READ ${file} text)
  string(REPLACE "\\" "\\\\" text "${text}")
  string(REPLACE "\"" "\\\"" text "${text}")
  string(REPLACE "\n" "\\n\"\n     \"" text "${text}")
  string(APPEND table "    {\"${name}\",\n     \"${text}\"},\n")
  math(EXPR count "${count} + 1")
endforeach()
file(WRITE ${OUT} "#include \"counters/group.h\"\n\nconst gw_group_text gw_group_texts[] = {\n"
  "${table}};\nconst int gw_group_text_count = ${count};\n")
