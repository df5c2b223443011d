package softroce

import (
	"bytes"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/verbs"
)

// pairInWorld opens two devices on one cable.
func pairInWorld(t testing.TB, seed uint64, spec impair.Config) (*sim.World, *Device, *Device) {
	t.Helper()
	w := sim.New(sim.Config{Seed: seed})
	cfg := func(addr string) sim.PortConfig {
		return sim.PortConfig{
			Addrs: []netip.Addr{netip.MustParseAddr(addr)}, Up: spec,
			Link: sim.LinkConfig{RateBps: 100e9, Latency: time.Microsecond, MTU: 4200},
		}
	}
	pa, pb, err := sim.NewPair(w, sim.NetConfig{Dissector: Dissector{}}, cfg("fd00::1"), cfg("fd00::2"))
	if err != nil {
		t.Fatal(err)
	}
	a, err := InWorld(w, pa, pa, Config{Name: "a"})
	if err != nil {
		t.Fatal(err)
	}
	b, err := InWorld(w, pb, pb, Config{Name: "b"})
	if err != nil {
		t.Fatal(err)
	}
	return w, a, b
}

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

func newEnd(dev verbs.Context, typ verbs.QPType) (*end, error) {
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
	access := verbs.AccessLocalWrite | verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic
	if e.mr, err = e.pd.RegMR(verbs.MRInit{Buf: e.buf, Access: access}); err != nil {
		return nil, err
	}
	e.qp, err = dev.CreateQP(verbs.QPInit{
		Type: typ, PD: e.pd, SendCQ: e.cq, RecvCQ: e.cq,
		Caps: verbs.QPCaps{MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: 2, MaxRecvSGE: 2, MaxInline: 64},
	})
	return e, err
}

// complete waits by event for one completion.
func (e *end) complete() (verbs.WC, error) {
	var wc [1]verbs.WC
	for {
		n, err := e.cq.Poll(wc[:])
		if err != nil || n == 1 {
			return wc[0], err
		}
		if err := e.cq.ReqNotify(false); err != nil {
			return wc[0], err
		}
		if n, err = e.cq.Poll(wc[:]); err != nil || n == 1 {
			return wc[0], err
		}
		if _, err := e.ch.Wait(verbs.Forever); err != nil {
			return wc[0], err
		}
	}
}

var connParam = verbs.ConnParam{ResponderResources: 4, InitiatorDepth: 4, RetryCount: 7, RNRRetryCount: 7}

// echoServer accepts one connection and echoes n messages.
// It calls listening when a client may come.
func echoServer(dev verbs.Context, n int, listening func()) error {
	e, err := newEnd(dev, verbs.QPTypeRC)
	if err != nil {
		return err
	}
	mgr, err := dev.CM()
	if err != nil {
		return err
	}
	gid, err := dev.QueryGID(1, 0)
	if err != nil {
		return err
	}
	l, err := mgr.Listen(netip.AddrPortFrom(gid.GID.Addr(), 7174), verbs.PortSpaceTCP, 1)
	if err != nil {
		return err
	}
	listening()
	req, err := l.GetRequest(verbs.Forever)
	if err != nil {
		return err
	}
	if got := string(bytes.TrimRight(req.Param().PrivateData, "\x00")); got != "hello" {
		return fmt.Errorf("private data %q", got)
	}
	conn, err := req.Accept(e.qp, connParam, verbs.Forever)
	if err != nil {
		return err
	}
	for i := range n {
		if _, err := e.qp.PostRecv([]verbs.RecvWR{{WRID: uint64(i), SGL: []verbs.SGE{verbs.SGEOf(e.mr, 0, 8192)}}}); err != nil {
			return err
		}
		wc, err := e.complete()
		if err != nil || wc.Status != verbs.WCSuccess {
			return fmt.Errorf("receive %d: %v %v", i, wc.Status, err)
		}
		_, err = e.qp.PostSend([]verbs.SendWR{{Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{verbs.SGEOf(e.mr, 0, int(wc.ByteLen))}}})
		if err != nil {
			return err
		}
		if wc, err = e.complete(); err != nil || wc.Status != verbs.WCSuccess {
			return fmt.Errorf("send %d: %v %v", i, wc.Status, err)
		}
	}
	return conn.WaitDisconnect(verbs.Forever)
}

func echoClient(dev verbs.Context, server netip.Addr, n int) error {
	e, err := newEnd(dev, verbs.QPTypeRC)
	if err != nil {
		return err
	}
	mgr, err := dev.CM()
	if err != nil {
		return err
	}
	param := connParam
	param.PrivateData = []byte("hello")
	conn, err := mgr.Connect(e.qp, netip.AddrPortFrom(server, 7174), param, verbs.Forever)
	if err != nil {
		return err
	}
	for i := range n {
		size := 1 + i*97%8000
		for k := range size {
			e.buf[k] = byte(k + i)
		}
		if _, err := e.qp.PostRecv([]verbs.RecvWR{{SGL: []verbs.SGE{verbs.SGEOf(e.mr, 10000, 8192)}}}); err != nil {
			return err
		}
		if _, err := e.qp.PostSend([]verbs.SendWR{{Opcode: verbs.OpSend, SGL: []verbs.SGE{verbs.SGEOf(e.mr, 0, size)}}}); err != nil {
			return err
		}
		wc, err := e.complete()
		if err != nil || wc.Status != verbs.WCSuccess || int(wc.ByteLen) != size {
			return fmt.Errorf("echo %d: %v, %d bytes, %v", i, wc.Status, wc.ByteLen, err)
		}
		if !bytes.Equal(e.buf[:size], e.buf[10000:10000+size]) {
			return fmt.Errorf("echo %d differs", i)
		}
	}
	return conn.Disconnect()
}

func TestEchoOverCMConnection(t *testing.T) {
	for _, tc := range []struct {
		name string
		spec impair.Config
	}{
		{"clean", impair.Config{}},
		{"lossy", impair.Config{Specs: []impair.Spec{{LossPPM: 50_000, DuplicatePPM: 20_000, CorruptPPM: 20_000}}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w, a, b := pairInWorld(t, 7, tc.spec)
			w.Go("server", func(*sim.Proc) error { return echoServer(b, 50, func() {}) })
			w.Go("client", func(*sim.Proc) error { return echoClient(a, netip.MustParseAddr("fd00::2"), 50) })
			if err := w.RunPrograms(); err != nil {
				t.Fatal(err)
			}
			t.Logf("took %v of virtual time, %d events", w.Now(), w.Events())
		})
	}
}
