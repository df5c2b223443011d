package softiwarp

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/emu/softiwarp/engine"
	"github.com/fabrictest/fabrictest/emu/softiwarp/mpa"
	"github.com/fabrictest/fabrictest/verbs"
)

// program runs on one device of a simulated world.
type program func(p *sim.Proc, d *Device) error

// inWorld runs one program on each of two devices.
func inWorld(t *testing.T, onA, onB program, cfgs ...Config) {
	t.Helper()
	w, a, b := pairInWorld(t, 1, sim.NetConfig{}, cfgs...)
	w.Go("a", func(p *sim.Proc) error { return onA(p, a) })
	w.Go("b", func(p *sim.Proc) error { return onB(p, b) })
	if err := w.RunPrograms(); err != nil {
		t.Fatal(err)
	}
}

func idle(*sim.Proc, *Device) error { return nil }

// later gives the other program time to listen.
func later(f program) program {
	return func(p *sim.Proc, d *Device) error {
		p.Sleep(time.Millisecond)
		return f(p, d)
	}
}

func at(port uint16) netip.AddrPort { return netip.AddrPortFrom(addrB, port) }

// refused checks that err is of the given kind and contains the given texts.
func refused(t *testing.T, what string, err, kind error, says ...string) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Errorf("%s: %v, want %v", what, err, kind)
		return
	}
	for _, s := range says {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("%s: %q does not say %q", what, err, s)
		}
	}
}

func TestTimeoutsAreInVirtualTime(t *testing.T) {
	inWorld(t, func(p *sim.Proc, d *Device) error {
		e, err := newEnd(d)
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
	w, a, _ := pairInWorld(t, 1, sim.NetConfig{})
	w.Go("rank 0", func(*sim.Proc) error {
		l, err := a.cm.Listen(netip.AddrPortFrom(addrA, 5), verbs.PortSpaceTCP, 0)
		if err != nil {
			return err
		}
		_, err = l.GetRequest(verbs.Forever)
		return err
	})
	err := w.Run()
	var dead *sim.DeadlockError
	if !errors.As(err, &dead) || len(dead.Waiting) != 1 || dead.Waiting[0].Reason != "connection request to [fd00::1]:5" {
		t.Fatalf("got %v", err)
	}
}

func TestUnsupportedVerbs(t *testing.T) {
	inWorld(t, func(_ *sim.Proc, d *Device) error {
		e, err := newEnd(d)
		if err != nil {
			return err
		}
		attr, err := d.QueryDevice()
		if err != nil {
			return err
		}
		for _, cap := range []verbs.Caps{verbs.CapUC, verbs.CapUD, verbs.CapXRC, verbs.CapMulticast, verbs.CapFlush, verbs.CapAtomicWrite, verbs.CapCredits} {
			if attr.Caps.Has(cap) {
				t.Errorf("claims %#x", uint64(cap))
			}
		}
		for _, typ := range []verbs.QPType{verbs.QPTypeUC, verbs.QPTypeUD, verbs.QPTypeXRCSend, verbs.QPTypeXRCRecv} {
			_, err := d.CreateQP(verbs.QPInit{Type: typ, PD: e.pd, SendCQ: e.cq, RecvCQ: e.cq})
			refused(t, typ.String(), err, verbs.ErrNotSupported, "create_qp")
		}
		_, err = d.OpenXRCD()
		refused(t, "XRC domain", err, verbs.ErrNotSupported, "no XRC")
		_, err = d.OpenQP(nil, 1)
		refused(t, "XRC target", err, verbs.ErrNotSupported)
		_, err = d.CreateSRQ(verbs.SRQInit{PD: e.pd, Type: verbs.SRQXRC, MaxWR: 1})
		refused(t, "XRC SRQ", err, verbs.ErrNotSupported)
		refused(t, "attach", e.qp.AttachMulticast(verbs.GID{}), verbs.ErrNotSupported, "no multicast")
		refused(t, "detach", e.qp.DetachMulticast(verbs.GID{}), verbs.ErrNotSupported, "no multicast")
		_, err = e.pd.CreateAH(verbs.AHAttr{})
		refused(t, "address handle", err, verbs.ErrNotSupported)
		err = e.qp.Modify(verbs.QPAttr{State: verbs.QPStateRTS}, verbs.QPAttrState)
		refused(t, "RTS by hand", err, verbs.ErrInvalid, "connect or accept")
		_, err = d.QueryGID(1, 5)
		refused(t, "GID", err, verbs.ErrNotFound, "entry 5 of a table of 1")
		_, err = d.QueryPKey(1, 1)
		refused(t, "partition key", err, verbs.ErrNotFound)
		_, err = d.QueryPort(2)
		refused(t, "port", err, verbs.ErrInvalid, "only port 1")
		return nil
	}, idle)
}

func TestQueries(t *testing.T) {
	_, a, _ := pairInWorld(t, 1, sim.NetConfig{})
	var p Provider
	p.Add("a", func() (*Device, error) { return a, nil })
	p.Add("broken", func() (*Device, error) { return nil, link.ErrClosed })
	list, err := p.Devices()
	if err != nil || len(list) != 2 || list[0].Transport != verbs.TransportIWARP || p.Name() != "softiwarp" {
		t.Errorf("devices %+v, %v", list, err)
	}
	if c, err := p.Open("a"); err != nil || c.Info().Name != "a" || c.Info().Provider != "softiwarp" || c.Info().GUID>>56 != 2 {
		t.Errorf("opened %v, %v", c, err)
	}
	_, err = p.Open("broken")
	refused(t, "broken device", err, link.ErrClosed, "open_device broken")
	_, err = p.Open("c")
	refused(t, "unknown device", err, verbs.ErrNotFound, "among 2 devices")
	port, err := a.QueryPort(1)
	if err != nil || port.State != verbs.PortActive || port.ActiveMTU != verbs.MTU4096 || port.GIDs != 1 {
		t.Errorf("port %+v, %v", port, err)
	}
	if key, err := a.QueryPKey(1, 0); err != nil || key != 0xffff {
		t.Errorf("partition key %#x, %v", key, err)
	}
	w := sim.New(sim.Config{})
	pa, _, err := sim.NewPair(w, sim.NetConfig{}, sim.PortConfig{Addrs: []netip.Addr{addrA}}, sim.PortConfig{Addrs: []netip.Addr{addrB}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = InWorld(w, pa, pa.StreamHost(), Config{NIC: engine.Config{MPA: mpa.Config{MaxRevision: 3}}})
	refused(t, "revision 3", err, engine.ErrConfig, "MaxRevision 3")
	_, err = open(Config{}, pa.StreamHost(), 0, nil)
	refused(t, "no address", err, errNoAddress, "Config.Addrs")
}
