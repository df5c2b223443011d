package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// shellVar is the environment variable with the path of the namespace that a remote shell enters.
const shellVar = "FABRICTEST_PEERS_NETNS"

// runOpenMPI runs the ranks of Open MPI, and returns the results of rank 0. mpiexec runs in the
// first host, with the first rank; its remote shell, this program, starts the daemon of the second
// host, which starts the other. The ranks use TCP only, over the subnet of the veth pair.
func runOpenMPI(ctx context.Context, f *fabric, p *programs) (turn, error) {
	const ipv4 = true
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	nic := f.hosts[0].NICs[0].Name // the same in both hosts
	args := []string{"--allow-run-as-root", "--bind-to", "none"}
	for _, mca := range [][2]string{
		{"plm", "rsh"},
		{"plm_rsh_agent", self + " " + roleShell},
		{"pml", "ob1"},
		{"btl", "tcp,self"},
		{"btl_tcp_if_include", nic},
		{"oob_tcp_if_include", nic},
	} {
		args = append(args, "--mca", mca[0], mca[1])
	}
	for i, h := range f.hosts {
		if i > 0 {
			args = append(args, ":")
		}
		args = append(args, "-n", "1", "--host", h.NICs[0].Addr(ipv4).String(), self, rolePinned, strconv.Itoa(f.cpus[i]), p.Program)
		args = append(args, f.args...)
	}
	cmd := exec.CommandContext(ctx, p.Launcher, args...)
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=/proc/%d/fd/%d", shellVar, os.Getpid(), f.hosts[1].NS.FD()))
	text, err := f.outputIn(0, cmd)
	if err != nil {
		return nil, err
	}
	return parseTurn(text, measurements())
}

// shellMain is the remote shell of Open MPI: it enters the network namespace that shellVar names, and
// executes a command there. args are the host, of which there is one only, and the words of the
// command. It returns only errors.
func shellMain(args []string) error {
	if len(args) < 2 {
		return fmt.Errorf("%q: want a host and a command", args)
	}
	command := []string{"/bin/sh", "-c", strings.Join(args[1:], " ")}
	return execInNetNS(os.Getenv(shellVar), command)
}
