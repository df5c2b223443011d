package softiwarp

import (
	"net/netip"
	"testing"
	"time"

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

// later gives the other program time to listen.
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
		must.Fail(t, "RTS by hand", err, verbs.ErrInvalid, "connect or accept")
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
	must.Fail(t, "no address", err, errNoAddress, "Config.Addrs")
}
