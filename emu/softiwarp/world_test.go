package softiwarp

import (
	"bytes"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/verbs"
)

var (
	addrA = netip.MustParseAddr("fd00::1")
	addrB = netip.MustParseAddr("fd00::2")
)

// pairInWorld opens two devices on one cable.
func pairInWorld(t testing.TB, seed uint64, net sim.NetConfig, cfgs ...Config) (*sim.World, *Device, *Device) {
	t.Helper()
	w := sim.New(sim.Config{Seed: seed, MaxTime: maxWorldTime})
	port := func(addr netip.Addr) sim.PortConfig {
		return sim.PortConfig{
			Addrs: []netip.Addr{addr},
			Link:  sim.LinkConfig{RateBps: 100e9, Latency: time.Microsecond, MTU: 4200},
		}
	}
	pa, pb, err := sim.NewPair(w, net, port(addrA), port(addrB))
	if err != nil {
		t.Fatal(err)
	}
	var devices [2]*Device
	for i, p := range []*sim.Port{pa, pb} {
		cfg := Config{}
		if i < len(cfgs) {
			cfg = cfgs[i]
		}
		cfg.Name = string(rune('a' + i))
		if devices[i], err = InWorld(w, p, portNet{p.StreamHost(), p}, cfg); err != nil {
			t.Fatal(err)
		}
	}
	return w, devices[0], devices[1]
}

// portNet remembers whose streams they are.
type portNet struct {
	*sim.StreamHost
	port *sim.Port
}

func portOf(d *Device) *sim.Port { return d.net.(portNet).port }

// end is one side of a conversation.
type end struct {
	dev verbs.Context
	pd  verbs.PD
	ch  verbs.CompChannel
	cq  verbs.CQ
	mr  verbs.MR
	buf []byte
	qp  verbs.QP
}

func newEnd(dev verbs.Context) (*end, error) {
	e := &end{dev: dev, buf: make([]byte, 1<<16)}
	var err error
	if e.pd, err = dev.AllocPD(); err != nil {
		return nil, err
	}
	if e.ch, err = dev.CreateCompChannel(); err != nil {
		return nil, err
	}
	if e.cq, err = dev.CreateCQ(verbs.CQInit{Depth: 256, Channel: e.ch}); err != nil {
		return nil, err
	}
	if e.mr, err = e.pd.RegMR(verbs.MRInit{Buf: e.buf, Access: fullAccess}); err != nil {
		return nil, err
	}
	e.qp, err = dev.CreateQP(verbs.QPInit{
		Type: verbs.QPTypeRC, PD: e.pd, SendCQ: e.cq, RecvCQ: e.cq,
		Caps: verbs.QPCaps{MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: 2, MaxRecvSGE: 2, MaxInline: 64},
	})
	return e, err
}

const fullAccess = verbs.AccessLocalWrite | verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic | verbs.AccessMWBind

// complete waits by event for one completion.
func (e *end) complete() (verbs.WC, error) {
	var wc [1]verbs.WC
	_, err := e.nextWC(true, wc[:])
	return wc[0], err
}

// succeed is complete for requests that must succeed.
func (e *end) succeed() (verbs.WC, error) {
	wc, err := e.complete()
	if err == nil && wc.Status != verbs.WCSuccess {
		err = fmt.Errorf("%v completed with %v, vendor error %#x", wc.Opcode, wc.Status, wc.VendorErr)
	}
	return wc, err
}

// nextWC returns the next completions: by polling, or asleep until an event.
func (e *end) nextWC(block bool, wc []verbs.WC) (int, error) {
	for {
		n, err := e.cq.Poll(wc)
		if err != nil || n > 0 {
			return n, err
		}
		if !block {
			continue
		}
		if err := e.cq.ReqNotify(false); err != nil {
			return 0, err
		}
		if n, err = e.cq.Poll(wc); err != nil || n > 0 {
			return n, err
		}
		if _, err := e.ch.Wait(30 * time.Second); err != nil {
			return 0, err
		}
	}
}

func (e *end) recv(off, n int) error {
	_, err := e.qp.PostRecv([]verbs.RecvWR{{SGL: []verbs.SGE{verbs.SGEOf(e.mr, off, n)}}})
	return err
}

func (e *end) send(off, n int) error {
	_, err := e.qp.PostSend([]verbs.SendWR{{Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{verbs.SGEOf(e.mr, off, n)}}})
	return err
}

var connParam = verbs.ConnParam{ResponderResources: 4, InitiatorDepth: 4}

// acceptOne accepts one connection. It calls listening when a peer may come.
func acceptOne(d *Device, at netip.AddrPort, listening func()) (*end, verbs.Conn, error) {
	e, err := newEnd(d)
	if err != nil {
		return nil, nil, err
	}
	l, err := d.cm.Listen(at, verbs.PortSpaceTCP, 0)
	if err != nil {
		return nil, nil, err
	}
	listening()
	req, err := l.GetRequest(verbs.Forever)
	if err != nil {
		return nil, nil, err
	}
	c, err := req.Accept(e.qp, connParam, verbs.Forever)
	return e, c, err
}

func connectTo(d *Device, to netip.AddrPort) (*end, verbs.Conn, error) {
	e, err := newEnd(d)
	if err != nil {
		return nil, nil, err
	}
	c, err := d.cm.Connect(e.qp, to, connParam, verbs.Forever)
	return e, c, err
}

const echoPort = 7174

// maxWorldTime ends a world that hangs.
const maxWorldTime = mono.Time(5 * time.Minute)

// echoServer accepts one connection and echoes n messages.
// It calls listening when a client may come.
func echoServer(dev *Device, n int, listening func()) error {
	e, err := newEnd(dev)
	if err != nil {
		return err
	}
	// The receives come before the connection: nobody waits for them here.
	for range 2 {
		if err := e.recv(0, 8192); err != nil {
			return err
		}
	}
	l, err := dev.cm.Listen(netip.AddrPortFrom(dev.cfg.Addrs[0], echoPort), verbs.PortSpaceTCP, 1)
	if err != nil {
		return err
	}
	listening()
	req, err := l.GetRequest(verbs.Forever)
	if err != nil {
		return err
	}
	if got := string(req.Param().PrivateData); got != "hello" {
		return fmt.Errorf("private data %q", got)
	}
	conn, err := req.Accept(e.qp, connParam, verbs.Forever)
	if err != nil {
		return err
	}
	for i := range n {
		wc, err := e.succeed()
		if err != nil {
			return fmt.Errorf("receive %d: %w", i, err)
		}
		if err := e.send(0, int(wc.ByteLen)); err != nil {
			return err
		}
		if _, err := e.succeed(); err != nil {
			return fmt.Errorf("send %d: %w", i, err)
		}
		if err := e.recv(0, 8192); err != nil {
			return err
		}
	}
	return conn.WaitDisconnect(verbs.Forever)
}

func echoClient(dev *Device, server netip.Addr, n int) error {
	e, err := newEnd(dev)
	if err != nil {
		return err
	}
	param := connParam
	param.PrivateData = []byte("hello")
	conn, err := dev.cm.Connect(e.qp, netip.AddrPortFrom(server, echoPort), param, verbs.Forever)
	if err != nil {
		return err
	}
	for i := range n {
		size := 1 + i*97%8000
		for k := range size {
			e.buf[k] = byte(k + i)
		}
		if err := e.recv(10000, 8192); err != nil {
			return err
		}
		if _, err := e.qp.PostSend([]verbs.SendWR{{Opcode: verbs.OpSend, SGL: []verbs.SGE{verbs.SGEOf(e.mr, 0, size)}}}); err != nil {
			return err
		}
		wc, err := e.succeed()
		if err != nil || int(wc.ByteLen) != size {
			return fmt.Errorf("echo %d: %d bytes, %w", i, wc.ByteLen, err)
		}
		if !bytes.Equal(e.buf[:size], e.buf[10000:10000+size]) {
			return fmt.Errorf("echo %d differs", i)
		}
	}
	if err := conn.Disconnect(); err != nil {
		return err
	}
	return conn.WaitDisconnect(verbs.Forever)
}

func TestEchoOverCMConnection(t *testing.T) {
	for _, tc := range []struct {
		name   string
		stream sim.StreamConfig
	}{
		{"clean", sim.StreamConfig{}},
		{"cut and stalled", sim.StreamConfig{CutPPM: 500_000, StallPPM: 50_000, StallFor: 300 * time.Microsecond, BufferBytes: 3000}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w, a, b := pairInWorld(t, 7, sim.NetConfig{Stream: tc.stream})
			w.Go("server", func(*sim.Proc) error { return echoServer(b, 50, func() {}) })
			w.Go("client", func(p *sim.Proc) error {
				p.Sleep(time.Millisecond)
				return echoClient(a, addrB, 50)
			})
			if err := w.RunPrograms(); err != nil {
				t.Fatal(err)
			}
			t.Logf("took %v of virtual time, %d events", w.Now(), w.Events())
		})
	}
}
