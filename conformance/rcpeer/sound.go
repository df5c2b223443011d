package rcpeer

import (
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
)

// Watch looks at every packet that a device sends, for what has to hold whatever a case
// is about: the ICRC, and what the transport headers may contain. What the network
// headers are like, and what is no more than a recommendation, is for cases of their own.
type Watch struct {
	// pkey is what queue pairs send if the device was told nothing else: the first of
	// the port's table. Of others, others has it by the peer's queue pair.
	pkey   uint16
	others map[uint32]uint16
	// congested is set once the device has reason to speak of congestion.
	congested bool
}

// NewWatch returns a watch of the rig's device.
func NewWatch(r *rig.Rig) *Watch {
	pkey, err := r.Device.QueryPKey(1, 0)
	r.Do("a P_Key table that can be read", err)
	return &Watch{pkey: pkey, others: make(map[uint32]uint16)}
}

// Expect tells that what is for this queue pair of the peer's has another P_Key.
func (w *Watch) Expect(qpn uint32, pkey uint16) { w.others[qpn] = pkey }

// Sent takes note of a packet that the device is sent.
func (w *Watch) Sent(p ib.Packet) {
	marked := p.IP.TClass != nil && *p.IP.TClass&3 == 3 || p.BTH.FECN != nil && *p.BTH.FECN
	w.congested = w.congested || marked
}

// demanded are the rules that every packet of every device has to follow.
var demanded = []ib.FaultRule{ib.FaultICRC, ib.FaultTVer, ib.FaultReserved, ib.FaultPayload, ib.FaultAckReq, ib.FaultSolicited}

// Sound ends the case unless a packet of the device's is as it must be.
func (w *Watch) Sound(r *rig.Rig, p ib.Packet) {
	for _, f := range p.Faults(0) {
		if slices.Contains(demanded, f.Rule) {
			r.Fail(string(f.Rule), "%v: %s", p, f.Found)
		}
	}
	if p.Opcode() == ib.OpCNP {
		return // which has the P_Key of what it answers, and says congestion
	}
	// Queue pair 1 answers in whichever partition it was asked.
	pkey, other := w.others[p.DestQP()]
	if !other {
		pkey = w.pkey
	}
	if p.DestQP() != ib.GSIQPN && *p.BTH.PKey != pkey {
		r.Fail(fmt.Sprintf("the P_Key of the queue pair, %#04x", pkey), "%v with P_Key %#04x", p, *p.BTH.PKey)
	}
	if !w.congested && (*p.BTH.FECN || *p.BTH.BECN) {
		r.Fail("no word of congestion where nothing was marked", "%v with FECN %v, BECN %v", p, *p.BTH.FECN, *p.BTH.BECN)
	}
}

// AllOfICRC ends a case about ICRCs where not all is seen that they cover: over IPv4, by
// sockets. What [Watch.Sound] looks at is then whether one is right for any header that a
// packet may have had.
func (p *Port) AllOfICRC() {
	if p.Sockets && p.Local[0].Is4() {
		rig.End(fmt.Errorf("%w: sockets do not show the identification and the flags of IPv4, which the ICRC covers", conformance.ErrCannot))
	}
}
