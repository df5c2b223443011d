package model

import (
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/conformance/packet/ib"
)

// NotificationPoint is the model of a device that receives ECN-marked packets and sends CNPs for
// them, as DCQCN names it.
type NotificationPoint struct {
	// Interval is the longest time for which a CNP to a reaction point may stand for later marks.
	Interval time.Duration
	sent     map[ReactionPoint]time.Duration // the last CNP to each
	marks    []CNPMark
}

// ReactionPoint is a queue pair whose packets were marked, to which CNPs go.
type ReactionPoint struct {
	Addr netip.Addr
	QPN  uint32
}

// CNPMark is a marked packet for which the device may send a CNP.
type CNPMark struct {
	// CNP is the packet to be sent.
	CNP ib.Packet
	// Valid packets cause a CNP. Others, such as duplicates, may cause one.
	Valid bool
}

// MarkOf returns the CNPMark of pkt, a valid ECN-marked packet: the CNP that pkt causes. The P_Key
// and the addresses of pkt must be set. senderQPN is the number of the queue pair that sent pkt.
func MarkOf(pkt ib.Packet, senderQPN uint32) CNPMark {
	cnp := ib.CNP().To(senderQPN).Via(pkt.IP.Dst, pkt.IP.Src).WithPKey(*pkt.BTH.PKey)
	cnp = cnp.NoSE().NoAckReq().WithPadCnt(0).WithTVer(0).WithReserved(0, 0).WithPayload(make([]byte, 16))
	cnp.BTH.MigReq = new(false)
	return CNPMark{CNP: cnp, Valid: true}
}

func reactionPointOf(cnp ib.Packet) ReactionPoint { return ReactionPoint{cnp.IP.Dst, cnp.DestQP()} }

// Mark notes that a marked packet has arrived.
func (r *NotificationPoint) Mark(m CNPMark) { r.marks = append(r.marks, m) }

// Required returns the reaction points that must get a CNP now: their valid packets were marked, and
// they got none within the interval.
func (r *NotificationPoint) Required(now time.Duration) map[ReactionPoint]bool {
	required := make(map[ReactionPoint]bool)
	for _, m := range r.marks {
		if last, ok := r.sent[reactionPointOf(m.CNP)]; m.Valid && (!ok || now-last > r.Interval) {
			required[reactionPointOf(m.CNP)] = true
		}
	}
	return required
}

// Take notes a CNP of the device, and returns the reaction point that it is for. It returns false if no
// marked packet is left that permits the CNP: each permits one.
func (r *NotificationPoint) Take(cnp ib.Packet, now time.Duration) (ReactionPoint, bool) {
	for i, m := range r.marks {
		if m.CNP.Matches(cnp) {
			if r.sent == nil {
				r.sent = make(map[ReactionPoint]time.Duration)
			}
			r.sent[reactionPointOf(cnp)] = now
			r.marks = append(r.marks[:i:i], r.marks[i+1:]...)
			return reactionPointOf(cnp), true
		}
	}
	return ReactionPoint{}, false
}

// Expire forgets all marks: CNPs for them come too late now.
func (r *NotificationPoint) Expire() { r.marks = nil }
