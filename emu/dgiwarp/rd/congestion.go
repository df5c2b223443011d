package rd

import (
	"time"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	"github.com/fabrictest/fabrictest/emu/mono"
)

const (
	firstWindow  = 16 // packets under way before anything was acknowledged
	minWindow    = 4  // and after the worst of losses
	firstReorder = 3
	maxReorder   = 48
	burst        = 32 // packets that may leave at once, however slow the pace
)

// grow widens the window by what was acknowledged: twofold each round trip
// until the first loss, then by one packet each round trip.
func (p *Peer) grow(acked int) {
	if p.cwnd < p.ssthresh {
		p.cwnd = uint16(min(int(p.cwnd)+acked, wire.Window))
		return
	}
	if p.credit += uint16(acked); p.credit >= p.cwnd {
		p.credit -= p.cwnd
		p.cwnd = min(p.cwnd+1, wire.Window)
	}
}

// cut narrows the window to seven tenths, once for all that was under way when
// it was last cut.
func (p *Peer) cut() {
	if p.una.Sub(p.recovery) >= 0 {
		p.cutWindow(p.cwnd * 7 / 10)
	}
}

func (p *Peer) cutWindow(to uint16) {
	p.ssthresh = max(p.cwnd*7/10, minWindow)
	p.cwnd = max(to, minWindow)
	p.credit = 0
	p.recovery = p.sendNext
}

// interval is the time between two packets if a window of them, and a quarter
// more, is spread over a round trip. It is asked for twice a packet, and 32 bits
// are divided in a third of the time of 64.
func (p *Peer) interval() time.Duration {
	return time.Duration(p.srtt / 5 * 4 / uint32(max(p.cwnd, 1)))
}

// paced reports whether the pace forbids another packet now. It lets a burst
// leave too early, and then waits until half of one would have left.
func (p *Peer) paced(now mono.Time) bool {
	allowed := (burst - 1) * p.interval() // one more is out by the time that it is exceeded
	if p.has(flagPaced) {
		allowed /= 2
	}
	p.pace(p.paceAt.Sub(now) > allowed)
	return p.has(flagPaced)
}

// pace says whether the peer waits for its pace.
func (p *Peer) pace(waits bool) {
	switch {
	case waits == p.has(flagPaced):
		return
	case waits:
		p.layer.paced++
	default:
		p.layer.paced--
	}
	p.set(flagPaced, waits)
}

// resumeAt is when a peer that is held up by its pace goes on.
func (p *Peer) resumeAt() mono.Time { return p.paceAt.Add(-burst / 2 * p.interval()) }

func (p *Peer) spendPace(now mono.Time) {
	p.paceAt = max(p.paceAt, now).Add(p.interval())
}

// sampleRTT takes a measured round trip into account (RFC 6298).
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
