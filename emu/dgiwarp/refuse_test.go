package dgiwarp

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/engine"
	"github.com/fabrictest/fabrictest/emu/dgiwarp/rd"
	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/link/udplink"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// Verbs that the protocol does not support return errors that name the reason.
func TestUnsupportedAndInvalidVerbs(t *testing.T) {
	_, a, b := pairInWorld(t, 1, impair.Config{})
	e, other := newEnd(t, a, unreliable), newEnd(t, b, unreliable)
	qp := func(edit func(*verbs.QPInit)) error {
		in := verbs.QPInit{Type: verbs.QPTypeUD, PD: e.PD, SendCQ: e.CQ, RecvCQ: e.CQ, Caps: verbs.QPCaps{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}}
		edit(&in)
		_, err := a.CreateQP(in)
		return err
	}
	foreign := must.Get(other.PD.CreateAH(AddressOf(addrPort("fd00::1", 0))))(t)
	for _, c := range []struct {
		name string
		err  error
		is   error
		says string
	}{
		{name: "a connection manager", err: must.Err(a.CM()), is: verbs.ErrNotSupported, says: "AddressOf"},
		{name: "an XRC domain", err: must.Err(a.OpenXRCD()), is: verbs.ErrNotSupported, says: "XRC"},
		{name: "an XRC target", err: must.Err(a.OpenQP(nil, 1)), is: verbs.ErrNotSupported, says: "XRC"},
		{name: "an XRC SRQ", err: must.Err(a.CreateSRQ(verbs.SRQInit{Type: verbs.SRQXRC})), is: verbs.ErrNotSupported, says: "XRC"},
		{name: "RC", err: qp(func(in *verbs.QPInit) { in.Type = verbs.QPTypeRC }), is: verbs.ErrNotSupported, says: "for the RD service too"},
		{name: "another device's CQ", err: qp(func(in *verbs.QPInit) { in.SendCQ = other.CQ }), is: verbs.ErrInvalid, says: "send CQ"},
		{name: "a flow label that is not a port", err: must.Err(e.PD.CreateAH(verbs.AHAttr{Port: 1, GRH: verbs.GRH{DGID: verbs.GIDFrom(addrB), FlowLabel: 1 << 16}})), is: verbs.ErrInvalid, says: "UDP port"},
		{name: "the other IP version", err: must.Err(e.PD.CreateAH(AddressOf(addrPort("10.0.0.1", 0)))), is: verbs.ErrInvalid, says: "IP versions"},
		{name: "port 2", err: must.Err(a.QueryPort(2)), is: verbs.ErrInvalid, says: "port 2"},
		{name: "GID 1", err: must.Err(a.QueryGID(1, 1)), is: verbs.ErrNotFound, says: "entry 1"},
		{name: "another device's address", err: must.Err(e.QP.PostSend([]verbs.SendWR{{Opcode: verbs.OpSend, UD: verbs.UD{AH: foreign}}})), is: verbs.ErrInvalid, says: "address handle"},
		{name: "no address", err: must.Err(e.QP.PostSend([]verbs.SendWR{{Opcode: verbs.OpSend}})), is: verbs.ErrInvalid, says: "address handle"},
	} {
		must.Fail(t, c.name, c.err, c.is, c.says)
	}
	if _, ok := LastError(nil); ok {
		t.Error("LastError(nil) reports an error")
	}
}

func TestConfigErrors(t *testing.T) {
	for says, open := range map[string]func() (*Device, error){
		"one address, not 0": func() (*Device, error) { return OnUDP(udplink.Config{}, Config{}) },
		"one address, not 2": func() (*Device, error) { return OnUDP(udplink.Config{}, Config{Addrs: []netip.Addr{addrA, addrB}}) },
		"Config.Addrs":       func() (*Device, error) { return OnLink(nil, Config{}) },
		"carries no packets of": func() (*Device, error) {
			return OnLink(nil, Config{Addrs: []netip.Addr{addrA}, NIC: engine.Config{LinkMTU: 400}})
		},
		"257 segments per peer": func() (*Device, error) {
			return OnLink(nil, Config{Addrs: []netip.Addr{addrA}, NIC: engine.Config{LinkMTU: 1500, RD: rd.Limits{PeerSegments: 257}}})
		},
	} {
		if _, err := open(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("want %q: %v", says, err)
		}
	}
}

// The attributes of a device depend on the service of its queue pairs.
func TestQueryDevice(t *testing.T) {
	for _, opt := range []QPOptions{unreliable, reliable} {
		_, ds := netInWorld(t, 1, 1, impair.Config{}, Config{QP: opt})
		a, err := ds[0].QueryDevice()
		if err != nil || a.Caps.Has(verbs.CapAtomics) != opt.Reliable || a.Caps.Has(verbs.CapMulticast) == opt.Reliable || a.Caps.Has(verbs.CapCM) || !a.Caps.Has(verbs.CapUD) {
			t.Errorf("%+v: %+v, %v", opt, a, err)
		}
		p, err := ds[0].QueryPort(1)
		if err != nil || (p.MaxMsg == engine.MaxUDSend) == opt.Reliable || p.ActiveMTU != verbs.MTU1024 || p.State != verbs.PortActive {
			t.Errorf("%+v: %+v, %v", opt, p, err)
		}
		e := newEnd(t, ds[0], opt)
		if q, err := ds[0].CreateQP(verbs.QPInit{Type: verbs.QPTypeUD, PD: e.PD, SendCQ: e.CQ, RecvCQ: e.CQ}); err != nil || overRD(q) != opt.Reliable {
			t.Errorf("%+v: reliable queue pair: %v, %v", opt, overRD(q), err)
		}
	}
}

func TestDissector(t *testing.T) {
	k := wire.Packet{Header: wire.NewHeader(wire.KindRD, 0x11, 0x12, 1), Data: wire.Data{Epoch: 3, Seq: 7}, ULPDU: []byte("12345678")}
	k.Flags = wire.FlagData
	b := k.Append(nil)
	if flow, seq, ok := (Dissector{}).Dissect(b); !ok || flow != 0x11 || seq != 7 {
		t.Errorf("flow %#x, number %d, %v", flow, seq, ok)
	}
	if _, _, ok := (Dissector{}).Dissect(b[:10]); ok {
		t.Error("part of a header was accepted as a packet")
	}
	for field, value := range map[string]uint64{"kind": 3, "flags": 0x40, "destqp": 0x77, "srcqp": 0x78, "key": 0x79} {
		d := link.Datagram{Payload: append([]byte(nil), b...)}
		if err := (Dissector{}).SetField(&d, field, value); err != nil || !wire.CheckCRC(d.Payload) || string(d.Payload) == string(b) {
			t.Errorf("%s: %v, intact %v", field, err, wire.CheckCRC(d.Payload))
		}
		var h wire.Header
		must.Get(h.Parse(d.Payload))(t)
		if got := map[string]uint64{"kind": uint64(h.Kind), "flags": uint64(h.Flags), "destqp": uint64(h.DstQP), "srcqp": uint64(h.SrcQP), "key": uint64(h.Key)}[field]; got != value {
			t.Errorf("%s is %#x, not %#x", field, got, value)
		}
		if err := (Dissector{}).SetField(&d, field, 1<<40); err == nil {
			t.Errorf("%s accepted a number of 41 bits", field)
		}
	}
	if err := (Dissector{}).SetField(&link.Datagram{Payload: b}, "colour", 1); err == nil || !strings.Contains(err.Error(), "destqp") {
		t.Error(err)
	}
}
