package softiwarp

import (
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/internal/device"
	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/emu/providertest"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/emu/softiwarp/engine"
	"github.com/fabrictest/fabrictest/emu/softiwarp/mpa"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// program runs on one device of a simulated world.
type program func(p *sim.Proc, d *Device)

// inWorld runs one program on each of two devices.
func inWorld(t *testing.T, onA, onB program, cfgs ...Config) {
	t.Helper()
	w, a, b := pairInWorld(t, 1, sim.NetConfig{}, cfgs...)
	w.Go("a", func(p *sim.Proc) error { onA(p, a); return nil })
	w.Go("b", func(p *sim.Proc) error { onB(p, b); return nil })
	must.Do(t, w.RunPrograms())
}

func idle(*sim.Proc, *Device) {}

// later delays a program, so that the other program listens first.
func later(f program) program {
	return func(p *sim.Proc, d *Device) {
		p.Sleep(time.Millisecond)
		f(p, d)
	}
}

func at(port uint16) netip.AddrPort { return netip.AddrPortFrom(addrB, port) }

func TestUnsupportedVerbs(t *testing.T) {
	inWorld(t, func(_ *sim.Proc, d *Device) {
		e := newEnd(t, d)
		attr := must.Get(d.QueryDevice())(t)
		for _, cap := range []verbs.Caps{verbs.CapUC, verbs.CapUD, verbs.CapXRC, verbs.CapMulticast, verbs.CapFlush, verbs.CapAtomicWrite, verbs.CapCredits} {
			if attr.Caps.Has(cap) {
				t.Errorf("claims %#x", uint64(cap))
			}
		}
		for _, typ := range []verbs.QPType{verbs.QPTypeUC, verbs.QPTypeUD, verbs.QPTypeXRCSend, verbs.QPTypeXRCRecv} {
			_, err := d.CreateQP(verbs.QPInit{Type: typ, PD: e.PD, SendCQ: e.CQ, RecvCQ: e.CQ})
			must.Fail(t, typ.String(), err, verbs.ErrNotSupported, "create_qp")
		}
		_, err := d.OpenXRCD()
		must.Fail(t, "XRC domain", err, verbs.ErrNotSupported, "no XRC")
		_, err = d.OpenQP(nil, 1)
		must.Fail(t, "XRC target", err, verbs.ErrNotSupported)
		_, err = d.CreateSRQ(verbs.SRQInit{PD: e.PD, Type: verbs.SRQXRC, MaxWR: 1})
		must.Fail(t, "XRC SRQ", err, verbs.ErrNotSupported)
		must.Fail(t, "attach", e.QP.AttachMulticast(verbs.GID{}), verbs.ErrNotSupported, "no multicast")
		must.Fail(t, "detach", e.QP.DetachMulticast(verbs.GID{}), verbs.ErrNotSupported, "no multicast")
		_, err = e.PD.CreateAH(verbs.AHAttr{})
		must.Fail(t, "address handle", err, verbs.ErrNotSupported)
		err = e.QP.Modify(verbs.QPAttr{State: verbs.QPStateRTS}, verbs.QPAttrState)
		must.Fail(t, "modify to RTS", err, verbs.ErrInvalid, "connect or accept")
		_, err = d.QueryGID(1, 5)
		must.Fail(t, "GID", err, verbs.ErrNotFound, "entry 5 of a table of 1")
		_, err = d.QueryPKey(1, 1)
		must.Fail(t, "partition key", err, verbs.ErrNotFound)
		_, err = d.QueryPort(2)
		must.Fail(t, "port", err, verbs.ErrInvalid, "only port 1")
	}, idle)
}

func TestQueries(t *testing.T) {
	_, a, _ := pairInWorld(t, 1, sim.NetConfig{})
	port, err := a.QueryPort(1)
	if err != nil || port.State != verbs.PortActive || port.ActiveMTU != verbs.MTU4096 || port.GIDs != 1 {
		t.Errorf("port %+v, %v", port, err)
	}
	if key, err := a.QueryPKey(1, 0); err != nil || key != 0xffff {
		t.Errorf("partition key %#x, %v", key, err)
	}
	if guid := a.Info().GUID; guid>>56 != 2 {
		t.Errorf("GUID %#x", guid)
	}
	w, ports := providertest.Cable{}.Open(t)
	pa := ports[0]
	_, err = InWorld(w, pa, pa.StreamHost(), Config{NIC: engine.Config{MPA: mpa.Config{MaxRevision: 3}}})
	must.Fail(t, "revision 3", err, engine.ErrConfig, "MaxRevision 3")
	_, err = open(Config{}, pa.StreamHost(), 0, nil)
	must.Fail(t, "no address", err, device.ErrNoAddress, "Config.Addrs")
}

// A bit error that lengthens ULPDU_Length makes the receiver wait for octets that the sender does
// not send: it checks the CRC only when the frame is complete. More octets, a close by either side
// or a timeout end the wait. The receiver never places data of the frame.
func TestLengthenedULPDULengthTimesOut(t *testing.T) {
	// The first send follows the Request and the RTR, and begins with its length.
	const first = wire.StartFrameLen + wire.EnhancedLen + 20
	corrupted := sim.NetConfig{Stream: sim.StreamConfig{Events: []sim.StreamEvent{
		{Conn: 1, Offset: first, Action: sim.StreamCorrupt, Bit: 2}, // 1024 octets more
	}}}
	const limit = 2 * time.Second
	crcError := engine.VendorError(wire.TermMPACRC, false)
	closed := engine.VendorError(wire.TermMPAClosed, false)
	for name, tc := range map[string]struct {
		cfg    engine.Config
		then   func(c *connectedPair)
		vendor uint32 // of the receive that is flushed
		within time.Duration
		count  string
	}{
		"more octets": {then: func(c *connectedPair) {
			for range 20 {
				c.a.Send(0, 64)
			}
		}, vendor: crcError, within: time.Second, count: "mpa_bad_crcs"},
		"the sender closes":   {then: func(c *connectedPair) { must.Do(c, c.ca.Disconnect()) }, vendor: closed, within: time.Second, count: "mpa_truncated"},
		"the receiver closes": {then: func(c *connectedPair) { must.Do(c, c.cb.Disconnect()) }, vendor: closed, within: time.Second, count: "mpa_truncated"},
		"FPDUTimeout":         {cfg: engine.Config{MPA: mpa.Config{FPDUTimeout: limit}}, then: func(*connectedPair) {}, vendor: closed, within: limit + time.Second, count: "mpa_timeouts"},
	} {
		t.Run(name, func(t *testing.T) {
			onConnectedPair(t, corrupted, func(c *connectedPair) {
				c.b.Recv(0, 64)
				c.a.Do(verbs.SendWR{Opcode: verbs.OpSend, SGL: c.a.SGL(0, 64)})
				// The send has completed, because TCP has buffered it. The receive has not.
				began := c.p.Now()
				if tc.cfg.MPA.FPDUTimeout == 0 {
					c.p.Sleep(100 * time.Second)
					began = c.p.Now()
				}
				var wc [1]verbs.WC
				if n, err := c.b.CQ.Poll(wc[:]); n != 0 || err != nil {
					c.Fatalf("%d receives completed, %v", n, err)
				}
				tc.then(c)
				must.Do(c, c.cb.WaitDisconnect(time.Minute))
				if took := c.p.Now() - began; took > tc.within {
					t.Errorf("disconnected after %v", took)
				}
				if got := c.b.ExpectWC(verbs.WCWRFlushErr); got.VendorErr != tc.vendor {
					t.Errorf("flushed for %#x, want %#x", got.VendorErr, tc.vendor)
				}
				if n := counter(c.b.Dev.(*Device), tc.count); n != 1 {
					t.Errorf("%s is %d", tc.count, n)
				}
				for i, v := range c.b.Buf[:64] {
					if v != 0 {
						t.Fatalf("octet %d of the corrupted frame was placed", i)
					}
				}
			}, Config{}, Config{NIC: tc.cfg})
		})
	}
}

// The receiver detects a shortened length at once.
func TestShortenedULPDULengthIsDetectedAtOnce(t *testing.T) {
	const first = wire.StartFrameLen + wire.EnhancedLen + 20
	onConnectedPair(t, sim.NetConfig{Stream: sim.StreamConfig{Events: []sim.StreamEvent{
		{Conn: 1, Offset: first + 1, Action: sim.StreamCorrupt, Bit: 4}, // 18+64 is 0x52
	}}}, func(c *connectedPair) {
		c.b.Recv(0, 64)
		c.a.Send(0, 64)
		if got := c.b.ExpectWC(verbs.WCWRFlushErr); got.VendorErr != engine.VendorError(wire.TermMPACRC, false) {
			t.Errorf("flushed for %#x", got.VendorErr)
		}
	})
}
