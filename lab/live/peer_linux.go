package live

import (
	"net"

	"golang.org/x/sys/unix"
)

// peer is who is at the other end of a connection: the client, or the process
// that listened last. User and process are numbered as we see them: who is not of
// our user namespace is nobody.
func peer(conn *net.UnixConn) (*unix.Ucred, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	var cerr error
	err = raw.Control(func(fd uintptr) { cred, cerr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err == nil {
		err = cerr
	}
	return cred, err
}
