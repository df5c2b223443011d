package roce

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/fabrictest/fabrictest/conformance/model"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// hostWord returns the number in the first eight bytes, in host byte order.
func hostWord(b []byte) uint64 { return binary.NativeEndian.Uint64(b) }

// rcInvalid is a step that sends a request which the device must refuse.
type rcInvalid struct {
	which int       // index in rcInvalidRequests
	op    ib.Opcode // of a request with an access fault
	extra int       // a random number for further choices
}

const rcPastKey = "a key that is no longer valid"

// rcInvalidRequest makes requests with one fault.
type rcInvalidRequest struct {
	group  rcFaultGroup
	name   string
	packet func(*rcResponder, rcInvalid) ib.Packet
}

// rcFaultGroup is a group of faults of requests.
type rcFaultGroup int

const (
	rcFaultForm       rcFaultGroup = iota // order of opcodes, sum of lengths, alignment
	rcFaultLength                         // length of a packet
	rcFaultReserved                       // reserved opcode
	rcFaultAccess                         // key, range or right
	rcFaultInvalidate                     // key to invalidate
)

// rcInvalidRequests are requests with one fault. Those about access have the opcode of the step.
var rcInvalidRequests = []rcInvalidRequest{
	{rcFaultForm, "an SRQ that does not exist, or an opcode out of order", func(s *rcResponder, v rcInvalid) ib.Packet {
		if s.service == ib.XRC && v.extra%2 == 0 {
			return s.packet(ib.OpSendOnly).OnXRC(0xfffff0)
		}
		// Without a message in progress, the opcodes that continue one are out of order.
		wrong := []ib.Opcode{ib.OpSendMiddle, ib.OpSendLast, ib.OpSendLastImm, ib.OpWriteMiddle, ib.OpWriteLast, ib.OpWriteLastImm}
		if kind, open := s.m.OpenKind(); open {
			// Else it is those that start one, or continue one of another kind.
			wrong = []ib.Opcode{ib.OpSendFirst, ib.OpSendOnly, ib.OpWriteFirst, ib.OpWriteOnly, ib.OpWriteOnlyImm, ib.OpReadRequest}
			if kind == ib.KindWrite {
				wrong = append(wrong, ib.OpSendMiddle, ib.OpSendLast, ib.OpSendLastImm)
			} else {
				wrong = append(wrong, ib.OpWriteMiddle, ib.OpWriteLast)
			}
		}
		return s.packet(wrong[v.extra%len(wrong)])
	}},
	{rcFaultReserved, "a reserved opcode", func(s *rcResponder, v rcInvalid) ib.Packet {
		return s.packet(ib.OpSendOnly).WithOpcode([]ib.Opcode{0x15, 0x18, 0x19, 0x1a, 0x1b, 0x1e, 0x1f}[v.extra%7])
	}},
	{rcFaultLength, "ONLY longer than the path MTU", func(s *rcResponder, v rcInvalid) ib.Packet {
		n := s.m.MTU + 4
		if v.extra%2 == 0 {
			return ib.SendOnly(s.m.ExpectedPSN(), rig.Pattern(n, 1)).AckReq()
		}
		return ib.WriteOnly(s.m.ExpectedPSN(), ib.At(s.regions[0].key.Addr, s.regions[0].rkey, n), rig.Pattern(n, 1)).AckReq()
	}},
	{rcFaultLength, "FIRST or MIDDLE that is not full", func(s *rcResponder, v rcInvalid) ib.Packet {
		op := []ib.Opcode{ib.OpSendFirst, ib.OpWriteFirst}[v.extra%2]
		if kind, open := s.m.OpenKind(); open {
			op = ib.OpSendMiddle
			if kind == ib.KindWrite {
				op = ib.OpWriteMiddle
			}
		}
		return s.packet(op).WithPayload(rig.Pattern(s.m.MTU-4, 1))
	}},
	{rcFaultLength, "LAST of a wrong length", func(s *rcResponder, v rcInvalid) ib.Packet {
		n := []int{0, s.m.MTU + 4}[v.extra%2]
		op := ib.OpSendLast
		if kind, _ := s.m.OpenKind(); kind == ib.KindWrite {
			op = ib.OpWriteLast
			if left := s.m.Remaining(); left <= s.m.MTU {
				n = []int{0, s.m.MTU + 4, left - 1, min(left+1, s.m.MTU+4)}[v.extra%4]
			}
		}
		return s.packet(op).WithPayload(rig.Pattern(n, 1))
	}},
	{rcFaultForm, "a WRITE with a wrong PadCnt", func(s *rcResponder, v rcInvalid) ib.Packet {
		return s.packet(ib.OpWriteOnly).WithPadCnt(uint8(1 + v.extra%3))
	}},
	{rcFaultForm, "WRITE of another length than announced", func(s *rcResponder, v rcInvalid) ib.Packet {
		p := s.packet(ib.OpWriteOnly)
		return p.WithRETH(p.RETH.Sized([]int{15, 17, 12, 24, 1}[v.extra%5]))
	}},
	{rcFaultLength, "a length of more than 2 GiB", func(s *rcResponder, v rcInvalid) ib.Packet {
		p := s.packet([]ib.Opcode{ib.OpReadRequest, ib.OpWriteFirst}[v.extra%2])
		return p.WithRETH(p.RETH.Sized(0x8000_0001))
	}},
	{rcFaultAccess, "an unknown key", func(s *rcResponder, v rcInvalid) ib.Packet {
		return s.access(v, ib.At(s.regions[0].key.Addr+8, s.regions[0].rkey^[]uint32{0x55, 0x55000000, 0x100}[v.extra%3], 8))
	}},
	{rcFaultAccess, "the key of another PD", func(s *rcResponder, v rcInvalid) ib.Packet {
		return s.access(v, ib.At(s.regions[0].key.Addr+8, s.foreign.RKey(), 8))
	}},
	{rcFaultAccess, rcPastKey, func(s *rcResponder, v rcInvalid) ib.Packet {
		g := v.choose(s.invalidKeys(v.op))
		if g == nil {
			return s.access(v, ib.At(s.regions[0].key.Addr+8, s.regions[0].rkey+1, 8))
		}
		return s.access(v, ib.At(g.key.Addr, g.rkey, 8))
	}},
	{rcFaultAccess, "a range that ends after the region", func(s *rcResponder, v rcInvalid) ib.Packet {
		g := v.region(s)
		return s.access(v, ib.At(g.key.Addr+uint64(g.key.Len)-7+uint64(v.extra%8), g.rkey, 8))
	}},
	{rcFaultAccess, "a range that begins before the region", func(s *rcResponder, v rcInvalid) ib.Packet {
		g := v.region(s)
		return s.access(v, ib.At(g.key.Addr-8-uint64(v.extra%2*7), g.rkey, 8+v.extra%2*7))
	}},
	{rcFaultAccess, "a range that wraps around 2^64", func(s *rcResponder, v rcInvalid) ib.Packet {
		return s.access(v, ib.At(uint64(math.MaxUint64-7), s.regions[0].rkey, 8))
	}},
	{rcFaultAccess, "a region or window without the right", func(s *rcResponder, v rcInvalid) ib.Packet {
		info, _ := v.op.Info()
		g := v.choose(slices.DeleteFunc(slices.Clone(s.regions), func(g *rcRegion) bool {
			return g.key.Access&rcRights[info.Kind] != 0 || g.key.Len < 16
		}))
		return s.access(v, ib.At(g.key.Addr, g.rkey, 8))
	}},
	{rcFaultForm, "an ATOMIC WRITE of a wrong length or address", func(s *rcResponder, v rcInvalid) ib.Packet {
		at := rcRequest{at: 40}.word(s, verbs.AccessRemoteWrite)
		if !s.conn.Caps.Has(verbs.CapAtomicWrite) {
			return s.packet(ib.OpSendMiddle)
		}
		n := []int{4, 0, 16, 8}[v.extra%4]
		return ib.AtomicWrite(s.m.ExpectedPSN(), ib.At(*at.VA+uint64(n/8%2*4), *at.RKey, n), rig.Pattern(n, 1))
	}},
	{rcFaultForm, "a misaligned atomic", func(s *rcResponder, v rcInvalid) ib.Packet {
		at := rcRequest{at: 40}.word(s, verbs.AccessRemoteAtomic)
		return ib.FetchAdd(s.m.ExpectedPSN(), ib.At(*at.VA+1+uint64(v.extra%7), *at.RKey, 8), 3)
	}},
	{rcFaultInvalidate, "an unknown key to invalidate", func(s *rcResponder, v rcInvalid) ib.Packet {
		return ib.SendOnlyInv(s.m.ExpectedPSN(), s.regions[0].rkey^0x5500, rig.Pattern(8, 1)).AckReq()
	}},
	{rcFaultInvalidate, "the key of a region to invalidate", func(s *rcResponder, v rcInvalid) ib.Packet {
		return ib.SendOnlyInv(s.m.ExpectedPSN(), s.regions[v.extra%len(rcFixedRegions)].rkey, rig.Pattern(8, 1)).AckReq()
	}},
}

// rcRights are the rights that operations need.
var rcRights = map[ib.Kind]verbs.Access{
	ib.KindWrite: verbs.AccessRemoteWrite, ib.KindReadRequest: verbs.AccessRemoteRead,
	ib.KindAtomic: verbs.AccessRemoteAtomic, ib.KindAtomicWrite: verbs.AccessRemoteWrite, ib.KindFlush: verbs.AccessFlushGlobal,
}

// drawRCInvalid returns a request with a random fault, of an operation that the service has and the
// device supports.
func drawRCInvalid(s *rcResponder, random *rand.Rand) rcStep {
	ops := []ib.Opcode{ib.OpWriteOnly, ib.OpWriteOnlyImm, ib.OpReadRequest}
	switch {
	case s.service == ib.UC:
		ops = ops[:2]
	case s.conn.Caps.Has(verbs.CapAtomics):
		ops = append(ops, ib.OpFetchAdd, ib.OpCompareSwap)
	}
	if s.service == ib.RC && s.conn.Caps.Has(verbs.CapAtomicWrite) {
		ops = append(ops, ib.OpAtomicWrite)
	}
	faults := len(rcInvalidRequests)
	if !s.conn.Caps.Has(verbs.CapSendInv) || s.service != ib.RC { // those about invalidation are the last
		faults = slices.IndexFunc(rcInvalidRequests, func(r rcInvalidRequest) bool { return r.group == rcFaultInvalidate })
	}
	return rcInvalid{random.IntN(faults), rig.Pick(random, ops...), random.IntN(1000)}
}

// drawRCFault returns a request with a fault of these groups.
func drawRCFault(s *rcResponder, random *rand.Rand, groups ...rcFaultGroup) rcInvalid {
	for {
		v := drawRCInvalid(s, random).(rcInvalid)
		if slices.Contains(groups, rcInvalidRequests[v.which].group) {
			return v
		}
	}
}

// drawRCRefusal returns a request with a fault that no known device handles wrongly, so that
// dialogues with known devices do not end early.
func drawRCRefusal(s *rcResponder, random *rand.Rand) rcStep {
	v := drawRCFault(s, random, rcFaultForm, rcFaultAccess)
	if v.op == ib.OpWriteOnlyImm {
		v.op = ib.OpWriteOnly
	}
	return v
}

// drawRCFlushRefusal returns a FLUSH with a wrong key, range or right.
func drawRCFlushRefusal(s *rcResponder, random *rand.Rand) rcStep {
	v := drawRCFault(s, random, rcFaultAccess)
	v.op = ib.OpFlush
	return v
}

// drawRCLength returns a packet with a wrong length.
func drawRCLength(s *rcResponder, random *rand.Rand) rcStep {
	return drawRCFault(s, random, rcFaultLength)
}

// drawRCAccess returns a request with a wrong key, range or right. In at least one of three, the
// key is no longer valid.
func drawRCAccess(s *rcResponder, random *rand.Rand) rcStep {
	v := drawRCFault(s, random, rcFaultAccess, rcFaultInvalidate)
	if random.IntN(3) == 0 {
		v.which = slices.IndexFunc(rcInvalidRequests, func(r rcInvalidRequest) bool { return r.name == rcPastKey })
	}
	return v
}

func (v rcInvalid) String() string {
	return fmt.Sprintf("a request with a fault: %s (%v, %d)", rcInvalidRequests[v.which].name, v.op, v.extra)
}

func (v rcInvalid) play(s *rcResponder) {
	s.send(false, s.on(rcInvalidRequests[v.which].packet(s, v), v.extra))
}

// region returns a region or window of at least 16 bytes that grants the operation of the step.
func (v rcInvalid) region(s *rcResponder) *rcRegion {
	info, _ := v.op.Info()
	return v.choose(s.granting(rcRights[info.Kind], 16))
}

// invalidKeys returns regions and windows that granted an operation, and whose keys are no longer
// valid.
func (s *rcResponder) invalidKeys(op ib.Opcode) []*rcRegion {
	info, _ := op.Info()
	return slices.DeleteFunc(append(slices.Clone(s.past), s.regions...), func(g *rcRegion) bool {
		return s.m.Keys[g.rkey] != nil || g.key.Access&rcRights[info.Kind] == 0 || g.key.Len < 16
	})
}

// choose returns one of the regions and windows, in half of the steps one of the last three, which
// are windows if there are any. It returns nil if all is empty.
func (v rcInvalid) choose(all []*rcRegion) *rcRegion {
	if v.extra%2 == 0 {
		all = all[max(0, len(all)-3):]
	}
	if len(all) == 0 {
		return nil
	}
	return all[v.extra/2%len(all)]
}

// access returns a request of the step's operation, for this memory. Atomics use the aligned word
// in which it begins.
func (s *rcResponder) access(v rcInvalid, at ib.RETH) ib.Packet {
	psn := s.m.ExpectedPSN()
	switch v.op {
	case ib.OpWriteOnly:
		return ib.WriteOnly(psn, at, rig.Pattern(int(*at.Len), 0x77)).AckReq()
	case ib.OpWriteOnlyImm:
		return ib.WriteOnlyImm(psn, at, 0x1020304, rig.Pattern(int(*at.Len), 0x77)).AckReq()
	case ib.OpReadRequest:
		return ib.ReadRequest(psn, at)
	case ib.OpFlush:
		return ib.Flush(psn, ib.FlushGlobal, ib.FlushRange, at)
	}
	at = ib.At(*at.VA&^7, *at.RKey, 8)
	switch v.op {
	case ib.OpFetchAdd:
		return ib.FetchAdd(psn, at, 5)
	case ib.OpAtomicWrite:
		return ib.AtomicWrite(psn, at, rig.Pattern(8, 0x77))
	}
	return ib.CompareSwap(psn, at, 0, 1)
}

// rcBind is a step in which the application binds a window to a part of the first region.
type rcBind struct {
	kind   verbs.MWType
	at     rcPlace
	size   int
	access verbs.Access
}

// drawRCBind returns a bind of a window, or a request if the device has no windows.
func drawRCBind(s *rcResponder, random *rand.Rand) rcStep {
	kinds := []verbs.MWType{}
	if s.conn.Caps.Has(verbs.CapMWType1) {
		kinds = append(kinds, verbs.MWType1)
	}
	if s.conn.Caps.Has(verbs.CapMWType2) {
		kinds = append(kinds, verbs.MWType2, verbs.MWType2)
	}
	if len(kinds) == 0 {
		return drawRCRequest(s, random)
	}
	rights := []verbs.Access{verbs.AccessRemoteRead, verbs.AccessRemoteWrite, verbs.AccessRemoteRead | verbs.AccessRemoteWrite}
	if s.conn.Caps.Has(verbs.CapAtomics) {
		rights = append(rights, verbs.AccessRemoteAtomic, verbs.AccessRemoteRead|verbs.AccessRemoteWrite|verbs.AccessRemoteAtomic)
	}
	b := rcBind{rig.Pick(random, kinds...), drawRCPlace(random), rig.Pick(random, []int{1, 8, 64, 257, 1500, 1501}...), rig.Pick(random, rights...)}
	if b.kind == verbs.MWType2 && s.conn.Caps.Has(verbs.CapZeroBased) && random.IntN(3) == 0 {
		b.access |= verbs.AccessZeroBased
	}
	return b
}

func (b rcBind) String() string {
	return fmt.Sprintf("bind a window of %v to %d bytes %v with %v", b.kind, b.size, b.at, b.access)
}

// play binds a new window, unless the queue pair is not in RTS or there are many windows.
func (b rcBind) play(s *rcResponder) {
	if s.m.HasFailed() || s.conn.QueryQP(s.conn.QP).State != verbs.QPStateRTS || len(s.regions) > len(rcFixedRegions)+8 {
		return
	}
	s.compare()
	of := s.regions[0]
	off := b.at.in(of.key.Len, b.size)
	info := verbs.BindInfo{MR: of.mr, Addr: of.key.Addr + uint64(off), Length: uint64(b.size), Access: b.access}
	win := s.conn.bind(s.conn.newWindow(b.kind), info)
	g := &rcRegion{name: "a window", mw: win.mw, rkey: uint32(win.key), key: model.RCKey{
		Mem: s.target, Off: of.key.Off + off, Len: b.size, Addr: info.Addr, Access: b.access, CanInvalidate: b.kind == verbs.MWType2,
	}}
	if b.access&verbs.AccessZeroBased != 0 {
		g.key.Addr = 0
	}
	s.regions = append(s.regions, g)
	s.m.Keys[g.rkey] = &g.key
}

// rcInvalidate is a step in which the application frees a window, or invalidates it if it is of
// type 2.
type rcInvalidate struct {
	which int
	free  bool
}

func drawRCInvalidate(_ *rcResponder, random *rand.Rand) rcStep {
	return rcInvalidate{random.IntN(8), random.IntN(2) == 0}
}

func (v rcInvalidate) String() string {
	return fmt.Sprintf("invalidate window %d, free it: %v", v.which, v.free)
}

// play makes the key of a window invalid, if there is one and the queue pair is in RTS.
func (v rcInvalidate) play(s *rcResponder) {
	windows := s.regions[len(rcFixedRegions):]
	if len(windows) == 0 || s.m.HasFailed() || s.conn.QueryQP(s.conn.QP).State != verbs.QPStateRTS {
		return
	}
	if _, open := s.m.OpenKind(); open {
		return // a WRITE in progress may use the window
	}
	i := v.which % len(windows)
	g := windows[i]
	_, valid := s.m.Keys[g.rkey]
	switch {
	case v.free:
		s.conn.Must("a window that can be freed", g.mw.Close())
		s.regions = slices.Delete(s.regions, len(rcFixedRegions)+i, len(rcFixedRegions)+i+1)
	case valid && g.mw.Type() == verbs.MWType2 && s.conn.Caps.Has(verbs.CapLocalInv):
		s.ids++
		s.conn.PostSend(s.conn.QP, verbs.SendWR{WRID: s.ids, Opcode: verbs.OpLocalInv, Flags: verbs.SendSignaled, InvalidateRKey: verbs.RKey(g.rkey)})
		s.conn.ExpectCompletion(s.ids, verbs.WCSuccess)
	default:
		return
	}
	delete(s.m.Keys, g.rkey)
	s.past = append(s.past, g)
}

// rcRegister is a step in which the application deregisters a region, not the first, which windows
// are bound to, and registers it again with another key.
type rcRegister struct{ which int }

func drawRCRegister(_ *rcResponder, random *rand.Rand) rcStep { return rcRegister{random.IntN(8)} }

func (v rcRegister) String() string { return fmt.Sprintf("register region %d again", v.which) }

// play registers a region again, unless a message is in progress, which may use it.
func (v rcRegister) play(s *rcResponder) {
	if _, open := s.m.OpenKind(); open {
		return
	}
	i := 1 + v.which%(len(rcFixedRegions)-1)
	old := s.regions[i]
	s.conn.Must("a region that can be deregistered", old.mr.Close())
	delete(s.m.Keys, old.rkey)
	s.past = append(s.past, old)
	f := rcFixedRegions[i]
	s.regions[i] = s.register(f.name, f.off, f.n, s.granted(f.access))
	s.m.Keys[s.regions[i].rkey] = &s.regions[i].key
}

// rcModify is a step in which the application changes an attribute or the state of the queue pair.
type rcModify struct {
	what  int    // index in rcModifications
	value uint32 // random; the new value is derived from it
}

var rcModifications = []string{"to RTS", "min_rnr_timer", "access rights", "to SQD, max_dest_rd_atomic, and back", "to ERR"}

func drawRCModify(_ *rcResponder, random *rand.Rand) rcStep {
	return rcModify{random.IntN(len(rcModifications)), random.Uint32()}
}

func (v rcModify) String() string {
	return fmt.Sprintf("modify the QP: %s (%#x)", rcModifications[v.what], v.value)
}

// play makes the modification if the state of the queue pair permits it. It moves to ERR in one of
// four steps of that kind only.
func (v rcModify) play(s *rcResponder) {
	state := s.conn.QueryQP(s.conn.QP).State
	switch {
	case state == verbs.QPStateRTR && v.what == 0:
		s.conn.ToRTS(s.conn.QP, s.conn.Attr)
		s.m.InRTR = false
	case state != verbs.QPStateRTS:
	case v.what == 1:
		s.m.MinRNRTimer = uint8(v.value % 32)
		s.conn.Must("a new min_rnr_timer", s.conn.QP.Modify(verbs.QPAttr{State: state, MinRNRTimer: s.m.MinRNRTimer}, verbs.QPAttrState|verbs.QPAttrMinRNRTimer))
	case v.what == 2:
		if _, open := s.m.OpenKind(); open {
			return
		}
		all := s.granted(allAccess) &^ verbs.AccessLocalWrite &^ verbs.AccessMWBind
		revoked := []verbs.Access{0, 0, verbs.AccessRemoteRead, verbs.AccessRemoteWrite, verbs.AccessRemoteAtomic}[v.value%5]
		s.m.Access = all &^ revoked
		s.conn.Must("new access rights", s.conn.QP.Modify(verbs.QPAttr{State: state, Access: s.m.Access}, verbs.QPAttrState|verbs.QPAttrAccessFlags))
	case v.what == 3:
		s.conn.ToState(s.conn.QP, verbs.QPStateSQD)
		s.m.SetResources(1 + int(v.value%5))
		s.conn.Must("other responder resources", s.conn.QP.Modify(verbs.QPAttr{State: verbs.QPStateSQD, MaxDestRdAtomic: uint8(s.m.MaxDestRdAtomic)},
			verbs.QPAttrState|verbs.QPAttrMaxDestRdAtomic))
		s.send(false, s.packet(ib.OpWriteOnly))
		if !s.m.HasFailed() {
			s.conn.ToState(s.conn.QP, verbs.QPStateRTS)
		}
	case v.what == 4 && v.value%4 == 0:
		s.m.Fail()
		s.conn.ToState(s.conn.QP, verbs.QPStateErr)
	}
}
