package fuzz_test

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/defects"
	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/emu/softiwarp"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// assault is a soft-iWARP device, somebody who has TCP connections with it and says
// what he likes on them, and an honest device that talks to it when he has left.
type assault struct {
	*sim.World
	t      testing.TB
	net    *sim.Net
	addrs  [3]netip.Addr
	v      *victim
	honest verbs.Context
	values []uint64
	places []region
	framed wire.Framing

	lines  []*line
	now    *line
	answer *sim.Listener // where the device connects to
}

// line is one TCP connection.
type line struct {
	*sim.Stream
	framer wire.Framer
	deaf   bool // nothing is read
}

const assaultPort = 4711

func newAssault(t testing.TB, how byte) *assault {
	t.Helper()
	a := &assault{World: newWorld(), t: t, framed: wire.Framing{CRC: true, Markers: how&2 == 2}}
	net := must.Get(sim.NewNet(a.World, sim.NetConfig{Stream: sim.StreamConfig{BufferBytes: 1 << 14}}))(t)
	a.net = net
	var devs [3]*softiwarp.Device
	for i := range a.addrs {
		a.addrs[i] = netip.AddrFrom16([16]byte{0: 0xfd, 15: byte(i + 1)})
		port, err := net.Attach(sim.PortConfig{Addrs: a.addrs[i : i+1], Link: sim.LinkConfig{Latency: time.Microsecond}})
		if err != nil {
			t.Fatal(err)
		}
		if i == 1 {
			continue // the raw one
		}
		cfg := softiwarp.Config{Name: fmt.Sprint("host", i), ClientServer: how&8 == 8}
		defect(t, &cfg.NIC.Policy, defects.SetSoftIWARP)
		cfg.NIC.MPA.Markers, cfg.NIC.MPA.NoCRC = how&2 == 2, how&4 == 4
		if devs[i], err = softiwarp.InWorld(a.World, port, port.StreamHost(), cfg); err != nil {
			t.Fatal(err)
		}
	}
	a.v, a.honest = newVictim(t, "host0", devs[0]), devs[2]
	a.values = []uint64{0, 1, 2, 3, 0x7fffffff, 0xffffffff, 1 << 47}
	for _, mr := range a.v.mem.regions() {
		a.values = append(a.values, uint64(mr.RKey()), mr.Addr(), mr.Addr()+uint64(mr.Len())-8)
		a.places = append(a.places, region{uint32(mr.RKey()), mr.Addr(), mr.Addr() + uint64(mr.Len())})
	}
	a.values = append(a.values, uint64(a.v.mem.window.RKey()))
	return a
}

// newQueue is a queue pair with receives, whose peer has whatever is asked for.
func (a *assault) newQueue(shared bool) *queue {
	q := a.v.queue(verbs.QPTypeRC, shared)
	q.at = []verbs.Remote{{Addr: 0x1000, RKey: 0x77}}
	for range 3 {
		q.recv(300)
	}
	return q
}

var assaultParam = verbs.ConnParam{ResponderResources: 2, InitiatorDepth: 2, PrivateData: []byte("hello")}

// serve has the device take connections, whoever makes them.
func (a *assault) serve(p *sim.Proc) error {
	cm, err := a.v.dev.CM()
	if err != nil {
		return err
	}
	l, err := cm.Listen(netip.AddrPortFrom(a.addrs[0], assaultPort), verbs.PortSpaceTCP, 8)
	if err != nil {
		return err
	}
	for n := 0; ; n++ {
		req, err := l.GetRequest(verbs.Forever)
		if err != nil {
			return ignoreClosed(err)
		}
		if n%4 == 3 {
			_ = req.Reject([]byte("no"))
			continue
		}
		q := a.newQueue(n%2 == 1)
		// What is accepted may be gone already.
		_, _ = req.Accept(q.qp, assaultParam, 100*time.Millisecond)
	}
}

func ignoreClosed(err error) error {
	if errors.Is(err, verbs.ErrClosed) {
		return nil
	}
	return err
}

// connect has the device connect to the one who says anything.
func (a *assault) connect(*sim.Proc) error {
	cm, err := a.v.dev.CM()
	if err != nil {
		return err
	}
	for range 3 {
		q := a.newQueue(false)
		conn, err := cm.Connect(q.qp, netip.AddrPortFrom(a.addrs[1], assaultPort), assaultParam, 50*time.Millisecond)
		if err == nil {
			q.work(3)
			q.work(8)
			_ = conn.WaitDisconnect(20 * time.Millisecond)
		}
	}
	return nil
}

// dial makes another connection the one that is talked on.
func (a *assault) dial() {
	if len(a.lines) == 6 {
		return
	}
	s := must.Get(a.net.DialStream(netip.AddrPortFrom(a.addrs[1], 0), netip.AddrPortFrom(a.addrs[0], assaultPort)))(a.t)
	a.take(s)
	a.pass(5 * time.Microsecond)
}

func (a *assault) take(s *sim.Stream) {
	a.now = &line{Stream: s, framer: wire.NewFramer(a.framed)}
	a.lines = append(a.lines, a.now)
}

// pass lets time pass, hears what the device says, and checks everything.
func (a *assault) pass(d time.Duration) {
	a.t.Helper()
	must.Do(a.t, a.RunUntil(a.Now().Add(d)))
	if a.answer != nil {
		for {
			s, err := a.answer.Accept()
			if err != nil || s == nil {
				break
			}
			a.take(s)
		}
	}
	var b [512]byte
	for _, l := range a.lines {
		for !l.deaf {
			if n, err := l.Read(a.Now(), b[:]); n == 0 || err != nil {
				break
			}
		}
	}
	a.v.look()
}

// say writes to the connection, as far as there is room.
func (a *assault) say(b []byte) {
	if a.now != nil {
		_, _ = a.now.Write(a.Now(), b)
	}
}

// FuzzStreamPeer: a soft-iWARP device, listening or connecting, hears any bytes on
// its TCP connections, cut anywhere, in any state. Nothing is written but where a
// peer may; every request completes once, in order; when it is over nothing is left,
// and an honest peer is served.
func FuzzStreamPeer(f *testing.F) {
	streamSeeds(func(b []byte) { f.Add(b) })
	capturedStreams(f, func(b []byte) { f.Add(b) })
	f.Fuzz(func(t *testing.T, b []byte) { streamPeer(t, b) })
}

func streamPeer(t testing.TB, b []byte) {
	t.Helper()
	prog := newProgram(b)
	how := prog.octet()
	a := newAssault(t, how)
	a.Go("server", a.serve)
	a.pass(50 * time.Microsecond)
	if how&1 == 1 {
		l := must.Get(a.net.ListenStream(netip.AddrPortFrom(a.addrs[1], assaultPort)))(t)
		a.answer = l
		a.Go("caller", a.connect)
		a.pass(20 * time.Microsecond)
	} else {
		a.dial()
	}
	for !prog.ended() {
		a.step(prog)
	}
	a.leave()
	a.finish()
}

// leave has the one who says anything go away: no connection outlives that.
func (a *assault) leave() {
	a.t.Helper()
	a.pass(time.Second)
	for _, l := range a.lines {
		l.deaf = false
		_ = l.Abort(a.Now())
	}
	if a.answer != nil {
		_ = a.answer.Close()
	}
	a.pass(time.Minute)
	for i, q := range a.v.queues {
		if attr, err := q.qp.Query(); err != nil || attr.State == verbs.QPStateRTS {
			a.t.Fatalf("queue pair %d, whose peer left a minute ago, is in %v, %v", i, attr.State, err)
		}
	}
}

// finish checks that the device is none the worse for it.
func (a *assault) finish() {
	a.t.Helper()
	a.greet()
	a.v.fail()
	a.pass(time.Second)
	a.v.close()
	for _, d := range []verbs.Context{a.v.dev, a.honest} {
		must.Do(a.t, d.Close())
	}
	if err := a.Run(); err != nil {
		a.t.Fatalf("after the end: %v", err)
	}
}

// greet has an honest device connect and send something.
func (a *assault) greet() {
	a.t.Helper()
	h := newVictim(a.t, "host2", a.honest)
	greeted := errors.New("no end of it")
	a.Go("honest", func(p *sim.Proc) error {
		cm, err := a.honest.CM()
		if err != nil {
			return err
		}
		// Every fourth is turned away.
		for range 2 {
			q := h.queue(verbs.QPTypeRC, false)
			var conn verbs.Conn
			conn, greeted = cm.Connect(q.qp, netip.AddrPortFrom(a.addrs[0], assaultPort), assaultParam, time.Second)
			if greeted == nil {
				q.at = []verbs.Remote{{Addr: 0x1000, RKey: 0x77}}
				q.work(3)
				p.Sleep(time.Millisecond)
				return conn.Disconnect()
			}
		}
		return nil
	})
	a.v.mem.keep = 0
	before := a.v.received
	a.pass(10 * time.Second)
	if greeted != nil {
		a.t.Fatalf("an honest peer, afterwards: %v", greeted)
	}
	if a.v.received != before+1 {
		a.t.Fatalf("%d messages of an honest peer arrived that sent one", a.v.received-before)
	}
	h.look()
}

// streamSeeds have a good peer say what it might, and somebody else the rest.
func streamSeeds(add func([]byte)) {
	for how := range byte(16) {
		start := []byte{how, sayStart, wait, 0x40}
		add(start)
		add([]byte{how, sayStart | 0x10, how << 4, 3, 1, 2, 3, wait, 0x80})
		add(append([]byte{how, sayAnything, 40}, noise(uint64(how), 60)...))
		for op := range byte(12) {
			b := append([]byte{}, start...)
			for msn := range byte(4) {
				b = append(b, saySegment, op, msn<<2|0x40, msn+how>>1&4, 8*msn, 16)
				b = append(b, "sixteen letters."...)
				b = append(b, post, 3+msn, wait, 0x20)
			}
			add(append(b, end, wait, 0x90, another, sayStart, sayPart, op, 0, 1, 2, 3, 9, reset))
		}
	}
	// Writes, reads and atomics of each region, at its beginning and about its end.
	for which := range byte(6) {
		for _, near := range []byte{0, 8, 0xf8, 0xf0} {
			for _, op := range []wire.Opcode{wire.OpWrite, wire.OpReadRequest, wire.OpAtomicRequest} {
				b := []byte{0, sayStart, wait, 0x40, saySegment, byte(op), 1<<2 | 0x40, which, near}
				if op == wire.OpReadRequest {
					b = append(b, 0, 16)
				}
				add(append(append(b, 16), "sixteen letters."...))
			}
		}
	}
	for seed := range uint64(8) {
		add(noise(seed, 100+int(seed)*100))
	}
}
