package live

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// killSession kills the processes of a session: background jobs of a shell have
// other process groups, and would keep the terminal open.
func killSession(leader int) {
	if self, _ := os.Readlink("/proc/self"); self != strconv.Itoa(os.Getpid()) {
		return // /proc shows another PID namespace: see netns.Unshare
	}
	const rounds = 10 // a process may fork while others are killed
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

// sessionOf returns the session of a running process; 0 otherwise.
func sessionOf(dir string) int {
	stat, err := os.ReadFile(dir + "/stat")
	if err != nil {
		return 0
	}
	// The process name in parentheses may contain parentheses.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 4 || fields[0] == "Z" || fields[0] == "X" {
		return 0
	}
	session, _ := strconv.Atoi(fields[3])
	return session
}
