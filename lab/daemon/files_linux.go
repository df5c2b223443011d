package daemon

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// SendFiles sends one byte with descriptors (SCM_RIGHTS); nil files are left out.
func SendFiles(conn *net.UnixConn, files ...*os.File) error {
	var fds []int
	for _, f := range files {
		if f != nil {
			fds = append(fds, int(f.Fd()))
		}
	}
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	_, _, err := conn.WriteMsgUnix([]byte{'F'}, rights, nil)
	return err
}

// maxFiles is the maximum number of descriptors in a message.
const maxFiles = 8

// ReceiveFiles receives the descriptors of SendFiles.
func ReceiveFiles(conn *net.UnixConn) (files []*os.File, err error) {
	var one [1]byte
	room := make([]byte, unix.CmsgSpace(4*maxFiles))
	n, oobn, flags, _, err := conn.ReadMsgUnix(one[:], room)
	if err != nil {
		return nil, err
	}
	messages, err := unix.ParseSocketControlMessage(room[:oobn])
	if err != nil {
		return nil, err
	}
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			continue
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), fmt.Sprintf("descriptor %d", len(files))))
		}
	}
	if n != 1 || flags&unix.MSG_CTRUNC != 0 {
		CloseAll(files)
		return nil, errors.New("descriptors were truncated")
	}
	return files, nil
}

// CloseAll closes files.
func CloseAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

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
