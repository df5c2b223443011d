package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// shellVar is the environment variable with the namespaces that a remote shell enters: a list of
// ADDRESS=PATH.
const shellVar = "FABRICTEST_PEERS_NETNS"

// runOpenMPI runs the ranks of Open MPI, and returns the results of rank 0. mpiexec runs in the
// first host, with the first rank; its remote shell, this program, starts the daemons of the other
// hosts, which start the others. The ranks use TCP only, over the subnet of the hosts. Ranks that
// share processors yield while they wait.
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
		{"plm_rsh_no_tree_spawn", "1"}, // only the first host has the list of namespaces
		{"mpi_yield_when_idle", f.yieldWhenIdle()},
		{"pml", "ob1"},
		{"btl", "tcp,self"},
		{"btl_tcp_if_include", nic},
		{"oob_tcp_if_include", nic},
	} {
		args = append(args, "--mca", mca[0], mca[1])
	}
	var namespaces []string
	for i, h := range f.hosts {
		namespaces = append(namespaces, fmt.Sprintf("%s=/proc/%d/fd/%d", h.NICs[0].Addr(ipv4), os.Getpid(), h.NS.FD()))
		if i > 0 {
			args = append(args, ":")
		}
		args = append(args, "-n", "1", "--host", h.NICs[0].Addr(ipv4).String(), self, rolePinned, strconv.Itoa(f.cpus[i]), p.Program)
		args = append(args, f.args...)
	}
	cmd := exec.CommandContext(ctx, p.Launcher, args...)
	cmd.Env = append(os.Environ(), shellVar+"="+strings.Join(namespaces, ","))
	text, err := f.outputIn(0, cmd)
	if err != nil {
		return nil, err
	}
	return parseTurn(text, f.measurements())
}

// shellMain is the remote shell of Open MPI: it enters the network namespace that shellVar names for a
// host, and executes a command there. args are the address of the host and the words of the command.
// It returns only errors.
func shellMain(args []string) error {
	if len(args) < 2 {
		return fmt.Errorf("%q: want a host and a command", args)
	}
	command := []string{"/bin/sh", "-c", strings.Join(args[1:], " ")}
	for namespace := range strings.SplitSeq(os.Getenv(shellVar), ",") {
		if path, ok := strings.CutPrefix(namespace, args[0]+"="); ok {
			return execInNetNS(path, command)
		}
	}
	return fmt.Errorf("%s is no host", args[0])
}

// yieldWhenIdle returns the value of mpi_yield_when_idle, which Open MPI itself sets only if a host has
// more ranks than processors: here each host has one rank, and hosts share processors.
func (f *fabric) yieldWhenIdle() string {
	if f.Collectives {
		return "1"
	}
	return "0"
}
