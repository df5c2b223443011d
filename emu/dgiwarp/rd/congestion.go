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

// congestion is the congestion control of a flow to a peer: window, round-trip time and pacing.
type congestion struct {
	paceAt           mono.Time // when the packets sent so far should have left
	recoveryEnd      wire.Seq  // the end of the packets in flight at the last reduction of cwnd
	srtt, rttvar     uint32    // nanoseconds
	cwnd, ssthresh   uint16    // packets
	ackedSinceGrowth uint16    // acknowledged packets since cwnd last grew, after slow start
}

// grow increases the congestion window after acked more segments have arrived: in slow start the
// window doubles with each round trip, afterwards it grows by one packet per round trip.
func (c *congestion) grow(acked int) {
	if c.cwnd < c.ssthresh {
		c.cwnd = uint16(min(int(c.cwnd)+acked, wire.Window))
		return
	}
	if c.ackedSinceGrowth += uint16(acked); c.ackedSinceGrowth >= c.cwnd {
		c.ackedSinceGrowth -= c.cwnd
		c.cwnd = min(c.cwnd+1, wire.Window)
	}
}

// reduceWindow reduces the congestion window to seven tenths, but not again until all packets that
// were in flight at the last reduction are acknowledged.
func (f *sendFlow) reduceWindow() {
	if f.una.Sub(f.cc.recoveryEnd) >= 0 {
		f.setWindow(f.cc.cwnd * 7 / 10)
	}
}

// setWindow reduces the congestion window to size packets, at least minWindow, and sets the
// slow-start threshold to seven tenths of the former window.
func (f *sendFlow) setWindow(size uint16) {
	c := &f.cc
	c.ssthresh = max(c.cwnd*7/10, minWindow)
	c.cwnd, c.ackedSinceGrowth, c.recoveryEnd = max(size, minWindow), 0, f.sent
}

// paceInterval returns the time between two packets at a pace of 5/4 congestion windows per round
// trip. It divides 32 bits, which is faster than 64, because it is called twice for each packet.
func (c *congestion) paceInterval() time.Duration {
	return time.Duration(c.srtt / 5 * 4 / uint32(max(c.cwnd, 1)))
}

// paced reports whether pacing forbids another packet to p now, and sets flagPaced accordingly. A
// flow may be a burst ahead of its pace, and then waits until it is only half a burst ahead.
func (p *Peer) paced(now mono.Time) bool {
	allowed := (burst - 1) * p.send.cc.paceInterval() // how far ahead of paceAt the flow may send
	if p.has(flagPaced) {
		allowed /= 2
	}
	p.setPaced(p.send.cc.paceAt.Sub(now) > allowed)
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

// resumeAt returns when a flow that is delayed by pacing may send again.
func (c *congestion) resumeAt() mono.Time { return c.paceAt.Add(-burst / 2 * c.paceInterval()) }

// sampleRTT updates the smoothed round-trip time and its variation (RFC 6298).
func (c *congestion) sampleRTT(rtt time.Duration) {
	r := int64(max(min(rtt, 4*time.Second), 1)) // srtt and rttvar are nanoseconds in 32 bits
	if c.srtt == 0 {
		c.srtt, c.rttvar = uint32(r), uint32(r/2)
		return
	}
	err := r - int64(c.srtt)
	c.srtt = uint32(max(int64(c.srtt)+err/8, 1))
	if err < 0 {
		err = -err
	}
	c.rttvar = uint32(int64(c.rttvar) + (err-int64(c.rttvar))/4)
}
