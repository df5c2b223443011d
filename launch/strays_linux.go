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
)

func executablePath() (string, error) { return "/proc/self/exe", nil }

// maxKillRounds bounds the rounds if processes fork faster than they are killed.
const maxKillRounds = 50

// killStrays kills every process that has the group ID, and the rank unless it is anyRank, in its
// environment. It finds processes that left the process group of their rank, such as daemons. It
// skips processes of other users.
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

// killWithEnv kills the processes whose environment contains all of want.
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

// killIfEnvMatches kills a process if its environment contains all of want.
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
	env = append([]byte{0}, env...)
	return !slices.ContainsFunc(want, func(w []byte) bool { return !bytes.Contains(env, w) })
}
