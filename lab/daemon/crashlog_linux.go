package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"

	"golang.org/x/sys/unix"
)

// CrashLog returns the file for the standard error of a lab, which has the stack trace if
// the lab crashes; empty if the user has no cache directory.
func (k *Kind) CrashLog(name string) string {
	cache, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(cache, "fabrictest", "labs", fmt.Sprintf(k.LogFile, name))
}

// createCrashLog creates the file; nil if that fails.
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

func removeEmptyCrashLog(path string) {
	if info, err := os.Lstat(path); err == nil && info.Size() == 0 {
		os.Remove(path)
	}
}

// notUp returns the error for a lab that is not up.
func (k *Kind) notUp(name string) error {
	e := &NotUpError{What: k.What, Name: name, UpCommand: k.UpCommand}
	path := k.CrashLog(name)
	if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() && info.Size() > 0 {
		e.CrashLog = path
	}
	return e
}

// firstLine returns the first line of a crash log.
func firstLine(path string) string {
	text, _ := os.ReadFile(path)
	line, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	return line
}

// maxLoggedPanics bounds the stack traces in the log, because every request may
// panic.
const maxLoggedPanics = 10

// recoverPanic is deferred by the handler of a client, so that a panic does not end
// the lab for all other clients.
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
