package verbsapi

import (
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// link is two queue pairs that talk to each other: near is of the device under test,
// far of its partner. A case asks for what both transports have, and link brings it
// about by what each needs.
type link struct{ near, far *end }

// end is a queue pair, and the application around it.
type end struct {
	// Rig is the application: its device, domain and completion queue.
	*rig.Rig
	qp verbs.QP
	// mem is where its messages come from and go to, and what its peer works on.
	mem *rig.Memory
	// ownCQ is where it completes, which is the rig's unless the case has chosen.
	ownCQ verbs.CQ
	// to is where its datagrams go; the zero value if it is connected.
	to verbs.UD
	// conn is its connection if the connection manager has made it.
	conn verbs.Conn
}

// setup is how a link is made. The zero value is a connection, or datagrams where the
// device has none, ready to send on both sides.
type setup struct {
	kind verbs.QPType
	// caps are the sizes of both queue pairs; small ones if zero.
	caps verbs.QPCaps
	// change changes how the near queue pair is made.
	change func(*verbs.QPInit)
	// attr changes how both are connected by hand.
	attr func(*verbs.QPAttr)
	// rights are what peers may do with queue pairs and memory, if not everything.
	rights verbs.Access
}

// onLink makes a case of a body that uses a link made like that.
func onLink(s setup, body func(*link)) func(*conformance.Bench) error {
	return rig.Body(func(r *rig.Rig) { body(newLink(r, s)) })
}

// onReliable is onLink for cases that need a connection, or reliable datagrams: see
// [overBoth].
func onReliable(body func(*link)) func(*conformance.Bench) error { return onLink(setup{}, body) }

// onSides makes a case of a body that makes its links itself.
func onSides(body func(*sides)) func(*conformance.Bench) error {
	return rig.Body(func(r *rig.Rig) { body(r2(r)) })
}

// overBoth makes each case twice: for connections, and for datagrams where they are
// reliable, which have the same operations and the same rules for memory.
func overBoth(cases []conformance.Case) []conformance.Case {
	both := make([]conformance.Case, 0, 2*len(cases))
	for _, c := range cases {
		rd := c
		c.Needs |= verbs.CapRC
		c.Labels = append([]string{"service:rc"}, c.Labels...)
		rd.ID += "-over-rd"
		rd.Title += ", also over reliable datagrams"
		rd.Needs |= verbs.CapUD | verbs.CapRD
		rd.Setup.Reliable = true
		rd.Labels = []string{"service:rd"} // there is no hardware to harm
		both = append(both, c, rd)
	}
	return both
}

// newLink makes a link.
func newLink(r *rig.Rig, s setup) *link { return r2(r).link(s) }

// sides is the device and its partner, each with an application, for links between
// them.
type sides struct{ near, far *rig.Rig }

// r2 opens the partner.
func r2(r *rig.Rig) *sides {
	other, err := r.Partner()
	if err != nil {
		rig.Abort(fmt.Errorf("the partner: %w", err))
	}
	bench := *r.Bench
	bench.Device = other
	return &sides{near: r, far: rig.New(&bench)}
}

// link makes a link between the two. There may be several.
func (d *sides) link(s setup) *link {
	if s.kind == 0 {
		s.kind = service(d.near)
	}
	l := &link{near: newEnd(d.near, &s), far: newEnd(d.far, &setup{kind: s.kind, caps: s.caps, rights: s.rights})}
	l.connect(&s)
	return l
}

// service is what a device talks by preference.
func service(r *rig.Rig) verbs.QPType {
	if r.Caps.Has(verbs.CapRC) {
		return verbs.QPTypeRC
	}
	return verbs.QPTypeUD
}

const (
	memLen = 16 << 10
	qKey   = 0x11335577
)

// small is a queue pair that any device can make.
var small = verbs.QPCaps{MaxSendWR: 16, MaxRecvWR: 16, MaxSendSGE: 2, MaxRecvSGE: 2}

// newEnd makes a queue pair in INIT.
func newEnd(r *rig.Rig, s *setup) *end {
	rights := s.rights
	if rights == 0 {
		rights = remoteRights(r)
	}
	e := &end{Rig: r, mem: r.Memory(memLen, regionRights(r, rights))}
	init := verbs.QPInit{Type: s.kind, PD: r.PD, SendCQ: r.CQ, RecvCQ: r.CQ, Caps: s.caps}
	if s.caps == (verbs.QPCaps{}) {
		init.Caps = small
	}
	if s.change != nil {
		s.change(&init)
	}
	e.qp, e.ownCQ = newQP(r, init), init.SendCQ
	toInit(r, e.qp, rights)
	return e
}

// remoteRights are all that a peer can have on this device.
func remoteRights(r *rig.Rig) verbs.Access {
	a := verbs.AccessRemoteRead | verbs.AccessRemoteWrite
	if r.Caps.Has(verbs.CapAtomics) {
		a |= verbs.AccessRemoteAtomic
	}
	return a
}

// regionRights are those of memory that peers have these rights on, and that windows
// can be bound to.
func regionRights(r *rig.Rig, remote verbs.Access) verbs.Access {
	a := remote | verbs.AccessLocalWrite
	if r.Caps&(verbs.CapMWType1|verbs.CapMWType2) != 0 {
		a |= verbs.AccessMWBind
	}
	return a
}

// newQP makes a queue pair.
func newQP(r *rig.Rig, init verbs.QPInit) verbs.QP {
	qp, err := r.Device.CreateQP(init)
	r.Must(fmt.Sprintf("a queue pair of %v", init.Type), err)
	return qp
}

// plainQP makes a small queue pair of the service that the device prefers, in RESET.
func plainQP(r *rig.Rig) verbs.QP {
	return newQP(r, verbs.QPInit{Type: service(r), PD: r.PD, SendCQ: r.CQ, RecvCQ: r.CQ, Caps: small})
}
