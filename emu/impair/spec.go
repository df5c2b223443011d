package impair

import (
	"errors"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/emu/mono"
)

// PPM is a million: a probability of one.
const PPM = 1_000_000

// Spec is a set of random impairments for a time span. The zero Spec has no effect.
type Spec struct {
	// The Spec applies while From <= now < Until. Until 0 means forever.
	From  mono.Time `json:"from,omitempty" yaml:"from,omitempty"`
	Until mono.Time `json:"until,omitempty" yaml:"until,omitempty"`

	// LossPPM drops packets independently; Burst drops them in bursts.
	LossPPM uint32         `json:"loss_ppm,omitempty" yaml:"loss_ppm,omitempty"`
	Burst   GilbertElliott `json:"burst,omitzero" yaml:"burst,omitempty"`

	// DuplicatePPM sends a second copy DuplicateDelay after the first.
	DuplicatePPM   uint32        `json:"duplicate_ppm,omitempty" yaml:"duplicate_ppm,omitempty"`
	DuplicateDelay time.Duration `json:"duplicate_delay,omitempty" yaml:"duplicate_delay,omitempty"`

	// ReorderPPM delays packets by ReorderDelay, so that later packets overtake them.
	ReorderPPM   uint32        `json:"reorder_ppm,omitempty" yaml:"reorder_ppm,omitempty"`
	ReorderDelay time.Duration `json:"reorder_delay,omitempty" yaml:"reorder_delay,omitempty"`

	// Delay delays every packet; Jitter adds a uniformly distributed time in [0, Jitter]. Jitter
	// larger than the gap between packets reorders them unless KeepOrder is set: then a packet
	// leaves no earlier than the previous one, except for packets that ReorderPPM selects.
	Delay     time.Duration `json:"delay,omitempty" yaml:"delay,omitempty"`
	Jitter    time.Duration `json:"jitter,omitempty" yaml:"jitter,omitempty"`
	KeepOrder bool          `json:"keep_order,omitempty" yaml:"keep_order,omitempty"`

	// CorruptPPM inverts one bit of the payload.
	CorruptPPM uint32 `json:"corrupt_ppm,omitempty" yaml:"corrupt_ppm,omitempty"`
	// TruncatePPM truncates the payload to a random shorter length.
	TruncatePPM uint32 `json:"truncate_ppm,omitempty" yaml:"truncate_ppm,omitempty"`
	// MarkPPM sets CE on packets with an ECT codepoint.
	MarkPPM uint32 `json:"mark_ppm,omitempty" yaml:"mark_ppm,omitempty"`

	// RateBps limits the rate, IP headers included. QueueBytes limits the queue
	// (0: unlimited); packets that do not fit are dropped.
	RateBps    uint64 `json:"rate_bps,omitempty" yaml:"rate_bps,omitempty"`
	QueueBytes int    `json:"queue_bytes,omitempty" yaml:"queue_bytes,omitempty"`
	// QueueMarks sets CE by the length of that queue.
	QueueMarks QueueMarks `json:"queue_marks,omitzero" yaml:"queue_marks,omitempty"`
}

// QueueMarks configures ECN marking by queue length: no packet up to MinBytes,
// every packet above MaxBytes, and in between with a probability that grows
// linearly to MaxPPM. The zero value disables marking.
type QueueMarks struct {
	MinBytes int    `json:"min_bytes" yaml:"min_bytes"`
	MaxBytes int    `json:"max_bytes" yaml:"max_bytes"`
	MaxPPM   uint32 `json:"max_ppm" yaml:"max_ppm"`
}

// ShouldMark reports whether to mark a packet that arrives when the queue holds queued bytes: never
// up to MinBytes, always above MaxBytes. In between, the probability grows linearly to MaxPPM; draw
// is a random number in [0, PPM). MaxBytes 0 disables marking.
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
// channel may change between its good and bad state, then drops the packet with
// the probability of its state. It starts good.
//
// The long-run share of the bad state is ToBadPPM / (ToBadPPM + ToGoodPPM), and
// it lasts PPM / ToGoodPPM packets on average.
type GilbertElliott struct {
	ToBadPPM    uint32 `json:"to_bad_ppm,omitempty" yaml:"to_bad_ppm,omitempty"`
	ToGoodPPM   uint32 `json:"to_good_ppm,omitempty" yaml:"to_good_ppm,omitempty"`
	LossBadPPM  uint32 `json:"loss_bad_ppm,omitempty" yaml:"loss_bad_ppm,omitempty"`
	LossGoodPPM uint32 `json:"loss_good_ppm,omitempty" yaml:"loss_good_ppm,omitempty"`
}

// Validate returns an error for every invalid field.
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
		name  string
		value time.Duration
	}{
		{"duplicate_delay", s.DuplicateDelay},
		{"reorder_delay", s.ReorderDelay},
		{"delay", s.Delay},
		{"jitter", s.Jitter},
	} {
		if d.value < 0 {
			bad("%s: %v is negative", d.name, d.value)
		}
	}
	if s.From < 0 || (s.Until != 0 && s.Until <= s.From) {
		bad("from %v, until %v: an empty span (until 0 means for ever)", s.From, s.Until)
	}
	if s.ReorderPPM > 0 && s.ReorderDelay == 0 {
		bad("reorder_ppm: a packet that is not delayed is not reordered: set reorder_delay")
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
			bad("queue_marks: %d to %d bytes is an empty or negative range", m.MinBytes, m.MaxBytes)
		case m.MaxPPM > PPM:
			bad("queue_marks.max_ppm: %d is more than %d, which is every packet", m.MaxPPM, PPM)
		}
	}
	return errors.Join(errs...)
}

// transparent reports whether s never has an effect.
func (s *Spec) transparent() bool {
	impairments := *s
	impairments.From, impairments.Until, impairments.KeepOrder = 0, 0, false // alone they impair nothing
	return impairments == Spec{}
}

// active reports whether s applies at now.
func (s *Spec) active(now mono.Time) bool {
	return now >= s.From && (s.Until == 0 || now < s.Until)
}
