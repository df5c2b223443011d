package softroce

import (
	"bytes"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/emu/softroce/mad"
	"github.com/fabrictest/fabrictest/verbs"
)

var (
	addrA = netip.MustParseAddr("fd00::1")
	addrB = netip.MustParseAddr("fd00::2")
)

// inWorld runs one program on each of two devices.
func inWorld(t *testing.T, onA, onB func(p *sim.Proc, d *Device) error) {
	t.Helper()
	w, a, b := pairInWorld(t, 1, impair.Config{})
	w.Go("a", func(p *sim.Proc) error { return onA(p, a) })
	w.Go("b", func(p *sim.Proc) error { return onB(p, b) })
	if err := w.RunPrograms(); err != nil {
		t.Fatal(err)
	}
}

func idle(*sim.Proc, *Device) error { return nil }

func TestConnectWithoutListenerIsRejected(t *testing.T) {
	inWorld(t, func(_ *sim.Proc, d *Device) error {
		e, err := newEnd(d, verbs.QPTypeRC)
		if err != nil {
			return err
		}
		_, err = d.cm.Connect(e.qp, netip.AddrPortFrom(addrB, 1), connParam, verbs.Forever)
		var rej *verbs.RejectError
		if !errors.As(err, &rej) || rej.Reason != uint16(mad.ReasonInvalidServiceID) || !errors.Is(err, verbs.ErrRejected) {
			t.Errorf("connect to a closed port: %v", err)
		}
		return e.qp.Close()
	}, idle)
}

func TestListenerCanReject(t *testing.T) {
	inWorld(t, func(p *sim.Proc, d *Device) error {
		p.Sleep(time.Millisecond)
		e, err := newEnd(d, verbs.QPTypeRC)
		if err != nil {
			return err
		}
		_, err = d.cm.Connect(e.qp, netip.AddrPortFrom(addrB, 5), connParam, verbs.Forever)
		var rej *verbs.RejectError
		if !errors.As(err, &rej) || rej.Reason != uint16(mad.ReasonConsumer) || !bytes.HasPrefix(rej.PrivateData, []byte("no")) {
			t.Errorf("connect: %v", err)
		}
		return nil
	}, func(_ *sim.Proc, d *Device) error {
		l, err := d.cm.Listen(netip.AddrPortFrom(addrB, 5), verbs.PortSpaceTCP, 0)
		if err != nil {
			return err
		}
		req, err := l.GetRequest(verbs.Forever)
		if err != nil {
			return err
		}
		if req.Remote().Addr() != addrA {
			t.Errorf("request from %v", req.Remote())
		}
		if err := req.Reject([]byte("no")); err != nil {
			return err
		}
		return l.Close()
	})
}

func TestDatagramServiceIsResolved(t *testing.T) {
	const qkey = 0x01234567
	readyUD := func(d *Device) (*end, error) {
		e, err := newEnd(d, verbs.QPTypeUD)
		if err != nil {
			return nil, err
		}
		attr := verbs.QPAttr{State: verbs.QPStateInit, Port: 1, QKey: qkey}
		if err := e.qp.Modify(attr, verbs.QPAttrState|verbs.QPAttrPKeyIndex|verbs.QPAttrPort|verbs.QPAttrQKey); err != nil {
			return nil, err
		}
		attr.State = verbs.QPStateRTR
		if err := e.qp.Modify(attr, verbs.QPAttrState); err != nil {
			return nil, err
		}
		attr.State = verbs.QPStateRTS
		return e, e.qp.Modify(attr, verbs.QPAttrState|verbs.QPAttrSQPSN)
	}
	inWorld(t, func(p *sim.Proc, d *Device) error {
		p.Sleep(time.Millisecond)
		e, err := readyUD(d)
		if err != nil {
			return err
		}
		if _, err := d.cm.Resolve(netip.AddrPortFrom(addrB, 99), nil, verbs.Forever); !errors.Is(err, verbs.ErrRejected) {
			t.Errorf("resolve of an unknown service: %v", err)
		}
		peer, err := d.cm.Resolve(netip.AddrPortFrom(addrB, 6), []byte("who"), verbs.Forever)
		if err != nil {
			return err
		}
		if peer.QKey != qkey || !bytes.HasPrefix(peer.PrivateData, []byte("me")) {
			t.Errorf("resolved %+v", peer)
		}
		ah, err := e.pd.CreateAH(peer.AH)
		if err != nil {
			return err
		}
		copy(e.buf, "datagram")
		if _, err := e.qp.PostSend([]verbs.SendWR{{Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{verbs.SGEOf(e.mr, 0, 8)}, UD: verbs.UD{AH: ah, QPN: peer.QPN, QKey: peer.QKey}}}); err != nil {
			return err
		}
		_, err = e.complete()
		return err
	}, func(_ *sim.Proc, d *Device) error {
		e, err := readyUD(d)
		if err != nil {
			return err
		}
		if _, err := e.qp.PostRecv([]verbs.RecvWR{{SGL: []verbs.SGE{verbs.SGEOf(e.mr, 0, 100)}}}); err != nil {
			return err
		}
		l, err := d.cm.Listen(netip.AddrPortFrom(netip.IPv6Unspecified(), 6), verbs.PortSpaceUDP, 0)
		if err != nil {
			return err
		}
		req, err := l.GetRequest(verbs.Forever)
		if err != nil {
			return err
		}
		if _, err := req.Accept(e.qp, verbs.ConnParam{PrivateData: []byte("me")}, verbs.Forever); err != nil {
			return err
		}
		wc, err := e.complete()
		if err != nil {
			return err
		}
		if wc.ByteLen != verbs.GRHLen+8 || string(e.buf[verbs.GRHLen:verbs.GRHLen+8]) != "datagram" {
			t.Errorf("received %+v %q", wc, e.buf[:48])
		}
		attr, err := verbs.InitAHFromWC(1, 0, &wc, e.buf)
		if err != nil || attr.GRH.DGID.Addr() != addrA {
			t.Errorf("reply goes to %v, %v", attr.GRH.DGID, err)
		}
		return nil
	})
}

func TestDisconnectFlushesPeerQP(t *testing.T) {
	inWorld(t, func(p *sim.Proc, d *Device) error {
		p.Sleep(time.Millisecond)
		e, err := newEnd(d, verbs.QPTypeRC)
		if err != nil {
			return err
		}
		conn, err := d.cm.Connect(e.qp, netip.AddrPortFrom(addrB, 7), connParam, verbs.Forever)
		if err != nil {
			return err
		}
		p.Sleep(time.Millisecond)
		if err := conn.Disconnect(); err != nil {
			return err
		}
		a, err := e.qp.Query()
		if a.State != verbs.QPStateErr {
			t.Errorf("our QP is in %v", a.State)
		}
		return err
	}, func(_ *sim.Proc, d *Device) error {
		e, err := newEnd(d, verbs.QPTypeRC)
		if err != nil {
			return err
		}
		l, err := d.cm.Listen(netip.AddrPortFrom(addrB, 7), verbs.PortSpaceTCP, 0)
		if err != nil {
			return err
		}
		req, err := l.GetRequest(verbs.Forever)
		if err != nil {
			return err
		}
		conn, err := req.Accept(e.qp, connParam, verbs.Forever)
		if err != nil {
			return err
		}
		if _, err := e.qp.PostRecv([]verbs.RecvWR{{WRID: 9, SGL: []verbs.SGE{verbs.SGEOf(e.mr, 0, 8)}}}); err != nil {
			return err
		}
		wc, err := e.complete()
		if err != nil || wc.Status != verbs.WCWRFlushErr || wc.WRID != 9 {
			t.Errorf("receive completed %+v, %v", wc, err)
		}
		return conn.WaitDisconnect(verbs.Forever)
	})
}

func TestTimeoutsAreInVirtualTime(t *testing.T) {
	inWorld(t, func(p *sim.Proc, d *Device) error {
		e, err := newEnd(d, verbs.QPTypeRC)
		if err != nil {
			return err
		}
		before := p.Now()
		if _, err := e.ch.Wait(3 * time.Second); !errors.Is(err, verbs.ErrTimeout) {
			t.Errorf("channel: %v", err)
		}
		if _, err := d.WaitAsync(2 * time.Second); !errors.Is(err, verbs.ErrTimeout) {
			t.Errorf("async: %v", err)
		}
		if took := p.Now() - before; took != 5*time.Second {
			t.Errorf("took %v", took)
		}
		return nil
	}, idle)
}

func TestDeadlockNamesWaitReason(t *testing.T) {
	w, a, _ := pairInWorld(t, 1, impair.Config{})
	w.Go("rank 0", func(*sim.Proc) error {
		e, err := newEnd(a, verbs.QPTypeRC)
		if err != nil {
			return err
		}
		_, err = e.ch.Wait(verbs.Forever)
		return err
	})
	err := w.Run()
	var dead *sim.DeadlockError
	if !errors.As(err, &dead) || len(dead.Waiting) != 1 || dead.Waiting[0].Reason != "completion event of a" {
		t.Fatalf("got %v", err)
	}
}

func TestObjectsOfAnotherDeviceAreRejected(t *testing.T) {
	inWorld(t, func(_ *sim.Proc, d *Device) error {
		other, _, err := func() (*Device, *Device, error) { _, x, y := pairInWorld(t, 2, impair.Config{}); return x, y, nil }()
		if err != nil {
			return err
		}
		e, err := newEnd(d, verbs.QPTypeRC)
		if err != nil {
			return err
		}
		f, err := newEnd(other, verbs.QPTypeRC)
		if err != nil {
			return err
		}
		if _, err := d.CreateQP(verbs.QPInit{Type: verbs.QPTypeRC, PD: f.pd, SendCQ: e.cq, RecvCQ: e.cq}); !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("PD of another device: %v", err)
		}
		if _, err := d.CreateQP(verbs.QPInit{Type: verbs.QPTypeRC, PD: e.pd, SendCQ: f.cq, RecvCQ: e.cq}); !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("CQ of another device: %v", err)
		}
		if _, err := d.CreateCQ(verbs.CQInit{Depth: 1, Channel: f.ch}); !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("channel of another device: %v", err)
		}
		if _, err := d.cm.Connect(f.qp, netip.AddrPortFrom(addrB, 1), connParam, time.Second); !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("QP of another device: %v", err)
		}
		return nil
	}, idle)
}

func TestCloseOrderIsEnforced(t *testing.T) {
	inWorld(t, func(_ *sim.Proc, d *Device) error {
		e, err := newEnd(d, verbs.QPTypeRC)
		if err != nil {
			return err
		}
		if err := e.pd.Close(); !errors.Is(err, verbs.ErrBusy) {
			t.Errorf("PD in use closed: %v", err)
		}
		if err := e.cq.Close(); !errors.Is(err, verbs.ErrBusy) {
			t.Errorf("CQ in use closed: %v", err)
		}
		for _, c := range []interface{ Close() error }{e.qp, e.cq, e.mr, e.pd, e.ch} {
			if err := c.Close(); err != nil {
				t.Errorf("%T: %v", c, err)
			}
		}
		if err := d.Close(); err != nil {
			return err
		}
		if _, err := d.AllocPD(); !errors.Is(err, verbs.ErrClosed) {
			t.Errorf("a closed device allocates: %v", err)
		}
		return d.Close()
	}, idle)
}

func TestPortEventsFollowLink(t *testing.T) {
	w, a, _ := pairInWorld(t, 1, impair.Config{})
	port := a.link.(*sim.Port)
	w.Go("a", func(p *sim.Proc) error {
		port.SetDown()
		for _, want := range []verbs.AsyncEventType{verbs.EventPortErr, verbs.EventPortActive} {
			e, err := a.WaitAsync(time.Second)
			if err != nil || e.Type != want || e.Port != 1 {
				t.Errorf("got %v, %v; want %v", e.Type, err, want)
			}
			port.SetUp()
		}
		return nil
	})
	if err := w.RunPrograms(); err != nil {
		t.Fatal(err)
	}
}

func TestPostAndPollDoNotAllocate(t *testing.T) {
	da, db := loopbackPair(t)
	a, b, err := ends(da, db)
	if err != nil {
		t.Fatal(err)
	}
	recv := []verbs.RecvWR{{SGL: []verbs.SGE{verbs.SGEOf(b.mr, 0, 64)}}}
	send := []verbs.SendWR{{Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{verbs.SGEOf(a.mr, 0, 64)}}}
	wc := make([]verbs.WC, 4)
	round := func() {
		if _, err := b.qp.PostRecv(recv); err != nil {
			t.Fatal(err)
		}
		if _, err := a.qp.PostSend(send); err != nil {
			t.Fatal(err)
		}
		for _, e := range []*end{b, a} {
			if _, err := e.nextWC(false, wc); err != nil {
				t.Fatal(err)
			}
		}
	}
	round()
	n := testing.AllocsPerRun(200, round)
	for i := 0; i < 10 && n >= 1; i++ { // the background's timers count too, where a round takes long
		n = testing.AllocsPerRun(200, round)
	}
	if n >= 1 {
		t.Errorf("a send and its completions allocate %v times", n)
	}
}
