package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
)

// endOfRanks is the name of a line that rank 0 prints when all ranks have checked their results.
const endOfRanks = "end"

// Lines that mpiexec prints with the manual launcher: a command for each host, and the end.
const (
	launchMark = "HYDRA_LAUNCH: "
	launchEnd  = "HYDRA_LAUNCH_END"
)

// runMPICH runs the ranks of MPICH, and returns the results of rank 0. mpiexec runs
// in the first host, and prints the command of each host's proxy, which starts the rank.
func runMPICH(ctx context.Context, f *fabric, p *programs) (turn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // kills all processes
	const ipv4 = true
	names := make([]string, len(f.hosts))
	for i, h := range f.hosts {
		names[i] = h.Name
	}
	args := slices.Concat([]string{
		"-launcher", "manual", "-localhost", f.hosts[0].NICs[0].Addr(ipv4).String(),
		"-hosts", strings.Join(names, ","), "-ppn", "1", "-n", strconv.Itoa(len(f.hosts)),
		"-genv", "UCX_TLS", "tcp,self", p.Program,
	}, f.args)
	cmd := exec.CommandContext(ctx, p.Launcher, args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := f.hosts[0].NS.Start(cmd); err != nil {
		return nil, err
	}
	text, err := f.launchProxies(ctx, out)
	if err != nil {
		cancel() // mpiexec would wait forever
	}
	err = errors.Join(err, cmd.Wait())
	t, parseErr := parseTurn(text, f.measurements())
	if err != nil && t[endOfRanks] == 0 {
		return nil, err
	}
	return t, parseErr // ranks that spin on shared processors may fail in MPI_Finalize
}

// launchProxies reads the output of mpiexec until its end. It starts the proxies whose commands
// mpiexec prints after launchMark, one for each host, until launchEnd. Then it waits for them, and
// returns the other lines: the ranks' output.
func (f *fabric) launchProxies(ctx context.Context, out io.Reader) (string, error) {
	var text strings.Builder
	var proxies []*exec.Cmd
	in := bufio.NewScanner(out)
	for in.Scan() {
		line := in.Text()
		command, isCommand := strings.CutPrefix(line, launchMark)
		switch {
		case isCommand:
			proxy, err := f.startProxy(ctx, len(proxies), strings.Fields(command))
			if err != nil {
				return "", err
			}
			proxies = append(proxies, proxy)
		case line == launchEnd:
			if len(proxies) != len(f.hosts) {
				return "", fmt.Errorf("mpiexec asks for %d processes, and there are %d hosts", len(proxies), len(f.hosts))
			}
		default:
			fmt.Fprintln(&text, line)
		}
	}
	err := in.Err()
	for _, p := range proxies {
		err = errors.Join(err, p.Wait())
	}
	return text.String(), err
}

// startProxy starts a proxy, by the command that mpiexec printed, in host i, bound to the CPU of
// the rank on that host.
func (f *fabric) startProxy(ctx context.Context, i int, command []string) (*exec.Cmd, error) {
	if i >= len(f.hosts) {
		return nil, fmt.Errorf("mpiexec asks for more processes than the %d hosts have: %q", len(f.hosts), command)
	}
	h := f.hosts[i]
	cmd := exec.CommandContext(ctx, "/proc/self/exe", append([]string{rolePinned, strconv.Itoa(f.cpus[i])}, command...)...)
	cmd.Env = append(os.Environ(), "UCX_NET_DEVICES="+h.NICs[0].Name)
	cmd.Stderr = os.Stderr
	return cmd, h.NS.Start(cmd)
}
