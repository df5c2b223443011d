package sim

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/emu/internal/drive"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/verbs"
)

// DefaultCosts are those of a fast NIC's driver.
func DefaultCosts() verbs.Costs {
	return verbs.Costs{Control: time.Microsecond, Post: 100 * time.Nanosecond, Poll: 50 * time.Nanosecond}
}

// Driver is a drive.Driver in a simulated world: no locks, no goroutines, virtual time.
// Every verb call takes the virtual time of its verbs.Costs, during which other programs run, so
// that a program that busy-polls advances time.
type Driver struct {
	DriverConfig
	world          *World
	engine         baseEngine
	net            network
	timer          Timer
	closed         bool
	flushScheduled bool // eventFlush is scheduled
	placements     []*placement

	addrs   []netip.Addr // addresses of the port when it was opened
	missing []bool       // which of them were removed since
}

// baseEngine is the part that drive.Engine and drive.StreamEngine have in common.
type baseEngine interface {
	Settle(now mono.Time)
	Tick(now mono.Time)
	Deadline() mono.Time
}

// network connects an engine to its link or streams.
type network interface {
	// receive passes all received data to the engine.
	receive(now mono.Time)
	// flush sends up to a batch of the engine's output, and reports whether there may be
	// more. It reports false for a full network, which raises an event when it has room.
	flush(now mono.Time) (more bool)
}

// Arguments of Driver.HandleEvent.
const (
	eventReadable = iota
	eventWritable
	eventTimer
	eventFlush // there are more packets to send
	eventLink
	eventAddr
)

// DriverConfig are the parameters of a driver: the port, the costs of verb calls, and an observer
// that is called for changes of the port, with the lock held.
type DriverConfig struct {
	Port     *Port
	Costs    verbs.Costs
	Observer link.PortObserver
}

// NewDriver returns a driver that runs the engine e in virtual time. Its link l is cfg.Port or a
// wrapper of it.
func NewDriver(e drive.Engine, l link.PacketLink, cfg DriverConfig) *Driver {
	shared := &cfg.Port.net.w.batches
	if shared.in == nil {
		shared.in = make([]link.Datagram, drive.BatchSize)
	}
	out := drive.NewSharedSendQueue(&shared.out)
	out.SetLimit(cfg.Port.cfg.Link.TxQueueBytes / l.MTU()) // in packets: it holds no more than the port's transmit queue
	d := newDriver(e, &packetNetwork{engine: e, link: l, in: shared.in, out: out}, cfg)
	cfg.Port.OnReadable(d, eventReadable)
	cfg.Port.OnWritable(d, eventWritable)
	return d
}

// newDriver returns a Driver that handles changes of its port.
func newDriver(e baseEngine, n network, cfg DriverConfig) *Driver {
	p := cfg.Port
	d := &Driver{DriverConfig: cfg, world: p.net.w, engine: e, net: n, addrs: p.Addrs()}
	d.missing = make([]bool, len(d.addrs))
	d.timer.init(d.world, d, eventTimer)
	p.OnLinkChange(d, eventLink)
	p.OnAddrChange(d, eventAddr)
	if !p.Up() {
		d.world.At(d.world.Now(), d, eventLink) // a device starts with its port active
	}
	return d
}

// HandleEvent handles a port or timer event, or sends the packets that Pump left (eventFlush).
func (d *Driver) HandleEvent(_ mono.Time, arg uint64) {
	if d.closed {
		return
	}
	switch arg {
	case eventReadable:
		d.Progress()
	case eventFlush:
		d.flushScheduled = false
		d.Progress()
	case eventLink:
		d.Observer.LinkChanged(d.Port.Up())
		d.Pump()
	case eventAddr:
		d.reportAddrs()
		d.Pump()
	case eventTimer, eventWritable:
		d.Pump()
	}
}

// reportAddrs calls the Observer for each of the port's initial addresses that was removed, or
// added again, since the last call.
func (d *Driver) reportAddrs() {
	has := d.Port.Addrs()
	for i, a := range d.addrs {
		if missing := !slices.Contains(has, a); missing != d.missing[i] {
			d.missing[i] = missing
			d.Observer.AddrChanged(a, !missing)
		}
	}
}

// Lock implements drive.Driver. A simulated world has one goroutine and needs no lock:
// Lock advances the virtual time of the calling program by the cost of the call. A wait costs
// nothing but the time until it ends.
func (d *Driver) Lock(c drive.CallKind) {
	p := d.world.Current()
	if p == nil {
		return // the world is being set up
	}
	if c == drive.CallWait {
		return
	}
	start := d.world.now
	d.Port.nic.waitForCPU(p)
	switch c {
	case drive.CallControl:
		p.Sleep(d.Costs.Control)
		d.tapCall(ControlCall, 0, start)
	case drive.CallPost:
		p.Sleep(d.Costs.Post)
		d.tapCall(PostCall, 0, start)
	case drive.CallPoll:
		p.Sleep(d.Costs.Poll)
		d.tapCall(PollCall, 0, start)
	case drive.CallWait:
	}
}

// Unlock implements drive.Driver. It does nothing.
func (d *Driver) Unlock() {}

// SpendBytes implements drive.ByteCosts: it advances the virtual time of the calling program.
func (d *Driver) SpendBytes(what drive.ByteCost, n int) {
	p := d.world.Current()
	if p == nil {
		return // the world is being set up
	}
	var took time.Duration
	var call CallKind
	switch what {
	case drive.Inline:
		if n > d.Costs.InlineBytes { // the NIC reads the data from memory
			return
		}
		call, took = InlineData, d.Costs.Inline.Of(n)
	case drive.Registration:
		call, took = Register, d.Costs.Register.Of(n)
	case drive.Deregistration:
		call, took = Deregister, d.Costs.Deregister.Of(n)
	}
	start := d.world.now
	if took > 0 {
		p.Sleep(took)
	}
	d.tapCall(call, n, start)
}

// Now implements drive.Driver.
func (d *Driver) Now() mono.Time { return d.world.Now() }

// Pump implements drive.Driver. It sends one batch, and schedules an event for the rest:
// the engine may first have to answer a request that arrives at the same time.
func (d *Driver) Pump() {
	now := d.world.Now()
	if d.engine.Deadline() <= now {
		d.engine.Tick(now)
	}
	d.engine.Settle(now) // delivers the events and completions that received packets and calls have caused
	if d.net.flush(now) && !d.flushScheduled {
		d.flushScheduled = true
		d.world.At(now, d, eventFlush)
	}
	d.timer.Reset(d.engine.Deadline())
}

// Progress implements drive.Driver. It also sends.
func (d *Driver) Progress() {
	d.net.receive(d.world.Now())
	d.Pump()
}

// PollFound implements drive.Driver. It does nothing: Progress has sent all packets.
func (d *Driver) PollFound() {}

// PollEmpty implements drive.Driver. It does nothing.
func (d *Driver) PollEmpty() {}

// Yield implements drive.Driver. It does nothing: Lock has charged the time of the poll.
func (d *Driver) Yield() {}

// Close implements drive.Driver.
func (d *Driver) Close() {
	d.closed = true
	d.timer.Stop()
}

// batches are datagrams for all drivers of a world, of which one receives or sends at a time. So
// their buffers stay in the processor's cache however many hosts there are.
type batches struct {
	in  []link.Datagram
	out drive.Batches
}

// packetNetwork is the network of a drive.Engine: a packet link.
type packetNetwork struct {
	engine drive.Engine
	link   link.PacketLink
	in     []link.Datagram
	out    drive.SendQueue
}

// receive implements network: the engine processes all received packets.
func (n *packetNetwork) receive(now mono.Time) {
	for {
		k, err := n.link.Recv(now, n.in)
		for i := range k {
			n.engine.Input(now, &n.in[i])
		}
		if err != nil || k == 0 {
			return
		}
	}
}

// flush implements network: it sends a batch, and reports whether more can be sent at once.
func (n *packetNetwork) flush(now mono.Time) bool {
	more, full := n.out.Flush(now, n.engine, n.link)
	return more && !full
}

// NewSecret draws a secret from the world's random number generator of the given name (see
// World.Rand). The next call with the same name returns another secret.
func NewSecret(w *World, name string) (s [16]byte) {
	r := w.Rand(name)
	binary.LittleEndian.PutUint64(s[:], r.Uint64())
	binary.LittleEndian.PutUint64(s[8:], r.Uint64())
	return s
}

// NewCond implements drive.Driver.
func (d *Driver) NewCond(reason fmt.Stringer) drive.Cond {
	return &cond{driver: d, reason: reason}
}

type cond struct {
	driver *Driver
	signal Signal
	reason fmt.Stringer
}

// Wait implements drive.Cond. It blocks the calling program, and reports false after a timeout.
func (g *cond) Wait(timeout time.Duration) bool {
	d := g.driver
	p := d.world.Current()
	if p == nil {
		panic(fmt.Sprintf("wait for %v outside of a program of the simulated world: start it with World.Go", g.reason))
	}
	notified := p.Wait(&g.signal, g.reason, timeout)
	if notified {
		start := d.world.now
		if d.Costs.Wake > 0 {
			p.Sleep(d.Costs.Wake)
		}
		d.tapCall(Wake, 0, start)
	}
	return notified
}

func (g *cond) Notify() { g.signal.Broadcast() }

// StreamDriver is a drive.StreamDriver.
type StreamDriver struct {
	*Driver
	*drive.Streams
}

var (
	_ drive.StreamDriver = (*StreamDriver)(nil)
	_ drive.ByteCosts    = (*Driver)(nil)
)

// NewStreamDriver returns a driver, which runs the engine e in virtual time on the streams of n:
// the StreamHost of cfg.Port or a wrapper of it.
func NewStreamDriver(e drive.StreamEngine, n link.StreamNet, cfg DriverConfig) *StreamDriver {
	s := drive.NewStreams(e, n)
	d := &StreamDriver{Driver: newDriver(e, (*streamNetwork)(s), cfg), Streams: s}
	cfg.Port.StreamHost().OnReady(d, eventReadable)
	return d
}

// Dial implements drive.StreamDriver.
func (d *StreamDriver) Dial(conn drive.StreamConn, local, remote netip.AddrPort) error {
	return d.Streams.Dial(d.Now(), conn, local, remote)
}

// streamNetwork is the network of a drive.StreamEngine: byte streams.
type streamNetwork drive.Streams

// receive implements network: the engine processes all received bytes.
func (n *streamNetwork) receive(now mono.Time) {
	for {
		// A read returns at most one segment: repeat until nothing is left.
		arrived, more := (*drive.Streams)(n).Receive(now)
		if !arrived && !more {
			return
		}
	}
}

// flush implements network. It sends until the streams accept no more, and so never reports that
// there is more: a full stream raises an event when it has room.
func (n *streamNetwork) flush(now mono.Time) bool {
	for !(*drive.Streams)(n).Flush(now) {
	}
	return false
}
