# Stands in for ssh: user@board and user@other are folders in BOARD of this machine, other hosts are
# not reached.
while [ "${1#-}" != "$1" ]; do shift 2; done
case $1 in user@board | user@other) ;; *) echo "could not resolve $1" >&2; exit 255 ;; esac
mkdir -p "BOARD/$1" && cd "BOARD/$1" && HYBRIDLAT_LOCK="BOARD/$1/lock" exec sh -c "$2"
