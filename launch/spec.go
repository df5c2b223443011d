package launch

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
)

// MaxRanks is the largest group.
const MaxRanks = 4096

// Spec describes the process of one rank.
type Spec struct {
	Rank int    // the ranks of a group are 0 to n-1
	Host string // host name, for messages and for Conn.Host
	Cmd  Command
	// Start starts the process; nil means cmd.Start.
	//
	// It runs on a locked OS thread that serves only this rank until the process
	// exits, so it may change the thread (setns, unshare, signal mask). It must call
	// cmd.Start on this thread or on another one that outlives the process: cmd has
	// Pdeathsig set, and the process is killed when the thread exits. If it cannot,
	// it must set cmd.SysProcAttr.Pdeathsig to 0; the guard remains.
	//
	// Start may extend cmd (Cloneflags, Chroot, arguments of a wrapper) but must not
	// change Setpgid, Stdout, Stderr and ExtraFiles.
	Start func(cmd *exec.Cmd) error
	// Job is sent to the rank when it joins; at most 64 MiB.
	Job []byte

	ranks rankRange // of a proxy (StartHosts); empty for a rank
}

// isProxy reports whether the process is a proxy, which runs the ranks of a host.
func (s *Spec) isProxy() bool { return s.ranks.n > 0 }

// name names the process in messages.
func (s *Spec) name() string {
	if s.isProxy() {
		return "host " + s.Host
	}
	return rankName(s.Rank, s.Host)
}

// Command is the program of a rank.
type Command struct {
	Path string
	Args []string // without argv[0]
	// Env is the environment; nil means os.Environ. The launcher adds the variables for Join.
	Env []string
	Dir string // empty means the current directory
	// Files are inherited as descriptors FirstFile, FirstFile+1, … The caller closes them.
	Files []*os.File
}

// controlFD is the control channel's descriptor in the started process.
const controlFD = 3

// FirstFile is the descriptor of the first of Command.Files in the started process.
const FirstFile = controlFD + 1

// checkSpecs checks that there is one spec for each rank from first on, each with a program and a job
// (data for the program) within the limit.
func checkSpecs(specs []Spec, first int) error {
	if len(specs) == 0 {
		return errors.New("no ranks to start")
	}
	if len(specs) > MaxRanks {
		return fmt.Errorf("%d ranks, the limit is %d", len(specs), MaxRanks)
	}
	ranks := rankRange{first, len(specs)}
	seen := make([]bool, len(specs))
	for i, s := range specs {
		switch {
		case !ranks.contains(s.Rank):
			return fmt.Errorf("spec %d is for rank %d, but %d ranks are numbered %d to %d", i, s.Rank, len(specs), first, ranks.end()-1)
		case seen[s.Rank-first]:
			return fmt.Errorf("spec %d is the second for rank %d", i, s.Rank)
		case s.Cmd.Path == "":
			return fmt.Errorf("rank %d has no program to run", s.Rank)
		case len(s.Job) > maxJob:
			return fmt.Errorf("rank %d has a job of %d bytes, the limit is %d", s.Rank, len(s.Job), maxJob)
		}
		seen[s.Rank-first] = true
	}
	return nil
}

// command returns the unstarted exec.Cmd of a spec. size is the number of ranks, groupID marks the
// group's processes in their environment, and channel is the rank's end of its control channel.
func (s *Spec) command(size int, groupID string, channel *os.File) *exec.Cmd {
	cmd := exec.Command(s.Cmd.Path, s.Cmd.Args...)
	cmd.Dir = s.Cmd.Dir
	cmd.Env = s.Cmd.Env
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	// The last duplicate wins: these override the variables of a launcher that is itself a rank.
	cmd.Env = append(cmd.Env[:len(cmd.Env):len(cmd.Env)],
		fmt.Sprintf("%s=%d", envControl, controlFD),
		fmt.Sprintf("%s=%d", envRank, s.Rank),
		fmt.Sprintf("%s=%d", envSize, size),
		envHost+"="+s.Host,
		envGroup+"="+groupID,
	)
	if s.isProxy() {
		cmd.Stdin, cmd.Stdout = channel, channel
	} else {
		cmd.ExtraFiles = append([]*os.File{channel}, s.Cmd.Files...)
	}
	cmd.SysProcAttr = sysProcAttr()
	return cmd
}
