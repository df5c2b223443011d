package interop

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/lab/kernel/guest"
	"github.com/fabrictest/fabrictest/verbs"
)

// Matrix runs cases between our device and a guest's.
type Matrix struct {
	Guest Guest
	// IPv4 and IPv6 are our addresses on the guest's network.
	IPv4, IPv6 netip.Addr
	// Open opens our device on one of them. It is called once for each set-up that
	// a case asks for, and the device is closed after the last case.
	Open func(Setup) (verbs.Context, error)
	// Iters is the number of messages each way; with programs that connect by
	// rdma_cm, a tenth.
	Iters int
	// Timeout bounds one case.
	Timeout time.Duration
	// Report is told of every case as it ends.
	Report func(Outcome)

	ports   uint16       // handed out
	theirs  guest.Device // what the guest has
	devices map[Setup]verbs.Context
	gids    map[Family]int // in the guest's table
	tap     *Tap           // on iWARP's frames; nil for RoCE
	// patience is for how long a frame may lie unread before that counts as a stall.
	patience time.Duration
}

// Outcome is how a case went.
type Outcome struct {
	Case    Case
	Err     error // nil: both ends are content, and all data was right
	Elapsed time.Duration
	// Command and Output are the guest's part.
	Command, Output string
	// Faults are what the guest's device did wrong.
	Faults Faults
}

// mtu is what the kernel's device has on a link of 1500 bytes.
const mtu = verbs.MTU1024

// Run runs the cases in turn and returns how many failed. The error is of the
// lab or of our device, not of a case.
func (m *Matrix) Run(ctx context.Context, cases []Case) (failed int, err error) {
	m.devices = make(map[Setup]verbs.Context)
	m.gids = make(map[Family]int)
	m.patience = longPatience
	defer func() {
		for _, dev := range m.devices {
			err = errors.Join(err, dev.Close())
		}
		if m.tap != nil {
			err = errors.Join(err, m.tap.Close())
		}
	}()
	for _, c := range cases {
		if err := m.prepare(ctx, c); err != nil {
			return failed, err
		}
		outcome := m.runCase(ctx, c)
		if outcome.Err != nil {
			failed++
		}
		m.Report(outcome)
		if ctx.Err() != nil {
			return failed, context.Cause(ctx)
		}
	}
	return failed, nil
}

// prepare sees to it that both ends have the device of a case, and that what it
// puts on the wire can be seen.
func (m *Matrix) prepare(ctx context.Context, c Case) (err error) {
	ctx, cancel := context.WithTimeout(ctx, m.Timeout)
	defer cancel()
	if m.theirs != c.device() {
		if err := m.Guest.Use(ctx, c.device()); err != nil {
			return err
		}
		m.theirs = c.device()
	}
	if _, known := m.gids[c.Family]; !known && c.Protocol == conformance.RoCE {
		if m.gids[c.Family], err = m.Guest.GIDIndex(ctx, m.guestAddr(c.Family)); err != nil {
			return err
		}
	}
	if m.tap == nil && c.Protocol == conformance.IWARP {
		if m.tap, err = OpenTap(m.IPv4); err != nil {
			return fmt.Errorf("watching the wire: %w", err)
		}
	}
	setup := c.setup(m.localAddr(c.Family))
	if m.devices[setup] == nil {
		dev, err := m.Open(setup)
		if err != nil {
			return err
		}
		m.devices[setup] = dev
	}
	return nil
}

func (m *Matrix) localAddr(family Family) netip.Addr {
	if family == IPv6 {
		return m.IPv6
	}
	return m.IPv4
}

func (m *Matrix) guestAddr(family Family) netip.Addr {
	if family == IPv6 {
		return m.Guest.IPv6
	}
	return m.Guest.IPv4
}

// port returns a port that no case before used for long, so that what one
// leaves behind does not meet the next.
func (m *Matrix) port() uint16 {
	m.ports = (m.ports + 1) % 1000
	return PingPongPort + m.ports
}

const (
	// attempts is how often a case may be begun that the guest lets stall.
	attempts = 3
	// longPatience is more than a busy emulated guest needs for an answer.
	longPatience = 5 * time.Second
	// tapDelay is for frames that the tap has not read yet when a case ends.
	tapDelay = 30 * time.Millisecond
)

// errStalled ends a case that the guest lets stall.
var errStalled = errors.New("the guest leaves the first frame lying")

// runCase runs a case, and again if all that came of it was a known fault of the
// guest.
func (m *Matrix) runCase(ctx context.Context, c Case) Outcome {
	return again(func() Outcome { return m.attempt(ctx, c, m.port()) })
}

// again makes an attempt, and others as long as the guest lets it stall. The faults
// are those of all.
func again(attempt func() Outcome) Outcome {
	var faults Faults
	for n := 1; ; n++ {
		outcome := attempt()
		faults.add(outcome.Faults)
		outcome.Faults = faults
		if !errors.Is(outcome.Err, errStalled) || n == attempts {
			return outcome
		}
	}
}

// attempt runs a case once, and looks at what passed on the wire.
func (m *Matrix) attempt(ctx context.Context, c Case, port uint16) Outcome {
	if m.tap == nil {
		return m.meet(ctx, c, port)
	}
	watch := NewWatch(port)
	m.tap.Feed(watch)
	defer m.tap.Feed(nil)
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	if c.Role == Client { // as a server it would be we who stall
		go func() {
			for tick := time.Tick(m.patience / 20); ctx.Err() == nil; <-tick {
				if watch.Stalled(time.Now(), m.patience) {
					stop(errStalled)
				}
			}
		}()
	}
	outcome := m.meet(ctx, c, port)
	time.Sleep(tapDelay)
	report := watch.Report(m.localAddr(c.Family))
	outcome.Faults = faultsOf(report)
	if errors.Is(outcome.Err, errStalled) {
		outcome.Faults.Stalls = 1
		return outcome
	}
	outcome.Err = errors.Join(outcome.Err, judgeWire(c, report))
	return outcome
}

// play is our end of a case, and the command that is the guest's.
func (m *Matrix) play(c Case, port uint16, ready chan struct{}) (ours func(context.Context, verbs.Context) (Result, error), command string) {
	switch c.Tool {
	case RPing:
		p := m.ping(c, port, ready)
		return p.Run, m.pingCommand(c, p)
	case UDAddy:
		d := m.datagrams(c, ready)
		return d.Run, m.datagramsCommand(c, d)
	case UCMatose:
		v := m.volley(c, port, ready)
		return v.Run, m.volleyCommand(c, v)
	case RDMA:
		x := m.exchange(c, port, ready)
		return x.Run, m.exchangeCommand(c, x)
	default:
		p := m.pingPong(c, port, ready)
		return p.Run, m.pingPongCommand(c, p)
	}
}

// meet runs our end and the guest's, and asks both how it went.
func (m *Matrix) meet(ctx context.Context, c Case, port uint16) Outcome {
	ctx, cancel := context.WithTimeoutCause(ctx, m.Timeout, fmt.Errorf("no end after %v", m.Timeout))
	defer cancel()
	start := time.Now()
	ready := make(chan struct{})
	ours, command := m.play(c, port, ready)
	theirs := make(chan Outcome, 1)
	go func() {
		if c.Role == Server { // the guest's client does not wait for a listener
			select {
			case <-ready:
			case <-ctx.Done():
			}
		}
		output, code, err := m.Guest.Run(ctx, command)
		if err == nil {
			err = judge(c, m.count(c), output, code)
		}
		theirs <- Outcome{Output: output, Err: err}
	}()
	_, err := ours(ctx, m.devices[c.setup(m.localAddr(c.Family))])
	if err != nil {
		err = fmt.Errorf("our %s: %w", c.Role, err)
		m.abandon(ctx, c)
	}
	guest := <-theirs
	return Outcome{Case: c, Err: errors.Join(err, guest.Err), Elapsed: time.Since(start), Command: command, Output: guest.Output}
}

// abandon ends the guest's end of a case that ours has failed: it may wait for
// us for ever. What comes of it is in the guest's outcome.
func (m *Matrix) abandon(ctx context.Context, c Case) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), m.Timeout)
	defer cancel()
	_, _, _ = m.Guest.Run(ctx, "killall -q -9 "+program(c))
}
