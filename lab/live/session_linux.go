package live

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// killSession kills what a program left behind in its session: a shell's jobs are
// in groups of their own, and would keep the terminal open. Whatever wants to
// stay has to start a session of its own, as daemons do.
func killSession(leader int) {
	if self, _ := os.Readlink("/proc/self"); self != strconv.Itoa(os.Getpid()) {
		return // /proc is that of other processes: see netns.Unshare
	}
	const rounds = 10 // what is killed may just have started another
	for range rounds {
		found := false
		dirs, _ := filepath.Glob("/proc/[0-9]*")
		for _, dir := range dirs {
			pid, err := strconv.Atoi(filepath.Base(dir))
			if err == nil && sessionOf(dir) == leader {
				found = syscall.Kill(pid, syscall.SIGKILL) == nil || found
			}
		}
		if !found {
			return
		}
	}
}

// sessionOf is the session of a process that has not ended; 0 otherwise.
func sessionOf(dir string) int {
	stat, err := os.ReadFile(dir + "/stat")
	if err != nil {
		return 0
	}
	// The name before it may hold anything, parentheses too.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 4 || fields[0] == "Z" || fields[0] == "X" {
		return 0
	}
	session, _ := strconv.Atoi(fields[3])
	return session
}
