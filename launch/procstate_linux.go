package launch

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// maxThreads limits the threads in the result of procState.
const maxThreads = 32

// procState describes a process from /proc: its state, and the kernel function and
// system call in which each thread waits. It omits files that it may not read.
func procState(pid int) string {
	dir := fmt.Sprintf("/proc/%d", pid)
	var b strings.Builder
	status := procFile(dir, "status")
	if status == "" {
		return fmt.Sprintf("process %d does not exist any more", pid)
	}
	fmt.Fprintf(&b, "the kernel's view of process %d:", pid)
	for line := range strings.Lines(status) {
		switch key, value, _ := strings.Cut(line, ":"); key {
		case "Name", "State", "Threads", "VmRSS", "SigPnd", "ShdPnd", "SigBlk", "SigIgn":
			fmt.Fprintf(&b, " %s %s;", key, strings.Join(strings.Fields(value), " "))
		}
	}
	threads, _ := filepath.Glob(dir + "/task/*")
	for i, t := range threads {
		if i == maxThreads {
			fmt.Fprintf(&b, "\n  and %d threads more", len(threads)-i)
			break
		}
		fmt.Fprintf(&b, "\n  thread %s: %s", filepath.Base(t), threadState(t))
	}
	return b.String()
}

// threadState describes a thread from its directory in /proc.
func threadState(dir string) string {
	var parts []string
	// The state follows the name in parentheses, which may contain any character.
	if stat := procFile(dir, "stat"); stat != "" {
		if _, rest, ok := strings.Cut(stat[max(0, strings.LastIndexByte(stat, ')')):], ") "); ok {
			parts = append(parts, "state "+rest[:min(1, len(rest))])
		}
	}
	if w := procFile(dir, "wchan"); w != "" && w != "0" {
		parts = append(parts, "waits in "+w)
	}
	if s, _, _ := strings.Cut(procFile(dir, "syscall"), " "); s != "" && s != "running" {
		parts = append(parts, "syscall "+s)
	}
	// The kernel stack is only shown for uninterruptible sleep.
	if s := procFile(dir, "stack"); s != "" && slices.Contains(parts, "state D") {
		parts = append(parts, "stack\n    "+strings.ReplaceAll(s, "\n", "\n    "))
	}
	return strings.Join(parts, ", ")
}

// procFile returns the text of a file; empty if it cannot be read.
func procFile(dir, name string) string {
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
