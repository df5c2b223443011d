package launch

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/launch/internal/control"
)

func ownProgram() (string, error) { return "/proc/self/exe", nil }

// sweepRounds bounds a chase after processes that fork faster than they are found.
const sweepRounds = 50

// sweep kills every process whose environment bears the mark of a group, and that
// of a rank if it is not negative. It finds those that left the process group of
// their rank, as daemons do. Processes of others, which cannot be looked into,
// are none of ours.
func sweep(mark string, rank int) {
	want := [][]byte{fmt.Appendf(nil, "\x00%s=%s\x00", control.EnvGroup, mark)}
	if rank >= 0 {
		want = append(want, fmt.Appendf(nil, "\x00%s=%d\x00", control.EnvRank, rank))
	}
	for range sweepRounds {
		killed := killMarked(want)
		if len(killed) == 0 {
			return
		}
		time.Sleep(time.Millisecond) // the killed need a moment to vanish
		for _, pid := range killed {
			// Where orphans come to this process, they are its to reap.
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
		}
	}
}

func killMarked(want [][]byte) (killed []int) {
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
		if killIfMarked(pid, want) {
			killed = append(killed, pid)
		}
	}
	return killed
}

func killIfMarked(pid int, want [][]byte) bool {
	if !marked(pid, want) {
		return false
	}
	// Look again with the process held: the number may have passed to another.
	fd, err := unix.PidfdOpen(pid, 0)
	switch {
	case errors.Is(err, unix.ENOSYS): // before Linux 5.3
		return unix.Kill(pid, unix.SIGKILL) == nil
	case err != nil:
		return false
	}
	defer unix.Close(fd)
	return marked(pid, want) && unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) == nil
}

// marked is false for zombies, which have no environment.
func marked(pid int, want [][]byte) bool {
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return false
	}
	env = append([]byte{0}, env...)
	return !slices.ContainsFunc(want, func(w []byte) bool { return !bytes.Contains(env, w) })
}
