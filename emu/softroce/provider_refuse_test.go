package softroce

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/verbs"
)

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

func TestErrorsNameForeignObjects(t *testing.T) {
	_, d, other := pairInWorld(t, 1, impair.Config{})
	mine, err := newEnd(d, verbs.QPTypeRC)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := newEnd(other, verbs.QPTypeRC)
	if err != nil {
		t.Fatal(err)
	}
	domain, err := other.OpenXRCD()
	if err != nil {
		t.Fatal(err)
	}
	queue, err := other.CreateSRQ(verbs.SRQInit{PD: theirs.pd, MaxWR: 1})
	if err != nil {
		t.Fatal(err)
	}
	good := verbs.QPInit{Type: verbs.QPTypeRC, PD: mine.pd, SendCQ: mine.cq, RecvCQ: mine.cq}
	for _, tc := range []struct {
		name   string
		change func(*verbs.QPInit)
	}{
		{"PD", func(in *verbs.QPInit) { in.PD = theirs.pd }},
		{"XRC domain", func(in *verbs.QPInit) { in.XRCD = domain }},
		{"send CQ", func(in *verbs.QPInit) { in.SendCQ = theirs.cq }},
		{"receive CQ", func(in *verbs.QPInit) { in.RecvCQ = theirs.cq }},
		{"SRQ", func(in *verbs.QPInit) { in.SRQ = queue }},
	} {
		in := good
		tc.change(&in)
		_, err := d.CreateQP(in)
		refused(t, tc.name, err, verbs.ErrInvalid, "create_qp", "the "+tc.name+" belongs to another device")
	}
	for _, tc := range []struct {
		name string
		in   verbs.SRQInit
	}{
		{"PD", verbs.SRQInit{PD: theirs.pd, MaxWR: 1}},
		{"XRC domain", verbs.SRQInit{PD: mine.pd, MaxWR: 1, XRCD: domain}},
		{"CQ", verbs.SRQInit{PD: mine.pd, MaxWR: 1, CQ: theirs.cq}},
	} {
		_, err := d.CreateSRQ(tc.in)
		refused(t, tc.name, err, verbs.ErrInvalid, "create_srq", "the "+tc.name+" belongs to another device")
	}
	_, err = d.OpenQP(nil, 1)
	refused(t, "no domain", err, verbs.ErrInvalid, "no XRC domain is given")
}

func TestErrorsSayHowToFixThem(t *testing.T) {
	_, d, _ := pairInWorld(t, 1, impair.Config{})
	e, err := newEnd(d, verbs.QPTypeRC)
	if err != nil {
		t.Fatal(err)
	}
	w, err := e.pd.AllocMW(verbs.MWType2)
	if err != nil {
		t.Fatal(err)
	}
	_, err = e.qp.BindMW(w, 1, 0, verbs.BindInfo{MR: e.mr})
	refused(t, "type 2 window", err, verbs.ErrInvalid, "posting OpBindMW")
	_, err = d.QueryGID(1, 5)
	refused(t, "GID", err, verbs.ErrNotFound, "entry 5 of a table of 1")
	_, err = d.QueryPKey(1, -1)
	refused(t, "partition key", err, verbs.ErrNotFound, "entry -1 of a table of 1")
	_, err = d.QueryPort(2)
	refused(t, "port", err, verbs.ErrInvalid, "port 2", "only port 1")
}

// stubborn is a link whose groups can be made to refuse.
type stubborn struct {
	*sim.Port
	refuse error
}

func (l *stubborn) Join(g netip.Addr) error {
	if l.refuse != nil {
		return l.refuse
	}
	return l.Port.Join(g)
}

func (l *stubborn) Leave(g netip.Addr) error {
	if l.refuse != nil {
		return l.refuse
	}
	return l.Port.Leave(g)
}

// datagramQP makes a device on the link that wrap makes of a port, and a UD QP.
func datagramQP(t *testing.T, wrap func(*sim.Port) link.PacketLink) (*Device, *end) {
	t.Helper()
	w := sim.New(sim.Config{Seed: 1})
	cfg := sim.PortConfig{Addrs: []netip.Addr{addrA}, Link: sim.LinkConfig{MTU: 4200}}
	other := cfg
	other.Addrs = []netip.Addr{addrB}
	port, _, err := sim.NewPair(w, sim.NetConfig{}, cfg, other)
	if err != nil {
		t.Fatal(err)
	}
	d, err := InWorld(w, port, wrap(port), Config{})
	if err != nil {
		t.Fatal(err)
	}
	e, err := newEnd(d, verbs.QPTypeUD)
	if err != nil {
		t.Fatal(err)
	}
	return d, e
}

var group = verbs.GIDFrom(netip.MustParseAddr("ff0e::1"))

func TestFailedMulticastAttachChangesNothing(t *testing.T) {
	l := &stubborn{}
	_, e := datagramQP(t, func(p *sim.Port) link.PacketLink { l.Port = p; return l })
	l.refuse = errors.New("no more groups")
	refused(t, "attach", e.qp.AttachMulticast(group), l.refuse, "attach_mcast")
	refused(t, "detach of what was never attached", e.qp.DetachMulticast(group), verbs.ErrInvalid)

	l.refuse = nil
	for range 2 { // the second changes nothing: one detach undoes both
		if err := e.qp.AttachMulticast(group); err != nil {
			t.Fatal(err)
		}
	}
	l.refuse = errors.New("busy")
	refused(t, "detach", e.qp.DetachMulticast(group), l.refuse, "detach_mcast")
	refused(t, "close of a member", e.qp.Close(), verbs.ErrBusy)
	l.refuse = nil
	if err := e.qp.DetachMulticast(group); err != nil {
		t.Errorf("detach after one that failed: %v", err)
	}
	refused(t, "detach again", e.qp.DetachMulticast(group), verbs.ErrInvalid)
	if err := e.qp.Close(); err != nil {
		t.Error(err)
	}
	if err := l.Port.Leave(group.Addr()); err == nil {
		t.Error("the port is still in the group")
	}
}

func TestMulticastNeedsGroupLink(t *testing.T) {
	_, e := datagramQP(t, func(p *sim.Port) link.PacketLink { return struct{ link.PacketLink }{p} })
	refused(t, "attach", e.qp.AttachMulticast(group), verbs.ErrNotSupported, "link has no multicast groups")
}
