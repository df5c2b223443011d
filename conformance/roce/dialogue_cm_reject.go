package roce

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"

	"github.com/fabrictest/fabrictest/conformance/model"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/verbs"
)

// Reasons of a REJ for an invalid REQ.
const (
	rejInvalidTransport ib.Reason = 9
	rejInvalidGID       ib.Reason = 12
)

// cmBadREQs are the faults for which the device must reject a REQ, with the permitted reasons. nil
// permits every reason: rdma_cm, the consumer of the CM, rejects such REQs with reasons of its
// choice.
var cmBadREQs = []struct {
	name    string
	reasons []ib.Reason
	change  func(*cmDialogue, *ib.REQ, *rand.Rand)
}{
	{"another version of the address header", nil, func(_ *cmDialogue, m *ib.REQ, r *rand.Rand) { m.Private[0] = uint8(1 + r.IntN(255)) }},
	{"another IP version", nil, func(_ *cmDialogue, m *ib.REQ, r *rand.Rand) {
		m.Private[1] = []uint8{0x00, 0x50, 0x70, 0xf0}[r.IntN(4)]
	}},
	{"a destination address that is not of the device", nil, func(s *cmDialogue, m *ib.REQ, _ *rand.Rand) {
		m.Private = ib.AddrHeader{SrcPort: cmSourcePort, Src: s.port.Peer, Dst: s.port.Peer}.Append(nil)
	}},
	{"another port space", []ib.Reason{ib.RejInvalidServiceID}, func(_ *cmDialogue, m *ib.REQ, _ *rand.Rand) {
		m.ServiceID = new(ib.ServiceID(ib.PortSpaceIB, cmPort))
	}},
	{"a port without a listener", []ib.Reason{ib.RejInvalidServiceID}, func(_ *cmDialogue, m *ib.REQ, _ *rand.Rand) {
		m.ServiceID = new(ib.ServiceID(ib.PortSpaceTCP, cmClosedPort))
	}},
	{"an unknown transport", []ib.Reason{rejInvalidTransport, ib.RejConsumer}, func(_ *cmDialogue, m *ib.REQ, r *rand.Rand) {
		m.Transport, m.ExtTransport = new(uint8(2+r.IntN(2))), new([]uint8{0, 2, 7}[r.IntN(3)])
	}},
	{"a destination GID that is not of the device", []ib.Reason{rejInvalidGID}, func(s *cmDialogue, m *ib.REQ, _ *rand.Rand) {
		m.RemoteGID = s.port.Peer
	}},
	{"a P_Key that the device does not have", nil, func(s *cmDialogue, m *ib.REQ, r *rand.Rand) { m.PKey = new(s.port.unreachablePKey(r)) }},
	{"a source GID that is not unicast", nil, func(s *cmDialogue, m *ib.REQ, r *rand.Rand) {
		m.LocalGID = []netip.Addr{netip.IPv6Unspecified(), netip.MustParseAddr("ff0e::1")}[r.IntN(2)]
		if s.port.Peer.Is4() {
			m.LocalGID = []netip.Addr{netip.IPv4Unspecified(), netip.MustParseAddr("224.0.1.1")}[r.IntN(2)]
		}
	}},
}

// reachablePKey returns a random P_Key with which a peer can reach the device: both are in the same
// partition, and at least one is a full member.
func (p *Port) reachablePKey(r *rand.Rand) uint16 {
	table := slices.DeleteFunc(p.pkeyTable(), func(k uint16) bool { return k == 0 })
	k := table[r.IntN(len(table))]
	if k&pkeyFullMember == 0 {
		return k | pkeyFullMember
	}
	if r.IntN(2) == 1 {
		return k &^ pkeyFullMember
	}
	return k
}

// unreachablePKey returns a P_Key of another partition, or of a limited member of a partition of
// which the device is a limited member, too.
func (p *Port) unreachablePKey(r *rand.Rand) uint16 {
	table := p.pkeyTable()
	i := slices.IndexFunc(table, func(k uint16) bool { return k != 0 && k&pkeyFullMember == 0 })
	if i >= 0 && r.IntN(2) == 0 {
		return table[i]
	}
	return p.Checker.PKey ^ 1<<r.IntN(15) // not bit 15, the membership
}

// checkRejectInfo fails the case if a REJ has additional information, except a GID of the device
// for an invalid one.
func (s *cmDialogue) checkRejectInfo(m ib.REJ) {
	ok := *m.InfoLen == 0
	if *m.Reason == rejInvalidGID && *m.InfoLen == 16 {
		ok = slices.ContainsFunc(s.gids, func(g verbs.GIDEntry) bool { return g.GID.Addr() == netip.AddrFrom16([16]byte(m.Info)).Unmap() })
	}
	s.port.Check(ok, "a REJ without additional information, or with a GID of the device for an invalid GID", "%d bytes: % x", *m.InfoLen, m.Info)
}

// refusedREQ has the peer send a REQ with one of cmBadREQs, and expects a REJ with a permitted
// reason.
func (s *cmDialogue) refusedREQ(_ *cmLink, step cmStep, r *rand.Rand) {
	id, tid := s.baseID^r.Uint32(), r.Uint64()
	c := &cmLink{peer: s.port.Peer, srcPort: 1}
	c.PeerID, c.PeerQPN = id, r.Uint32()&0xffffff
	req := s.drawREQ(c, r)
	rej := ib.REJ{RemoteCommID: &id, About: new(model.CMAboutREQ)}
	fault := cmBadREQs[r.IntN(len(cmBadREQs))]
	fault.change(s, &req, r)
	if slices.Contains(fault.reasons, ib.RejInvalidServiceID) {
		rej.LocalCommID = new(uint32(0)) // the device has no connection for this REQ
	}
	check := func(_ ib.MAD, m ib.Message, a Arrival) {
		got, _ := m.(ib.REJ)
		s.port.Check(fault.reasons == nil || slices.Contains(fault.reasons, *got.Reason),
			fmt.Sprintf("a REJ of a REQ with %s, with one of the reasons %v", fault.name, fault.reasons), "%v", a)
		s.checkRejectInfo(got)
	}
	n := s.transmit(c, tid, req, step)
	if cmFaults[step.fault].harmless {
		s.settle(slices.Repeat([]cmWant{{msg: rej, tid: &tid, to: c.peer, got: check}}, n)...)
	}
}

// staleREQ has the peer send a REQ with the QPN of an established connection. The device must
// reject it as stale, and disconnect the old connection.
func (s *cmDialogue) staleREQ(old *cmLink, step cmStep, r *rand.Rand) {
	step.twice = false // the device may accept the second REQ
	tid, c := r.Uint64(), &cmLink{peer: old.peer, srcPort: 1}
	c.PeerID, c.PeerQPN, c.PeerGUID = s.baseID^r.Uint32(), old.PeerQPN, old.PeerGUID
	s.checkApplication(old)
	s.transmit(c, tid, s.drawREQ(c, r), step)
	if cmFaults[step.fault].harmless {
		s.settle(cmWant{msg: model.CMReject(&c.PeerID, model.CMAboutREQ, model.CMRejectStale), tid: &tid, to: c.peer}, s.wantDREQ(old))
	}
}

// staleREP has the peer send a REP with the QPN of an established connection. The device must
// reject it as stale, and disconnect the old connection.
func (s *cmDialogue) staleREP(c *cmLink, step cmStep, r *rand.Rand) {
	connected := func(old *cmLink) bool {
		return old.State == model.CMEstablished && old.peer == c.peer && old.PeerGUID == c.PeerGUID
	}
	i := slices.IndexFunc(s.links, func(old *cmLink) bool { return connected(old) && !old.Active })
	if i < 0 || r.IntN(2) == 0 {
		i = slices.IndexFunc(s.links, connected)
	}
	if i < 0 {
		return
	}
	step.twice = false
	old, rep := s.links[i], s.peerREP(c, r)
	s.checkApplication(old)
	rep.QPN = &old.PeerQPN
	s.transmit(c, c.tid, rep, step)
	if !cmFaults[step.fault].harmless {
		return
	}
	s.settle(cmWant{msg: model.CMReject(&c.PeerID, model.CMAboutREP, model.CMRejectStale), tid: &c.tid, to: c.peer}, s.wantDREQ(old))
	_ = c.setup.task.Wait(byClock(s.port, 0, reorderLimit))
	if c.setup.done.Load() {
		c.State = model.CMIdle
	} else { // the device may also wait for another REP
		s.await(c, step, r)
	}
}

// cancel has the peer withdraw a REQ by a REJ, which has the device's communication ID if an MRA
// had it, or else the peer's GUID. A REJ with a wrong GUID withdraws nothing.
func (s *cmDialogue) cancel(c *cmLink, step cmStep, r *rand.Rand) {
	guid := c.PeerGUID
	if r.IntN(3) == 0 {
		guid ^= 1 << r.IntN(64) // a wrong one
	}
	rej := model.CMRejectGUID(&c.PeerID, new(uint32(0)), guid)
	if c.DeviceID != 0 && r.IntN(2) == 0 {
		rej = model.CMReject(&c.DeviceID, model.CMAboutOther, ib.RejConsumer)
		rej.LocalCommID = &c.PeerID
	}
	s.transmit(c, c.tid, rej, step)
	if cmFaults[step.fault].harmless {
		c.Receive(rej)
		s.settle()
	}
}
