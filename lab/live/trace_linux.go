package live

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"

	"golang.org/x/sys/unix"
)

// tracePath is where a lab's standard error goes: nobody looks at it while the
// lab is well, and when it crashes nobody else knows why. It is empty for a user
// without a cache, who has to do without.
func tracePath(name string) string {
	cache, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(cache, "fabrictest", "labs", name+".stderr")
}

// openTrace makes the file anew; nil if it cannot be made.
func openTrace(path string) *os.File {
	if path == "" || os.MkdirAll(filepath.Dir(path), 0o700) != nil {
		return nil
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC|os.O_APPEND|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil
	}
	return f
}

// closeTrace removes a file in which nothing was written.
func closeTrace(path string) {
	if info, err := os.Lstat(path); err == nil && info.Size() == 0 {
		os.Remove(path)
	}
}

// crashTrace is the file that a lab of a name left when it crashed, if one did.
func crashTrace(name string) string {
	path := tracePath(name)
	if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return ""
	}
	return path
}

// lastWords is the first line of a crash, which says what it was about.
func lastWords(path string) string {
	text, _ := os.ReadFile(path)
	line, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	return line
}

// maxTraces is how many accidents a lab writes down: one that happens with every
// request must not fill a disk.
const maxTraces = 10

// survive is deferred by whoever serves one client: a mistake of ours on behalf
// of one must not take the hosts and programs of all others away.
func (s *server) survive(report func(error)) {
	p := recover()
	if p == nil {
		return
	}
	if s.traces.Add(1) <= maxTraces {
		fmt.Fprintf(s.log, "panic: %v\n%s\n", p, debug.Stack())
	}
	where := ""
	if s.trace != "" {
		where = ", with what is in " + s.trace
	}
	report(fmt.Errorf("a defect of fabrictest's: %v: please report it%s; the lab is still up", p, where))
}
