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

// randBelow returns a number in [0, n).
func randBelow(s Source, n uint64) uint64 {
	hi, _ := bits.Mul64(s.Uint64(), n)
	return hi
}

func randHit(s Source, ppm uint32) bool { return randBelow(s, PPM) < uint64(ppm) }

// stage applies one Spec. A Source is nil if its kind is disabled.
type stage struct {
	spec Spec

	loss, burst, duplicate, reorder, jitter, corrupt, truncate, mark, queueMark Source

	inBadState    bool // of the Gilbert-Elliott model
	pacer         Pacer
	lastDeparture mono.Time // for KeepOrder
}

func newStage(spec Spec, source func(kind string) Source) *stage {
	s := &stage{spec: spec, pacer: Pacer{RateBps: spec.RateBps}}
	for _, k := range []struct {
		on   bool
		kind string
		to   *Source
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
		if k.on {
			*k.to = source(k.kind)
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

// decide draws what happens to the next packet.
func (s *stage) decide() (f decision) {
	if s.loss != nil {
		f.lost = randHit(s.loss, s.spec.LossPPM)
	}
	if s.burst != nil {
		f.lostInBurst = s.decideBurst()
	}
	if s.duplicate != nil {
		f.duplicate = randHit(s.duplicate, s.spec.DuplicatePPM)
	}
	if s.reorder != nil {
		f.reorder = randHit(s.reorder, s.spec.ReorderPPM)
	}
	if s.jitter != nil {
		f.jitter = time.Duration(randBelow(s.jitter, uint64(s.spec.Jitter)+1))
	}
	if s.corrupt != nil {
		f.corrupt, f.corruptAt = randHit(s.corrupt, s.spec.CorruptPPM), s.corrupt.Uint64()
	}
	if s.truncate != nil {
		f.truncate, f.truncateTo = randHit(s.truncate, s.spec.TruncatePPM), s.truncate.Uint64()
	}
	if s.mark != nil {
		f.mark = randHit(s.mark, s.spec.MarkPPM)
	}
	if s.queueMark != nil {
		f.queueMark = randBelow(s.queueMark, PPM)
	}
	return f
}

// decideBurst advances the Gilbert-Elliott chain by a packet, and draws its loss.
func (s *stage) decideBurst() (lost bool) {
	ge := &s.spec.Burst
	move := ge.ToBadPPM
	if s.inBadState {
		move = ge.ToGoodPPM
	}
	if randHit(s.burst, move) {
		s.inBadState = !s.inBadState
	}
	loss := ge.LossGoodPPM
	if s.inBadState {
		loss = ge.LossBadPPM
	}
	return randHit(s.burst, loss)
}

// applyStage appends the packets that s makes of o to out.
func (p *Pipe) applyStage(s *stage, now mono.Time, o Outcome, out []Outcome) []Outcome {
	f := s.decide()
	n := &p.counters
	d := &o.Datagram
	switch {
	case f.lost:
		n.Lost++
		return out
	case f.lostInBurst:
		n.LostInBurst++
		return out
	}
	if s.spec.RateBps > 0 {
		at, size := now.Add(o.Delay), d.IPBytes()
		queued := s.pacer.Backlog(at)
		if s.spec.QueueBytes > 0 && queued+int64(size) > int64(s.spec.QueueBytes) {
			n.Overflowed++
			return out
		}
		f.mark = f.mark || s.spec.QueueMarks.ShouldMark(queued, f.queueMark)
		o.Delay = s.pacer.Next(at, size).Sub(now)
	}
	if f.mark && d.ECNBits() != link.NotECT && d.ECNBits() != link.CE {
		d.TClass |= link.CE
		n.Marked++
	}
	if f.corrupt && len(d.Payload) > 0 {
		bit, _ := bits.Mul64(f.corruptAt, uint64(len(d.Payload))*8)
		p.flipBit(d, int(bit))
		n.Corrupted++
	}
	if f.truncate && len(d.Payload) > 0 {
		to, _ := bits.Mul64(f.truncateTo, uint64(len(d.Payload)))
		d.Payload = d.Payload[:to]
		n.Truncated++
	}
	o.Delay += s.spec.Delay + f.jitter
	if f.reorder {
		o.Delay += s.spec.ReorderDelay
		n.Reordered++
	} else if s.spec.KeepOrder {
		s.lastDeparture = max(s.lastDeparture, now.Add(o.Delay))
		o.Delay = s.lastDeparture.Sub(now)
	}
	out = append(out, o)
	if f.duplicate {
		o.Delay += s.spec.DuplicateDelay
		out = append(out, o)
		n.Duplicated++
	}
	return out
}
