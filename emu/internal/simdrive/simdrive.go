// Package simdrive drives an engine in a simulated world: one goroutine, no
// locks, virtual time. A verb call costs what Costs says and lets the rest of
// the world run, so that a program which polls without end still moves time on.
package simdrive

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/emu/internal/drive"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/sim"
)

// Costs is the processor time of a verb call, by kind.
type Costs struct {
	Control, Post, Poll time.Duration
}

// DefaultCosts are those of a fast NIC's driver.
func DefaultCosts() Costs {
	return Costs{Control: time.Microsecond, Post: 100 * time.Nanosecond, Poll: 50 * time.Nanosecond}
}

// Port is the end of a simulated link as a driver needs it.
type Port interface {
	OnReadable(h sim.Handler, arg uint64)
	OnWritable(h sim.Handler, arg uint64)
	// TxQueueBytes is how much may wait in it to be sent.
	TxQueueBytes() int
	PortEvents
}

// News is where a port tells what becomes of it.
type PortEvents interface {
	OnLinkChange(h sim.Handler, arg uint64)
	OnAddrChange(h sim.Handler, arg uint64)
	Up() bool
	Addrs() []netip.Addr
}

// Driver drives one engine.
type Driver struct {
	world  *sim.World
	engine machine
	net    network
	timer  *sim.Timer
	costs  Costs
	closed bool
	more   bool // an event is to come that sends the rest

	news     PortEvents
	observer link.PortObserver
	addrs    []netip.Addr // that the port has had from the start
	missing  []bool       // of these
}

// machine is what all engines have in common, whatever their network is made of.
type machine interface {
	Settle(now mono.Time)
	Tick(now mono.Time)
	Deadline() mono.Time
}

// network is an engine's network as Driver needs it.
type network interface {
	// takeIn moves all that has arrived into the engine.
	takeIn(now mono.Time)
	// flush moves what the engine has to send to the network, no more than a batch,
	// and reports whether there may be more. An event tells when a full one has room
	// again.
	flush(now mono.Time) (more bool)
}

// What a driver's events are about.
const (
	eventReadable = iota
	eventWritable
	eventTimer
	eventMore
	eventLink
	eventAddr
)

// New drives e on l, which is port or a decorator of it. The observer is told what
// becomes of the port, with the engine's lock held.
func New(w *sim.World, e drive.Engine, l link.PacketLink, port Port, costs Costs, o link.PortObserver) *Driver {
	out := drive.NewSmallSendQueue()
	out.SetLimit(port.TxQueueBytes() / l.MTU()) // it is part of that queue
	d := newDriver(w, e, &datagrams{engine: e, link: l, in: make([]link.Datagram, drive.BatchSize), out: out}, costs)
	port.OnReadable(d, eventReadable)
	port.OnWritable(d, eventWritable)
	d.observe(d, port, o)
	return d
}

// observe has the observer told of the port's news, which h handles.
func (d *Driver) observe(h sim.Handler, port PortEvents, o link.PortObserver) {
	d.news, d.observer = port, o
	d.addrs = port.Addrs()
	d.missing = make([]bool, len(d.addrs))
	port.OnLinkChange(h, eventLink)
	port.OnAddrChange(h, eventAddr)
}

func newDriver(w *sim.World, e machine, n network, costs Costs) *Driver {
	d := &Driver{world: w, engine: e, net: n, costs: costs}
	d.timer = w.NewTimer(d, eventTimer)
	return d
}

// HandleEvent handles a timer, received packets, or a change of the link or its addresses.
func (d *Driver) HandleEvent(_ mono.Time, arg uint64) {
	if d.closed {
		return
	}
	switch arg {
	case eventReadable:
		d.Progress()
	case eventMore:
		d.more = false
		d.Progress()
	case eventLink:
		d.observer.LinkChanged(d.news.Up())
		d.Pump()
	case eventAddr:
		d.reportAddrs()
		d.Pump()
	default:
		d.Pump()
	}
}

// reportAddrs reports the addresses that were removed or added since the last call.
func (d *Driver) reportAddrs() {
	has := d.news.Addrs()
	for i, a := range d.addrs {
		if missing := !slices.Contains(has, a); missing != d.missing[i] {
			d.missing[i] = missing
			d.observer.AddrChanged(a, !missing)
		}
	}
}

// Lock implements drive.Driver. A simulated world has one goroutine and needs no lock:
// Lock advances the virtual time of the calling program by the cost of the call.
func (d *Driver) Lock(c drive.CallKind) {
	p := d.world.Current()
	if p == nil {
		return // not a program: a world being set up
	}
	switch c {
	case drive.CallControl:
		p.Sleep(d.costs.Control)
	case drive.CallPost:
		p.Sleep(d.costs.Post)
	case drive.CallPoll:
		p.Sleep(d.costs.Poll)
	case drive.CallWait:
	}
}

// Unlock has nothing to undo.
func (d *Driver) Unlock() {}

// Now is the world's time.
func (d *Driver) Now() mono.Time { return d.world.Now() }

// Pump sends a batch of packets and sets the timer. If there are more packets, it goes on
// after the other events of this moment: a request may arrive that the engine must answer
// before the rest of a long response.
func (d *Driver) Pump() {
	now := d.world.Now()
	if d.engine.Deadline() <= now {
		d.engine.Tick(now)
	}
	d.engine.Settle(now)
	if d.net.flush(now) && !d.more {
		d.more = true
		d.world.At(now, d, eventMore)
	}
	d.timer.Reset(d.engine.Deadline())
}

// Progress passes received packets to the engine, and pumps.
func (d *Driver) Progress() {
	d.net.takeIn(d.world.Now())
	d.Pump()
}

// Found and Nothing have nothing to add: Progress has sent all there was.
func (d *Driver) PollFound() {}

// Nothing see Found.
func (d *Driver) PollEmpty() {}

// Idle has nothing to do: the poll has cost its time already.
func (d *Driver) Yield() {}

// Close stops driving.
func (d *Driver) Close() {
	d.closed = true
	d.timer.Stop()
}

// datagrams is a network of a packet link.
type datagrams struct {
	engine drive.Engine
	link   link.PacketLink
	in     []link.Datagram
	out    drive.SendQueue
}

func (n *datagrams) takeIn(now mono.Time) {
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

func (n *datagrams) flush(now mono.Time) bool {
	more, full := n.out.Flush(now, n.engine, n.link)
	return more && !full
}

// NewCond returns a place to wait.
func (d *Driver) NewCond(what fmt.Stringer) drive.Cond { return &gate{world: d.world, what: what} }

type gate struct {
	world  *sim.World
	signal sim.Signal
	what   fmt.Stringer
}

// Wait parks the program that calls.
func (g *gate) Wait(timeout time.Duration) bool {
	p := g.world.Current()
	if p == nil {
		panic(fmt.Sprintf("wait for %v outside of a program of the simulated world: start it with World.Go", g.what))
	}
	return p.Wait(&g.signal, g.what, timeout)
}

// Notify wakes all who wait.
func (g *gate) Notify() { g.signal.Broadcast() }
