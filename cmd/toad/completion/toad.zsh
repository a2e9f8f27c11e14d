#compdef toad
# zsh completion for toad. To use it: source <(toad completion zsh), or put it as _toad into a folder of $fpath
_toad() {
	local line
	local -a values
	while IFS= read -r line; do
		if [[ $line == :files ]]; then
			_files
			return
		fi
		values+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
	done < <("${words[1]}" complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)
	_describe -t toad toad values
}
if [[ $funcstack[1] == _toad ]]; then
	_toad "$@"
else
	compdef _toad toad
fi
