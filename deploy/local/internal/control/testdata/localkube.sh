#!/bin/sh
# Replaces localkube in tests: components and nodes do nothing, and etcd's snapshots are plain files.
value() { # of a flag
	name=$1
	shift
	for arg; do
		case $arg in "--$name="*) echo "${arg#*=}" ;; esac
	done
}
case $1 in
etcd-snapshot)
	echo "good, of $(value endpoint "$@")" >"$(value file "$@")"
	;;
etcd-restore)
	grep -q good "$(value file "$@")" || { echo "the snapshot is damaged"; exit 1; }
	mkdir "$(value data-dir "$@")" && cp "$(value file "$@")" "$(value data-dir "$@")/data"
	;;
fails)
	echo "error: bad flag"
	exit 3
	;;
node-agent)
	[ "$(head -c 1 <&3 | wc -c)" -eq 1 ] || { echo "error: no network link"; exit 4; }
	case $LOCALKUBE_NODE in *'"zone":"fails"'*) echo "panic: no disk"; exit 3 ;; esac
	echo up
	sleep 600 &
	wait
	;;
*)
	echo "up $1"
	exec sleep 600
	;;
esac
