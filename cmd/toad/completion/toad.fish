# fish completion for toad. To use it: toad completion fish | source
function __toad_complete
	set -l words (commandline -opc)
	set -l found (command $words[1] complete -- $words[2..] (commandline -ct) 2>/dev/null)
	if test "$found[1]" = :files
		__fish_complete_path (commandline -ct)
	else
		printf '%s\n' $found
	end
end
complete -c toad -f -a '(__toad_complete)'
