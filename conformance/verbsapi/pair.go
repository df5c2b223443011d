package verbsapi

import (
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// qpPair is two queue pairs that talk to each other: near is of the device under test,
// far of its partner. A case asks for what both transports have, and link brings it
// about by what each needs.
type qpPair struct{ dut, partner *endpoint }

// endpoint is a queue pair, and the application around it.
type endpoint struct {
	// Rig is the application: its device, domain and completion queue.
	*rig.Rig
	qp verbs.QP
	// mem is where its messages come from and go to, and what its peer works on.
	mem *rig.Memory
	// ownCQ is where it completes, which is the rig's unless the case has chosen.
	sendCQ verbs.CQ
	// to is where its datagrams go; the zero value if it is connected.
	udDest verbs.UD
	// conn is its connection if the connection manager has made it.
	conn verbs.Conn
}

// setup is how a link is made. The zero value is a connection, or datagrams where the
// device has none, ready to send on both sides.
type setup struct {
	qpType verbs.QPType
	// caps are the sizes of both queue pairs; small ones if zero.
	caps verbs.QPCaps
	// change changes how the near queue pair is made.
	modifyInit func(*verbs.QPInit)
	// attr changes how both are connected by hand.
	modifyAttr func(*verbs.QPAttr)
	// rights are what peers may do with queue pairs and memory, if not everything.
	access verbs.Access
}

// onPair makes a case of a body that uses a link made like that.
func onPair(s setup, body func(*qpPair)) func(*conformance.Bench) error {
	return rig.Body(func(r *rig.Rig) { body(newPair(r, s)) })
}

// onReliable is onLink for cases that need a connection, or reliable datagrams: see
// [overBoth].
func onReliable(body func(*qpPair)) func(*conformance.Bench) error { return onPair(setup{}, body) }

// onDevices makes a case of a body that makes its links itself.
func onDevices(body func(*devices)) func(*conformance.Bench) error {
	return rig.Body(func(r *rig.Rig) { body(openPartner(r)) })
}

// alsoOverRD makes each case twice: for connections, and for datagrams where they are
// reliable, which have the same operations and the same rules for memory.
func alsoOverRD(cases []conformance.Case) []conformance.Case {
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

// newPair makes a link.
func newPair(r *rig.Rig, s setup) *qpPair { return openPartner(r).newPair(s) }

// devices is the device and its partner, each with an application, for links between
// them.
type devices struct{ dut, partner *rig.Rig }

// openPartner opens the partner.
func openPartner(r *rig.Rig) *devices {
	other, err := r.Partner()
	if err != nil {
		rig.Abort(fmt.Errorf("the partner: %w", err))
	}
	bench := *r.Bench
	bench.Device = other
	return &devices{dut: r, partner: rig.New(&bench)}
}

// newPair makes a link between the two. There may be several.
func (d *devices) newPair(s setup) *qpPair {
	if s.qpType == 0 {
		s.qpType = defaultQPType(d.dut)
	}
	l := &qpPair{dut: newEndpoint(d.dut, &s), partner: newEndpoint(d.partner, &setup{qpType: s.qpType, caps: s.caps, access: s.access})}
	l.connect(&s)
	return l
}

// defaultQPType is what a device talks by preference.
func defaultQPType(r *rig.Rig) verbs.QPType {
	if r.Caps.Has(verbs.CapRC) {
		return verbs.QPTypeRC
	}
	return verbs.QPTypeUD
}

const (
	memLen = 16 << 10
	qKey   = 0x11335577
)

// smallCaps is a queue pair that any device can make.
var smallCaps = verbs.QPCaps{MaxSendWR: 16, MaxRecvWR: 16, MaxSendSGE: 2, MaxRecvSGE: 2}

// newEndpoint makes a queue pair in INIT.
func newEndpoint(r *rig.Rig, s *setup) *endpoint {
	rights := s.access
	if rights == 0 {
		rights = remoteAccess(r)
	}
	e := &endpoint{Rig: r, mem: r.Memory(memLen, regionAccess(r, rights))}
	init := verbs.QPInit{Type: s.qpType, PD: r.PD, SendCQ: r.CQ, RecvCQ: r.CQ, Caps: s.caps}
	if s.caps == (verbs.QPCaps{}) {
		init.Caps = smallCaps
	}
	if s.modifyInit != nil {
		s.modifyInit(&init)
	}
	e.qp, e.sendCQ = newQP(r, init), init.SendCQ
	toInit(r, e.qp, rights)
	return e
}

// remoteAccess are all that a peer can have on this device.
func remoteAccess(r *rig.Rig) verbs.Access {
	a := verbs.AccessRemoteRead | verbs.AccessRemoteWrite
	if r.Caps.Has(verbs.CapAtomics) {
		a |= verbs.AccessRemoteAtomic
	}
	return a
}

// regionAccess are those of memory that peers have these rights on, and that windows
// can be bound to.
func regionAccess(r *rig.Rig, remote verbs.Access) verbs.Access {
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

// newDefaultQP makes a small queue pair of the service that the device prefers, in RESET.
func newDefaultQP(r *rig.Rig) verbs.QP {
	return newQP(r, verbs.QPInit{Type: defaultQPType(r), PD: r.PD, SendCQ: r.CQ, RecvCQ: r.CQ, Caps: smallCaps})
}
