package live

import (
	"net"

	"golang.org/x/sys/unix"
)

// peerCred returns the credentials of the other end (SO_PEERCRED): the client, or
// the process that called listen. A user outside of this user namespace has the
// overflow UID.
func peerCred(conn *net.UnixConn) (*unix.Ucred, error) {
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
