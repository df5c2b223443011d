package kernel

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// Matrix runs cases between our device and a guest's.
type Matrix struct {
	Guest Guest
	// IPv4 and IPv6 are our addresses on the guest's network.
	IPv4, IPv6 netip.Addr
	// Open opens our device on one of them. It is called once for each family
	// that has a case, and the device is closed after the last.
	Open func(local netip.Addr) (verbs.Context, error)
	// Iters is the number of messages each way; of pings and of udaddy's datagrams, a tenth.
	Iters int
	// Timeout bounds one case.
	Timeout time.Duration
	// Report is told of every case as it ends.
	Report func(Outcome)

	ports   uint16 // of side channels handed out
	devices map[Family]verbs.Context
	gids    map[Family]int // in the guest's table
}

// Outcome is how a case went.
type Outcome struct {
	Case    Case
	Err     error // nil: both ends are content, and all data was right
	Elapsed time.Duration
	// Command and Output are the guest's part.
	Command, Output string
}

// mtu is what the kernel's device has on a link of 1500 bytes.
const mtu = verbs.MTU1024

// Run runs the cases in turn and returns how many failed. The error is of the
// lab or of our device, not of a case.
func (m *Matrix) Run(ctx context.Context, cases []Case) (failed int, err error) {
	m.devices = make(map[Family]verbs.Context)
	m.gids = make(map[Family]int)
	defer func() {
		for _, dev := range m.devices {
			err = errors.Join(err, dev.Close())
		}
	}()
	for _, c := range cases {
		if err := m.prepare(ctx, c.Family); err != nil {
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

// prepare opens our device for a family and finds the guest's GID of it.
func (m *Matrix) prepare(ctx context.Context, family Family) (err error) {
	if m.devices[family] != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, m.Timeout)
	defer cancel()
	if m.gids[family], err = m.Guest.GIDIndex(ctx, m.guestAddr(family)); err != nil {
		return err
	}
	m.devices[family], err = m.Open(m.localAddr(family))
	return err
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

// runCase runs our end and the guest's, and asks both how it went.
func (m *Matrix) runCase(ctx context.Context, c Case) Outcome {
	ctx, cancel := context.WithTimeoutCause(ctx, m.Timeout, fmt.Errorf("no end after %v", m.Timeout))
	defer cancel()
	start := time.Now()
	port := m.port()
	ready := make(chan struct{})
	var ours func(context.Context, verbs.Context) (Result, error)
	var command string
	switch c.Tool {
	case RPing:
		p := m.ping(c, port, ready)
		ours, command = p.Run, m.pingCommand(c, p)
	case UDAddy:
		d := m.datagrams(c, ready)
		ours, command = d.Run, m.datagramsCommand(c, d)
	default:
		p := m.pingPong(c, port, ready)
		ours, command = p.Run, m.pingPongCommand(c, p)
	}
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
	_, err := ours(ctx, m.devices[c.Family])
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
	_, _, _ = m.Guest.Run(ctx, "killall -q -9 "+program(c.Tool))
}
