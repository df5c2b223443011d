package rd

import (
	"time"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	"github.com/fabrictest/fabrictest/emu/mono"
)

const (
	firstWindow  = 16 // congestion window of a new flow, in packets
	minWindow    = 4  // least congestion window, and that after a timeout
	firstReorder = 3
	maxReorder   = 48
	burst        = 32 // packets that may be sent at once in spite of pacing
)

// growWindow increases the congestion window after acked segments have arrived: in slow start it
// doubles with each round trip, afterwards it grows by one packet per round trip.
func (p *Peer) growWindow(acked int) {
	if p.cwnd < p.ssthresh {
		p.cwnd = uint16(min(int(p.cwnd)+acked, wire.Window))
		return
	}
	if p.credit += uint16(acked); p.credit >= p.cwnd {
		p.credit -= p.cwnd
		p.cwnd = min(p.cwnd+1, wire.Window)
	}
}

// reduceWindow reduces the congestion window to seven tenths, but not again until all packets that
// were in flight at the last reduction are acknowledged.
func (p *Peer) reduceWindow() {
	if p.una.Sub(p.recovery) >= 0 {
		p.setWindow(p.cwnd * 7 / 10)
	}
}

// setWindow reduces the congestion window to the given number of packets, and ends slow start at
// seven tenths of its former size.
func (p *Peer) setWindow(to uint16) {
	p.ssthresh = max(p.cwnd*7/10, minWindow)
	p.cwnd = max(to, minWindow)
	p.credit = 0
	p.recovery = p.sendNext
}

// paceInterval returns the time between two packets at a pace of 5/4 congestion windows per round
// trip. It divides 32 bits, which is faster than 64, because it is called twice for each packet.
func (p *Peer) paceInterval() time.Duration {
	return time.Duration(p.srtt / 5 * 4 / uint32(max(p.cwnd, 1)))
}

// paced reports whether pacing forbids another packet now. The peer may send a burst ahead of its
// pace, and then waits until it is only half a burst ahead.
func (p *Peer) paced(now mono.Time) bool {
	allowed := (burst - 1) * p.paceInterval() // the packet that exceeds it was sent, too
	if p.has(flagPaced) {
		allowed /= 2
	}
	p.setPaced(p.paceAt.Sub(now) > allowed)
	return p.has(flagPaced)
}

// setPaced sets or clears flagPaced, and counts the peers that have it.
func (p *Peer) setPaced(on bool) {
	switch {
	case on == p.has(flagPaced):
		return
	case on:
		p.layer.paced++
	default:
		p.layer.paced--
	}
	p.set(flagPaced, on)
}

// resumeAt returns when a peer that is delayed by pacing may send again.
func (p *Peer) resumeAt() mono.Time { return p.paceAt.Add(-burst / 2 * p.paceInterval()) }

// advancePace notes that a packet is sent now.
func (p *Peer) advancePace(now mono.Time) {
	p.paceAt = max(p.paceAt, now).Add(p.paceInterval())
}

// sampleRTT updates the smoothed round-trip time and its variation (RFC 6298).
func (p *Peer) sampleRTT(rtt time.Duration) {
	r := int64(max(min(rtt, 4*time.Second), 1))
	if p.srtt == 0 {
		p.srtt, p.rttvar = uint32(r), uint32(r/2)
		return
	}
	err := r - int64(p.srtt)
	p.srtt = uint32(max(int64(p.srtt)+err/8, 1))
	if err < 0 {
		err = -err
	}
	p.rttvar = uint32(int64(p.rttvar) + (err-int64(p.rttvar))/4)
}
