package verbsapi

import (
	"errors"
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// Names of kinds of objects with which objects of other kinds are created.
const (
	domainKind, channelKind, eventCQKind, cqKind = "protection domain", "channel", "completion queue with a channel", "completion queue"
	srqKind, udKind, xrcdKind, targetKind        = "shared receive queue", "datagram queue pair", "XRC domain", "XRC target"
)

var objectKinds = []objectKind{
	{
		name:    domainKind,
		create:  func(s *objectSession, _ []closer, _ int) (closer, error) { return asCloser(s.Device.AllocPD()) },
		inspect: func(*objectSession, *object, int) func() { return func() {} },
		use: func(s *objectSession, o *object, n int) error {
			mr, err := o.handle.(verbs.PD).RegMR(verbs.MRInit{Buf: s.buf[:n%64]})
			if err != nil {
				return err
			}
			return mr.Close()
		},
	},
	{
		name: "memory region", uses: []string{domainKind},
		create: func(s *objectSession, used []closer, n int) (closer, error) {
			return asCloser(used[0].(verbs.PD).RegMR(s.regionInit(n)))
		},
		invalid: func(s *objectSession, used []closer, n int) error {
			access := []verbs.Access{verbs.AccessRemoteWrite, verbs.AccessRemoteAtomic, verbs.AccessRemoteWrite | verbs.AccessRemoteRead}[n%3]
			return errorOf(used[0].(verbs.PD).RegMR(verbs.MRInit{Buf: s.buf, Access: access}))
		},
		inspect: inspectRegion,
	},
	windowKind("memory window of type 1", verbs.CapMWType1, verbs.MWType1),
	windowKind("memory window of type 2", verbs.CapMWType2, verbs.MWType2),
	{
		name: "address handle", needs: verbs.CapUD, uses: []string{domainKind},
		create: func(s *objectSession, used []closer, n int) (closer, error) {
			return asCloser(used[0].(verbs.PD).CreateAH(s.addressTo(n)))
		},
		invalid: func(s *objectSession, used []closer, n int) error {
			attr := s.addressTo(n)
			attr.Port = []uint8{0, s.limits.Ports + 1}[n%2]
			return errorOf(used[0].(verbs.PD).CreateAH(attr))
		},
		inspect: func(s *objectSession, o *object, n int) func() {
			got := o.handle.(verbs.AH).Attr()
			s.Check(got == s.addressTo(n), fmt.Sprintf("%s to %+v", o.name, s.addressTo(n)), "%+v", got)
			return expectStable(s, o.name+" to", o.handle.(verbs.AH).Attr)
		},
	},
	{
		name: channelKind,
		create: func(s *objectSession, _ []closer, _ int) (closer, error) {
			return asCloser(s.Device.CreateCompChannel())
		},
		inspect: func(*objectSession, *object, int) func() { return func() {} },
		use: func(_ *objectSession, o *object, _ int) error {
			if _, err := o.handle.(verbs.CompChannel).Wait(0); !errors.Is(err, verbs.ErrTimeout) {
				return err
			}
			return nil
		},
	},
	cqObjectKind(cqKind, func([]closer) verbs.CompChannel { return nil }),
	cqObjectKind(eventCQKind, func(used []closer) verbs.CompChannel { return used[0].(verbs.CompChannel) }, channelKind),
	{
		name: srqKind, needs: verbs.CapSRQ, uses: []string{domainKind},
		create: func(s *objectSession, used []closer, n int) (closer, error) {
			return asCloser(s.Device.CreateSRQ(verbs.SRQInit{PD: used[0].(verbs.PD), MaxWR: 1 + n%9, MaxSGE: 1 + n%2}))
		},
		invalid: func(s *objectSession, used []closer, n int) error {
			init := verbs.SRQInit{PD: used[0].(verbs.PD), MaxWR: 4, MaxSGE: 1}
			switch n % 3 {
			case 0:
				init.MaxWR = s.limits.MaxSRQWR + 1
			case 1:
				init.MaxSGE = s.limits.MaxSRQSGE + 1
			default:
				init.PD = nil
			}
			return errorOf(s.Device.CreateSRQ(init))
		},
		inspect: func(s *objectSession, o *object, n int) func() {
			a := srqAttr(s.Rig, o.handle.(verbs.SRQ))
			s.Check(a.MaxWR >= 1+n%9 && a.MaxSGE >= 1+n%2, fmt.Sprintf("%d receives of %d entries or more", 1+n%9, 1+n%2), "%+v", a)
			return expectStable(s, o.name+" with", func() verbs.SRQAttr { return srqAttr(s.Rig, o.handle.(verbs.SRQ)) })
		},
		use: useSRQ,
	},
	qpObjectKind("queue pair", 0, domainKind, cqKind, eventCQKind),
	qpObjectKind("queue pair on a shared receive queue", verbs.CapSRQ, domainKind, cqKind, cqKind, srqKind),
	qpObjectKind(udKind, verbs.CapUD|verbs.CapMulticast, domainKind, eventCQKind, cqKind),
	{
		name: "group membership", needs: verbs.CapUD | verbs.CapMulticast, uses: []string{udKind},
		create: func(s *objectSession, used []closer, _ int) (closer, error) {
			m := &membership{used[0].(verbs.QP), s.nextGroup()}
			return m, m.qp.AttachMulticast(m.group)
		},
		inspect: func(*objectSession, *object, int) func() { return func() {} },
	},
	{
		name: xrcdKind, needs: verbs.CapXRC,
		create:  func(s *objectSession, _ []closer, _ int) (closer, error) { return asCloser(s.Device.OpenXRCD()) },
		inspect: func(*objectSession, *object, int) func() { return func() {} },
	},
	{
		name: "XRC shared receive queue", needs: verbs.CapXRC | verbs.CapSRQ, uses: []string{domainKind, xrcdKind, cqKind},
		create: func(s *objectSession, used []closer, n int) (closer, error) {
			return asCloser(s.Device.CreateSRQ(xrcSRQInit(used, n)))
		},
		invalid: func(s *objectSession, used []closer, n int) error {
			init := xrcSRQInit(used, n)
			switch n % 4 {
			case 0:
				init.XRCD = nil
			case 1:
				init.CQ = nil
			case 2:
				init.PD = nil
			default:
				init.MaxWR = s.limits.MaxSRQWR + 1
			}
			return errorOf(s.Device.CreateSRQ(init))
		},
		inspect: func(s *objectSession, o *object, _ int) func() {
			s.others(o, func(other *object) {
				n := o.handle.(verbs.SRQ).Number()
				s.Check(n != other.handle.(verbs.SRQ).Number(), "an SRQ number that no other SRQ has", "%#x, as %s", n, other.name)
			})
			return expectStable(s, o.name+" with", func() verbs.SRQAttr { return srqAttr(s.Rig, o.handle.(verbs.SRQ)) })
		},
		use: useSRQ,
	},
	{
		name: targetKind, needs: verbs.CapXRC, uses: []string{xrcdKind},
		create: func(s *objectSession, used []closer, _ int) (closer, error) {
			return asCloser(s.Device.CreateQP(verbs.QPInit{Type: verbs.QPTypeXRCRecv, XRCD: used[0].(verbs.XRCD)}))
		},
		inspect: inspectQP,
		use:     func(_ *objectSession, o *object, _ int) error { return errorOf(o.handle.(verbs.QP).Query()) },
	},
}

// xrcSRQInit returns the attributes of an XRC SRQ. n varies its size.
func xrcSRQInit(used []closer, n int) verbs.SRQInit {
	return verbs.SRQInit{PD: used[0].(verbs.PD), Type: verbs.SRQXRC, MaxWR: 1 + n%9, MaxSGE: 1, XRCD: used[1].(verbs.XRCD), CQ: used[2].(verbs.CQ)}
}

// asCloser converts the result of a verb that creates an object.
func asCloser[A closer](a A, err error) (closer, error) { return a, err }

// membership is the membership of a queue pair in a multicast group. Closing it leaves the group.
type membership struct {
	qp    verbs.QP
	group verbs.GID
}

func (m *membership) Close() error { return m.qp.DetachMulticast(m.group) }

// nextGroup returns a multicast group that no queue pair of the session has joined: its last byte
// is the number of objects created, which grows with each membership.
func (s *objectSession) nextGroup() verbs.GID {
	last := byte(len(s.objects))
	if s.Local[0].Is4() {
		return verbs.GID{10: 0xff, 11: 0xff, 12: 239, 13: 1, 14: 2, 15: last}
	}
	return verbs.GID{0: 0xff, 1: 0x0e, 15: last}
}

// regionInit returns the arguments for a region. n varies its length, rights and address.
func (s *objectSession) regionInit(n int) verbs.MRInit {
	access := []verbs.Access{
		0, verbs.AccessLocalWrite, verbs.AccessRemoteRead, verbs.AccessLocalWrite | rig.RemoteAccess(s.Rig),
		regionAccess(s.Rig, verbs.AccessRemoteRead),
	}[n%5]
	from := n % 128
	init := verbs.MRInit{Buf: s.buf[from : from+n/8%129], Access: access}
	if n%4 == 0 {
		init.Access |= verbs.AccessRelaxedOrdering // a hint
	}
	if n%3 == 0 {
		init.Addr = 0x7000_0000_0000 + uint64(n)
	}
	return init
}

// inspectRegion checks the length, the address and the keys of a new region. No other region may
// have its L_Key and, if it has remote rights, its R_Key. The returned function checks that they
// have not changed.
func inspectRegion(s *objectSession, o *object, n int) func() {
	mr, init := o.handle.(verbs.MR), s.regionInit(n)
	s.Check(mr.Len() == len(init.Buf), fmt.Sprintf("a region of %d bytes", len(init.Buf)), "%d", mr.Len())
	s.Check(init.Addr == 0 || mr.Addr() == init.Addr, fmt.Sprintf("a region at %#x", init.Addr), "%#x", mr.Addr())
	s.others(o, func(other *object) {
		m := other.handle.(verbs.MR)
		s.Check(m.LKey() != mr.LKey(), "an L_Key that no other region has", "%#x, as %s", mr.LKey(), other.name)
	})
	if init.Access&rig.RemoteAccess(s.Rig) != 0 {
		s.expectOwnRKey(o, mr.RKey())
	}
	type attrs struct {
		lkey verbs.LKey
		rkey verbs.RKey
		addr uint64
		len  int
	}
	return expectStable(s, o.name+" with", func() attrs { return attrs{mr.LKey(), mr.RKey(), mr.Addr(), mr.Len()} })
}

// expectOwnRKey fails the case if another region or window has the same R_Key, unless that is 0,
// which is not valid.
func (s *objectSession) expectOwnRKey(o *object, key verbs.RKey) {
	if key == 0 {
		return
	}
	for _, other := range s.objects {
		if k, ok := other.handle.(interface{ RKey() verbs.RKey }); ok && other != o && !other.Closed() {
			s.Check(k.RKey() != key, "an R_Key that no other object has", "%#x, as %s", key, other.name)
		}
	}
}

// windowKind returns the kind of memory windows of this type.
func windowKind(name string, needs verbs.Caps, kind verbs.MWType) objectKind {
	return objectKind{
		name: name, needs: needs, uses: []string{domainKind},
		create: func(_ *objectSession, used []closer, _ int) (closer, error) {
			return asCloser(used[0].(verbs.PD).AllocMW(kind))
		},
		invalid: func(_ *objectSession, used []closer, n int) error {
			return errorOf(used[0].(verbs.PD).AllocMW(verbs.MWType(3 + n%5)))
		},
		inspect: func(s *objectSession, o *object, _ int) func() {
			mw := o.handle.(verbs.MW)
			s.Check(mw.Type() == kind, fmt.Sprintf("a window of %v", kind), "%v", mw.Type())
			s.expectOwnRKey(o, mw.RKey())
			return expectStable(s, o.name+" with the key", mw.RKey)
		},
	}
}

// addressTo returns the address of the device itself. n varies traffic class, hop limit and flow
// label.
func (s *objectSession) addressTo(n int) verbs.AHAttr {
	attr := s.PathTo(s.Rig)
	attr.GRH.TrafficClass, attr.GRH.HopLimit = uint8(n%64)<<2, uint8(1+n%255)
	if isIB(s.Rig) {
		attr.GRH.FlowLabel = uint32(n) << 10 & 0xfffff
	}
	return attr
}

// cqObjectKind returns a kind of completion queues. channel returns the channel among the objects
// with which a CQ is created; nil for none.
func cqObjectKind(name string, channel func(used []closer) verbs.CompChannel, uses ...string) objectKind {
	return objectKind{
		name: name, uses: uses,
		create: func(s *objectSession, used []closer, n int) (closer, error) {
			return asCloser(s.Device.CreateCQ(verbs.CQInit{Depth: 1 + n%20, Channel: channel(used)}))
		},
		invalid: func(s *objectSession, used []closer, n int) error {
			return errorOf(s.Device.CreateCQ(verbs.CQInit{Depth: []int{0, -1, s.limits.MaxCQE + 1}[n%3], Channel: channel(used)}))
		},
		inspect: func(s *objectSession, o *object, n int) func() {
			cq := o.handle.(verbs.CQ)
			s.Check(cq.Depth() >= 1+n%20, fmt.Sprintf("a depth of %d or more", 1+n%20), "%d", cq.Depth())
			return func() {
				k, err := cq.Poll(make([]verbs.WC, 4))
				s.Check(k == 0 && err == nil, o.name+" that is empty", "%d completions, %v", k, err)
			}
		},
		use: func(s *objectSession, o *object, n int) error {
			cq, depth := o.handle.(verbs.CQ), 1+n%30
			if !s.Caps.Has(verbs.CapResizeCQ) {
				return errorOf(cq.Poll(make([]verbs.WC, 1)))
			}
			err := cq.Resize(depth)
			if err == nil {
				s.Check(cq.Depth() >= depth, fmt.Sprintf("a depth of %d or more", depth), "%d", cq.Depth())
			}
			return err
		},
	}
}

// useSRQ is the use function of SRQs (objectKind): it fails the case unless Modify refuses a limit
// beyond the size of the SRQ and changes nothing. For a closed SRQ it returns the error of Modify.
func useSRQ(s *objectSession, o *object, _ int) error {
	srq := o.handle.(verbs.SRQ)
	if o.Closed() {
		return srq.Modify(verbs.SRQAttr{Limit: 0}, verbs.SRQLimit)
	}
	size := srqAttr(s.Rig, srq).MaxWR
	s.MustFail("a limit beyond the size", srq.Modify(verbs.SRQAttr{Limit: size + 1}, verbs.SRQLimit), nil)
	o.expect()
	return nil
}

// qpObjectKind returns a kind of queue pairs, which are created with a domain, two completion
// queues and, if uses has a fourth name, an SRQ.
func qpObjectKind(name string, needs verbs.Caps, uses ...string) objectKind {
	init := func(s *objectSession, used []closer, n int) verbs.QPInit {
		init := verbs.QPInit{
			Type: rig.DefaultQPType(s.Rig), PD: used[0].(verbs.PD), SendCQ: used[1].(verbs.CQ), RecvCQ: used[2].(verbs.CQ),
			Caps: verbs.QPCaps{MaxSendWR: 1 + n%7, MaxRecvWR: 1 + n%5, MaxSendSGE: 1 + n%3, MaxRecvSGE: 1 + n%2},
		}
		if name == udKind {
			init.Type = verbs.QPTypeUD
		}
		if len(used) > 3 {
			init.SRQ = used[3].(verbs.SRQ)
		}
		return init
	}
	return objectKind{
		name: name, needs: needs, uses: uses,
		create: func(s *objectSession, used []closer, n int) (closer, error) {
			return asCloser(s.Device.CreateQP(init(s, used, n)))
		},
		invalid: func(s *objectSession, used []closer, n int) error {
			bad := init(s, used, n)
			s.spoil(&bad, n)
			return errorOf(s.Device.CreateQP(bad))
		},
		inspect: func(s *objectSession, o *object, n int) func() {
			if name == udKind { // a member of a group must be able to receive
				s.ToInit(o.handle.(verbs.QP), 0, qKey)
				s.ToRTR(o.handle.(verbs.QP), verbs.QPAttr{})
			}
			got := s.QueryQP(o.handle.(verbs.QP)).Caps
			s.Check(got.MaxSendWR >= 1+n%7 && (got.MaxRecvWR >= 1+n%5 || len(uses) > 3) && got.MaxSendSGE >= 1+n%3,
				"the capacities that were asked for, or more", "%+v", got)
			return inspectQP(s, o, n)
		},
		use: func(_ *objectSession, o *object, _ int) error { return errorOf(o.handle.(verbs.QP).Query()) },
	}
}

// spoil makes one of the arguments of CreateQP invalid, by n.
func (s *objectSession) spoil(init *verbs.QPInit, n int) {
	switch n % 8 {
	case 0:
		init.PD = nil
	case 1:
		init.SendCQ = nil
	case 2:
		init.RecvCQ = nil
	case 3:
		init.Type = 77
	case 4:
		init.Caps.MaxSendWR = s.limits.MaxQPWR + 1
	case 5:
		init.Caps.MaxSendSGE = s.limits.MaxSGE + 1
	case 6:
		init.Caps.MaxInline = s.limits.MaxInline + 1
	default:
		init.Caps.MaxRecvWR, init.SRQ = s.limits.MaxQPWR+1, nil
	}
}

// inspectQP fails the case if another queue pair has the QPN of a new one. The returned function
// checks that its attributes do not change.
func inspectQP(s *objectSession, o *object, _ int) func() {
	qp := o.handle.(verbs.QP)
	for _, other := range s.objects {
		if q, ok := other.handle.(verbs.QP); ok && other != o && !other.Closed() {
			s.Check(q.QPN() != qp.QPN(), "a QPN that no other queue pair has", "%#x, as %s", uint32(qp.QPN()), other.name)
		}
	}
	type attrs struct {
		qpn   verbs.QPN
		kind  verbs.QPType
		state verbs.QPState
		caps  verbs.QPCaps
	}
	return expectStable(s, o.name+" with", func() attrs {
		a := s.QueryQP(qp)
		if slices.ContainsFunc(o.used, func(u *object) bool { return u.kind.name == srqKind }) {
			a.Caps.MaxRecvWR, a.Caps.MaxRecvSGE = 0, 0 // not defined with an SRQ
		}
		return attrs{qp.QPN(), qp.Type(), a.State, a.Caps}
	})
}
