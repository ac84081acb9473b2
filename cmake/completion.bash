# Completion of gradwire's commands, options and names, for bash. For zsh:
#   autoload -U bashcompinit && bashcompinit && source THIS_FILE
# It asks the program when Tab is pressed, so that no list in here can fall behind.
_gradwire() {
    local program=${COMP_WORDS[0]} word=${COMP_WORDS[COMP_CWORD]} i=1 help found option
    local -a command
    while [[ $i -lt $COMP_CWORD && ${COMP_WORDS[$i]} != -* ]]; do # train; bench codec
        command+=("${COMP_WORDS[$i]}")
        i=$((i + 1))
    done
    help=$("$program" "${command[@]}" --help 2>/dev/null)
    option=${COMP_WORDS[$((COMP_CWORD - 1))]}
    if [[ $word == -* ]]; then
        found=$(sed -n 's/^  \(--[a-z0-9-]*\).*/\1/p' <<<"$help")
    elif [[ $option == --* ]]; then # its value: one of "a|b|c", or a name that `gradwire list` has
        found=$(sed -n "s/^  $option \([a-z0-9|-]*|[a-z0-9|-]*\) .*/\1/p" <<<"$help" | tr '|' '\n')
        found+=$("$program" list | awk -v "head=($option NAME" '
            /^[a-z]/ { on = index($0, head) } on && /^  [a-z0-9]/ { print $1 }')
    else
        found=$(sed -n 's/^  \([a-z][a-z-]*\) .*/\1/p' <<<"$help")
    fi
    COMPREPLY=($(compgen -W "$found" -- "$word"))
}
complete -o default -F _gradwire gradwire
