package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/agent"
	"github.com/fabrictest/fabrictest/lab/bench"
	"github.com/fabrictest/fabrictest/lab/kernel"
	"github.com/fabrictest/fabrictest/lab/kernel/guest"
)

// guestLab is a lab with guests, as far as a guestHost needs one.
type guestLab interface {
	Exec(ctx context.Context, id int, c guest.Command) (code int, err error)
	Put(ctx context.Context, id int, path string, mode os.FileMode, size int64, from io.Reader) error
	Restart(ctx context.Context, id int) error
	ConsoleSince(id int, after int64) (text string, upTo int64, err error)
}

// guestHost is a guest whose device is judged, through an agent that it runs. It is used by
// one goroutine at a time.
type guestHost struct {
	lab  guestLab
	key  agent.Key
	addr string // of the agent
	// addresses are for the guest's interface on the wire, besides its own.
	addresses []netip.Prefix
	// patience is how long it may take to answer, and how long its end may take to be
	// known once the connection to it is lost.
	patience, news time.Duration

	running *guestAgent
	printed int64 // by the guest, and looked at
}

var _ bench.DeviceHost = (*guestHost)(nil)

// guestAgent is an agent that runs in a guest.
type guestAgent struct {
	kill  context.CancelFunc
	ended chan struct{}
	why   error // it ended; to be read after that
}

// What it takes to have an agent in a guest.
const (
	// agentProgram is what a guest's first process runs: this program, or the one that was
	// named for that, under a name by which it is itself.
	agentProgram = "/proc/1/exe"
	agentPort    = 7471
	keyPath      = "/run/agent.key"
	// Processors may be emulated, and the machine be busy.
	agentPatience = time.Minute
	agentNews     = 10 * time.Second
	stuckPatience = 15 * time.Second
)

// onlyGuest is the number of a guest that is alone.
const onlyGuest = 1

// guestTiming is more patient than agents of hosts are met: that a guest is off is known
// otherwise, and one whose processor is emulated by a busy machine may say nothing for long.
var guestTiming = agent.Timing{HandshakeTimeout: 20 * time.Second, IdleTimeout: 45 * time.Second}

func newGuestHost(lab guestLab) *guestHost {
	return &guestHost{
		lab: lab, key: agent.NewKey(), addr: netip.AddrPortFrom(guest.Control(onlyGuest).Addr(), agentPort).String(),
		patience: agentPatience, news: agentNews,
	}
}

// start starts the agent and connects to it. The connection is closed when the agent ends:
// of a machine that is off, no connection says so.
func (g *guestHost) start(ctx context.Context) (*agent.Client, error) {
	key := g.key.Text() + "\n"
	if err := g.lab.Put(ctx, onlyGuest, keyPath, 0o600, int64(len(key)), strings.NewReader(key)); err != nil {
		return nil, fmt.Errorf("give the guest the agent's key: %w", err)
	}
	for _, p := range g.addresses {
		if err := g.addAddress(ctx, p); err != nil {
			return nil, err
		}
	}
	a := g.launch(ctx)
	client, err := g.dial(ctx, a)
	if err != nil {
		a.stop()
		return nil, err
	}
	g.running = a
	if _, g.printed, err = g.lab.ConsoleSince(onlyGuest, 0); err != nil { // how it came up is of no interest
		return nil, errors.Join(err, client.Close())
	}
	go func() {
		<-a.ended
		client.Close()
	}()
	return client, nil
}

// addAddress gives the guest another address on the wire.
func (g *guestHost) addAddress(ctx context.Context, p netip.Prefix) error {
	said := new(saying)
	args := []string{"ip", "address", "replace", p.String(), "dev", "eth0"}
	if p.Addr().Is6() {
		args = append(args, "nodad") // nobody else has it
	}
	code, err := g.lab.Exec(ctx, onlyGuest, guest.Command{Args: args, Stdout: said, Stderr: said})
	if err == nil && code != 0 {
		err = fmt.Errorf("%s: exit code %d: %s", strings.Join(args, " "), code, said)
	}
	return err
}

// launch has the guest run an agent. That outlives the context: what was begun is finished
// in order.
func (g *guestHost) launch(ctx context.Context) *guestAgent {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	a := &guestAgent{kill: cancel, ended: make(chan struct{})}
	go func() {
		defer close(a.ended)
		said := new(saying)
		code, err := g.lab.Exec(ctx, onlyGuest, guest.Command{
			Args: []string{agentProgram, "agent", "--listen", g.addr, "--key", keyPath, "--quiet"}, Stderr: said,
		})
		if a.why = err; err == nil {
			a.why = fmt.Errorf("the agent in the guest ended with code %d: %s", code, said)
		}
	}()
	return a
}

// dial connects to an agent that was launched.
func (g *guestHost) dial(ctx context.Context, a *guestAgent) (*agent.Client, error) {
	ctx, stop := context.WithTimeout(ctx, g.patience)
	defer stop()
	go func() {
		select {
		case <-a.ended:
			stop()
		case <-ctx.Done():
		}
	}()
	for {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", g.addr)
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
			return nil, a.why
		default:
			return nil, fmt.Errorf("the agent in the guest is not reached: %w", err)
		}
	}
}

// stop ends the agent.
func (a *guestAgent) stop() {
	a.kill()
	<-a.ended
}

// stop ends what runs in the guest.
func (g *guestHost) stop() {
	if g.running != nil {
		g.running.stop()
	}
}

// Restart implements bench.DeviceHost.
func (g *guestHost) Restart(ctx context.Context) (*agent.Client, error) {
	g.stop()
	if err := g.lab.Restart(ctx, onlyGuest); err != nil {
		return nil, err
	}
	return g.start(ctx)
}

// reportLines is how much of a console is kept with a result: a crash has its registers,
// its calls, and what was interrupted by it.
const reportLines = 80

// Trouble implements bench.DeviceHost: a guest says on its console what is wrong with it.
func (g *guestHost) Problem(sign error) error {
	lost := errors.Is(sign, agent.ErrLost)
	if lost {
		sign = g.obituary(sign)
	}
	text, upTo, err := g.lab.ConsoleSince(onlyGuest, g.printed)
	if err != nil {
		return errors.Join(sign, err)
	}
	g.printed = upTo
	text = strings.TrimSpace(text)
	if alarms := kernel.Errors(text); len(alarms) > 0 {
		return fmt.Errorf("%s\nThe guest's console:\n%s", alarmWords(alarms), kernel.ErrorReport(text, reportLines))
	}
	var off *kernel.GuestError
	switch {
	case sign == nil:
		return nil
	case errors.As(sign, &off):
		return fmt.Errorf("guest %d %s\nThe guest's console:\n%s", off.ID, off.Reason, off.Console)
	}
	switch stuck := g.stuck(); {
	case stuck != "":
		return fmt.Errorf("its kernel does not come back from what the agent asked for\n%s", stuck)
	case lost && text != "":
		return fmt.Errorf("%w\nThe guest's console:\n%s", sign, kernel.ErrorReport(text, reportLines))
	case lost:
		return sign
	}
	return nil
}

// alarmWords sum up what a kernel says of itself.
func alarmWords(alarms []string) string {
	if last := alarms[len(alarms)-1]; len(alarms) > 1 && strings.HasPrefix(last, "Kernel panic") {
		return fmt.Sprintf("its kernel crashed: %s (%s)", alarms[0], last)
	}
	return "its kernel says: " + alarms[0]
}

// obituary is why the agent ended; that it is lost, if that is all that is known. The loss of
// a connection may be known a moment before.
func (g *guestHost) obituary(lost error) error {
	select {
	case <-g.running.ended:
		return g.running.why
	case <-time.After(g.news):
		return lost
	}
}

// stuckScript prints the calls of each task that waits in the kernel and cannot be
// interrupted.
const stuckScript = `for t in /proc/[0-9]*/task/[0-9]*; do
	if grep -q '^State:.D' $t/status; then echo "task ${t##*/}, $(cat $t/comm), waits in the kernel:"; cat $t/stack; fi
done 2>/dev/null`

// stuck are the calls in which tasks of the guest are stuck; empty if none is, or the guest
// does not tell.
func (g *guestHost) stuck() string {
	ctx, stop := context.WithTimeout(context.Background(), stuckPatience)
	defer stop()
	said := new(saying)
	c := guest.Shell(stuckScript)
	c.Stdout = said
	if _, err := g.lab.Exec(ctx, onlyGuest, c); err != nil {
		return ""
	}
	return said.String()
}

// saying keeps the beginning and the end of what is written: a program that crashes says why
// first, and where last.
type saying struct{ head, tail []byte }

func (w *saying) Write(b []byte) (n int, err error) {
	const most = 4 << 10 // of each
	n = len(b)
	room := min(most-len(w.head), len(b))
	w.head = append(w.head, b[:room]...)
	w.tail = append(w.tail, b[room:]...)
	w.tail = w.tail[max(0, len(w.tail)-most):]
	return n, nil
}

func (w *saying) String() string { return strings.TrimSpace(string(w.head) + string(w.tail)) }
