package impair

import (
	"math/bits"
	"time"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// Source is a random generator, as *rand.Rand is.
type Source interface {
	Uint64() uint64
}

// randBelow returns a random number in [0, n).
func randBelow(s Source, n uint64) uint64 {
	hi, _ := bits.Mul64(s.Uint64(), n)
	return hi
}

// randHit returns true with a probability in millionths.
func randHit(s Source, ppm uint32) bool { return randBelow(s, PPM) < uint64(ppm) }

// stage applies one Spec. A Source is nil if its kind is disabled.
type stage struct {
	spec Spec

	loss, burst, duplicate, reorder, jitter, corrupt, truncate, mark, queueMark Source

	inBadState    bool // of the Gilbert-Elliott model
	pacer         Pacer
	lastDeparture mono.Time // for KeepOrder
}

// newStage returns a stage, which impairs packets as spec says. source returns the random source
// for a kind of impairment, and is called for the enabled kinds only.
func newStage(spec Spec, source func(kind string) Source) *stage {
	s := &stage{spec: spec, pacer: Pacer{RateBps: spec.RateBps}}
	for _, k := range []struct {
		enabled bool
		kind    string
		source  *Source
	}{
		{spec.LossPPM > 0, "loss", &s.loss},
		{spec.Burst != GilbertElliott{}, "burst", &s.burst},
		{spec.DuplicatePPM > 0, "duplicate", &s.duplicate},
		{spec.ReorderPPM > 0, "reorder", &s.reorder},
		{spec.Jitter > 0, "jitter", &s.jitter},
		{spec.CorruptPPM > 0, "corrupt", &s.corrupt},
		{spec.TruncatePPM > 0, "truncate", &s.truncate},
		{spec.MarkPPM > 0, "mark", &s.mark},
		{spec.QueueMarks != QueueMarks{}, "queue_mark", &s.queueMark},
	} {
		if k.enabled {
			*k.source = source(k.kind)
		}
	}
	return s
}

// decision is the set of random decisions for one packet. All are drawn before
// any is applied, so that no kind's random stream depends on another's result.
type decision struct {
	lost, lostInBurst, duplicate, reorder, corrupt, truncate, mark bool

	queueMark  uint64 // in [0, PPM)
	jitter     time.Duration
	corruptAt  uint64 // a fraction of the bits, in 2^-64
	truncateTo uint64 // a fraction of the bytes, in 2^-64
}

// decide draws the random decisions for the next packet. Impairments that are disabled have no
// source, and draw nothing.
func (s *stage) decide() (drawn decision) {
	if s.loss != nil {
		drawn.lost = randHit(s.loss, s.spec.LossPPM)
	}
	if s.burst != nil {
		drawn.lostInBurst = s.decideBurst()
	}
	if s.duplicate != nil {
		drawn.duplicate = randHit(s.duplicate, s.spec.DuplicatePPM)
	}
	if s.reorder != nil {
		drawn.reorder = randHit(s.reorder, s.spec.ReorderPPM)
	}
	if s.jitter != nil {
		drawn.jitter = time.Duration(randBelow(s.jitter, uint64(s.spec.Jitter)+1))
	}
	if s.corrupt != nil {
		drawn.corrupt, drawn.corruptAt = randHit(s.corrupt, s.spec.CorruptPPM), s.corrupt.Uint64()
	}
	if s.truncate != nil {
		drawn.truncate, drawn.truncateTo = randHit(s.truncate, s.spec.TruncatePPM), s.truncate.Uint64()
	}
	if s.mark != nil {
		drawn.mark = randHit(s.mark, s.spec.MarkPPM)
	}
	if s.queueMark != nil {
		drawn.queueMark = randBelow(s.queueMark, PPM)
	}
	return drawn
}

// decideBurst advances the Gilbert-Elliott model by a packet, and reports if the packet is lost.
func (s *stage) decideBurst() (lost bool) {
	ge := &s.spec.Burst
	changePPM := ge.ToBadPPM
	if s.inBadState {
		changePPM = ge.ToGoodPPM
	}
	if randHit(s.burst, changePPM) {
		s.inBadState = !s.inBadState
	}
	lossPPM := ge.LossGoodPPM
	if s.inBadState {
		lossPPM = ge.LossBadPPM
	}
	return randHit(s.burst, lossPPM)
}

// applyStage applies the impairments of s to the packet o, and appends the result to out: nothing
// if o is lost or overflows the queue, else o as changed and delayed, and perhaps a duplicate.
func (p *Pipe) applyStage(s *stage, now mono.Time, o Outcome, out []Outcome) []Outcome {
	drawn := s.decide()
	counters := &p.counters
	d := &o.Datagram
	switch {
	case drawn.lost:
		counters.Lost++
		return out
	case drawn.lostInBurst:
		counters.LostInBurst++
		return out
	}
	if s.spec.RateBps > 0 {
		at, size := now.Add(o.Delay), d.IPBytes()
		queued := s.pacer.Backlog(at)
		if s.spec.QueueBytes > 0 && queued+int64(size) > int64(s.spec.QueueBytes) {
			counters.Overflowed++
			return out
		}
		drawn.mark = drawn.mark || s.spec.QueueMarks.ShouldMark(queued, drawn.queueMark)
		o.Delay = s.pacer.Next(at, size).Sub(now)
	}
	if drawn.mark && d.ECNBits() != link.NotECT && d.ECNBits() != link.CE {
		d.TClass |= link.CE
		counters.Marked++
	}
	if drawn.corrupt && len(d.Payload) > 0 {
		bit, _ := bits.Mul64(drawn.corruptAt, uint64(len(d.Payload))*8) // scales the random number to [0, bits)
		p.flipBit(d, int(bit))
		counters.Corrupted++
	}
	if drawn.truncate && len(d.Payload) > 0 {
		to, _ := bits.Mul64(drawn.truncateTo, uint64(len(d.Payload))) // scales the random number to [0, length)
		d.Payload = d.Payload[:to]
		counters.Truncated++
	}
	o.Delay += s.spec.Delay + drawn.jitter
	if drawn.reorder {
		o.Delay += s.spec.ReorderDelay
		counters.Reordered++
	} else if s.spec.KeepOrder {
		s.lastDeparture = max(s.lastDeparture, now.Add(o.Delay))
		o.Delay = s.lastDeparture.Sub(now)
	}
	out = append(out, o)
	if drawn.duplicate {
		o.Delay += s.spec.DuplicateDelay
		out = append(out, o)
		counters.Duplicated++
	}
	return out
}
