package interop

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/lab/kernel"
	"github.com/fabrictest/fabrictest/verbs"
)

// Matrix runs cases between our device and a guest's.
type Matrix struct {
	Guest Guest
	// IPv4 and IPv6 are our addresses on the guest's network.
	IPv4, IPv6 netip.Addr
	// Open opens our device. It is called once for each Setup of the cases; the device is closed
	// after the last case.
	Open func(Setup) (verbs.Context, error)
	// Iters is the number of messages each way; with programs that connect by rdma_cm, a tenth.
	Iters int
	// Timeout bounds one case.
	Timeout time.Duration
	// Report is called after every case.
	Report func(Outcome)

	portOffset uint16        // of the last case, from PingPongPort
	theirs     kernel.Device // of the guest
	devices    map[Setup]verbs.Context
	gids       map[Family]int // in the guest's table
	tap        *Tap           // on iWARP's frames; nil for RoCE
	// stallTimeout is how long a frame may be unanswered before that counts as a stall.
	stallTimeout time.Duration
}

// Outcome is the result of a case.
type Outcome struct {
	Case    Case
	Err     error // nil if both ends succeeded and all data was right
	Elapsed time.Duration
	// Command and Output are those of the guest.
	Command, Output string
	Faults          Faults // of the guest's device
}

// mtu is the path MTU of the kernel's device on a link of 1500 bytes.
const mtu = verbs.MTU1024

// Run runs the cases one after the other, and returns how many failed. It returns an error only for
// problems of the lab or of our device.
func (m *Matrix) Run(ctx context.Context, cases []Case) (failed int, err error) {
	m.devices = make(map[Setup]verbs.Context)
	m.gids = make(map[Family]int)
	m.stallTimeout = defaultStallTimeout
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

// prepare opens the devices of a case at both ends. It finds the GID index of the guest's address
// for RoCE, and opens the tap that reads the frames on the wire for iWARP.
func (m *Matrix) prepare(ctx context.Context, c Case) (err error) {
	ctx, cancel := context.WithTimeout(ctx, m.Timeout)
	defer cancel()
	if m.theirs != c.device() {
		if err := m.Guest.SetDevice(ctx, c.device()); err != nil {
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

func (m *Matrix) localAddr(family Family) netip.Addr { return family.choose(m.IPv4, m.IPv6) }

func (m *Matrix) guestAddr(family Family) netip.Addr {
	return family.choose(m.Guest.IPv4, m.Guest.IPv6)
}

// choose returns the address of the family.
func (f Family) choose(ipv4, ipv6 netip.Addr) netip.Addr {
	if f == IPv6 {
		return ipv6
	}
	return ipv4
}

const (
	// attempts is how often a case runs that the guest stalls.
	attempts = 3
	// defaultStallTimeout is more than a busy emulated guest needs for an answer.
	defaultStallTimeout = 5 * time.Second
	// tapDelay is for frames that the tap has not read yet when a case ends.
	tapDelay = 30 * time.Millisecond
)

// errStalled ends a case that the guest stalls.
var errStalled = errors.New("the guest leaves the first frame lying")

// runCase runs a case, again if the guest stalls.
func (m *Matrix) runCase(ctx context.Context, c Case) Outcome {
	return retryStalls(func() Outcome {
		// None of the last 999 cases used the port: their late packets do not reach this case.
		m.portOffset = (m.portOffset + 1) % 1000
		return m.attempt(ctx, c, PingPongPort+m.portOffset)
	})
}

// retryStalls calls attempt until it does not stall, at most attempts times. The returned faults
// are the sums over all attempts.
func retryStalls(attempt func() Outcome) Outcome {
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

// attempt runs a case once, and over iWARP checks the frames on the wire. It ends a case with
// errStalled if the guest's server does not answer the first frame.
func (m *Matrix) attempt(ctx context.Context, c Case, port uint16) Outcome {
	if m.tap == nil {
		return m.runBothEnds(ctx, c, port)
	}
	monitor := NewMonitor(port)
	m.tap.Feed(monitor)
	defer m.tap.Feed(nil)
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	if c.Role == Client { // the guest is the server, which may stall
		go func() {
			for tick := time.Tick(m.stallTimeout / 20); ctx.Err() == nil; <-tick {
				if monitor.Stalled(time.Now(), m.stallTimeout) {
					stop(errStalled)
				}
			}
		}()
	}
	outcome := m.runBothEnds(ctx, c, port)
	time.Sleep(tapDelay) // until the tap has read the last frames
	report := monitor.Report(m.localAddr(c.Family))
	outcome.Faults = Faults{Side: report.Theirs, Unread: report.Unread}
	if errors.Is(outcome.Err, errStalled) {
		outcome.Faults.Stalls = 1
		return outcome
	}
	outcome.Err = errors.Join(outcome.Err, checkWire(c, report))
	return outcome
}

// programs returns our end of a case, and the command of the guest's end.
func (m *Matrix) programs(c Case, port uint16, ready chan struct{}) (ours func(context.Context, verbs.Context) (Result, error), command string) {
	if c.connectsByCM() {
		p := m.cmProgram(c, port, ready)
		return p.Run, m.cmCommand(c, p)
	}
	p := m.pingPong(c, port, ready)
	return p.Run, m.pingPongCommand(c, p)
}

// runBothEnds runs our end and the guest's, and returns the failures of both.
func (m *Matrix) runBothEnds(ctx context.Context, c Case, port uint16) Outcome {
	ctx, cancel := context.WithTimeoutCause(ctx, m.Timeout, fmt.Errorf("not finished after %v", m.Timeout))
	defer cancel()
	start := time.Now()
	ready := make(chan struct{})
	ours, command := m.programs(c, port, ready)
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
			err = checkOutput(c, m.count(c), output, code)
		}
		theirs <- Outcome{Output: output, Err: err}
	}()
	_, err := ours(ctx, m.devices[c.setup(m.localAddr(c.Family))])
	if err != nil {
		err = fmt.Errorf("our %s: %w", c.Role, err)
		// The guest's end may wait for ours forever.
		killing, stop := context.WithTimeout(context.WithoutCancel(ctx), m.Timeout)
		_, _, _ = m.Guest.Run(killing, "killall -q -9 "+program(c))
		stop()
	}
	guest := <-theirs
	return Outcome{Case: c, Err: errors.Join(err, guest.Err), Elapsed: time.Since(start), Command: command, Output: guest.Output}
}
