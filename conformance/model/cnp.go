package model

import (
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/conformance/packet/ib"
)

// CNPReceiver is the model of a device that sends CNPs for ECN-marked packets.
type CNPReceiver struct {
	// Interval is the longest time for which a CNP to a sender may stand for later marks.
	Interval time.Duration
	sent     map[CNPSender]time.Duration // the last CNP to each sender
	marks    []CNPMark
}

// CNPSender is a queue pair whose packets were marked.
type CNPSender struct {
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

// MarkOf returns the CNPMark of pkt, an ECN-marked packet with all fields set, with the CNP that it
// causes. senderQPN is the number of the queue pair that sent pkt.
func MarkOf(pkt ib.Packet, senderQPN uint32) CNPMark {
	cnp := ib.CNP().To(senderQPN).Via(pkt.IP.Dst, pkt.IP.Src).WithPKey(*pkt.BTH.PKey)
	cnp = cnp.NoSE().NoAckReq().WithPadCnt(0).WithTVer(0).WithReserved(0, 0).WithPayload(make([]byte, 16))
	cnp.BTH.MigReq = new(false)
	return CNPMark{CNP: cnp, Valid: true}
}

func senderOf(cnp ib.Packet) CNPSender { return CNPSender{cnp.IP.Dst, cnp.DestQP()} }

// Mark notes that a marked packet has arrived.
func (r *CNPReceiver) Mark(m CNPMark) { r.marks = append(r.marks, m) }

// Required returns the senders of valid marked packets that must get a CNP now, because they got
// none within the interval.
func (r *CNPReceiver) Required(now time.Duration) map[CNPSender]bool {
	required := make(map[CNPSender]bool)
	for _, m := range r.marks {
		if last, ok := r.sent[senderOf(m.CNP)]; m.Valid && (!ok || now-last > r.Interval) {
			required[senderOf(m.CNP)] = true
		}
	}
	return required
}

// Take notes a CNP of the device, and returns the sender that it is for. It returns false if no
// marked packet is left that permits the CNP: each permits one.
func (r *CNPReceiver) Take(cnp ib.Packet, now time.Duration) (CNPSender, bool) {
	for i, m := range r.marks {
		if m.CNP.Matches(cnp) {
			if r.sent == nil {
				r.sent = make(map[CNPSender]time.Duration)
			}
			r.sent[senderOf(cnp)] = now
			r.marks = append(r.marks[:i:i], r.marks[i+1:]...)
			return senderOf(cnp), true
		}
	}
	return CNPSender{}, false
}

// Expire forgets all marks: CNPs for them come too late now.
func (r *CNPReceiver) Expire() { r.marks = nil }
