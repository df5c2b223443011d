package launch

import (
	"bytes"
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

func onMainThread() bool { return unix.Gettid() == unix.Getpid() }

// replaceFD makes descriptor fd a duplicate of from.
func replaceFD(from, fd int) error { return os.NewSyscallError("dup3", unix.Dup3(from, fd, 0)) }

// waitWithoutReaping waits until a child has exited and leaves it a zombie. It reports
// whether that is possible.
func waitWithoutReaping(pid int) bool {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return err == nil
		}
	}
}

// maxrssUnit is the unit of Rusage.Maxrss in bytes.
const maxrssUnit = 1024

// readPeakRSS returns the peak resident set size of a process in bytes (VmHWM), or false if the
// process has exited. Rusage is no replacement: the Maxrss of a child starts at the RSS of its
// parent at the fork.
func readPeakRSS(pid int) (int64, bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, false
	}
	_, rest, ok := bytes.Cut(b, []byte("\nVmHWM:"))
	if !ok {
		return 0, false
	}
	field := bytes.Fields(rest)
	if len(field) < 2 {
		return 0, false
	}
	kib, err := strconv.ParseInt(string(field[0]), 10, 64)
	return kib << 10, err == nil
}

// isGoProcess reports whether a process runs a Go program, which prints its goroutines on SIGQUIT.
func isGoProcess(pid int) bool {
	_, err := buildinfo.ReadFile(fmt.Sprintf("/proc/%d/exe", pid))
	return err == nil
}

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

func executablePath() (string, error) { return "/proc/self/exe", nil }

// maxKillRounds bounds the rounds if processes fork faster than they are killed.
const maxKillRounds = 50

// killStrays kills every process whose environment has the group ID and, unless rank is anyRank,
// the number of the rank, such as daemons that left the process group of their rank. It skips
// processes of other users.
func killStrays(groupID string, rank int) {
	want := [][]byte{fmt.Appendf(nil, "\x00%s=%s\x00", envGroup, groupID)}
	if rank != anyRank {
		want = append(want, fmt.Appendf(nil, "\x00%s=%d\x00", envRank, rank))
	}
	for range maxKillRounds {
		killed := killWithEnv(want)
		if len(killed) == 0 {
			return
		}
		time.Sleep(time.Millisecond) // let the killed processes exit
		for _, pid := range killed {
			// As a subreaper or PID 1, this process has to reap orphans.
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
		}
	}
}

// killWithEnv kills the processes whose environment contains all of want, except this process, and
// returns their PIDs.
func killWithEnv(want [][]byte) (killed []int) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil
	}
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || pid == os.Getpid() {
			continue
		}
		if killIfEnvMatches(pid, want) {
			killed = append(killed, pid)
		}
	}
	return killed
}

// killIfEnvMatches kills a process if its environment contains all of want, and reports whether it
// did.
func killIfEnvMatches(pid int, want [][]byte) bool {
	if !envMatches(pid, want) {
		return false
	}
	// Check again with a pidfd, in case the kernel has reused the PID.
	fd, err := unix.PidfdOpen(pid, 0)
	switch {
	case errors.Is(err, unix.ENOSYS): // before Linux 5.3
		return unix.Kill(pid, unix.SIGKILL) == nil
	case err != nil:
		return false
	}
	defer unix.Close(fd)
	return envMatches(pid, want) && unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) == nil
}

// envMatches reports whether the environment of a process contains all of want. It is
// false for zombies, which have none.
func envMatches(pid int, want [][]byte) bool {
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return false
	}
	env = append([]byte{0}, env...) // each of want begins with the NUL before its variable
	return !slices.ContainsFunc(want, func(w []byte) bool { return !bytes.Contains(env, w) })
}
