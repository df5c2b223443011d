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

// streamAttack is a soft-iWARP device, an attacker who sends any bytes on TCP connections with it,
// and an honest device that connects after the attack.
type streamAttack struct {
	*sim.World
	t       testing.TB
	net     *sim.Net
	addrs   [3]netip.Addr
	v       *checkedDevice
	honest  verbs.Context
	values  []uint64
	regions []region
	framed  wire.Framing

	conns    []*tcpConn
	current  *tcpConn
	listener *sim.Listener // of the attacker; nil if the device does not connect
}

// tcpConn is a TCP connection of the attacker.
type tcpConn struct {
	*sim.Stream
	framer     wire.Framer
	notReading bool // the attacker does not read
}

const streamAttackPort = 4711

func newStreamAttack(t testing.TB, how byte) *streamAttack {
	t.Helper()
	a := &streamAttack{World: newWorld(), t: t, framed: wire.Framing{CRC: true, Markers: how&2 == 2}}
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
			continue // the attacker has no device
		}
		cfg := softiwarp.Config{Name: fmt.Sprint("host", i), ClientServer: how&8 == 8}
		defect(t, &cfg.NIC.Policy, defects.SetSoftIWARP)
		cfg.NIC.MPA.Markers, cfg.NIC.MPA.NoCRC = how&2 == 2, how&4 == 4
		if devs[i], err = softiwarp.InWorld(a.World, port, port.StreamHost(), cfg); err != nil {
			t.Fatal(err)
		}
	}
	a.v, a.honest = newCheckedDevice(t, "host0", devs[0]), devs[2]
	a.values = []uint64{0, 1, 2, 3, 0x7fffffff, 0xffffffff, 1 << 47}
	for _, mr := range a.v.mem.regions() {
		a.values = append(a.values, uint64(mr.RKey()), mr.Addr(), mr.Addr()+uint64(mr.Len())-8)
		a.regions = append(a.regions, region{uint32(mr.RKey()), mr.Addr(), mr.Addr() + uint64(mr.Len())})
	}
	a.values = append(a.values, uint64(a.v.mem.window.RKey()))
	return a
}

// newQueue returns a queue pair with receives. The peer may offer any memory.
func (a *streamAttack) newQueue(shared bool) *queue {
	q := a.v.newQueue(verbs.QPTypeRC, shared)
	q.at = []verbs.Remote{{Addr: 0x1000, RKey: 0x77}}
	for range 3 {
		q.recv(300)
	}
	return q
}

var attackConnParam = verbs.ConnParam{ResponderResources: 2, InitiatorDepth: 2, PrivateData: []byte("hello")}

// serve accepts all connections on the device, except every fourth, which it rejects.
func (a *streamAttack) serve(p *sim.Proc) error {
	cm, err := a.v.dev.CM()
	if err != nil {
		return err
	}
	l, err := cm.Listen(netip.AddrPortFrom(a.addrs[0], streamAttackPort), verbs.PortSpaceTCP, 8)
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
		// The peer may have disconnected already.
		_, _ = req.Accept(q.qp, attackConnParam, 100*time.Millisecond)
	}
}

func ignoreClosed(err error) error {
	if errors.Is(err, verbs.ErrClosed) {
		return nil
	}
	return err
}

// connect makes the device connect to the attacker, three times.
func (a *streamAttack) connect(*sim.Proc) error {
	cm, err := a.v.dev.CM()
	if err != nil {
		return err
	}
	for range 3 {
		q := a.newQueue(false)
		conn, err := cm.Connect(q.qp, netip.AddrPortFrom(a.addrs[1], streamAttackPort), attackConnParam, 50*time.Millisecond)
		if err == nil {
			q.work(3)
			q.work(8)
			_ = conn.WaitDisconnect(20 * time.Millisecond)
		}
	}
	return nil
}

// dial opens another connection of the attacker and makes it the current one.
func (a *streamAttack) dial() {
	if len(a.conns) == 6 {
		return
	}
	s := must.Get(a.net.DialStream(netip.AddrPortFrom(a.addrs[1], 0), netip.AddrPortFrom(a.addrs[0], streamAttackPort)))(a.t)
	a.addConn(s)
	a.runFor(5 * time.Microsecond)
}

func (a *streamAttack) addConn(s *sim.Stream) {
	a.current = &tcpConn{Stream: s, framer: wire.NewFramer(a.framed)}
	a.conns = append(a.conns, a.current)
}

// runFor runs the world for d, accepts and reads connections of the attacker, and checks the
// device.
func (a *streamAttack) runFor(d time.Duration) {
	a.t.Helper()
	must.Do(a.t, a.RunUntil(a.Now().Add(d)))
	if a.listener != nil {
		for {
			s, err := a.listener.Accept()
			if err != nil || s == nil {
				break
			}
			a.addConn(s)
		}
	}
	var b [512]byte
	for _, l := range a.conns {
		for !l.notReading {
			if n, err := l.Read(a.Now(), b[:]); n == 0 || err != nil {
				break
			}
		}
	}
	a.v.pollAndCheck()
}

// write writes to the current connection as much as fits.
func (a *streamAttack) write(b []byte) {
	if a.current != nil {
		_, _ = a.current.Write(a.Now(), b)
	}
}

// FuzzStreamPeer: a soft-iWARP device, listening or connecting, receives any bytes on its TCP
// connections, in any segments and state. It writes only where a peer has access; every request
// completes once, in order; afterwards all objects can be closed, and an honest peer can connect.
func FuzzStreamPeer(f *testing.F) {
	streamSeeds(func(b []byte) { f.Add(b) })
	capturedStreams(f, func(b []byte) { f.Add(b) })
	f.Fuzz(func(t *testing.T, b []byte) { streamPeer(t, b) })
}

func streamPeer(t testing.TB, b []byte) {
	t.Helper()
	prog := newProgram(b)
	how := prog.octet()
	a := newStreamAttack(t, how)
	a.Go("server", a.serve)
	a.runFor(50 * time.Microsecond)
	if how&1 == 1 {
		l := must.Get(a.net.ListenStream(netip.AddrPortFrom(a.addrs[1], streamAttackPort)))(t)
		a.listener = l
		a.Go("client", a.connect)
		a.runFor(20 * time.Microsecond)
	} else {
		a.dial()
	}
	for !prog.ended() {
		a.step(prog)
	}
	a.disconnect()
	a.finish()
}

// disconnect aborts the connections of the attacker. No queue pair may stay connected.
func (a *streamAttack) disconnect() {
	a.t.Helper()
	a.runFor(time.Second)
	for _, l := range a.conns {
		l.notReading = false
		_ = l.Abort(a.Now())
	}
	if a.listener != nil {
		_ = a.listener.Close()
	}
	a.runFor(time.Minute)
	for i, q := range a.v.queues {
		if attr, err := q.qp.Query(); err != nil || attr.State == verbs.QPStateRTS {
			a.t.Fatalf("queue pair %d, whose peer disconnected a minute ago, is in %v, %v", i, attr.State, err)
		}
	}
}

// finish checks that the device still accepts connections, completes its requests and closes.
func (a *streamAttack) finish() {
	a.t.Helper()
	a.checkHonestPeer()
	a.v.fail()
	a.runFor(time.Second)
	a.v.close()
	for _, d := range []verbs.Context{a.v.dev, a.honest} {
		must.Do(a.t, d.Close())
	}
	if err := a.Run(); err != nil {
		a.t.Fatalf("after Close: %v", err)
	}
}

// checkHonestPeer makes an honest device connect and send a message.
func (a *streamAttack) checkHonestPeer() {
	a.t.Helper()
	h := newCheckedDevice(a.t, "host2", a.honest)
	connectErr := errors.New("no result")
	a.Go("honest", func(p *sim.Proc) error {
		cm, err := a.honest.CM()
		if err != nil {
			return err
		}
		// The device rejects every fourth connection.
		for range 2 {
			q := h.newQueue(verbs.QPTypeRC, false)
			var conn verbs.Conn
			conn, connectErr = cm.Connect(q.qp, netip.AddrPortFrom(a.addrs[0], streamAttackPort), attackConnParam, time.Second)
			if connectErr == nil {
				q.at = []verbs.Remote{{Addr: 0x1000, RKey: 0x77}}
				q.work(3)
				p.Sleep(time.Millisecond)
				return conn.Disconnect()
			}
		}
		return nil
	})
	a.v.mem.reserved = 0
	before := a.v.received
	a.runFor(10 * time.Second)
	if connectErr != nil {
		a.t.Fatalf("an honest peer cannot connect after the attack: %v", connectErr)
	}
	if a.v.received != before+1 {
		a.t.Fatalf("an honest peer sent a message, and %d arrived", a.v.received-before)
	}
	h.pollAndCheck()
}

// streamSeeds adds programs of a correct peer, and others.
func streamSeeds(add func([]byte)) {
	for how := range byte(16) {
		start := []byte{how, writeStartFrame, wait, 0x40}
		add(start)
		add([]byte{how, writeStartFrame | 0x10, how << 4, 3, 1, 2, 3, wait, 0x80})
		add(append([]byte{how, writeBytes, 40}, randomBytes(uint64(how), 60)...))
		for op := range byte(12) {
			b := append([]byte{}, start...)
			for msn := range byte(4) {
				b = append(b, writeSegment, op, msn<<2|0x40, msn+how>>1&4, 8*msn, 16)
				b = append(b, "sixteen letters."...)
				b = append(b, post, 3+msn, wait, 0x20)
			}
			add(append(b, end, wait, 0x90, another, writeStartFrame, writePartialSegment, op, 0, 1, 2, 3, 9, reset))
		}
	}
	// Writes, reads and atomics access each region, at its start and around its end.
	for which := range byte(6) {
		for _, near := range []byte{0, 8, 0xf8, 0xf0} {
			for _, op := range []wire.Opcode{wire.OpWrite, wire.OpReadRequest, wire.OpAtomicRequest} {
				b := []byte{0, writeStartFrame, wait, 0x40, writeSegment, byte(op), 1<<2 | 0x40, which, near}
				if op == wire.OpReadRequest {
					b = append(b, 0, 16)
				}
				add(append(append(b, 16), "sixteen letters."...))
			}
		}
	}
	for seed := range uint64(8) {
		add(randomBytes(seed, 100+int(seed)*100))
	}
}
