package mpirun

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/launch"
)

// OnHosts runs the program on c.Hosts, with one process for each rank, over devices or network
// interfaces that have the same name on all of them. A proxy on each host starts its ranks. The launcher
// starts the proxies, but for one on this host.
func OnHosts(ctx context.Context, c Config) (Result, error) {
	if err := c.setDefaults(); err != nil {
		return Result{}, err
	}
	h := hostsRun{job: proxyJob{fabricJob: fabricJob{Config: c}}, pending: map[string][]string{}, started: make(chan struct{})}
	if err := h.prepare(); err != nil {
		return Result{}, err
	}
	return h.job.runHere(ctx, func(ctx context.Context, reports io.Writer) (int, error) {
		return h.job.runGroup(ctx, reports, h.start)
	})
}

// proxyJob is the job of a proxy.
type proxyJob struct {
	fabricJob
	Input bool `json:"input"` // rank 0 gets standard input, in commands
}

// hostsRun is a run of ranks on hosts.
type hostsRun struct {
	job     proxyJob
	program string // path of this program here

	mu      sync.Mutex
	pending map[string][]string // lines of proxies that have not joined, by host
	started chan struct{}       // closed when rank 0 has started
}

// prepare sets the directory of ranks, the path of their program, which is empty for this one, and
// whether rank 0 has input: a terminal is not passed on.
func (h *hostsRun) prepare() (err error) {
	j := &h.job
	if h.program, err = os.Executable(); err != nil {
		return err
	}
	if j.Dir, err = os.Getwd(); err != nil {
		return err
	}
	if j.Args[0] == h.program {
		j.Args = append([]string{""}, j.Args[1:]...)
	} else if j.Args[0], err = filepath.Abs(j.Args[0]); err != nil {
		return err
	}
	for _, host := range j.Hosts {
		h.pending[host.Name] = nil
	}
	info, err := os.Stdin.Stat()
	j.Input = err == nil && info.Mode()&os.ModeCharDevice == 0
	return nil
}

// specs returns the proxies to start.
func (h *hostsRun) specs() (specs []launch.HostSpec, err error) {
	job, err := json.Marshal(&h.job)
	if err != nil {
		return nil, err
	}
	for _, host := range h.job.Hosts {
		words := []string{h.program, ProxyCommand}
		if !isThisHost(host.Name) {
			if words, err = h.job.Remote.proxyCommand(host.Name, h.remoteProgram()); err != nil {
				return nil, err
			}
		}
		specs = append(specs, launch.HostSpec{
			Host: host.Name, Ranks: host.Ranks, Job: job, Cmd: launch.Command{Path: words[0], Args: words[1:]},
		})
	}
	return specs, nil
}

// isThisHost reports whether a name is that of this machine, on which no remote shell is needed.
func isThisHost(name string) bool {
	self, err := os.Hostname()
	short, _, _ := strings.Cut(self, ".")
	return name == "localhost" || err == nil && (name == self || name == short)
}

// start starts the proxies and their ranks. It implements startGroup.
func (h *hostsRun) start(ctx context.Context, o launch.Options) (func() []launch.Outcome, error) {
	specs, err := h.specs()
	if err != nil {
		return nil, err
	}
	ofRank, once := o.OnEvent, sync.Once{}
	o.OnEvent = func(e launch.Event) {
		switch {
		case e.Rank < 0:
			h.handleProxyEvent(&e)
			return
		case e.Rank == 0 && e.Kind == launch.Started:
			once.Do(func() { close(h.started) }) // a proxy can send the event twice
		}
		ofRank(e)
	}
	group, err := launch.StartHosts(ctx, specs, o)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	if h.job.Input {
		go h.forwardInput(ctx, group)
	}
	return func() []launch.Outcome {
		outcomes, lost := group.Wait()
		cancel()
		h.printLost(lost)
		return outcomes
	}, nil
}

// printLost prints why hosts were lost.
func (h *hostsRun) printLost(lost []*launch.HostError) {
	const maxLines = 8
	for _, e := range lost[:min(len(lost), maxLines)] {
		fmt.Fprintf(os.Stderr, "fabrictest: %s\n", cli.Printable(h.explain(e)))
	}
	if n := len(lost) - maxLines; n > 0 {
		fmt.Fprintf(os.Stderr, "fabrictest: and %s more\n", cli.Plural(n, "host"))
	}
}

// maxPending limits the lines of a host that are kept until its proxy has joined.
const maxPending = 100

// handleProxyEvent prints the lines that a remote shell or a proxy prints. Those before the proxy has
// joined are printed when it joins; otherwise they are in the error (explain).
func (h *hostsRun) handleProxyEvent(e *launch.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	lines, waits := h.pending[e.Host]
	switch {
	case e.Kind == launch.Joined:
		for _, line := range lines {
			printOfHost(e.Host, line)
		}
		delete(h.pending, e.Host)
	case !waits:
		printOfHost(e.Host, e.Text)
	case len(lines) < maxPending:
		h.pending[e.Host] = append(lines, e.Text)
	}
}

// printOfHost prints a line of the standard error of a proxy.
func printOfHost(host, line string) {
	fmt.Fprintf(os.Stderr, "host %s: %s\n", host, cli.Printable(line))
}

// maxInput is the length of a command with input.
const maxInput = 32 << 10

// forwardInput sends standard input to rank 0 in commands; an empty one is its end.
func (h *hostsRun) forwardInput(ctx context.Context, group *launch.Hosts) {
	select {
	case <-h.started:
	case <-ctx.Done():
		return
	}
	for buf := make([]byte, maxInput); ; {
		n, err := os.Stdin.Read(buf)
		if n > 0 && group.SendCommand(ctx, 0, string(buf[:n])) != nil {
			return // the rank reads no more
		}
		if err != nil {
			_ = group.SendCommand(ctx, 0, "") // fails if the rank has ended
			return
		}
	}
}

// explain describes the failure of a proxy: what the remote shell printed, and what to try.
func (h *hostsRun) explain(e *launch.HostError) string {
	byItself := e.State == launch.Exited || e.State == launch.Crashed // with a code or a signal
	text := e.Error()
	if byItself && !isThisHost(e.Host) {
		text = fmt.Sprintf("host %s: %s %s", e.Host, h.job.Remote.words()[0], e.Text)
	}
	if e.Joined {
		if byItself {
			text += ": the connection was lost"
		}
		return text // the proxy's lines were printed
	}
	text += lastLines(e.Stderr)
	const notExecutable, notFound = 126, 127 // exit codes of shells
	switch {
	case isThisHost(e.Host):
		return text
	case e.ExitCode == notExecutable || e.ExitCode == notFound:
		return text + fmt.Sprintf("; copy fabrictest to %s on %s, or give its path there with --remote-path", h.remoteProgram(), e.Host)
	}
	return text + "; try `" + strings.Join(h.job.Remote.on(e.Host, nil, "true"), " ") + "`"
}

// remoteProgram returns the path of this program on other hosts.
func (h *hostsRun) remoteProgram() string { return cmp.Or(h.job.Remote.Program, h.program) }

// lastLines returns the last lines of a text, joined, to follow another text.
func lastLines(text string) string {
	const maxLines, maxLen = 3, 500
	lines := strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' })
	last := strings.Join(lines[max(0, len(lines)-maxLines):], "; ")
	if last == "" {
		return ""
	}
	return ": " + last[max(0, len(last)-maxLen):]
}
