package dgiwarp

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/verbs"
)

var (
	addrA = netip.MustParseAddr("fd00::1")
	addrB = netip.MustParseAddr("fd00::2")
)

// maxWorldTime ends a world that hangs.
const maxWorldTime = mono.Time(5 * time.Minute)

// testKey is the Q_Key of all queue pairs.
const testKey = 0x0badcafe

// reliable and unreliable are the two services.
var reliable, unreliable = QPOptions{Reliable: true}, QPOptions{}

// bad is a network that does everything wrong to every fifth packet.
var bad = impair.Config{Specs: []impair.Spec{{
	LossPPM: 200_000, DuplicatePPM: 200_000, DuplicateDelay: 30 * time.Microsecond,
	ReorderPPM: 200_000, ReorderDelay: 50 * time.Microsecond, CorruptPPM: 200_000,
}}}

// netInWorld opens n devices behind a switch, with addresses fd00::1 and up.
func netInWorld(t testing.TB, seed uint64, n int, spec impair.Config, cfg Config) (*sim.World, []*Device) {
	t.Helper()
	w := sim.New(sim.Config{Seed: seed, MaxTime: maxWorldTime})
	net, err := sim.NewNet(w, sim.NetConfig{Dissector: Dissector{}})
	if err != nil {
		t.Fatal(err)
	}
	devices := make([]*Device, n)
	for i := range devices {
		devices[i] = attach(t, w, net, i, spec, cfg)
	}
	return w, devices
}

// attach opens a device on a new port of the net.
func attach(t testing.TB, w *sim.World, net *sim.Net, i int, spec impair.Config, cfg Config) *Device {
	t.Helper()
	addr := addrA.As16()
	binary.BigEndian.PutUint16(addr[14:], uint16(i+1))
	p, err := net.Attach(sim.PortConfig{
		Addrs: []netip.Addr{netip.AddrFrom16(addr)}, Up: spec,
		Link: sim.LinkConfig{RateBps: 100e9, Latency: time.Microsecond},
	})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Name = fmt.Sprint("d", i)
	d, err := InWorld(w, p, p, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// pairInWorld opens two devices.
func pairInWorld(t testing.TB, seed uint64, spec impair.Config) (*sim.World, *Device, *Device) {
	t.Helper()
	w, ds := netInWorld(t, seed, 2, spec, Config{})
	return w, ds[0], ds[1]
}

// end is one side of a conversation. Of its memory, the first half is for what it
// sends and for peers to write to, the second for receives.
type end struct {
	dev *Device
	pd  verbs.PD
	ch  verbs.CompChannel
	cq  verbs.CQ
	mr  verbs.MR
	buf []byte
	qp  verbs.QP
	ahs map[netip.AddrPort]verbs.AH
}

const (
	endBytes = 1 << 18
	recvAt   = endBytes / 2
)

const fullAccess = verbs.AccessLocalWrite | verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic | verbs.AccessMWBind

// newEnd makes a queue pair that is ready.
func newEnd(d *Device, opt QPOptions) (*end, error) {
	e := &end{dev: d, buf: make([]byte, endBytes), ahs: map[netip.AddrPort]verbs.AH{}}
	var err error
	if e.pd, err = d.AllocPD(); err != nil {
		return nil, err
	}
	if e.ch, err = d.CreateCompChannel(); err != nil {
		return nil, err
	}
	if e.cq, err = d.CreateCQ(verbs.CQInit{Depth: 2048, Channel: e.ch}); err != nil {
		return nil, err
	}
	if e.mr, err = e.pd.RegMR(verbs.MRInit{Buf: e.buf, Access: fullAccess}); err != nil {
		return nil, err
	}
	e.qp, err = d.CreateQPWith(verbs.QPInit{
		Type: verbs.QPTypeUD, PD: e.pd, SendCQ: e.cq, RecvCQ: e.cq,
		Caps: verbs.QPCaps{MaxSendWR: 128, MaxRecvWR: 1024, MaxSendSGE: 2, MaxRecvSGE: 2, MaxInline: 64},
	}, opt)
	if err != nil {
		return nil, err
	}
	return e, ready(e.qp)
}

// mustEnd is newEnd outside of programs.
func mustEnd(t testing.TB, d *Device, opt QPOptions) *end {
	t.Helper()
	e, err := newEnd(d, opt)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// ready takes a queue pair to RTS.
func ready(q verbs.QP) error {
	for _, s := range []struct {
		attr verbs.QPAttr
		mask verbs.QPAttrMask
	}{
		{verbs.QPAttr{State: verbs.QPStateInit, Port: 1, QKey: testKey}, verbs.QPAttrState | verbs.QPAttrPort | verbs.QPAttrPKeyIndex | verbs.QPAttrQKey},
		{verbs.QPAttr{State: verbs.QPStateRTR}, verbs.QPAttrState},
		{verbs.QPAttr{State: verbs.QPStateRTS}, verbs.QPAttrState | verbs.QPAttrSQPSN},
	} {
		if err := q.Modify(s.attr, s.mask); err != nil {
			return err
		}
	}
	return nil
}

// where is how others address the end.
func (e *end) where() Source {
	return Source{netip.AddrPortFrom(e.dev.cfg.Addrs[0], e.dev.nic.Config().Port), e.qp.QPN()}
}

// to is where a work request goes.
func (e *end) to(s Source) (verbs.UD, error) {
	ah, ok := e.ahs[s.Addr]
	if !ok {
		var err error
		if ah, err = e.pd.CreateAH(AddressOf(s.Addr)); err != nil {
			return verbs.UD{}, err
		}
		e.ahs[s.Addr] = ah
	}
	return verbs.UD{AH: ah, QPN: s.QPN, QKey: testKey}, nil
}

// post posts a request to a peer, signaled.
func (e *end) post(to Source, wr verbs.SendWR) (err error) {
	if wr.UD, err = e.to(to); err != nil {
		return err
	}
	wr.Flags |= verbs.SendSignaled
	_, err = e.qp.PostSend([]verbs.SendWR{wr})
	return err
}

// send sends n bytes of the end's memory from off on.
func (e *end) send(to Source, off, n int) error {
	return e.post(to, verbs.SendWR{WRID: sendID, Opcode: verbs.OpSend, SGL: []verbs.SGE{verbs.SGEOf(e.mr, off, n)}})
}

// sendID tells completions of sends from those of receives, which are known by
// where in memory they are.
const sendID = 1 << 40

// recv posts a receive of n bytes behind the address area, off bytes into the
// memory for that.
func (e *end) recv(off, n int) error {
	at := recvAt + off
	_, err := e.qp.PostRecv([]verbs.RecvWR{{WRID: uint64(at), SGL: []verbs.SGE{verbs.SGEOf(e.mr, at, verbs.GRHLen+n)}}})
	return err
}

// message is what a receive has got.
func (e *end) message(wc *verbs.WC) (Source, []byte, error) {
	b := e.buf[wc.WRID:][:wc.ByteLen]
	s, err := SourceOf(wc, b)
	return s, b[verbs.GRHLen:], err
}

// complete waits by event for one completion.
func (e *end) complete() (verbs.WC, error) {
	var wc [1]verbs.WC
	_, err := e.nextWC(true, wc[:], 20*time.Second)
	return wc[0], err
}

// succeed is complete of what must succeed.
func (e *end) succeed() (verbs.WC, error) {
	wc, err := e.complete()
	if err == nil && wc.Status != verbs.WCSuccess {
		err = fmt.Errorf("%v completed with %v", wc.Opcode, wc.Status)
	}
	return wc, err
}

// nextWC returns the next completions: by polling, or asleep until an event.
func (e *end) nextWC(block bool, wc []verbs.WC, timeout time.Duration) (int, error) {
	for {
		n, err := e.cq.Poll(wc)
		if err != nil || n > 0 {
			return n, err
		}
		if !block {
			continue
		}
		if err := e.cq.Arm(false); err != nil {
			return 0, err
		}
		if n, err = e.cq.Poll(wc); err != nil || n > 0 {
			return n, err
		}
		if _, err := e.ch.Wait(timeout); err != nil {
			return 0, err
		}
	}
}

// quiet reports a completion where there must be none for a while.
func (e *end) quiet(d time.Duration) error {
	var wc [1]verbs.WC
	if n, _ := e.nextWC(true, wc[:], d); n > 0 {
		return fmt.Errorf("%v completed with %v, where nothing should", wc[0].Opcode, wc[0].Status)
	}
	return nil
}

// echoServer sends back what it receives, n times, to where it came from. It
// calls serving when clients may begin.
func echoServer(e *end, n int, serving func()) error {
	for range 4 {
		if err := e.recv(0, 8192); err != nil {
			return err
		}
	}
	serving()
	for got, sent := 0, 0; got < n || sent < n; {
		wc, err := e.succeed()
		if err != nil {
			return fmt.Errorf("server, after %d: %w", got, err)
		}
		if wc.WRID == sendID {
			sent++
			continue
		}
		from, b, err := e.message(&wc)
		if err != nil {
			return err
		}
		copy(e.buf, b)
		if err := e.send(from, 0, len(b)); err != nil {
			return err
		}
		if err := e.recv(0, 8192); err != nil {
			return err
		}
		got++
	}
	return nil
}

// echoClient sends n messages of different lengths and checks what comes back.
func echoClient(e *end, server Source, n int) error {
	for i := range n {
		size := 1 + i*97%8000
		for k := range size {
			e.buf[k] = byte(k + i)
		}
		if err := e.recv(0, 8192); err != nil {
			return err
		}
		if err := e.send(server, 0, size); err != nil {
			return err
		}
		for range 2 {
			wc, err := e.succeed()
			if err != nil {
				return fmt.Errorf("client, message %d: %w", i, err)
			}
			if wc.WRID == sendID {
				continue
			}
			from, b, err := e.message(&wc)
			if err != nil || from != server || !bytes.Equal(b, e.buf[:size]) {
				return fmt.Errorf("echo %d: %d bytes from %v, sent %d to %v; %w", i, len(b), from, size, server, err)
			}
		}
	}
	return nil
}

func TestEcho(t *testing.T) {
	for _, tc := range []struct {
		name string
		opt  QPOptions
		spec impair.Config
	}{
		{"UD", unreliable, impair.Config{}},
		{"RD", reliable, impair.Config{}},
		{"RD through a bad network", reliable, bad},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w, a, b := pairInWorld(t, 7, tc.spec)
			client, server := mustEnd(t, a, tc.opt), mustEnd(t, b, tc.opt)
			w.Go("server", func(*sim.Proc) error { return echoServer(server, 50, func() {}) })
			w.Go("client", func(p *sim.Proc) error {
				p.Sleep(time.Millisecond)
				return echoClient(client, server.where(), 50)
			})
			if err := w.RunPrograms(); err != nil {
				t.Fatal(err)
			}
			t.Logf("took %v of virtual time, %d events", w.Now(), w.Events())
		})
	}
}
