package model

import (
	"errors"
	"fmt"
	"slices"
)

// Numbers of packets in the rules of a sender (dg/loss/4, dg/cc/1, dg/cc/2).
const (
	dgFirstWindow  = 16
	dgLeastWindow  = 4
	dgFirstReorder = 3
	dgMostReorder  = 48
)

// DGSender is a model of the sending end of a flow (RD) that always has data to send: which packets
// it may send and must send (dg/ack/2, dg/loss/3, dg/loss/4, dg/cc/1, dg/cc/2). The document leaves
// open when a SACKed packet counts for the congestion window, so that has two bounds.
type DGSender struct {
	// Una is the oldest packet that is not acknowledged, and Next the next new one.
	Una, Next uint32
	// ReceiveWindow is that of the last Ack.
	ReceiveWindow uint32

	packets   map[uint32]*dgTransmission
	sent      int   // transmissions
	arrived   []int // transmissions that have arrived
	reorder   int
	least     int // bounds of the congestion window
	most      int
	window    int // as it was observed; 0 if it is not known
	slowStart bool
	// threshold is the window up to which a sender may grow quickly after a timeout.
	threshold int
	// recoverAt ends the packets that were in flight when the window was last reduced.
	recoverAt uint32
	// ackedLeast and ackedMost count packets since the window grew.
	ackedLeast, ackedMost int
	resumed               bool // a packet was sent since the last Ack or timeout
}

// dgTransmission is the last transmission of a packet.
type dgTransmission struct {
	number  int
	arrived bool // acknowledged or SACKed
	lost    bool
}

// NewDGSender returns a sender that has sent nothing.
func NewDGSender() *DGSender {
	return &DGSender{ // least and most are the bounds of the congestion window
		ReceiveWindow: DGWindow, packets: make(map[uint32]*dgTransmission), reorder: dgFirstReorder,
		least: dgFirstWindow, most: dgFirstWindow, slowStart: true,
	}
}

// InFlight returns how many packets were sent and neither have arrived nor are lost.
func (s *DGSender) InFlight() (n int) {
	for _, p := range s.packets {
		if !p.arrived && !p.lost {
			n++
		}
	}
	return n
}

// Full reports whether the congestion window permits no packet.
func (s *DGSender) Full() bool { return s.InFlight() >= s.most }

// Missing returns the packets that no Ack has acknowledged or SACKed, in order.
func (s *DGSender) Missing() (all []uint32) {
	for seq := s.Una; seq != s.Next; seq++ {
		if !s.packets[seq].arrived {
			all = append(all, seq)
		}
	}
	return all
}

// Reorder returns how many packets sent later must arrive before a packet is lost.
func (s *DGSender) Reorder() int { return s.reorder }

// IsLost reports whether a packet has to be retransmitted.
func (s *DGSender) IsLost(seq uint32) bool { return s.packets[seq] != nil && s.packets[seq].lost }

// Send takes a packet of the device. If the packet is not permitted, the error says what is. The
// caller must not report retransmissions of the oldest packet after Busy, until the next Ack.
func (s *DGSender) Send(seq uint32) error {
	p := s.packets[seq]
	switch {
	case s.ReceiveWindow == 0:
		return errors.New("nothing but the oldest packet while the peer is busy")
	case s.Full():
		return fmt.Errorf("a congestion window of at most %d packets", s.most)
	case p != nil && p.lost:
		p.lost = false
	case seq != s.Next:
		return fmt.Errorf("packet %d, or one that is lost", s.Next)
	case seq-s.Una >= min(DGWindow, s.ReceiveWindow):
		return fmt.Errorf("a window of %d packets from %d on", min(DGWindow, s.ReceiveWindow), s.Una)
	default:
		p = new(dgTransmission)
		s.packets[seq] = p
		s.Next++
	}
	s.sent++
	p.number, s.resumed = s.sent, true
	return nil
}

// CheckPause is called when the device pauses to wait for an Ack. If it should have sent more, the
// error says what. Otherwise the packets in flight fill its congestion window, and show how large
// that is, unless the device has sent none since the last Ack.
func (s *DGSender) CheckPause() error {
	if s.ReceiveWindow == 0 { // the peer is busy
		return nil
	}
	n, lost := s.InFlight(), slices.ContainsFunc(s.Missing(), s.IsLost)
	if !lost && s.Next-s.Una >= min(DGWindow, s.ReceiveWindow) { // the receive window is full
		return nil
	}
	if n < s.least {
		return fmt.Errorf("%d packets in flight, or more", s.least)
	}
	if s.resumed {
		s.observe(n)
	}
	return nil
}

// observe notes that the congestion window is n. If it has grown since it was last observed, the
// packets whose acknowledgement made it grow do not count for the next growth.
func (s *DGSender) observe(n int) {
	switch {
	case s.window == 0: // the window is observed first, and may have grown before
		s.ackedLeast = 0
	case n > s.window:
		s.ackedLeast, s.ackedMost = 0, max(0, s.ackedMost-s.window)
	}
	s.least, s.most, s.window = n, n, n
}

// DGSenderAck is an Ack for the model of a sender: of the packets before Next, and those in Sacked.
type DGSenderAck struct {
	Next            uint32
	Sacked          []uint32
	Marked, Repeats bool
	Window          uint32
}

// Receive takes an Ack: it grows the congestion window, finds lost packets, and reduces the window
// after a loss or an Ack of ECN-marked packets, once for the packets in flight.
func (s *DGSender) Receive(a DGSenderAck) {
	s.resumed = false
	newlyArrived, acked := 0, int(a.Next-s.Una)
	for seq, p := range s.packets {
		if (int32(seq-a.Next) < 0 || slices.Contains(a.Sacked, seq)) && !p.arrived {
			p.arrived, p.lost = true, false
			s.arrived = append(s.arrived, p.number)
			newlyArrived++
		}
	}
	slices.Sort(s.arrived)
	s.arrived = s.arrived[max(0, len(s.arrived)-dgMostReorder):] // older ones do not matter
	for ; s.Una != a.Next; s.Una++ {
		delete(s.packets, s.Una)
	}
	s.ReceiveWindow = a.Window
	if a.Repeats {
		s.reorder = min(2*s.reorder, dgMostReorder)
	}
	before := s.least
	s.grow(newlyArrived, acked)
	if lost := s.findLost(); (lost || a.Marked) && int32(s.Una-s.recoverAt) >= 0 {
		s.reduce(before)
	}
}

// grow raises the bounds of the window after an Ack. newlyArrived is the number of packets that the
// Ack has acknowledged or SACKed for the first time, acked that of packets that it has acknowledged
// cumulatively. The document leaves open by which of the two numbers a window grows.
func (s *DGSender) grow(newlyArrived, acked int) {
	if s.slowStart {
		s.least, s.most = min(s.least+min(newlyArrived, acked), DGWindow), min(s.most+max(newlyArrived, acked), DGWindow)
		return
	}
	// The window grows by one packet after a window of packets or, after a timeout, up to the
	// threshold as in slow start.
	s.ackedLeast, s.ackedMost = s.ackedLeast+min(newlyArrived, acked), s.ackedMost+max(newlyArrived, acked)
	newMost := s.most
	switch {
	case s.least < s.threshold:
		newMost += max(newlyArrived, acked)
	case s.ackedMost >= s.least:
		newMost++
	}
	if s.ackedLeast >= s.most {
		s.least, s.ackedLeast = min(s.least+1, DGWindow), 0
	}
	s.most = min(newMost, DGWindow)
}

// findLost marks a packet as lost if at least s.reorder packets that were sent after it have
// arrived. It reports whether it has marked any.
func (s *DGSender) findLost() (found bool) {
	for _, p := range s.packets {
		if !p.arrived && !p.lost && s.later(p, s.arrived) >= s.reorder {
			p.lost, found = true, true
		}
	}
	return found
}

// later returns how many of the arrived transmissions, given by number, were sent after
// transmission p.
func (s *DGSender) later(p *dgTransmission, arrived []int) (n int) {
	for _, number := range arrived {
		if number > p.number {
			n++
		}
	}
	return n
}

// LeavesOpen reports whether the document leaves open how a sender reacts to an Ack, in one of two
// situations. A marked Ack is the first to acknowledge all packets that were in flight at the last
// reduction of the window: it may reduce the window again or not. Or enough packets were
// transmitted after a packet, but not enough of them have arrived: it may count as lost or not.
func (s *DGSender) LeavesOpen(a DGSenderAck) bool {
	if a.Marked && int32(s.Una-s.recoverAt) < 0 && int32(a.Next-s.recoverAt) >= 0 {
		return true
	}
	arrived := slices.Clone(s.arrived)
	for seq, p := range s.packets {
		if !p.arrived && (int32(seq-a.Next) < 0 || slices.Contains(a.Sacked, seq)) {
			arrived = append(arrived, p.number)
		}
	}
	if len(arrived) == 0 {
		return false
	}
	last := slices.Max(arrived)
	for seq, p := range s.packets {
		if int32(seq-a.Next) >= 0 && !p.arrived && !p.lost && !slices.Contains(a.Sacked, seq) &&
			last-p.number >= s.reorder && s.later(p, arrived) < s.reorder {
			return true
		}
	}
	return false
}

// reduce cuts the window to seven tenths. least is its lower bound before this Ack.
func (s *DGSender) reduce(least int) {
	s.least, s.most = max(least*7/10, dgLeastWindow), max((s.most*7+9)/10, dgLeastWindow)
	s.slowStart, s.recoverAt, s.ackedLeast, s.threshold, s.window = false, s.Next, 0, 0, 0
}

// Busy takes an Ack with window 0: the peer has dropped all packets that no Ack has acknowledged or
// SACKed, so they are lost.
func (s *DGSender) Busy() {
	s.ReceiveWindow, s.resumed = 0, false
	for _, p := range s.packets {
		p.lost = !p.arrived
	}
}

// Timeout is called when the device's timer expires: all packets that no Ack has acknowledged or
// SACKed are lost, and the window starts anew at its minimum. It may grow as in slow start up to
// the threshold: seven tenths of its upper bound before, rounded up.
func (s *DGSender) Timeout() {
	for _, p := range s.packets {
		p.lost = !p.arrived
	}
	threshold := (s.most*7 + 9) / 10
	s.reduce(s.least)
	s.least, s.most, s.threshold, s.reorder, s.resumed = dgLeastWindow, dgLeastWindow, threshold, dgFirstReorder, false
}
