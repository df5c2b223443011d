package device

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// groupLink is a link that records joins and leaves.
type groupLink struct {
	link.PacketLink
	log  []string
	fail error
}

func (l *groupLink) Join(a netip.Addr) error {
	l.log = append(l.log, "join "+a.String())
	return l.fail
}

func (l *groupLink) Leave(a netip.Addr) error {
	l.log = append(l.log, "leave "+a.String())
	return l.fail
}

// A queue pair joins a group on the link once, and leaves it with Detach. A failed join or leave
// changes nothing.
func TestLinkJoinsGroupOfAttachedQP(t *testing.T) {
	r := newRig(t, Hooks{})
	o, l := &Object{D: &r.Device}, new(groupLink)
	group := verbs.GIDFrom(netip.MustParseAddr("239.1.2.3"))
	var g McastGroups
	attach := func(a netip.Addr) error { l.log = append(l.log, "attach "+a.String()); return nil }
	detach := func(a netip.Addr) error { l.log = append(l.log, "detach "+a.String()); return nil }
	expect := func(want ...string) {
		t.Helper()
		if !slices.Equal(l.log, want) {
			t.Errorf("calls %q, want %q", l.log, want)
		}
		l.log = nil
	}
	l.fail = errors.New("no room")
	must.Fail(t, "a failed join", g.Attach(o, l, group, attach, detach), l.fail)
	expect("attach 239.1.2.3", "join 239.1.2.3", "detach 239.1.2.3")
	l.fail = nil
	must.Do(t, g.Attach(o, l, group, attach, detach))
	expect("attach 239.1.2.3", "join 239.1.2.3")
	must.Do(t, g.Attach(o, l, group, attach, detach))
	expect()
	l.fail = errors.New("no route")
	must.Fail(t, "a failed leave", g.Detach(o, l, group, detach), l.fail)
	expect("leave 239.1.2.3")
	l.fail = nil
	must.Do(t, g.Detach(o, l, group, detach))
	expect("leave 239.1.2.3", "detach 239.1.2.3")
	must.Do(t, g.Detach(o, l, group, detach)) // the NIC says whether that is an error
	expect("detach 239.1.2.3")
	must.Fail(t, "a link without groups", g.Attach(o, nil, group, attach, detach), verbs.ErrNotSupported)
	expect()
}
