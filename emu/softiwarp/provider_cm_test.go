package softiwarp

import (
	"bytes"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/emu/softiwarp/engine"
	"github.com/fabrictest/fabrictest/emu/softiwarp/mpa"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

func TestConnectErrors(t *testing.T) {
	inWorld(t, func(_ *sim.Proc, d *Device) {
		e := newEnd(t, d)
		_, err := e.TryConnect(at(1))
		must.Fail(t, "closed port", err, verbs.ErrRejected, "no listener")
		_, err = e.TryConnect(netip.MustParseAddrPort("[fd00::77]:1"))
		must.Fail(t, "unknown host", err, verbs.ErrNotFound, "fd00::77")
		_, err = e.TryConnect(netip.MustParseAddrPort("10.0.0.1:1"))
		must.Fail(t, "other family", err, verbs.ErrNotFound, "no address of the family of 10.0.0.1")
		e.ExpectState(verbs.QPStateReset)
	}, idle)
}

func TestRejectLimitsPrivateData(t *testing.T) {
	inWorld(t, later(func(_ *sim.Proc, d *Device) {
		e := newEnd(t, d)
		_, err := e.TryConnect(at(5))
		must.Fail(t, "connect", err, verbs.ErrRejected)
		e.ExpectState(verbs.QPStateReset)
	}), func(_ *sim.Proc, d *Device) {
		req := must.Get(listen(t, d, at(5)).GetRequest(verbs.Forever))(t)
		must.Fail(t, "long private data", req.Reject(make([]byte, 509)), verbs.ErrInvalid, "at most 508")
		must.Do(t, req.Reject(nil))
	})
}

// The depths and private data of each side arrive at the other, and both queue pairs have the
// negotiated depths.
func TestPrivateDataAndDepths(t *testing.T) {
	requested := verbs.ConnParam{ResponderResources: 3, InitiatorDepth: 7, PrivateData: bytes.Repeat([]byte("q"), 508)}
	granted := verbs.ConnParam{ResponderResources: 7, InitiatorDepth: 9, PrivateData: bytes.Repeat([]byte("r"), 508)}
	depths := func(e *end) string {
		a, err := e.QP.Query()
		return fmt.Sprint(a.MaxRdAtomic, a.MaxDestRdAtomic, a.State, err)
	}
	inWorld(t, later(func(_ *sim.Proc, d *Device) {
		e := newEnd(t, d)
		long := requested
		long.PrivateData = make([]byte, 509)
		_, err := d.cm.Connect(e.QP, at(5), long, verbs.Forever)
		must.Fail(t, "long private data", err, verbs.ErrInvalid, "at most 508")
		c := must.Get(d.cm.Connect(e.QP, at(5), requested, verbs.Forever))(t)
		// A responder's InitiatorDepth is at most the initiator's ResponderResources.
		if p := c.Param(); p.ResponderResources != 7 || p.InitiatorDepth != 3 || !bytes.Equal(p.PrivateData, granted.PrivateData) {
			t.Errorf("reply %+v", p)
		}
		if got := depths(e); got != "7 3 IBV_QPS_RTS <nil>" {
			t.Errorf("initiator has depths %s", got)
		}
		if c.Remote() != at(5) {
			t.Errorf("remote %v", c.Remote())
		}
		must.Do(t, c.Disconnect())
	}), func(_ *sim.Proc, d *Device) {
		e := newEnd(t, d)
		l := listen(t, d, at(5))
		req := must.Get(l.GetRequest(verbs.Forever))(t)
		if p := req.Param(); p.ResponderResources != 3 || p.InitiatorDepth != 7 || !bytes.Equal(p.PrivateData, requested.PrivateData) {
			t.Errorf("request %+v", p)
		}
		c := must.Get(req.Accept(e.QP, granted, verbs.Forever))(t)
		if got := depths(e); got != "3 7 IBV_QPS_RTS <nil>" {
			t.Errorf("responder has depths %s", got)
		}
		must.Do(t, c.WaitDisconnect(verbs.Forever))
	})
}

func TestListenErrors(t *testing.T) {
	inWorld(t, func(_ *sim.Proc, d *Device) {
		_, err := d.cm.Listen(netip.AddrPortFrom(addrA, 6), verbs.PortSpaceUDP, 0)
		must.Fail(t, "UDP port space", err, verbs.ErrNotSupported, "PortSpaceTCP")
		_, err = d.cm.Resolve(at(6), nil, verbs.Forever)
		must.Fail(t, "resolve", err, verbs.ErrNotSupported, "no datagrams")
		_, err = d.cm.Listen(at(6), verbs.PortSpaceTCP, 0)
		must.Fail(t, "remote address", err, verbs.ErrNotFound, "fd00::1")
		l := listen(t, d, netip.AddrPortFrom(addrA, 6))
		_, err = d.cm.Listen(netip.AddrPortFrom(addrA, 6), verbs.PortSpaceTCP, 0)
		must.Fail(t, "port in use", err, verbs.ErrBusy, "[fd00::1]:6")
		must.Do(t, l.Close())
		again := listen(t, d, netip.AddrPortFrom(addrA, 6))
		must.Do(t, again.Close())
	}, idle)
}

// A listener on the unspecified address of either family accepts requests to all addresses of the
// device, on one port.
func TestListenOnAllAddresses(t *testing.T) {
	v4a, v4b := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	w := sim.New(sim.Config{Seed: 1})
	net := must.Get(sim.NewNet(w, sim.NetConfig{Cable: true}))(t)
	open := func(addrs ...netip.Addr) *Device {
		p := must.Get(net.Attach(sim.PortConfig{Addrs: addrs, Link: sim.LinkConfig{Latency: time.Microsecond}}))(t)
		return must.Get(InWorld(w, p, p.StreamHost(), Config{}))(t)
	}
	a, b := open(addrA, v4a), open(addrB, v4b)
	var l verbs.Listener
	w.Go("b", func(*sim.Proc) (err error) {
		// The first port is in use at one address.
		listen(t, b, netip.AddrPortFrom(v4b, 49152))
		l = listen(t, b, netip.AddrPortFrom(netip.IPv6Unspecified(), 0))
		for range 2 {
			e := newEnd(t, b)
			e.AcceptFrom(l, connParam)
		}
		return l.Close()
	})
	w.Go("a", func(p *sim.Proc) error {
		p.Sleep(time.Millisecond)
		for _, to := range []netip.Addr{addrB, v4b} {
			connectTo(t, a, netip.AddrPortFrom(to, l.Addr().Port()))
		}
		p.Sleep(time.Millisecond)
		_, err := newEnd(t, a).TryConnect(netip.AddrPortFrom(v4b, l.Addr().Port()))
		must.Fail(t, "closed listener", err, verbs.ErrRejected)
		return nil
	})
	must.Do(t, w.RunPrograms())
	if l.Addr().Port() <= 49152 || l.Addr().Addr() != netip.IPv6Unspecified() {
		t.Errorf("listened on %v", l.Addr())
	}
	if g, err := a.QueryGID(1, 1); err != nil || g.GID.Addr() != v4a {
		t.Errorf("second GID %v, %v", g, err)
	}
}

func TestFullBacklogResetsConnections(t *testing.T) {
	inWorld(t, later(func(p *sim.Proc, d *Device) {
		first := newEnd(t, d)
		p.World().Go("first", func(*sim.Proc) error {
			_, err := d.cm.Connect(first.QP, at(5), connParam, verbs.Forever)
			return err
		})
		p.Sleep(time.Millisecond)
		_, err := newEnd(t, d).TryConnect(at(5))
		must.Fail(t, "beyond the backlog", err, verbs.ErrRejected, "without a reply")
	}), func(p *sim.Proc, d *Device) {
		l := must.Get(d.cm.Listen(at(5), verbs.PortSpaceTCP, 1))(t)
		p.Sleep(10 * time.Millisecond)
		if n := counter(d, "cm_backlog_full"); n != 2 { // the peer retried with revision 1
			t.Errorf("cm_backlog_full is %d", n)
		}
		req := must.Get(l.GetRequest(0))(t)
		e := newEnd(t, d)
		must.Get(req.Accept(e.QP, connParam, verbs.Forever))(t)
	})
}

// A connect that times out leaves the queue pair unchanged. Accept and Reject of its request fail.
func TestConnectTimeout(t *testing.T) {
	inWorld(t, later(func(p *sim.Proc, d *Device) {
		e := newEnd(t, d)
		before := p.Now()
		_, err := d.cm.Connect(e.QP, at(5), connParam, 3*time.Second)
		must.Fail(t, "connect timeout", err, verbs.ErrTimeout, "[fd00::2]:5")
		if took := p.Now() - before; took < 3*time.Second || took > 3*time.Second+10*time.Microsecond {
			t.Errorf("timeout after %v", took)
		}
		p.Sleep(time.Second)
		must.Get(d.cm.Connect(e.QP, at(5), connParam, 3*time.Second))(t)
	}), func(p *sim.Proc, d *Device) {
		e := newEnd(t, d)
		l := listen(t, d, at(5))
		req := must.Get(l.GetRequest(verbs.Forever))(t)
		p.Sleep(3500 * time.Millisecond)
		_, err := req.Accept(e.QP, connParam, verbs.Forever)
		must.Fail(t, "Accept after the timeout", err, verbs.ErrClosed, "has closed the connection")
		must.Fail(t, "Reject after the timeout", req.Reject(nil), verbs.ErrClosed, "has closed the connection")
		req = must.Get(l.GetRequest(verbs.Forever))(t)
		must.Get(req.Accept(e.QP, connParam, verbs.Forever))(t)
	})
}

// GetRequest does not return a request whose requester has closed the connection.
func TestGetRequestSkipsClosedConnections(t *testing.T) {
	inWorld(t, later(func(_ *sim.Proc, d *Device) {
		e := newEnd(t, d)
		_, err := d.cm.Connect(e.QP, at(5), connParam, time.Millisecond)
		must.Fail(t, "connect timeout", err, verbs.ErrTimeout)
	}), func(p *sim.Proc, d *Device) {
		l := listen(t, d, at(5))
		p.Sleep(10 * time.Millisecond)
		_, err := l.GetRequest(time.Millisecond)
		must.Fail(t, "next", err, verbs.ErrTimeout)
		if n := counter(d, "conns_failed"); n != 1 {
			t.Errorf("conns_failed is %d", n)
		}
	})
}

// A peer of revision 1 resets an enhanced Request, and the requester retries with revision 1.
func TestFallbackToRevision1(t *testing.T) {
	for _, clientServer := range []bool{false, true} {
		old := Config{NIC: engine.Config{MPA: mpa.Config{MaxRevision: 1}}}
		inWorld(t, later(func(_ *sim.Proc, d *Device) {
			e := newEnd(t, d)
			param := connParam
			param.PrivateData = []byte("old friend")
			c := must.Get(d.cm.Connect(e.QP, at(5), param, verbs.Forever))(t)
			if n := counter(d, "cm_fallbacks"); n != 1 {
				t.Errorf("%d fallbacks", n)
			}
			// Revision 1 does not negotiate depths: each side has the limits of its device.
			if p := c.Param(); p.ResponderResources != 128 || string(p.PrivateData) != "welcome" {
				t.Errorf("reply %+v", p)
			}
			e.Send(0, 100)
		}), func(_ *sim.Proc, d *Device) {
			e := newEnd(t, d)
			e.Recv(0, 100)
			l := listen(t, d, at(5))
			req := must.Get(l.GetRequest(verbs.Forever))(t)
			if got := string(req.Param().PrivateData); got != "old friend" {
				t.Errorf("private data %q", got)
			}
			must.Get(req.Accept(e.QP, verbs.ConnParam{PrivateData: []byte("welcome")}, verbs.Forever))(t)
			e.AwaitSuccess()
		}, Config{ClientServer: clientServer}, old)
	}
}

func TestDisconnectClosesBothSidesGracefully(t *testing.T) {
	inWorld(t, later(func(p *sim.Proc, d *Device) {
		e, c := connectTo(t, d, at(7))
		e.Recv(0, 8)
		// Requests posted before Disconnect complete.
		for range 10 {
			e.Send(0, 60_000)
		}
		must.Do(t, c.Disconnect())
		must.Do(t, c.Disconnect()) // again, without effect
		must.Fail(t, "send after Disconnect", e.TryPost(verbs.SendWR{Opcode: verbs.OpSend, SGL: e.SGL(0, 1)}), verbs.ErrInvalid, "not connected")
		must.Do(t, c.WaitDisconnect(verbs.Forever))
		for range 10 {
			e.AwaitSuccess()
		}
		if wc := e.ExpectWC(verbs.WCWRFlushErr); wc.VendorErr != 0 {
			t.Errorf("receive completed %+v", wc)
		}
		e.ExpectState(verbs.QPStateErr)
	}), func(_ *sim.Proc, d *Device) {
		e := newEnd(t, d)
		for range 11 {
			e.Recv(0, 60_000)
		}
		l := listen(t, d, at(7))
		c := e.AcceptFrom(l, connParam)
		for range 10 {
			e.AwaitSuccess()
		}
		e.ExpectWC(verbs.WCWRFlushErr)
		must.Do(t, c.WaitDisconnect(verbs.Forever))
		for _, name := range []string{"conns_failed", "sent_terminates", "mpa_lost"} {
			if n := counter(d, name); n != 0 {
				t.Errorf("%s is %d", name, n)
			}
		}
	})
}
