package model

import (
	"time"

	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/verbs"
)

// CNPReceiver is the model of a device that sends CNPs for marked packets.
type CNPReceiver struct {
	// Interval is the longest time for which a CNP of a queue pair may stand for later marks.
	Interval time.Duration
	sent     map[verbs.QPN]time.Duration // the last CNP of each queue pair
	marks    []CNPMark
}

// CNPMark is a marked packet for which the device may send a CNP.
type CNPMark struct {
	QPN verbs.QPN // of the device's queue pair
	// CNP is the packet to be sent.
	CNP ib.Packet
	// Valid packets cause a CNP. Others, such as duplicates, may cause one.
	Valid bool
}

// MarkOf returns the mark of a packet, with all its fields set, whose sender has a queue pair.
func MarkOf(pkt ib.Packet, qpn verbs.QPN, sender uint32) CNPMark {
	cnp := ib.CNP().To(sender).Via(pkt.IP.Dst, pkt.IP.Src).WithPKey(*pkt.BTH.PKey)
	cnp = cnp.NoSE().NoAckReq().WithPadCnt(0).WithTVer(0).WithReserved(0, 0).WithPayload(make([]byte, 16))
	cnp.BTH.MigReq = new(false)
	return CNPMark{QPN: qpn, CNP: cnp, Valid: true}
}

// Mark notes that a marked packet has arrived.
func (r *CNPReceiver) Mark(m CNPMark) { r.marks = append(r.marks, m) }

// Required returns the queue pairs that have to send a CNP for the marks so far: those that have
// sent none for the interval.
func (r *CNPReceiver) Required(now time.Duration) map[verbs.QPN]bool {
	required := make(map[verbs.QPN]bool)
	for _, m := range r.marks {
		if last, ok := r.sent[m.QPN]; m.Valid && (!ok || now-last > r.Interval) {
			required[m.QPN] = true
		}
	}
	return required
}

// Take returns the queue pair that a CNP is of. It returns false if no mark is left that permits the
// CNP: a mark causes one CNP at most.
func (r *CNPReceiver) Take(cnp ib.Packet, now time.Duration) (verbs.QPN, bool) {
	for i, m := range r.marks {
		if m.CNP.Matches(cnp) {
			if r.sent == nil {
				r.sent = make(map[verbs.QPN]time.Duration)
			}
			r.sent[m.QPN] = now
			r.marks = append(r.marks[:i:i], r.marks[i+1:]...)
			return m.QPN, true
		}
	}
	return 0, false
}

// Expire forgets all marks: CNPs for them come too late now.
func (r *CNPReceiver) Expire() { r.marks = nil }
