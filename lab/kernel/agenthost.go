package kernel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/agent"
	"github.com/fabrictest/fabrictest/lab/daemon"
)

// agentLab is the part of a Lab that an AgentHost uses.
type agentLab interface {
	Exec(ctx context.Context, id int, c Command) (code int, err error)
	Put(ctx context.Context, id int, f File) error
	Restart(ctx context.Context, id int) error
	ConsoleSince(id int, after int64) (text string, upTo int64, err error)
}

// AgentHost runs an agent in the only guest of a lab. It implements bench.DeviceHost, and
// is used by one goroutine at a time.
type AgentHost struct {
	lab  agentLab
	key  agent.Key
	Addr string // host and port of the agent
	// Addresses are added to the guest's interface on the wire.
	Addresses []netip.Prefix
	// startWait is how long the agent may take to accept a connection, endWait how long
	// its exit may be reported after the connection is lost.
	startWait, endWait time.Duration

	running     *guestAgent
	consoleRead int64 // bytes of the console that were read
}

// guestAgent is an agent that runs in a guest.
type guestAgent struct {
	kill  context.CancelFunc
	ended chan struct{}
	err   error // why the agent ended; valid after ended is closed
}

const (
	// agentProgram is the program of the guest's first process: Config.Program, or this one.
	agentProgram = "/proc/1/exe"
	agentPort    = 7471
	keyPath      = "/run/agent.key"
	// The guest may be emulated on a busy machine.
	agentStartWait = time.Minute
	agentEndWait   = 10 * time.Second
	stuckWait      = 15 * time.Second
)

// onlyGuest is the number of the only guest.
const onlyGuest = 1

// guestTiming has longer timeouts than the default: a guest that is emulated on a busy
// machine may not answer for long, and its exit is reported otherwise.
var guestTiming = agent.Timing{HandshakeTimeout: 20 * time.Second, IdleTimeout: 45 * time.Second}

// NewAgentHost makes an AgentHost for the only guest of a lab.
func NewAgentHost(lab agentLab) *AgentHost {
	return &AgentHost{
		lab: lab, key: agent.NewKey(), Addr: netip.AddrPortFrom(ControlAddr(onlyGuest).Addr(), agentPort).String(),
		startWait: agentStartWait, endWait: agentEndWait,
	}
}

// Start adds g.Addresses to the guest, starts the agent, which executes verbs in the guest on
// request, and connects to the agent. It closes the connection when the agent ends, because TCP
// does not notice that a guest is off.
func (g *AgentHost) Start(ctx context.Context) (*agent.Client, error) {
	key := g.key.Text() + "\n"
	if err := g.lab.Put(ctx, onlyGuest, File{Path: keyPath, Mode: 0o600, Size: int64(len(key)), Content: strings.NewReader(key)}); err != nil {
		return nil, fmt.Errorf("give the guest the agent's key: %w", err)
	}
	for _, p := range g.Addresses {
		if err := g.addAddress(ctx, p); err != nil {
			return nil, err
		}
	}
	a := g.launch(ctx)
	client, err := g.dialAgent(ctx, a)
	if err != nil {
		a.stop()
		return nil, err
	}
	g.running = a
	if _, g.consoleRead, err = g.lab.ConsoleSince(onlyGuest, 0); err != nil { // skip the messages of the boot
		return nil, errors.Join(err, client.Close())
	}
	go func() {
		<-a.ended
		client.Close()
	}()
	return client, nil
}

// addAddress adds an address to the guest's interface on the wire.
func (g *AgentHost) addAddress(ctx context.Context, p netip.Prefix) error {
	output := new(daemon.HeadTail)
	args := []string{"ip", "address", "replace", p.String(), "dev", "eth0"}
	if p.Addr().Is6() {
		args = append(args, "nodad") // no duplicate address detection: it is unique
	}
	code, err := g.lab.Exec(ctx, onlyGuest, Command{Args: args, Stdout: output, Stderr: output})
	if err == nil && code != 0 {
		err = fmt.Errorf("%s: exit code %d: %s", strings.Join(args, " "), code, output)
	}
	return err
}

// launch starts the agent in the guest. The agent outlives ctx, so that a test case can clean up.
func (g *AgentHost) launch(ctx context.Context) *guestAgent {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	a := &guestAgent{kill: cancel, ended: make(chan struct{})}
	go func() {
		defer close(a.ended)
		output := new(daemon.HeadTail)
		code, err := g.lab.Exec(ctx, onlyGuest, Command{
			Args: []string{agentProgram, "agent", "--listen", g.Addr, "--key", keyPath, "--quiet"}, Stderr: output,
		})
		if a.err = err; err == nil {
			a.err = fmt.Errorf("the agent in the guest ended with code %d: %s", code, output)
		}
	}()
	return a
}

// dialAgent connects to the agent. It retries until the agent listens or ends, or for startWait.
func (g *AgentHost) dialAgent(ctx context.Context, a *guestAgent) (*agent.Client, error) {
	ctx, stop := context.WithTimeout(ctx, g.startWait)
	defer stop()
	go func() {
		select {
		case <-a.ended:
			stop()
		case <-ctx.Done():
		}
	}()
	for {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", g.Addr)
		if err == nil {
			var client *agent.Client
			if client, err = agent.NewClient(ctx, conn, g.key, guestTiming); err == nil {
				return client, nil
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
			continue
		}
		select {
		case <-a.ended:
			return nil, a.err
		default:
			return nil, fmt.Errorf("the agent in the guest is not reached: %w", err)
		}
	}
}

// stop kills the agent and waits for its end.
func (a *guestAgent) stop() {
	a.kill()
	<-a.ended
}

// Stop ends the agent.
func (g *AgentHost) Stop() {
	if g.running != nil {
		g.running.stop()
	}
}

// Restart implements bench.DeviceHost: it reboots the guest.
func (g *AgentHost) Restart(ctx context.Context) (*agent.Client, error) {
	g.Stop()
	if err := g.lab.Restart(ctx, onlyGuest); err != nil {
		return nil, err
	}
	return g.Start(ctx)
}

// reportLines is how many lines of the console a result has: enough for the registers and
// stacks of a crash.
const reportLines = 80

// Problem implements bench.DeviceHost. It returns an error if the guest's kernel has printed an
// error since the last call. With a sign (an error that hints at a problem of the guest), it also
// returns an error if the guest has ended, a task hangs in the kernel, or the agent was lost.
func (g *AgentHost) Problem(sign error) error {
	lost := errors.Is(sign, agent.ErrLost)
	if lost {
		select { // the reason why the agent ended
		case <-g.running.ended:
			sign = g.running.err
		case <-time.After(g.endWait):
		}
	}
	text, upTo, err := g.lab.ConsoleSince(onlyGuest, g.consoleRead)
	if err != nil {
		return errors.Join(sign, err)
	}
	g.consoleRead = upTo
	text = strings.TrimSpace(text)
	if errs := Errors(text); len(errs) > 0 {
		summary := "its kernel says: " + errs[0]
		if last := errs[len(errs)-1]; len(errs) > 1 && strings.HasPrefix(last, "Kernel panic") {
			summary = fmt.Sprintf("its kernel crashed: %s (%s)", errs[0], last)
		}
		return fmt.Errorf("%s\nThe guest's console:\n%s", summary, ErrorReport(text, reportLines))
	}
	var ended *GuestError
	switch {
	case sign == nil:
		return nil
	case errors.As(sign, &ended):
		return fmt.Errorf("guest %d %s\nThe guest's console:\n%s", ended.ID, ended.Reason, ended.Console)
	}
	switch stacks := g.stuckStacks(); {
	case stacks != "":
		return fmt.Errorf("system calls of the agent do not return\n%s", stacks)
	case lost && text != "":
		return fmt.Errorf("%w\nThe guest's console:\n%s", sign, ErrorReport(text, reportLines))
	case lost:
		return sign
	}
	return nil
}

// stuckScript prints the kernel stack of each task in uninterruptible sleep.
const stuckScript = `for t in /proc/[0-9]*/task/[0-9]*; do
	if grep -q '^State:.D' $t/status; then echo "task ${t##*/}, $(cat $t/comm), waits in the kernel:"; cat $t/stack; fi
done 2>/dev/null`

// stuckStacks returns the kernel stacks of tasks in uninterruptible sleep; empty if there is
// none, or the guest does not answer.
func (g *AgentHost) stuckStacks() string {
	ctx, stop := context.WithTimeout(context.Background(), stuckWait)
	defer stop()
	output := new(daemon.HeadTail)
	c := Shell(stuckScript)
	c.Stdout = output
	if _, err := g.lab.Exec(ctx, onlyGuest, c); err != nil {
		return ""
	}
	return output.String()
}
