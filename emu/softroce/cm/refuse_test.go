package cm

import (
	"net/netip"
	"testing"

	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/internal/must"
)

func TestInvalidREQsAreRejected(t *testing.T) {
	header := func(m *wire.REQ) *byte { return &m.PrivateData[0] }
	for name, tc := range map[string]struct {
		change func(*wire.REQ)
		want   wire.REJReason
	}{
		"unknown service":           {func(m *wire.REQ) { m.ServiceID++ }, wire.ReasonInvalidServiceID},
		"no comm ID":                {func(m *wire.REQ) { m.LocalCommID = 0 }, wire.ReasonInvalidCommID},
		"RD":                        {func(m *wire.REQ) { m.Transport = wire.CMTransportRD }, wire.ReasonInvalidTransport},
		"extended transport 0":      {func(m *wire.REQ) { m.Transport = wire.CMTransportExt }, wire.ReasonInvalidTransport},
		"extended transport 2":      {func(m *wire.REQ) { m.Transport, m.ExtTransport = wire.CMTransportExt, 2 }, wire.ReasonInvalidTransport},
		"MTU 0":                     {func(m *wire.REQ) { m.MTU = 0 }, wire.ReasonInvalidMTU},
		"MTU 6":                     {func(m *wire.REQ) { m.MTU = 6 }, wire.ReasonInvalidMTU},
		"another GID":               {func(m *wire.REQ) { m.Primary.RemoteGID = wire.GIDOf(addrC) }, wire.ReasonPrimaryGID},
		"no local GID":              {func(m *wire.REQ) { m.Primary.LocalGID = wire.GID{} }, wire.ReasonPrimaryGID},
		"a GID of the other family": {func(m *wire.REQ) { m.Primary.LocalGID = wire.GIDOf(addrA6) }, wire.ReasonPrimaryGID},
		"a multicast GID":           {func(m *wire.REQ) { m.Primary.LocalGID = wire.GIDOf(netip.MustParseAddr("224.0.0.5")) }, wire.ReasonPrimaryGID},
		"another partition":         {func(m *wire.REQ) { m.PKey = 0x8001 }, wire.ReasonUnsupported},
		"header version":            {func(m *wire.REQ) { *header(m) = 1 }, wire.ReasonConsumer},
		"header version minor":      {func(m *wire.REQ) { *header(m) = 0x10 }, wire.ReasonConsumer},
		"header IP version 5":       {func(m *wire.REQ) { m.PrivateData[1] = 0x50 }, wire.ReasonConsumer},
		"header IP version 6":       {func(m *wire.REQ) { m.PrivateData[1] = 0x60 }, wire.ReasonConsumer},
		"header for another host":   {func(m *wire.REQ) { m.PrivateData[35]++ }, wire.ReasonConsumer},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, Config{}, Config{})
			m := newREQ()
			tc.change(m)
			w.inject(addrA, wire.AttrREQ, m)
			s := w.b.take(wire.AttrREJ)
			rej := rejOf(t, s)
			if rej.Reason != tc.want || rej.About != wire.AboutREQ || rej.LocalCommID != 0 || rej.RemoteCommID != m.LocalCommID || s.TID != injectTID {
				t.Errorf("REJ %+v, want reason %v", rej, tc.want)
			}
			if s.Local != addrB || s.Remote != addrA || s.PKey != 0xFFFF || s.HopLimit != 64 {
				t.Errorf("REJ is sent with %+v", s.Outgoing)
			}
			if own := wire.GIDOf(addrB); tc.want == wire.ReasonPrimaryGID && string(rej.AdditionalInfo()) != string(own[:]) {
				t.Errorf("info %x, want the GID to use", rej.AdditionalInfo())
			}
			w.b.noEvent()
			checkEmpty(t, w.b.Agent)
			if n := w.b.Counters().Refused; n != 1 {
				t.Errorf("refused %d, want 1", n)
			}
		})
	}
}

// The REJ for a closed port has the same bytes as that of Linux.
func TestREJOfClosedPortMatchesLinux(t *testing.T) {
	w := newWorld(t, Config{}, Config{})
	m := newREQ()
	m.ServiceID = wire.IPService(wire.PortSpaceTCP, 7999)
	w.inject(addrA, wire.AttrREQ, m)
	got := w.b.take(wire.AttrREJ).b
	if want := hexBytes(t, "010702030000000000000000000011220012000000000000000000000102030400000008"); string(got[:]) != string(want) {
		t.Errorf("REJ\n %x, Linux's\n %x", got, want)
	}
}

func TestUnusualREQsAreAccepted(t *testing.T) {
	for name, change := range map[string]func(*wire.REQ){
		"LIDs 0":               func(m *wire.REQ) { m.Primary.LocalLID, m.Primary.RemoteLID = 0, 0 },
		"other LIDs":           func(m *wire.REQ) { m.Primary.LocalLID, m.Primary.RemoteLID = 1, 0xBFFF },
		"UC":                   func(m *wire.REQ) { m.Transport = wire.CMTransportUC },
		"XRC":                  func(m *wire.REQ) { m.Transport, m.ExtTransport = wire.CMTransportExt, wire.ExtXRC },
		"limited member":       func(m *wire.REQ) { m.PKey = 0x7FFF },
		"MTU 5":                func(m *wire.REQ) { m.MTU = 5 },
		"any SL and hop limit": func(m *wire.REQ) { m.Primary.SL, m.Primary.HopLimit, m.Primary.SubnetLocal = 15, 0, true },
	} {
		w := newWorld(t, Config{}, Config{})
		m := newREQ()
		change(m)
		w.inject(addrA, wire.AttrREQ, m)
		w.b.sendsNothing()
		if e := w.b.event(EventRequest); e.Request.RemoteQPN != m.LocalQPN {
			t.Errorf("%s: request %+v", name, e.Request)
		}
	}
}

func TestLimitedMembersOfAPartitionCannotConnect(t *testing.T) {
	w := newWorld(t, Config{}, Config{PKeys: []uint16{0xFFFF, 0x0012}})
	for pkey, ok := range map[uint16]bool{0x8012: true, 0x0012: false, 0x0013: false, 0x7FFF: true} {
		m := newREQ()
		m.PKey = pkey
		m.LocalCommID += uint32(pkey)
		m.LocalQPN += uint32(pkey)
		w.inject(addrA, wire.AttrREQ, m)
		if ok {
			w.b.event(EventRequest)
		} else {
			w.b.take(wire.AttrREJ)
		}
	}
}

func TestREPDeclinesAlternatePath(t *testing.T) {
	w := newWorld(t, Config{}, Config{})
	m := newREQ()
	m.Alternate = m.Primary
	m.Alternate.LocalGID = wire.GIDOf(addrC)
	w.inject(addrA, wire.AttrREQ, m)
	must.Do(t, w.b.Accept(w.now, w.b.event(EventRequest).Conn, answer))
	var rep wire.REP
	if _, err := rep.Parse(w.b.take(wire.AttrREP).body()); err != nil || rep.Failover != wire.FailoverUnsupported {
		t.Errorf("failover answer %d, want %d", rep.Failover, wire.FailoverUnsupported)
	}
}

func TestLAPIsAnsweredNotSupported(t *testing.T) {
	w := newWorld(t, Config{}, Config{})
	ca, cb := w.established()
	w.inject(addrA, wire.AttrLAP, &wire.LAP{LocalCommID: uint32(ca), RemoteCommID: uint32(cb), RemoteQPN: answer.QPN})
	s := w.b.take(wire.AttrAPR)
	var apr wire.APR
	if _, err := apr.Parse(s.body()); err != nil || apr.Status != wire.APUnsupported || apr.LocalCommID != uint32(cb) || apr.RemoteCommID != uint32(ca) || s.TID != injectTID {
		t.Errorf("APR %+v", apr)
	}
	w.b.inState(cb, StateEstablished)
	w.deliver(s) // an APR without a LAP
	w.a.sendsNothing()
	w.a.noEvent()

	w = newWorld(t, Config{}, Config{})
	ca, cb = w.accepted()
	w.b.take(wire.AttrREP)
	w.inject(addrA, wire.AttrLAP, &wire.LAP{LocalCommID: uint32(ca), RemoteCommID: uint32(cb)})
	w.b.sendsNothing()
}

func TestInvalidMADHeadersAreIgnored(t *testing.T) {
	req := newREQ()
	for name, tc := range map[string]struct {
		change func(*wire.MADHeader)
		count  func(Counters) uint64
		answer wire.Attr
	}{
		"base version":        {func(h *wire.MADHeader) { h.BaseVersion = 2 }, func(c Counters) uint64 { return c.NotCM }, 0},
		"class":               {func(h *wire.MADHeader) { h.Class = 3 }, func(c Counters) uint64 { return c.NotCM }, 0},
		"method":              {func(h *wire.MADHeader) { h.Method = 0x81 }, func(c Counters) uint64 { return c.BadMethod }, 0},
		"attribute":           {func(h *wire.MADHeader) { h.Attr = 0x1B }, func(c Counters) uint64 { return c.BadAttr }, 0},
		"class version":       {func(h *wire.MADHeader) { h.ClassVersion = 1 }, func(c Counters) uint64 { return c.BadVersion }, wire.AttrREJ},
		"class version, SIDR": {func(h *wire.MADHeader) { h.ClassVersion, h.Attr = 3, wire.AttrSIDRREQ }, func(c Counters) uint64 { return c.BadVersion }, wire.AttrSIDRREP},
		"class version, RTU":  {func(h *wire.MADHeader) { h.ClassVersion, h.Attr = 3, wire.AttrRTU }, func(c Counters) uint64 { return c.BadVersion }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, Config{}, Config{})
			h := wire.NewMADHeader(wire.AttrREQ, injectTID)
			tc.change(&h)
			w.injectRaw(addrA, h, req)
			if tc.answer != 0 {
				s := w.b.take(tc.answer)
				switch s.Attr {
				case wire.AttrREJ:
					if rej := rejOf(t, s); rej.Reason != wire.ReasonClassVersion || rej.RemoteCommID != req.LocalCommID || rej.About != wire.AboutREQ {
						t.Errorf("REJ %+v", rej)
					}
				case wire.AttrSIDRREP:
					var m wire.SIDRREP
					if _, err := m.Parse(s.body()); err != nil || m.Status != wire.SIDRUnsupportedVersion || m.RequestID != req.LocalCommID {
						t.Errorf("SIDR_REP %+v", m)
					}
				}
				if s.ClassVersion != wire.ClassVersionCM {
					t.Errorf("answered in class version %d", s.ClassVersion)
				}
			}
			w.b.sendsNothing()
			w.b.noEvent()
			if tc.count(w.b.Counters()) != 1 {
				t.Errorf("not counted: %+v", w.b.Counters())
			}
		})
	}
}

func TestInvalidAddressesAreIgnored(t *testing.T) {
	w := newWorld(t, Config{}, Config{})
	b := newREQ().Append(wire.NewMADHeader(wire.AttrREQ, 1).Append(nil))
	for n := range wire.MADLen + 8 {
		if n != wire.MADLen {
			w.b.HandleMAD(w.now, addrA, addrB, 0xFFFF, append(b, make([]byte, 8)...)[:n])
		}
	}
	for _, fromTo := range [][2]netip.Addr{
		{{}, addrB}, {addrA, {}}, {addrA6, addrB}, {netip.IPv4Unspecified(), addrB}, {addrA, netip.MustParseAddr("ff02::1")},
	} {
		w.b.HandleMAD(w.now, fromTo[0], fromTo[1], 0xFFFF, b)
	}
	if c := w.b.Counters(); c.BadLength != wire.MADLen+7 || c.BadAddress != 5 {
		t.Errorf("counters %+v", c)
	}
	w.b.sendsNothing()
	checkEmpty(t, w.b.Agent)

	// Addresses with zones and IPv4-mapped addresses denote the same GID.
	w.b.HandleMAD(w.now, netip.AddrFrom16(addrA.As16()), netip.AddrFrom16(addrB.As16()), 0xFFFF, b)
	w.b.event(EventRequest)
}
