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

// What mpiexec prints for whoever starts the processes of each host, if that is not
// itself: a command each, and that there are no more.
const (
	launchMark = "HYDRA_LAUNCH: "
	launchEnd  = "HYDRA_LAUNCH_END"
)

// mpich runs MPICH's ranks, and returns what the first has printed. mpiexec runs in
// the first host, and says what to start in each.
func (f *fabric) mpich(ctx context.Context) (text string, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends all that is started here
	args := slices.Concat([]string{
		"-launcher", "manual", "-localhost", f.hosts[0].NICs[0].Addr(true).String(),
		"-hosts", f.hosts[0].Name + "," + f.hosts[1].Name, "-ppn", "1", "-n", strconv.Itoa(len(f.hosts)),
		"-genv", "UCX_TLS", "tcp,self", f.Program,
	}, f.args)
	cmd := exec.CommandContext(ctx, f.Tools.Launcher, args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := f.hosts[0].NS.Start(cmd); err != nil {
		return "", err
	}
	text, err = f.follow(ctx, out)
	if err != nil {
		cancel() // mpiexec would wait for who never comes
	}
	return text, errors.Join(err, cmd.Wait())
}

// follow starts what mpiexec asks for and collects what the ranks print.
func (f *fabric) follow(ctx context.Context, out io.Reader) (string, error) {
	var text strings.Builder
	var proxies []*exec.Cmd
	in := bufio.NewScanner(out)
	for in.Scan() {
		line := in.Text()
		command, asked := strings.CutPrefix(line, launchMark)
		switch {
		case asked:
			proxy, err := f.proxy(ctx, len(proxies), strings.Fields(command))
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

// proxy starts the process that starts MPICH's rank in a host.
func (f *fabric) proxy(ctx context.Context, i int, command []string) (*exec.Cmd, error) {
	if i >= len(f.hosts) {
		return nil, fmt.Errorf("mpiexec asks for more processes than the %d hosts have: %q", len(f.hosts), command)
	}
	h := f.hosts[i]
	cmd := exec.CommandContext(ctx, "/proc/self/exe", append([]string{roleBound, strconv.Itoa(f.cpus[i])}, command...)...)
	cmd.Env = append(os.Environ(), "UCX_NET_DEVICES="+h.NICs[0].Name)
	cmd.Stderr = os.Stderr
	return cmd, h.NS.Start(cmd)
}
