package softroce

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/providertest"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

func TestXRCObjectsOfAnotherDeviceAreRejected(t *testing.T) {
	_, d, other := pairInWorld(t, 1, impair.Config{})
	mine, theirs := newEnd(t, d), newEnd(t, other)
	domain := must.Get(other.OpenXRCD())(t)
	in := mine.QPInit(verbs.QPTypeRC)
	in.XRCD = domain
	_, err := d.CreateQP(in)
	must.Fail(t, "QP", err, verbs.ErrInvalid, "create_qp", "the XRC domain belongs to another device")
	_, err = d.CreateSRQ(verbs.SRQInit{PD: mine.PD, MaxWR: 1, XRCD: domain})
	must.Fail(t, "SRQ", err, verbs.ErrInvalid, "create_srq", "the XRC domain belongs to another device")
	_, err = d.CreateSRQ(verbs.SRQInit{PD: mine.PD, MaxWR: 1, CQ: theirs.CQ})
	must.Fail(t, "SRQ", err, verbs.ErrInvalid, "create_srq", "the CQ belongs to another device")
	_, err = d.OpenQP(nil, 1)
	must.Fail(t, "no domain", err, verbs.ErrInvalid, "no XRC domain is given")
}

func TestConnectRefusesQPsThatAreNotConnected(t *testing.T) {
	_, d, _ := pairInWorld(t, 1, impair.Config{})
	for _, kind := range []verbs.QPType{verbs.QPTypeUD, verbs.QPTypeXRCSend} {
		qp := must.Get(d.CreateQP(newEnd(t, d).QPInit(kind)))(t)
		_, err := providertest.CM(t, d).Connect(qp, netip.MustParseAddrPort("10.0.0.2:7"), verbs.ConnParam{}, time.Second)
		must.Fail(t, kind.String(), err, verbs.ErrNotSupported, "connect", kind.String())
	}
}

func TestErrorsNameInvalidArgument(t *testing.T) {
	_, d, _ := pairInWorld(t, 1, impair.Config{})
	e := newEnd(t, d)
	w := must.Get(e.PD.AllocMW(verbs.MWType2))(t)
	_, err := e.QP.BindMW(w, 1, 0, verbs.BindInfo{MR: e.MR})
	must.Fail(t, "type 2 window", err, verbs.ErrInvalid, "posting OpBindMW")
	_, err = d.QueryGID(1, 5)
	must.Fail(t, "GID", err, verbs.ErrNotFound, "entry 5 of a table of 1")
	_, err = d.QueryPKey(1, -1)
	must.Fail(t, "partition key", err, verbs.ErrNotFound, "entry -1 of a table of 1")
	_, err = d.QueryPort(2)
	must.Fail(t, "port", err, verbs.ErrInvalid, "port 2", "only port 1")
}

// groupLink is a link whose Join and Leave fail with err if it is set.
type groupLink struct {
	*sim.Port
	err error
}

func (l *groupLink) Join(g netip.Addr) error {
	if l.err != nil {
		return l.err
	}
	return l.Port.Join(g)
}

func (l *groupLink) Leave(g netip.Addr) error {
	if l.err != nil {
		return l.err
	}
	return l.Port.Leave(g)
}

// newUDEnd opens a device on the link that wrap returns for a port, with a UD QP.
func newUDEnd(t *testing.T, wrap func(*sim.Port) link.PacketLink) *end {
	t.Helper()
	w, ports := providertest.Cable{Seed: 1}.Open(t)
	return providertest.NewEnd(t, openOn(t, w, ports[0], wrap(ports[0]), Config{}), verbs.QPTypeUD)
}

var group = verbs.GIDFrom(netip.MustParseAddr("ff0e::1"))

func TestFailedMulticastAttachChangesNothing(t *testing.T) {
	l := &groupLink{}
	e := newUDEnd(t, func(p *sim.Port) link.PacketLink { l.Port = p; return l })
	l.err = errors.New("no more groups")
	must.Fail(t, "attach", e.QP.AttachMulticast(group), l.err, "attach_mcast")
	must.Fail(t, "detach without attach", e.QP.DetachMulticast(group), verbs.ErrInvalid)

	l.err = nil
	for range 2 { // the second has no effect: one detach suffices
		must.Do(t, e.QP.AttachMulticast(group))
	}
	l.err = errors.New("busy")
	must.Fail(t, "detach", e.QP.DetachMulticast(group), l.err, "detach_mcast")
	must.Fail(t, "close of a member", e.QP.Close(), verbs.ErrBusy)
	l.err = nil
	must.Do(t, e.QP.DetachMulticast(group))
	must.Fail(t, "detach again", e.QP.DetachMulticast(group), verbs.ErrInvalid)
	must.Do(t, e.QP.Close())
	if err := l.Port.Leave(group.Addr()); err == nil {
		t.Error("the port is still in the group")
	}
}

func TestMulticastNeedsGroupLink(t *testing.T) {
	e := newUDEnd(t, func(p *sim.Port) link.PacketLink { return struct{ link.PacketLink }{p} })
	must.Fail(t, "attach", e.QP.AttachMulticast(group), verbs.ErrNotSupported, "link has no multicast groups")
}
