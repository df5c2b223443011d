package launch

import (
	"errors"
	"fmt"
	"os"
	"os/exec"

	"github.com/fabrictest/fabrictest/launch/internal/control"
)

// MaxRanks is the largest group.
const MaxRanks = 4096

// Spec says how to start one rank.
type Spec struct {
	Rank int    // 0, 1, … without gaps over all specs
	Host string // for people, and for the rank to know
	Cmd  Command
	// Start starts the process, where something besides cmd.Start is needed; nil
	// means cmd.Start.
	//
	// It is called on a locked OS thread that belongs to this rank alone, lives
	// until the process has ended, and is never used for anything else. So it may
	// change the thread (setns, unshare, its signal mask) without undoing it. It
	// must call cmd.Start on the calling thread, or on another that outlives the
	// process: cmd asks for Pdeathsig, and a process dies with the thread that
	// started it. A Start that can promise neither sets cmd.SysProcAttr.Pdeathsig
	// to 0; the guard still ends the process if the launcher is killed.
	//
	// cmd comes with its descriptors, environment and SysProcAttr filled in; Start
	// may add to them (Cloneflags, Chroot, a wrapper's arguments) and must leave
	// Setpgid, Stdout, Stderr and ExtraFiles.
	Start func(cmd *exec.Cmd) error
	// Job is handed to the rank when it joins; at most 64 MiB.
	Job []byte
}

// Command is what a process runs.
type Command struct {
	Path string
	Args []string // without the program's own name
	// Env is the whole environment, that of this process if nil. What a rank needs
	// to find its launcher is added.
	Env []string
	Dir string // this process's if empty
	// Files are passed on as descriptors 4, 5, …; they remain the caller's.
	Files []*os.File
}

// controlFD is what the channel is called in the started process: the first
// after standard error.
const controlFD = 3

func checkSpecs(specs []Spec) error {
	if len(specs) == 0 {
		return errors.New("no ranks to start")
	}
	if len(specs) > MaxRanks {
		return fmt.Errorf("%d ranks, the limit is %d", len(specs), MaxRanks)
	}
	seen := make([]bool, len(specs))
	for i, s := range specs {
		switch {
		case s.Rank < 0 || s.Rank >= len(specs):
			return fmt.Errorf("spec %d is for rank %d, but %d ranks are numbered 0 to %d", i, s.Rank, len(specs), len(specs)-1)
		case seen[s.Rank]:
			return fmt.Errorf("spec %d is the second for rank %d", i, s.Rank)
		case s.Cmd.Path == "":
			return fmt.Errorf("rank %d has no program to run", s.Rank)
		case len(s.Job) > control.MaxJob:
			return fmt.Errorf("rank %d has a job of %d bytes, the limit is %d", s.Rank, len(s.Job), control.MaxJob)
		}
		seen[s.Rank] = true
	}
	return nil
}

// command makes the process of a spec, not started.
func (s *Spec) command(size int, mark string, channel *os.File) *exec.Cmd {
	cmd := exec.Command(s.Cmd.Path, s.Cmd.Args...)
	cmd.Dir = s.Cmd.Dir
	cmd.Env = s.Cmd.Env
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	// The last of equal names counts, so a rank that is a launcher itself does not
	// pass its own on.
	cmd.Env = append(cmd.Env[:len(cmd.Env):len(cmd.Env)],
		fmt.Sprintf("%s=%d", control.EnvControl, controlFD),
		fmt.Sprintf("%s=%d", control.EnvRank, s.Rank),
		fmt.Sprintf("%s=%d", control.EnvSize, size),
		control.EnvHost+"="+s.Host,
		control.EnvGroup+"="+mark,
	)
	cmd.ExtraFiles = append([]*os.File{channel}, s.Cmd.Files...)
	cmd.SysProcAttr = processAttr()
	return cmd
}
