# bash completion for toad. To use it: source <(toad completion bash)
_toad() {
	local line words cur prefix=
	line=${COMP_LINE:0:COMP_POINT}
	read -ra words <<<"$line"
	[[ $line == *[[:space:]] ]] && words+=("")
	cur=${words[-1]}
	# bash takes a digest for two words, cut at the colon, and replaces the last one.
	[[ $cur == *:* && $COMP_WORDBREAKS == *:* ]] && prefix=${cur%"${cur##*:}"}
	COMPREPLY=()
	while IFS=$'\t' read -r line _; do
		if [[ $line == :files ]]; then
			compopt -o default
			return
		fi
		COMPREPLY+=("${line#"$prefix"}")
	done < <("${words[0]}" complete -- "${words[@]:1}" 2>/dev/null)
}
complete -F _toad toad
