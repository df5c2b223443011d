package impair

import (
	"errors"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/emu/mono"
)

// PPM is a million: a probability of one.
const PPM = 1_000_000

// Spec is a set of impairments by chance, for a span of time. The zero Spec does
// nothing.
type Spec struct {
	// From and Until bound when the Spec holds: From <= now < Until. Until 0
	// means for ever.
	From  mono.Time `json:"from,omitempty" yaml:"from,omitempty"`
	Until mono.Time `json:"until,omitempty" yaml:"until,omitempty"`

	// LossPPM loses packets independently of each other; Burst loses them in
	// runs.
	LossPPM uint32         `json:"loss_ppm,omitempty" yaml:"loss_ppm,omitempty"`
	Burst   GilbertElliott `json:"burst,omitzero" yaml:"burst,omitempty"`

	// DuplicatePPM sends a second copy DuplicateDelay behind the first.
	DuplicatePPM   uint32        `json:"duplicate_ppm,omitempty" yaml:"duplicate_ppm,omitempty"`
	DuplicateDelay time.Duration `json:"duplicate_delay,omitempty" yaml:"duplicate_delay,omitempty"`

	// ReorderPPM holds packets back for ReorderDelay, so that those behind can
	// overtake them.
	ReorderPPM   uint32        `json:"reorder_ppm,omitempty" yaml:"reorder_ppm,omitempty"`
	ReorderDelay time.Duration `json:"reorder_delay,omitempty" yaml:"reorder_delay,omitempty"`

	// Delay holds every packet; Jitter adds an evenly distributed time in
	// [0, Jitter], drawn for each. Jitter larger than the gap between packets
	// reorders them unless KeepOrder is set, which lets a packet leave no sooner
	// than the one before it (those that ReorderPPM picks excepted).
	Delay     time.Duration `json:"delay,omitempty" yaml:"delay,omitempty"`
	Jitter    time.Duration `json:"jitter,omitempty" yaml:"jitter,omitempty"`
	KeepOrder bool          `json:"keep_order,omitempty" yaml:"keep_order,omitempty"`

	// CorruptPPM flips one bit of the payload.
	CorruptPPM uint32 `json:"corrupt_ppm,omitempty" yaml:"corrupt_ppm,omitempty"`
	// TruncatePPM cuts the payload short, to any length below its own.
	TruncatePPM uint32 `json:"truncate_ppm,omitempty" yaml:"truncate_ppm,omitempty"`
	// MarkPPM marks packets of an ECN-capable transport as having met congestion.
	MarkPPM uint32 `json:"mark_ppm,omitempty" yaml:"mark_ppm,omitempty"`

	// RateBps passes no more than so many bits a second, IP headers included;
	// what waits for its turn is at most QueueBytes (0: any amount), and what
	// does not fit is lost.
	RateBps    uint64 `json:"rate_bps,omitempty" yaml:"rate_bps,omitempty"`
	QueueBytes int    `json:"queue_bytes,omitempty" yaml:"queue_bytes,omitempty"`
	// QueueMarks marks packets by how much waits when they come.
	QueueMarks QueueMarks `json:"queue_marks,omitzero" yaml:"queue_marks,omitempty"`
}

// QueueMarks marks packets of an ECN-capable transport by the length of the
// queue they meet: none up to MinBytes, every one above MaxBytes, and in between
// a share that grows evenly to MaxPPM. The zero value marks nothing.
type QueueMarks struct {
	MinBytes int    `json:"min_bytes" yaml:"min_bytes"`
	MaxBytes int    `json:"max_bytes" yaml:"max_bytes"`
	MaxPPM   uint32 `json:"max_ppm" yaml:"max_ppm"`
}

// Marks reports whether a packet that meets a queue of so many bytes is marked,
// with a number drawn evenly from [0, PPM).
func (m *QueueMarks) ShouldMark(queued int64, draw uint64) bool {
	low, high := int64(m.MinBytes), int64(m.MaxBytes)
	switch {
	case high == 0 || queued <= low:
		return false
	case queued > high:
		return true
	}
	return draw*uint64(high-low) < uint64(queued-low)*uint64(m.MaxPPM)
}

// GilbertElliott is a two-state model of bursty loss. Before each packet the
// channel moves between its good and its bad state, then loses the packet with
// the probability of the state it is in. It starts good.
//
// The long-run share of bad states is ToBadPPM / (ToBadPPM + ToGoodPPM), and a
// bad spell lasts PPM / ToGoodPPM packets on average.
type GilbertElliott struct {
	ToBadPPM    uint32 `json:"to_bad_ppm,omitempty" yaml:"to_bad_ppm,omitempty"`
	ToGoodPPM   uint32 `json:"to_good_ppm,omitempty" yaml:"to_good_ppm,omitempty"`
	LossBadPPM  uint32 `json:"loss_bad_ppm,omitempty" yaml:"loss_bad_ppm,omitempty"`
	LossGoodPPM uint32 `json:"loss_good_ppm,omitempty" yaml:"loss_good_ppm,omitempty"`
}

// Validate reports every field that makes no sense, with the reason.
func (s *Spec) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for _, p := range []struct {
		name string
		ppm  uint32
	}{
		{"loss_ppm", s.LossPPM},
		{"burst.to_bad_ppm", s.Burst.ToBadPPM},
		{"burst.to_good_ppm", s.Burst.ToGoodPPM},
		{"burst.loss_bad_ppm", s.Burst.LossBadPPM},
		{"burst.loss_good_ppm", s.Burst.LossGoodPPM},
		{"duplicate_ppm", s.DuplicatePPM},
		{"reorder_ppm", s.ReorderPPM},
		{"corrupt_ppm", s.CorruptPPM},
		{"truncate_ppm", s.TruncatePPM},
		{"mark_ppm", s.MarkPPM},
	} {
		if p.ppm > PPM {
			bad("%s: %d is more than %d, which is every packet", p.name, p.ppm, PPM)
		}
	}
	for _, d := range []struct {
		name string
		d    time.Duration
	}{
		{"duplicate_delay", s.DuplicateDelay},
		{"reorder_delay", s.ReorderDelay},
		{"delay", s.Delay},
		{"jitter", s.Jitter},
	} {
		if d.d < 0 {
			bad("%s: %v is negative", d.name, d.d)
		}
	}
	if s.From < 0 || (s.Until != 0 && s.Until <= s.From) {
		bad("from %v, until %v: an empty span (until 0 means for ever)", s.From, s.Until)
	}
	if s.ReorderPPM > 0 && s.ReorderDelay == 0 {
		bad("reorder_ppm: a packet held back for no time is not reordered: set reorder_delay")
	}
	if s.Burst != (GilbertElliott{}) && s.Burst.LossBadPPM == 0 && s.Burst.LossGoodPPM == 0 {
		bad("burst: loses nothing in either state: set loss_bad_ppm")
	}
	if s.QueueBytes < 0 {
		bad("queue_bytes: %d is negative", s.QueueBytes)
	}
	if s.QueueBytes > 0 && s.RateBps == 0 {
		bad("queue_bytes: without rate_bps nothing ever queues")
	}
	if m := s.QueueMarks; m != (QueueMarks{}) {
		switch {
		case s.RateBps == 0:
			bad("queue_marks: without rate_bps nothing ever queues")
		case m.MinBytes < 0 || m.MaxBytes < m.MinBytes || m.MaxBytes == 0:
			bad("queue_marks: from %d to %d bytes is no span", m.MinBytes, m.MaxBytes)
		case m.MaxPPM > PPM:
			bad("queue_marks.max_ppm: %d is more than %d, which is every packet", m.MaxPPM, PPM)
		}
	}
	return errors.Join(errs...)
}

// transparent reports that s does nothing at any time.
func (s *Spec) transparent() bool {
	span := *s
	span.From, span.Until, span.KeepOrder = 0, 0, false
	return span == Spec{}
}

func (s *Spec) active(now mono.Time) bool {
	return now >= s.From && (s.Until == 0 || now < s.Until)
}
