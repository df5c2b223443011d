package daemon

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"

	"golang.org/x/sys/unix"
)

// SendFiles sends one byte with the descriptors of files (SCM_RIGHTS); it omits nil files.
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

// ReceiveFiles receives the byte and descriptors of SendFiles. The caller closes the files.
func ReceiveFiles(conn *net.UnixConn) (files []*os.File, err error) {
	var one [1]byte
	const sizeofFD = 4
	oob := make([]byte, unix.CmsgSpace(sizeofFD*maxFiles))
	n, oobn, flags, _, err := conn.ReadMsgUnix(one[:], oob)
	if err != nil {
		return nil, err
	}
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return nil, err
	}
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			continue // another kind of control message
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

// peerCred returns the credentials of the other end (SO_PEERCRED): on the lab's side the client's,
// on a client's side those of the process that called listen. A user outside this user namespace
// has the overflow UID.
func peerCred(conn *net.UnixConn) (*unix.Ucred, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	var optErr error
	err = raw.Control(func(fd uintptr) { cred, optErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err == nil {
		err = optErr
	}
	return cred, err
}

// CrashLog returns the file for the standard error of a lab, which has the stack trace if
// the lab crashes; empty if the user has no cache directory.
func (k *Kind) CrashLog(name string) string {
	cache, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(cache, "fabrictest", "labs", fmt.Sprintf(k.LogFile, name))
}

// createCrashLog creates the file and its folder, or truncates the file if it exists. It returns
// nil if that fails or the path is empty: a lab works without a log.
func createCrashLog(path string) *os.File {
	if path == "" || os.MkdirAll(filepath.Dir(path), 0o700) != nil {
		return nil
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC|os.O_APPEND|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil
	}
	return f
}

// removeEmptyCrashLog removes the log if it is empty: the lab did not crash.
func removeEmptyCrashLog(path string) {
	if info, err := os.Lstat(path); err == nil && info.Size() == 0 {
		os.Remove(path)
	}
}

// notUp returns a *NotUpError for a lab, with its crash log if that is not empty.
func (k *Kind) notUp(name string) error {
	e := &NotUpError{What: k.What, Name: name, UpCommand: k.UpCommand}
	path := k.CrashLog(name)
	if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() && info.Size() > 0 {
		e.CrashLog = path
	}
	return e
}

// maxLoggedPanics bounds the stack traces in the log: every request may panic.
const maxLoggedPanics = 10

// recoverPanic is deferred by a client's handler, so that a panic does not end the lab for other
// clients. It logs the panic and its stack, and calls report with an error for the client.
func (s *server[R]) recoverPanic(report func(error)) {
	p := recover()
	if p == nil {
		return
	}
	if s.panics.Add(1) <= maxLoggedPanics {
		fmt.Fprintf(s.log, "panic: %v\n%s\n", p, debug.Stack())
	}
	where := ""
	if s.crashLog != "" {
		where = ", and attach " + s.crashLog
	}
	report(fmt.Errorf("internal error: %v: please report it%s; the lab is still up", p, where))
}
