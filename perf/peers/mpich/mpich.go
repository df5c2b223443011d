package main

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/launch"
)

// Lines that mpiexec prints with the manual launcher: a command for each host, and the end.
const (
	launchMark = "HYDRA_LAUNCH: "
	launchEnd  = "HYDRA_LAUNCH_END"
)

// runMPICH runs the ranks of MPICH, and returns the output of rank 0. mpiexec runs
// in the first host, and prints the command of each host's proxy, which starts the rank.
func (f *fabric) runMPICH(ctx context.Context) (text string, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // kills all processes
	const ipv4 = true
	args := slices.Concat([]string{
		"-launcher", "manual", "-localhost", f.hosts[0].NICs[0].Addr(ipv4).String(),
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
	text, err = f.launchProxies(ctx, out)
	if err != nil {
		cancel() // mpiexec would wait forever
	}
	return text, errors.Join(err, cmd.Wait())
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

// startProxy starts the MPICH proxy of host i, which starts the rank there, by the command that
// mpiexec printed. The proxy and the rank are bound to the host's CPU (f.cpus).
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

// runOurs runs the benchmark on ranks of fabrictest's MPI runtime, over IPv6, with or without
// computing ICRCs, and returns the output of rank 0.
func (f *fabric) runOurs(ctx context.Context, withICRC bool) (string, error) {
	const joinTimeout = 10 * time.Second // how long our ranks may take to start
	const ipv4 = false
	specs := make([]launch.Spec, 0, len(f.hosts))
	began := time.Now()
	for i, h := range f.hosts {
		nic := &h.NICs[0]
		text, err := json.Marshal(mpihost.Job{
			Ranks: len(f.hosts), PerHost: 1, Rails: 1, Provider: nics.Default, ICRCOffloaded: !withICRC, Seed: 1,
			Rank: &mpihost.RankJob{
				NICs: []mpihost.NICJob{{Name: nic.Name, Addr: nic.Addr(ipv4)}}, CPU: f.cpus[i] + 1 /* 0 is any CPU */, StartTime: began,
			},
		})
		if err != nil {
			return "", err
		}
		specs = append(specs, launch.Spec{
			Rank: i, Host: h.Name, Start: h.NS.Start, Job: text,
			Cmd: launch.Command{Path: "/proc/self/exe", Args: append([]string{roleRank}, f.args...)},
		})
	}
	group, err := launch.Start(ctx, specs, launch.Options{JoinTimeout: joinTimeout, OnEvent: func(e launch.Event) {
		if e.Kind == launch.Printed && e.Stream == launch.Stderr {
			_, _ = os.Stderr.WriteString(cli.Printable(e.Text) + "\n") // there is no other place for the error
		}
	}})
	if err != nil {
		return "", err
	}
	outcomes, err := group.Wait()
	if err != nil {
		return "", err
	}
	return outcomes[0].Stdout.Tail, nil
}

// installCommand installs MPICH on Debian and its derivatives.
const installCommand = "apt-get install -y --no-install-recommends mpich libmpich-dev gcc libc6-dev"

//go:embed c/ranks.c
var ranksInC []byte

// tools are the programs of MPICH.
type tools struct {
	Compiler string
	Launcher string
	Version  string
}

// findTools finds the programs of MPICH on PATH, by Debian's unambiguous names first, and
// checks that they work. An error says what is missing.
func findTools() (t tools, err error) {
	if t.Compiler, err = lookPath("mpicc.mpich", "mpicc"); err != nil {
		return t, err
	}
	if t.Launcher, err = lookPath("mpiexec.mpich", "mpiexec.hydra", "mpiexec"); err != nil {
		return t, err
	}
	out, err := exec.Command(t.Launcher, "--version").CombinedOutput()
	text := string(out)
	if err != nil || !strings.Contains(text, "HYDRA") {
		return t, fmt.Errorf("%s is not the launcher of MPICH (hydra)", t.Launcher)
	}
	t.Version = "MPICH"
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "Version" {
			t.Version += " " + strings.TrimSpace(value)
		}
	}
	if !strings.Contains(text, "ch4:ucx") {
		t.Version += " (not built with ch4:ucx: its transports are unknown)"
	}
	return t, t.checkCompiler()
}

// checkCompiler checks that mpicc works: its headers or compiler may be missing.
func (t tools) checkCompiler() error {
	cmd := exec.Command(t.Compiler, "-x", "c", "-fsyntax-only", "-")
	cmd.Stdin = strings.NewReader("#include <mpi.h>\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		first, _, _ := strings.Cut(string(out), "\n")
		return fmt.Errorf("%s cannot compile an MPI program: %w: %s", t.Compiler, err, first)
	}
	return nil
}

// lookPath returns the path of the first of several programs that is on PATH.
func lookPath(names ...string) (string, error) {
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("MPICH is missing: no program %s found", strings.Join(names, " or "))
}

// compile compiles the program of MPICH's ranks, which is in C, and returns its path in dir.
func (t tools) compile(ctx context.Context, dir string) (program string, err error) {
	source, program := filepath.Join(dir, "ranks.c"), filepath.Join(dir, "ranks")
	if err := os.WriteFile(source, ranksInC, 0o644); err != nil {
		return "", err
	}
	out, err := exec.CommandContext(ctx, t.Compiler, "-O2", "-o", program, source).CombinedOutput()
	if err != nil {
		return "", errors.Join(fmt.Errorf("%s cannot compile the ranks: %w", t.Compiler, err), errors.New(string(out)))
	}
	return program, nil
}
